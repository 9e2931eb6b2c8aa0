/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharded.c - DCP's HuggingFaceStorageWriter, one file a rank
 *
 * Each entry is a box.  Its corner stands in __metadata__, under
 * DCP_SHARDING_INFO; the full shape stands nowhere and is what the boxes span,
 * if no file is missing that may have had more: gaps.c.
 */
#include "core/format/hf/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int refuse(struct ck_hf_set *s, struct ck_asm_tensor *t, uint32_t file,
		  const char *why, struct ck_err *err)
{
	return ck_asm_refuse(&s->a, t, err, "%s: %s", s->files.name[file], why);
}

/* Widens the shape by the piece's box; *nr: elements in all boxes. */
static int widen(struct ck_hf_set *s, struct ck_asm_tensor *t,
		 const struct ck_asm_piece *p, uint64_t *shape, uint64_t *nr,
		 struct ck_err *err)
{
	const struct ck_st_file *f = &s->st[p->file];
	const struct ck_st_entry *e = ck_hf_entry(s, p);
	const uint64_t *len = ck_st_file_shape(f, e);
	uint64_t at[CK_MAX_RANK], end, own = 1;

	if (e->why)
		return refuse(s, t, p->file, e->why, err);
	if (e->rank != t->rank)
		return refuse(s, t, p->file,
			      "its number of dimensions differs between files",
			      err);
	if (!ck_st_file_placed(f, e))
		return refuse(s, t, p->file,
			      "no saved_offsets say where its box begins", err);
	if (!ck_st_file_corner(f, e, at))
		return refuse(
			s, t, p->file,
			"its saved_offsets are not one number a dimension",
			err);
	for (unsigned d = 0; d < e->rank; d++) {
		if (!ck_add_ok(at[d], len[d], &end) ||
		    !ck_mul_ok(own, len[d], &own))
			return refuse(
				s, t, p->file,
				"its saved_offsets are larger than any tensor",
				err);
		shape[d] = CK_MAX(shape[d], end);
	}
	if (!ck_add_ok(*nr, own, nr))
		*nr = UINT64_MAX;
	return 0;
}

/* t->user: there is a hole.  Boxes that overlap are refused later. */
static int measure(struct ck_hf_set *s, struct ck_asm_tensor *t,
		   struct ck_err *err)
{
	uint64_t shape[CK_MAX_RANK] = { 0 }, nr = 0, all = 1;
	const struct ck_asm_piece *first = &s->a.pieces.v[t->first], *p;
	const struct ck_st_entry *e = ck_hf_entry(s, first);

	t->rank = e->rank;
	ck_asm_each_piece(p, &s->a, t)
	{
		int ret = t->fault ? 0 : widen(s, t, p, shape, &nr, err);

		if (ret)
			return ret;
	}
	for (unsigned d = 0; d < t->rank && !t->user; d++)
		t->user = !ck_mul_ok(all, shape[d], &all);
	t->user |= nr < all;
	return ck_asm_declare(&s->a, t, e->dtype, shape, t->rank) ?
		       ck_no_memory(err) :
		       0;
}

/* A tensor with a hole says that a file of its K is missing. */
static void find_holes(const struct ck_hf_set *s, struct ck_hf_gaps *g)
{
	const struct ck_asm_piece *p;

	for (size_t i = 0; i < s->a.tensors.nr && !g->told; i++) {
		const struct ck_asm_tensor *t = &s->a.tensors.v[i];

		ck_asm_each_piece(p, &s->a, t)
		{
			struct ck_hf_gap *gap = ck_hf_gaps_of(g, s, p->file);

			if (t->fault || !t->user || gap->what != CK_HF_WHOLE)
				continue;
			gap->what = CK_HF_HOLE;
			gap->name = t->name;
			gap->name_len = t->len;
		}
	}
}

/* Ranks beyond the end of a tensor have boxes without elements. */
static int add_boxes(struct ck_hf_set *s, struct ck_asm_tensor *t,
		     const struct ck_hf_gaps *g, struct ck_err *err)
{
	struct ck_asm_piece *p;
	int ret = 0;

	ck_asm_each_piece(p, &s->a, t)
	{
		const struct ck_st_file *f = &s->st[p->file];
		const struct ck_st_entry *e = ck_hf_entry(s, p);
		const struct ck_hf_gap *gap = ck_hf_gaps_of(g, s, p->file);
		const struct ck_extent x = { .shape = ck_st_file_shape(f, e),
					     .off = e->begin,
					     .src = f->src,
					     .dtype = e->dtype,
					     .rank = e->rank };
		uint64_t at[CK_MAX_RANK];

		if (!ret && !t->fault && gap->what != CK_HF_WHOLE)
			ret = ck_hf_gap_refuse(gap, g, s, t, err);
		if (ret || t->fault)
			return ret;
		if (!ck_st_file_corner(f, e, at) ||
		    ck_asm_set_box(&s->a, p, at, x.shape, t->shape, t->rank) ||
		    ck_asm_set_extent(&s->a, p, &x))
			return ck_no_memory(err);
	}
	return 0;
}

int ck_hf_set_add_sharded(struct ck_hf_set *s, struct ck_err *err)
{
	ck_auto_hf_gaps struct ck_hf_gaps g = { 0 };
	int ret = ck_hf_gaps_find(&g, s, err);

	ret = ret ? ret : ck_hf_gaps_say(&g, s, err);
	for (size_t i = 0; i < s->a.tensors.nr && !ret; i++)
		ret = measure(s, &s->a.tensors.v[i], err);
	if (!ret)
		find_holes(s, &g);
	for (size_t i = 0; i < s->a.tensors.nr && !ret; i++)
		ret = add_boxes(s, &s->a.tensors.v[i], &g, err);
	return ret ? ret : ck_asm_join(&s->a, err);
}
