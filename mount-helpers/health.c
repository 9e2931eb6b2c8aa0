/* SPDX-License-Identifier: Apache-2.0 */
/* health.c - the one line, and the exit code, for an incomplete checkpoint */
#include "mount-helpers/health.h"

#include "core/base/auto.h"
#include "core/geom/dtype.h"

#include <inttypes.h>
#include <string.h>

bool health_tensor(const struct ck_image *img, const struct ck_tensor *t)
{
	uint64_t elem = ck_dtype_info(t->dtype)->size;

	(void)img;
	return t->state == CK_OK && (!elem || t->covered >= t->size / elem);
}

static void count(struct ck_str *s, uint64_t n, const char *what)
{
	if (n)
		ck_str_fmt(s, "%s%" PRIu64 " %s", s->len ? ", " : "", n, what);
}

int health_report(const struct cmd *c, const char *path,
		  const struct ck_image *img, uint64_t late)
{
	uint64_t torn = 0, missing = 0, errors = 0;
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
	count(&what, torn, "torn");
	count(&what, missing, "missing, whole or in part");
	count(&what, errors + late,
	      errors + late == 1 ? "error noted" : "errors noted");
	if (!what.len)
		return CMD_OK;
	return cmd_fail(c, CMD_BAD_CKPT, "%s: incomplete: %s%s", path,
			what.v ? what.v : "",
			strcmp(c->name, "inspect") ?
				" (unshard inspect says more)" :
				"");
}

int health_refused(const struct cmd *c, const char *path,
		   const struct ck_image *img)
{
	const struct ck_problem *first = NULL;
	ck_auto_str struct ck_str more = { 0 };
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
	if (nr > 1)
		ck_str_fmt(&more, ", and %" PRIu64 " more", nr - 1);
	return cmd_fail(
		c, CMD_BAD_CKPT,
		"%s: incomplete: %s%s%s%s%s (unshard inspect says more)", path,
		named ? "left out is tensor " : "",
		named ? ck_image_str(img, first->tensor, NULL) : "",
		named ? ": " : "", ck_image_str(img, first->reason, NULL),
		more.v ? more.v : "");
}
