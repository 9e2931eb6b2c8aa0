/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - the pieces of one tensor after another: whether they go together,
 * where each belongs, whether replicas are alike; then parts
 */
#include "core/assemble/join_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void ck_asm_work_free(struct ck_asm_work *w)
{
	ck_arena_free(&w->mem);
	free(w->parts.v);
	free(w->spots.v);
}

/* ---- what is wrong ---- */

static void put_word(struct ck_str *out, const struct ck_asm_saying *s,
		     const char *word, size_t len)
{
	const struct {
		const char *name;
		const struct ck_asm_piece *p;
		bool dtype;
	} words[] = { { "file", s->file, false },
		      { "other", s->other, false },
		      { "last", s->last ? s->last : s->file, false },
		      { "dtype", s->file, true },
		      { "other_dtype", s->other, true } };

	for (size_t i = 0; i < CK_ARRAY_LEN(words); i++)
		if (ck_text_is(word, len, words[i].name))
			ck_str_puts(out,
				    words[i].dtype ?
					    ck_dtype_info(words[i].p->x.dtype)
						    ->name :
					    ck_asm_who(s->a, words[i].p));
	if (len == 5 && !memcmp(word, "fault", len))
		ck_str_puts(out, s->file->x.fault);
	if (len == 4 && !memcmp(word, "byte", len))
		ck_str_u64(out, s->byte);
}

int ck_asm_wrong(const struct ck_asm_join *j, enum ck_asm_wrong what,
		 const struct ck_asm_saying *s, struct ck_err *why)
{
	static const char *const usual[CK_ASM_NR_WRONG] = {
		[CK_ASM_FAULT] = "{file}: {fault}",
		[CK_ASM_NO_FILE] =
			"{file}, which has it, is missing or damaged",
	};
	const char *text = j->a->how->words[what];
	ck_auto_str struct ck_str out = { 0 };

	if (!text)
		text = usual[what];
	if (!text)
		return 0;
	while (*text) {
		size_t len = strcspn(text, "{");

		ck_str_add(&out, text, len);
		text += len;
		if (*text)
			put_word(&out, s, text + 1, strcspn(text, "}") - 1);
		text += strcspn(text, "}") + (*text != '\0');
	}
	return out.failed ? ck_no_memory(why) :
			    ck_fail(why, EINVAL, "%s", out.v);
}

static bool same_dims(const uint64_t *a, const uint64_t *b, unsigned nr)
{
	return !nr || !memcmp(a, b, nr * sizeof(*a));
}

/* ---- whether they go together ---- */

static unsigned rank_of(const struct ck_asm_piece *p)
{
	return p->box ? p->box->rank : p->x.rank;
}

/* Whether @p has its bytes, and its place if the others have one. */
static int check_piece(const struct ck_asm_join *j,
		       const struct ck_asm_piece *p, struct ck_err *why)
{
	const struct ck_asm_piece *f = j->first ? j->first : p;
	const struct ck_asm_saying s = { .a = j->a, .file = p, .other = p };
	const struct ck_asm_saying two = { .a = j->a,
					   .file = p->box ? f : p,
					   .other = p->box ? p : f };
	int ret = 0;

	if (p->stored && p->x.fault)
		return ck_asm_wrong(j, CK_ASM_FAULT, &s, why);
	if (!f->box != !p->box)
		ret = ck_asm_wrong(j, CK_ASM_BOXLESS, &two, why);
	if (!ret && p->box && p->stored && !p->is_flat &&
	    (p->x.rank != p->box->rank ||
	     !same_dims(p->x.shape, p->box->len, p->x.rank)))
		ret = ck_asm_wrong(j, CK_ASM_LENGTHS, &s, why);
	if (!ret && p->box && !p->stored && j->a->files.v[p->file].usable)
		ret = ck_asm_wrong(j, CK_ASM_NOT_IN, &s, why);
	return ret;
}

/* And with @p beside those before it. */
static int check_beside(const struct ck_asm_join *j,
			const struct ck_asm_piece *p, struct ck_err *why)
{
	const struct ck_asm_piece *f = j->first;
	struct ck_asm_saying s = { .a = j->a, .file = f, .other = p };
	int ret = 0;

	if (rank_of(f) != rank_of(p))
		ret = ck_asm_wrong(j, CK_ASM_RANK, &s, why);
	else if (p->box && f->box &&
		 !same_dims(f->box->shape, p->box->shape, p->box->rank))
		ret = ck_asm_wrong(j, CK_ASM_SHAPE, &s, why);
	s.file = j->one;
	if (!ret && j->one && p->stored && j->one->x.dtype != p->x.dtype)
		ret = ck_asm_wrong(j, CK_ASM_DTYPE, &s, why);
	return ret;
}

static int check_pieces(struct ck_asm_join *j, struct ck_err *why)
{
	struct ck_asm *a = j->a;
	struct ck_asm_piece *p;
	const struct ck_asm_piece *before = NULL;

	ck_asm_each_piece(p, a, j->t)
	{
		const struct ck_asm_saying twice = { .a = a,
						     .file = p,
						     .other = p };
		int ret = a->how->piece ? a->how->piece(j, p, why) : 0;

		if (!ret && p->left_out)
			continue;
		if (!ret && before && before->file == p->file)
			ret = ck_asm_wrong(j, CK_ASM_TWICE, &twice, why);
		if (!ret)
			ret = check_piece(j, p, why);
		if (!ret && j->first)
			ret = check_beside(j, p, why);
		if (ret)
			return ret;
		before = p;
		j->first = j->first ? j->first : p;
		j->one = !j->one && p->stored ? p : j->one;
	}
	return 0;
}

/* ---- the shape, and where each belongs ---- */

static int find_shape(struct ck_asm_join *j, struct ck_err *why)
{
	const struct ck_asm_tensor *t = j->t;
	const struct ck_asm_box *box = j->first ? j->first->box : NULL;
	const uint64_t *shape = t->shape ? t->shape :
				box	 ? box->shape :
					   j->one->x.shape;

	j->placed = t->shape || box;
	j->dtype = t->shape ? t->dtype : j->one->x.dtype;
	j->rank = t->shape ? t->rank : box ? box->rank : j->one->x.rank;
	memcpy(j->shape, shape, j->rank * sizeof(*j->shape));
	return j->a->how->shape ? j->a->how->shape(j, why) : 0;
}

static unsigned grid_rank(const struct ck_part *part)
{
	return part->grid ? part->grid_rank : part->rank;
}

/* Copies what a part points to, and mixes it into the place. */
static bool keep(struct ck_asm_work *w, const uint64_t **v, unsigned nr,
		 uint64_t *place)
{
	if (!*v)
		return true;
	*place = XXH3_64bits_withSeed(*v, nr * sizeof(**v), *place + nr);
	*v = ck_arena_copy(&w->mem, *v, nr * sizeof(**v));
	return *v;
}

static int keep_part(struct ck_asm_work *w, struct ck_part *part,
		     uint32_t piece, uint64_t *place, struct ck_err *err)
{
	unsigned rank = grid_rank(part);
	const uint64_t *stride = (const uint64_t *)part->stride;
	uint64_t unused = 0;
	struct ck_asm_placed *to = ck_vec_push(&w->parts);

	if (!to || !keep(w, &part->shape, part->rank, &unused) ||
	    !keep(w, &part->start, rank, place) ||
	    !keep(w, &part->len, rank, place) ||
	    !keep(w, &part->flat, 2, place) ||
	    !keep(w, &part->grid, part->grid_rank, place) ||
	    !keep(w, &part->full_len, rank, &unused) ||
	    !keep(w, &stride, rank, &unused))
		return ck_no_memory(err);
	part->stride = (const int64_t *)stride;
	*to = (struct ck_asm_placed){ .part = *part, .piece = piece };
	return 0;
}

/*
 * As if it were all of the tensor, or its box; where the whole was declared,
 * the builder says whether the boxes are of it.
 */
static struct ck_part first_part(const struct ck_asm_join *j,
				 const struct ck_asm_piece *p)
{
	bool own = p->box && j->t->shape;

	return (struct ck_part){
		.name = j->t->name,
		.name_len = j->t->len,
		.tree = j->t->tree,
		.src = p->stored ? p->x.src : j->a->files.v[p->file].src,
		.dtype = p->stored ? p->x.dtype : j->dtype,
		.xform = p->x.xform,
		.rank = own ? p->box->rank : j->rank,
		.shape = own ? p->box->shape : j->shape,
		.start = p->box ? p->box->start : NULL,
		.len = p->box ? p->box->len : NULL,
		.flat = p->is_flat ? p->flat : NULL,
		.stride = p->stored ? p->x.stride : NULL,
		.off = p->stored ? p->x.off : 0,
	};
}

static bool is_empty(const struct ck_part *part)
{
	for (unsigned d = 0; part->len && d < grid_rank(part); d++)
		if (!part->len[d])
			return true;
	return part->flat && part->flat[0] == part->flat[1];
}

static bool is_odd(const struct ck_asm_join *j, const struct ck_part *part)
{
	return part->rank != j->rank ||
	       !same_dims(part->shape, j->shape, j->rank);
}

static int place_piece(struct ck_asm_work *w, uint32_t piece,
		       struct ck_err *why)
{
	struct ck_asm_join *j = &w->j;
	struct ck_asm_piece *p = &j->a->pieces.v[piece];
	struct ck_asm_spot spot = { .piece = piece };
	int more = 1, ret = 0;

	j->replica = 0;
	for (unsigned n = 0; more == 1 && !ret; n++) {
		struct ck_part part = first_part(j, p);

		more = j->a->how->place ?
			       j->a->how->place(j, p, n, &part, why) :
			       0;
		if (more < 0 || more == CK_ASM_NONE)
			return CK_MIN(more, 0);
		if (p->stored && p->x.rank == grid_rank(&part) && !part.grid &&
		    !part.stride && !part.flat && !part.full_len)
			part.full_len = p->x.shape;
		spot.odd |= is_odd(j, &part);
		ret = keep_part(w, &part, piece, &spot.place, why);
	}
	if (ret || !p->stored)
		return ret;
	spot.placed = j->placed;
	if (j->replica)
		spot.place = j->replica;
	if (!ck_vec_reserve(&w->spots, 1))
		return ck_no_memory(why);
	w->spots.v[w->spots.nr++] = spot;
	return 0;
}

int ck_asm_place_all(struct ck_asm_work *w, struct ck_err *why)
{
	struct ck_asm_join *j = &w->j;
	const struct ck_asm *a = j->a;
	struct ck_asm_saying lost = { .a = a };
	int ret = check_pieces(j, why);

	lost.file = lost.other = j->first;
	if (!ret && j->first && !j->one && !j->t->shape)
		ret = ck_asm_wrong(j, CK_ASM_NO_FILE, &lost, why);
	if (ret || !(j->first || j->t->shape))
		return ret;
	ret = find_shape(j, why);

	for (uint32_t i = w->j.t->first; i != CK_NONE && !ret;
	     i = a->pieces.v[i].next)
		if (!a->pieces.v[i].left_out)
			ret = place_piece(w, i, why);
	return ret;
}

/* ---- parts ---- */

static int declare(const struct ck_asm_join *j, struct ck_err *err)
{
	const struct ck_part part = { .name = j->t->name,
				      .name_len = j->t->len,
				      .tree = j->t->tree,
				      .dtype = j->dtype,
				      .rank = j->rank,
				      .shape = j->shape };

	return ck_builder_declare(j->a->b, &part, err);
}

/* What a damaged file had is a hole, as was said of the file. */
static bool is_hole(const struct ck_asm *a, const struct ck_asm_placed *p)
{
	const struct ck_asm_piece *of = &a->pieces.v[p->piece];

	return of->lost || (!of->stored && a->files.v[of->file].present);
}

static int add_parts(struct ck_asm_work *w, struct ck_err *err)
{
	const struct ck_asm *a = w->j.a;
	int ret = declare(&w->j, err);

	if (!ret && a->how->note)
		ret = a->how->note(&w->j, err);
	for (size_t i = 0; i < w->parts.nr && !ret; i++) {
		const struct ck_asm_placed *p = &w->parts.v[i];

		if (!is_empty(&p->part) && !is_hole(a, p))
			ret = ck_builder_add(a->b, &p->part, err);
	}
	return ret;
}

/* -EINVAL with @why: the tensor is refused. */
static int join(struct ck_asm_work *w, struct ck_err *why, struct ck_err *err)
{
	int ret;

	if (w->j.t->fault)
		return ck_fail(why, EINVAL, "%s", w->j.t->fault);
	ret = ck_asm_place_all(w, why);
	if (ret || !(w->j.first || w->j.t->shape))
		return ret;
	ret = ck_asm_check_copies(w, why, err);
	if (!ret && w->j.a->how->cuts_stretches)
		ret = ck_asm_cut_stretches(w, why);
	return ret ? ret : add_parts(w, err);
}

static int refuse(const struct ck_asm_join *j, const struct ck_err *why,
		  struct ck_err *err)
{
	const struct ck_asm *a = j->a;
	const struct ck_asm_tensor *t = j->t;
	int ret = a->how->refused ? a->how->refused(j, why, err) : 0;

	return ret ? ret :
		     ck_builder_refuse(a->b, t->tree, t->name, t->len, err,
				       "%s", why->msg);
}

static int join_tensor(struct ck_asm *a, struct ck_asm_tensor *t,
		       struct ck_err *err)
{
	ck_auto_asm_work struct ck_asm_work w = { .j = { .a = a, .t = t } };
	struct ck_err why = { 0 };
	int ret = join(&w, &why, err);

	if (ret == -EINVAL && why.code)
		return refuse(&w.j, &why, err);
	return ret && why.code ? ck_fail(err, -ret, "%s", why.msg) : ret;
}

int ck_asm_join(struct ck_asm *a, struct ck_err *err)
{
	int ret = 0;

	if (a->how->words[CK_ASM_COPIES])
		ck_builder_compared(a->b);
	for (size_t i = 0; i < a->tensors.nr && !ret; i++) {
		struct ck_asm_tensor t = a->tensors.v[i];

		ret = join_tensor(a, &a->tensors.v[i], err);
		for (uint32_t k = t.alias; k != CK_NONE && !ret;
		     k = a->aliases.v[k].next) {
			t.name = a->aliases.v[k].name;
			t.len = a->aliases.v[k].len;
			ret = join_tensor(a, &t, err);
		}
	}
	return ret;
}

int ck_asm_place_shard(struct ck_asm_join *j, const struct ck_shard *shard,
		       const struct ck_extent *x, unsigned n,
		       struct ck_part *part)
{
	uint64_t to[CK_MAX_RANK], size = ck_dtype_info(j->dtype)->size;
	struct ck_box box;
	int64_t step = 1;

	ck_shard_piece(shard, n, &box, to);
	memcpy(j->start, box.start, j->rank * sizeof(*j->start));
	memcpy(j->len, box.len, j->rank * sizeof(*j->len));
	part->start = j->start;
	part->len = j->len;
	/* inside of what is stored, as all of its elements are */
	for (unsigned d = j->rank; x->shape && d-- > 0;) {
		int64_t by = x->stride ? x->stride[d] : step;

		part->off += to[d] * (uint64_t)by * size;
		step *= (int64_t)x->shape[d];
	}
	if (x->shape && !x->stride)
		part->full_len = x->shape;
	return n + 1 < ck_shard_pieces(shard);
}
