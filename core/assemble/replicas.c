/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicas.c - pieces that are in the same place: whether they are alike
 *
 * Either their bytes are compared as the tensor is joined, or something has
 * looked at them before and said by numbers which are alike: the reader, or
 * ck_asm_compare() of all tensors, for who has to know which files are of
 * another save before any is joined.
 */
#include "core/assemble/join_priv.h"

#include "core/base/check.h"
#include "core/base/search.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_KINDS 66 /* that differ, among the replicas of one part */

static bool is_known(const struct ck_asm_piece *p)
{
	return p->like && !p->lost;
}

/*
 * Those of a place before one of it: the first, and with a reader that says
 * likes the first and the last of which that is known.
 */
struct before {
	const struct ck_asm_piece *first, *last;
};

static struct before find_before(const struct ck_asm_work *w, size_t i)
{
	const struct ck_asm *a = w->j.a;
	const struct ck_asm_spot *s = w->spots.v;
	struct before b = { NULL, NULL };

	for (size_t k = 0; k < i; k++) {
		const struct ck_asm_piece *p = &a->pieces.v[s[k].piece];

		if (s[k].place != s[i].place || (a->how->likes && !is_known(p)))
			continue;
		b.first = b.first ? b.first : p;
		b.last = p;
		if (!a->how->likes)
			break;
	}
	return b;
}

/* As ck_builder_same() has it. */
static int same(const struct ck_asm_join *j, const struct ck_asm_piece *x,
		const struct ck_asm_piece *y, uint64_t *differ,
		struct ck_err *err)
{
	const struct ck_part a = ck_extent_part(&x->x, NULL, 0);
	const struct ck_part b = ck_extent_part(&y->x, NULL, 0);

	if (!j->a->how->likes)
		return ck_builder_same(j->a->b, &a, &b, differ, err);
	*differ = is_known(y) && x->like != y->like ? 0 : UINT64_MAX;
	return is_known(y);
}

static int check_copy(const struct ck_asm_work *w, size_t i, struct ck_err *why,
		      struct ck_err *err)
{
	const struct ck_asm_join *j = &w->j;
	const struct ck_asm_spot *spot = &w->spots.v[i];
	const struct ck_asm_piece *p = &j->a->pieces.v[spot->piece];
	const struct before b = find_before(w, i);
	struct ck_asm_saying s = {
		.a = j->a, .file = b.first, .other = p, .last = b.last
	};
	int seen = b.first ? same(j, b.first, p, &s.byte, err) : 1;

	if (seen < 0 || !b.first)
		return CK_MIN(seen, 0);
	if (s.byte != UINT64_MAX &&
	    !(spot->placed && ck_dir_any_copy(j->a->dir)))
		return ck_asm_wrong(
			j, spot->placed ? CK_ASM_COPIES : CK_ASM_UNPLACED, &s,
			why);
	return seen || spot->placed || p->whole ?
		       0 :
		       ck_asm_wrong(j, CK_ASM_UNREAD, &s, why);
}

int ck_asm_check_copies(const struct ck_asm_work *w, struct ck_err *why,
			struct ck_err *err)
{
	const struct ck_asm_spot *s = w->spots.v;
	size_t nr = w->j.a->how->words[CK_ASM_COPIES] ? w->spots.nr : 0;
	int ret = 0;

	for (size_t i = 0; i < nr && !(i && s[i - 1].odd) && !ret; i++)
		ret = check_copy(w, i, why, err);
	return ret;
}

/* ---- all of them, before any is joined ---- */

/* The replicas of one part; those that differ from all before them. */
struct kinds {
	struct ck_asm *a;
	uint32_t piece[MAX_KINDS];
	bool known[MAX_KINDS]; /* it was read */
	unsigned nr;
};

/* Bytes, whatever they stand for: what differs in dtype differs in no other way. */
static int same_bytes(struct ck_asm *a, uint32_t x, uint32_t y, bool *alike,
		      struct ck_err *err)
{
	struct ck_part part[2] = { ck_extent_part(&a->pieces.v[x].x, NULL, 0),
				   ck_extent_part(&a->pieces.v[y].x, NULL, 0) };
	uint64_t bytes[2], differ;
	int ret;

	for (int i = 0; i < 2; i++) {
		const struct ck_extent *e = &a->pieces.v[i ? y : x].x;

		if (e->stride || !ck_extent_bytes(e, &bytes[i]))
			return 0;
		part[i].dtype = CK_DT_U8;
		part[i].rank = 1;
		part[i].shape = &bytes[i];
	}
	ret = ck_builder_same(a->b, &part[0], &part[1], &differ, err);
	*alike = ret > 0 && differ == UINT64_MAX;
	return ret;
}

static int find_kind(struct kinds *k, uint32_t piece, struct ck_err *err)
{
	struct ck_asm_piece *p = &k->a->pieces.v[piece];
	bool known = false, alike;
	int ret = 0;

	for (unsigned i = 0; i < k->nr; i++) {
		ret = same_bytes(k->a, k->piece[i], piece, &alike, err);
		if (ret < 0)
			return ret;
		k->known[i] |= ret > 0;
		known |= ret > 0;
		if (ret && alike) {
			p->like = (uint64_t)k->piece[i] + 1;
			return 0;
		}
	}
	if (!known && k->nr)
		ret = same_bytes(k->a, piece, piece, &alike, err);
	if (ret < 0 || k->nr == MAX_KINDS || (k->nr && !known && !ret))
		return CK_MIN(ret, 0);
	p->like = (uint64_t)piece + 1;
	k->known[k->nr] = k->nr;
	k->piece[k->nr++] = piece;
	return 0;
}

/* Of the first nothing is known until it was compared with another one. */
static int find_kinds(struct ck_asm *a, const uint32_t *piece, size_t nr,
		      struct ck_err *err)
{
	struct kinds k = { .a = a };
	bool alike;
	int ret = 0;

	for (size_t i = 0; i < nr && ret >= 0; i++)
		ret = find_kind(&k, piece[i], err);
	if (ret >= 0 && !k.known[0])
		ret = same_bytes(a, piece[0], piece[0], &alike, err);
	if (ret >= 0 && !k.known[0] && !ret)
		a->pieces.v[piece[0]].like = 0;
	return CK_MIN(ret, 0);
}

static int by_place(const void *pa, const void *pb)
{
	const struct ck_asm_spot *a = pa, *b = pb;

	return ck_order2(a->place, b->place, a->piece, b->piece);
}

static int compare_tensor(struct ck_asm_work *w, ck_asm_replicas_fn fn,
			  struct ck_err *err)
{
	struct ck_asm *a = w->j.a;
	struct ck_asm_spot *s = w->spots.v;
	uint32_t *piece = reallocarray(NULL, w->spots.nr + 1, sizeof(*piece));
	size_t end;
	int ret = piece ? 0 : ck_no_memory(err);

	if (piece && w->spots.nr)
		qsort(s, w->spots.nr, sizeof(*s), by_place);
	for (size_t i = 0; i < w->spots.nr && !ret; i = end) {
		for (end = i; end < w->spots.nr && s[end].place == s[i].place;
		     end++)
			piece[end - i] = s[end].piece;
		if (end - i == 1)
			continue;
		ret = find_kinds(a, piece, end - i, err);
		if (!ret)
			ret = fn(a, w->j.t, piece, end - i, err);
	}
	free(piece);
	return ret;
}

int ck_asm_compare(struct ck_asm *a, ck_asm_replicas_fn fn, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < a->tensors.nr && !ret; i++) {
		ck_auto_asm_work struct ck_asm_work w = {
			.j = { .a = a, .t = &a->tensors.v[i] }
		};
		struct ck_err why = { 0 };

		if (w.j.t->fault)
			continue;
		ret = ck_asm_place_all(&w, &why);
		if (ret == -ENOMEM)
			return ck_no_memory(err);
		ret = ret ? 0 : compare_tensor(&w, fn, err);
	}
	return ret;
}
