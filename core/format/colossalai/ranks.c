/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - which ranks of a distributed save are not there
 *
 * No file says how many there were.  Boxes say over how many each stage is
 * split; that there was one more stage shows in names at best.
 */
#include "core/assemble/rank_set.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/mesh/names.h"
#include "core/format/colossalai/colossalai.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_NAMED 8
#define NAME "dist-"
#define WIDTH 5

struct ranks {
	const struct ck_asm *a;
	struct ck_rank_set there;
	uint64_t max, tp; /* @tp 0: boxes do not say */
};

static int collect(struct ranks *r, struct ck_err *err)
{
	for (size_t i = 0; i < r->a->files.nr; i++)
		if (r->a->files.v[i].rank != CK_ASM_ANY &&
		    !ck_rank_set_add(&r->there, r->a->files.v[i].rank))
			return ck_no_memory(err);
	ck_rank_set_sort(&r->there, NULL);
	if (r->there.v.nr)
		r->max = r->there.v.v[r->there.v.nr - 1];
	return 0;
}

/* Over how many ranks tensors are split; 0: not over the same number. */
static uint64_t find_tp(const struct ck_asm *a)
{
	uint64_t tp = 1;

	for (size_t i = 0; i < a->pieces.nr; i++) {
		const struct ck_asm_box *b = a->pieces.v[i].box;

		for (unsigned d = 0; b && d < b->rank; d++) {
			uint64_t all = b->shape[d], len = b->len[d], n;

			if (!len || len >= all)
				continue;
			n = all / len;
			if (all % len || (tp != 1 && tp != n))
				return 0;
			tp = n;
		}
	}
	return tp;
}

static int check_gaps(const struct ranks *r, struct ck_err *err)
{
	ck_auto_str struct ck_str list = { 0 };
	uint64_t nr = ck_rank_set_lack(&r->there, 0, r->max, NAME, WIDTH,
				       MAX_NAMED, &list);

	if (list.failed)
		return ck_no_memory(err);
	return nr ? ck_builder_report_file(r->a->b, CK_ERROR, NULL, err,
					   "%s %s missing, though there is "
					   "dist-%05" PRIu64,
					   list.v, nr > 1 ? "are" : "is",
					   r->max) :
		    0;
}

/* Each stage has as many ranks as its tensors are split over. */
static int check_last(const struct ranks *r, struct ck_err *err)
{
	ck_auto_str struct ck_str list = { 0 };
	uint64_t have = r->max + 1, end, nr;

	if (r->tp < 2 || have % r->tp == 0 ||
	    !ck_add_ok(have, r->tp - have % r->tp, &end))
		return 0;
	nr = ck_rank_set_lack(&r->there, have, end, NAME, WIDTH, MAX_NAMED,
			      &list);
	if (list.failed)
		return ck_no_memory(err);
	return ck_builder_report_file(r->a->b, CK_ERROR, NULL, err,
				      "%s %s missing: tensors are split over "
				      "%" PRIu64 " ranks",
				      list.v, nr > 1 ? "are" : "is", r->tp);
}

/* "model.layers.7.mlp.weight"; a number in front is a plain sequence's. */
static bool is_of_layer(const struct ck_asm_tensor *t)
{
	const char *at = memchr(t->name, '.', t->len);

	for (; at; at = strchr(at, '.')) {
		size_t n = strspn(++at, "0123456789");

		if (n && at[n] == '.')
			return true;
	}
	return false;
}

static bool in_last(const struct ranks *r, const struct ck_asm_tensor *t)
{
	uint64_t first = r->max - r->max % CK_MAX(r->tp, UINT64_C(1));
	const struct ck_asm_piece *p;

	ck_asm_each_piece(p, r->a, t)
	{
		uint64_t rank = r->a->files.v[p->file].rank;

		if (rank >= first && rank != CK_ASM_ANY)
			return true;
	}
	return false;
}

/*
 * Models that have an embedding and layers have a norm or a head after them,
 * in the last stage; in this one there is none.
 */
static bool ends_in_layers(const struct ranks *r)
{
	bool layers = false, embeds = false;

	for (size_t i = 0; i < r->a->tensors.nr; i++) {
		const struct ck_asm_tensor *t = &r->a->tensors.v[i];

		if (is_of_layer(t)) {
			if (ck_name_has(t->name, t->len, ck_names_last_norm))
				return false;
			layers = true;
		} else if (ck_name_has(t->name, t->len, ck_names_embedding)) {
			embeds = true;
		} else if (in_last(r, t)) {
			return false;
		}
	}
	return layers && embeds;
}

static int check_end(const struct ranks *r, struct ck_err *err)
{

	if (ends_in_layers(r))
		return ck_builder_report_file(
			r->a->b, CK_WARNING, NULL, err,
			"dist-%05" PRIu64
			" is the last, and holds layers with no norm "
			"or head after them: the files of later "
			"stages, whose tensors nothing else names, "
			"may be missing",
			r->max);
	return ck_builder_report_file(
		r->a->b, CK_NOTE, NULL, err,
		"no file says how many stages there were: "
		"files after dist-%05" PRIu64 " would not be missed",
		r->max);
}

int ck_colossalai_check_ranks(const struct ck_asm *a, struct ck_err *err)
{
	struct ranks r = { .a = a, .tp = find_tp(a) };
	int ret = collect(&r, err);

	if (!ret && r.there.v.nr)
		ret = check_gaps(&r, err);
	if (!ret && r.there.v.nr)
		ret = check_last(&r, err);
	if (!ret && r.there.v.nr)
		ret = check_end(&r, err);
	ck_rank_set_free(&r.there);
	return ret;
}
