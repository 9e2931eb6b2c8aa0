/* SPDX-License-Identifier: Apache-2.0 */
/*
 * problems.c - problems for people: a line each, or, of many, a line a file
 *
 *	error: file __2_0.distcp: 9 tensors, the first is lm_head.weight: 2664 of ...
 *	error: files rank_{0..1023}.pt, 1024 of them: 48 tensors each, the first is ...
 *
 * Lines of files that are called alike and say as much are one.
 */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/inspect/fold.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/vec.h"
#include "core/catalog/dump.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FEW 20 /* of these each has its line */

/* Those of one severity about tensors that one file has to do with. */
struct group {
	uint32_t first; /* of the problems, in their order */
	uint32_t nr;
};

struct problems {
	const struct ck_catalog *img;
	CK_VEC(struct group) group;
	struct ck_str out;
};

static bool put_line(struct problems *p, uint32_t i)
{
	struct ck_dump_pos pos = { .item = i };

	ck_str_puts(&p->out, "  ");
	ck_dump_next(p->img, CK_DUMP_PROBLEMS_TEXT, 1, &pos, &p->out);
	return text_flush(&p->out);
}

static bool is_of_tensor(const struct ck_problem *p)
{
	return p->tensor != CK_NONE && p->file != CK_NONE && p->view == CK_NONE;
}

static int by_file(const void *pa, const void *pb, void *ctx)
{
	const struct ck_catalog *img = ctx;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
	const struct ck_problem *x = &img->problems[a], *y = &img->problems[b];
	int c = text_compare(img, x->file, img, y->file);

	if (x->severity != y->severity)
		return x->severity > y->severity ? -1 : 1;
	return c ? c : (a > b) - (a < b);
}

/* @v: the numbers of problems of tensors. */
static bool group_them(struct problems *p, uint32_t *v, uint32_t nr)
{
	const struct ck_problem *all = p->img->problems;
	struct group *g = NULL;

	qsort_r(v, nr, sizeof(*v), by_file, (void *)p->img);
	for (uint32_t i = 0; i < nr; i++) {
		if (!g || all[g->first].severity != all[v[i]].severity ||
		    text_compare(p->img, all[g->first].file, p->img,
				 all[v[i]].file)) {
			g = ck_vec_push(&p->group);
			if (!g)
				return false;
			*g = (struct group){ .first = v[i] };
		}
		g->nr++;
	}
	return true;
}

static bool put_group(void *ctx, const struct ck_str *text,
		      const struct fold_name *v, size_t nr)
{
	struct problems *p = ctx;
	const struct group *g = &p->group.v[v->index];
	const struct ck_problem *first = &p->img->problems[g->first];

	if (nr == 1 && g->nr == 1)
		return put_line(p, g->first);
	ck_str_fmt(&p->out, "  %s: file%s %s",
		   ck_dump_severity(first->severity), nr > 1 ? "s" : "",
		   text->v ? text->v : "");
	if (nr > 1)
		ck_str_fmt(&p->out, ", %zu of them", nr);
	ck_str_fmt(&p->out, ": %" PRIu32 " tensor%s%s, %s ", g->nr,
		   g->nr == 1 ? "" : "s", nr > 1 ? " each" : "",
		   nr > 1 || g->nr > 1 ? "the first is" : "");
	text_ref(&p->out, p->img, first->tensor);
	ck_str_puts(&p->out, ": ");
	text_ref(&p->out, p->img, first->reason);
	ck_str_puts(&p->out, "\n");
	return text_flush(&p->out);
}

static bool put_groups(struct problems *p)
{
	ck_auto_free struct fold_name *v = calloc(p->group.nr + 1, sizeof(*v));

	for (size_t i = 0; v && i < p->group.nr; i++) {
		const struct group *g = &p->group.v[i];
		const struct ck_problem *first = &p->img->problems[g->first];

		v[i].name = ck_catalog_str(p->img, first->file, NULL);
		v[i].index = i;
		v[i].class = g->nr * 4ul + first->severity;
	}
	return v && fold_names(v, p->group.nr, put_group, p);
}

bool problems_put(const struct ck_catalog *img, const uint32_t *which,
		  uint32_t nr, bool all)
{
	struct problems p = { .img = img };
	ck_auto_free uint32_t *of_tensors = calloc(nr + 1u, sizeof(*which));
	bool ok = of_tensors;
	uint32_t grouped = 0;

	for (uint32_t i = 0; i < nr && ok; i++)
		if (all || nr <= FEW || !is_of_tensor(&img->problems[which[i]]))
			ok = put_line(&p, which[i]);
		else
			of_tensors[grouped++] = which[i];
	if (ok && grouped)
		ok = group_them(&p, of_tensors, grouped) && put_groups(&p);
	free(p.group.v);
	ck_str_free(&p.out);
	return ok;
}
