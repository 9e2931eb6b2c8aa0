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

static int refuse(struct ck_hf_set *s, struct ck_asm_tensor *t,
		  const struct ck_asm_piece *p, const char *why,
		  struct ck_err *err)
{
	return ck_asm_refuse(&s->a, t, err, "%s: %s", ck_asm_who(&s->a, p),
			     why);
}

/* Widens the shape by the piece's box; *nr: elements in all boxes. */
static int widen(struct ck_hf_set *s, struct ck_asm_tensor *t,
		 const struct ck_asm_piece *p, uint64_t *shape, uint64_t *nr,
		 struct ck_err *err)
{
	const struct ck_asm_box *b = p->box;
	uint64_t end, own = 1;

	if (p->x.fault)
		return refuse(s, t, p, p->x.fault, err);
	if (p->x.rank != t->rank)
		return refuse(s, t, p,
			      "its number of dimensions differs between files",
			      err);
	for (unsigned d = 0; d < t->rank; d++) {
		if (!ck_add_ok(b->start[d], b->len[d], &end) ||
		    !ck_mul_ok(own, b->len[d], &own))
			return refuse(
				s, t, p,
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
	const struct ck_extent *first = &s->a.pieces.v[t->first].x;
	const struct ck_asm_piece *p;

	t->rank = first->rank;
	ck_asm_each_piece(p, &s->a, t)
	{
		int ret = t->fault ? 0 : widen(s, t, p, shape, &nr, err);

		if (ret)
			return ret;
	}
	for (unsigned d = 0; d < t->rank && !t->user; d++)
		t->user = !ck_mul_ok(all, shape[d], &all);
	t->user |= nr < all;
	return ck_asm_declare(&s->a, t, first->dtype, shape, t->rank) ?
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
		const struct ck_hf_gap *gap = ck_hf_gaps_of(g, s, p->file);

		if (!ret && !t->fault && gap->what != CK_HF_WHOLE)
			ret = ck_hf_gap_refuse(gap, g, s, t, err);
		if (ret || t->fault)
			return ret;
		if (ck_asm_set_box(&s->a, p, p->box->start, p->box->len,
				   t->shape, t->rank))
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
