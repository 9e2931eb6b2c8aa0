/* SPDX-License-Identifier: Apache-2.0 */
/* health.c - the one line, and the exit code, for an incomplete checkpoint */
#include "mount-helpers/health.h"

#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/dump.h"
#include "core/catalog/catalog.h"
#include "core/geom/dtype.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool health_tensor(const struct ck_catalog *img, const struct ck_tensor *t)
{
	uint64_t elem = ck_dtype_info(t->dtype)->size;

	(void)img;
	return t->state == CK_OK && (!elem || t->covered >= t->size / elem);
}

/* Of problem @i, if it is an error about a tensor that is not there. */
static const char *refused(const struct ck_catalog *img, uint32_t i)
{
	const struct ck_problem *p = &img->problems[i];
	const char *name;
	size_t len;

	if (p->severity != CK_ERROR || p->tensor == CK_NONE)
		return NULL;
	name = ck_catalog_str(img, p->tensor, &len);
	for (uint32_t tree = 0; tree < CK_MAX(img->nr_trees, 1u); tree++)
		if (ck_catalog_find_name(img, tree, name, len) != CK_NONE)
			return NULL;
	return name;
}

static int by_name(const void *a, const void *b, void *ctx)
{
	const struct ck_catalog *img = ctx;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int c = text_compare(img, img->problems[x].tensor, img,
			     img->problems[y].tensor);

	return c ? c : (x > y) - (x < y);
}

uint32_t health_refusals(const struct ck_catalog *img, uint32_t **out)
{
	uint32_t *v = calloc((size_t)img->nr_problems + 1, sizeof(*v));
	uint32_t all = 0, nr = 0;
	uint32_t last = CK_NONE;

	*out = v;
	for (uint32_t i = 0; v && i < img->nr_problems; i++)
		if (refused(img, i))
			v[all++] = i;
	if (all)
		qsort_r(v, all, sizeof(*v), by_name, (void *)img);
	for (uint32_t i = 0; i < all; i++) {
		const struct ck_problem *p = &img->problems[v[i]];

		if (last == CK_NONE || text_compare(img, last, img, p->tensor))
			v[nr++] = v[i];
		last = p->tensor;
	}
	return nr;
}

uint64_t health_left_out(const struct ck_catalog *img)
{
	ck_auto_free uint32_t *v = NULL;

	return health_refusals(img, &v);
}

#define MAX_LINES 3

void health_errors(const struct cmd *c, const struct ck_catalog *img)
{
	static const char head[] = "error: ";
	unsigned lines = 0;

	for (uint32_t i = 0; i < img->nr_problems && lines < MAX_LINES; i++) {
		struct ck_dump_pos pos = { .item = i };
		ck_auto_str struct ck_str s = { 0 };

		if (img->problems[i].severity != CK_ERROR)
			continue;
		lines++;
		ck_dump_next(img, CK_DUMP_PROBLEMS_TEXT, 1, &pos, &s);
		if (s.failed || s.len < sizeof(head))
			continue;
		s.v[s.len - 1] = '\0'; /* the line's end */
		cmd_fail(c, CMD_OK, "%s", s.v + sizeof(head) - 1);
	}
}

static void count(struct ck_str *s, uint64_t n, const char *what)
{
	if (n)
		ck_str_fmt(s, "%s%" PRIu64 " %s", s->len ? ", " : "", n, what);
}

char *health_counts(const struct ck_catalog *img)
{
	uint64_t torn = 0, missing = 0, errors = 0;
	ck_auto_str struct ck_str what = { 0 };

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		missing += img->tensors[i].state == CK_MISSING;
		torn += img->tensors[i].state == CK_TORN;
	}
	for (uint32_t i = 0; i < img->nr_problems; i++)
		errors += img->problems[i].severity == CK_ERROR;
	count(&what, missing, "missing");
	count(&what, torn, "torn");
	count(&what, errors, errors == 1 ? "error" : "errors");
	return what.failed ? NULL : ck_steal(what.v);
}

int health_report(const struct cmd *c, const char *path,
		  const struct ck_catalog *img, uint64_t problems_found)
{
	uint64_t torn = 0, missing = 0, errors = 0, nr;
	ck_auto_str struct ck_str what = { 0 };

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];

		if (t->state == CK_TORN)
			torn++;
		else if (!health_tensor(img, t))
			missing++;
	}
	for (uint32_t i = 0; i < img->nr_problems; i++)
		errors += img->problems[i].severity == CK_ERROR;
	nr = health_left_out(img);
	count(&what, nr, nr == 1 ? "tensor left out" : "tensors left out");
	count(&what, torn, "torn");
	count(&what, missing, "missing, whole or in part");
	count(&what, errors + problems_found,
	      errors + problems_found == 1 ? "error noted" : "errors noted");
	if (!what.len)
		return CMD_OK;
	return cmd_fail(c, CMD_BAD_CKPT, "%s: incomplete: %s%s", path,
			what.v ? what.v : "",
			strcmp(c->name, "inspect") ?
				" (unshard inspect says more)" :
				"");
}

int health_refused(const struct cmd *c, const char *path,
		   const struct ck_catalog *img)
{
	const struct ck_problem *first = NULL;
	ck_auto_str struct ck_str more = { 0 }, name = { 0 };
	uint64_t nr = 0;
	bool named;

	for (uint32_t i = 0; i < img->nr_problems; i++) {
		const struct ck_problem *p = &img->problems[i];

		if (p->severity != CK_ERROR)
			continue;
		nr++;
		if (!first ||
		    (first->tensor == CK_NONE && p->tensor != CK_NONE))
			first = p;
	}
	if (!first)
		return CMD_OK;
	named = first->tensor != CK_NONE;
	text_ref(&name, img, first->tensor);
	if (nr > 1)
		ck_str_fmt(&more, ", and %" PRIu64 " more", nr - 1);
	return cmd_fail(
		c, CMD_BAD_CKPT,
		"%s: incomplete: %s%s%s%s%s (unshard inspect says more)", path,
		named ? "left out is tensor " : "",
		named && name.v ? name.v : "", named ? ": " : "",
		ck_catalog_str(img, first->reason, NULL), more.v ? more.v : "");
}

void health_runtime(const struct cmd *c, const char *path, struct ck_ckpt *ck)
{
	ck_auto_str struct ck_str s = { 0 };
	const char *at, *end;

	ck_ckpt_runtime_problems(ck, false, &s);
	for (at = s.v; at && *at; at = *end ? end + 1 : end) {
		end = strchrnul(at, '\n');
		cmd_fail(c, CMD_OK, "%s: %.*s", path, (int)(end - at), at);
	}
}
