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

struct span {
	uint64_t *shape; /* CK_MAX_RANK; NULL: refused */
	uint64_t nr; /* elements in its boxes */
	unsigned rank;
};

static int refuse(struct ck_hf_set *s, const struct ck_st_entry *e,
		  struct span *sp, const char *file, const char *why,
		  struct ck_err *err)
{
	free(sp->shape);
	sp->shape = NULL;
	return ck_builder_refuse(s->b, 0, e->name, e->name_len, err, "%s: %s",
				 file, why);
}

/* Widens the span of the entry's tensor by its box. */
static int widen(struct ck_hf_set *s, const struct ck_st_file *f,
		 const struct ck_st_entry *e, struct span *sp, bool first,
		 struct ck_err *err)
{
	uint64_t at[CK_MAX_RANK], end, nr = 1;
	const uint64_t *len = ck_st_file_shape(f, e);

	if (!first && !sp->shape)
		return 0;
	if (first) {
		sp->rank = e->rank;
		sp->shape = calloc(e->rank + 1u, sizeof(*sp->shape));
		if (!sp->shape)
			return ck_no_memory(err);
	}
	if (e->why)
		return refuse(s, e, sp, f->name, e->why, err);
	if (e->rank != sp->rank)
		return refuse(s, e, sp, f->name,
			      "its number of dimensions "
			      "differs between files",
			      err);
	if (!ck_st_file_placed(f, e))
		return refuse(s, e, sp, f->name,
			      "no saved_offsets say where its box begins", err);
	if (!ck_st_file_corner(f, e, at))
		return refuse(s, e, sp, f->name,
			      "its saved_offsets are not "
			      "one number a dimension",
			      err);
	for (unsigned d = 0; d < e->rank; d++) {
		if (!ck_add_ok(at[d], len[d], &end) ||
		    !ck_mul_ok(nr, len[d], &nr))
			return refuse(s, e, sp, f->name,
				      "its saved_offsets "
				      "are larger than any tensor",
				      err);
		sp->shape[d] = CK_MAX(sp->shape[d], end);
	}
	if (!ck_add_ok(sp->nr, nr, &sp->nr))
		sp->nr = UINT64_MAX;
	return 0;
}

/* Boxes that overlap are refused later; those that do not are counted. */
static bool has_hole(const struct span *sp)
{
	uint64_t nr = 1;

	for (unsigned d = 0; d < sp->rank; d++)
		if (!ck_mul_ok(nr, sp->shape[d], &nr))
			return true;
	return sp->nr < nr;
}

static int measure(struct ck_hf_set *s, struct span *spans, struct ck_err *err)
{
	ck_auto_free bool *seen = calloc(s->held.nr + 1, sizeof(*seen));
	int ret = seen ? 0 : ck_no_memory(err);

	for (size_t i = 0; i < s->files.nr && !ret; i++) {
		const struct ck_st_file *f = &s->st[i];

		for (size_t k = 0; k < f->tensors.nr && !ret; k++) {
			const struct ck_st_entry *e = &f->tensors.v[k];
			uint32_t at =
				ck_strmap_get(&s->names, e->name, e->name_len);

			ret = widen(s, f, e, &spans[at], !seen[at], err);
			seen[at] = true;
		}
	}
	return ret;
}

static int declare(struct ck_hf_set *s, const struct ck_st_entry *e,
		   const struct span *sp, struct ck_err *err)
{
	const struct ck_part decl = {
		.name = e->name,
		.name_len = e->name_len,
		.dtype = e->dtype,
		.rank = sp->rank,
		.shape = sp->shape,
	};

	return ck_builder_declare(s->b, &decl, err);
}

/* Ranks beyond the end of a tensor have boxes without elements. */
static bool is_empty(const struct ck_st_entry *e)
{
	return e->begin == e->end;
}

static int add_boxes(struct ck_hf_set *s, const struct span *spans,
		     struct ck_err *err)
{
	uint64_t at[CK_MAX_RANK];
	int ret = 0;

	for (size_t i = 0; i < s->files.nr && !ret; i++) {
		const struct ck_st_file *f = &s->st[i];

		for (size_t k = 0; k < f->tensors.nr && !ret; k++) {
			const struct ck_st_entry *e = &f->tensors.v[k];
			const struct span *sp = &spans[ck_strmap_get(
				&s->names, e->name, e->name_len)];

			if (!sp->shape)
				continue;
			ret = declare(s, e, sp, err);
			if (ret || is_empty(e) || !ck_st_file_corner(f, e, at))
				continue;
			ret = ck_st_file_add(f, e, sp->shape, at, s->b, err);
		}
	}
	return ret;
}

/* A tensor with a hole says that a file of its K is missing. */
static void find_holes(const struct ck_hf_set *s, const struct span *spans,
		       struct ck_hf_gaps *g)
{
	for (size_t i = 0; i < s->files.nr && !g->told; i++) {
		struct ck_hf_gap *gap = ck_hf_gaps_of(g, s, i);
		const struct ck_st_file *f = &s->st[i];

		for (size_t k = 0; k < f->tensors.nr; k++) {
			const struct ck_st_entry *e = &f->tensors.v[k];
			const struct span *sp = &spans[ck_strmap_get(
				&s->names, e->name, e->name_len)];

			if (gap->what != CK_HF_WHOLE)
				break;
			if (!sp->shape || !has_hole(sp))
				continue;
			gap->what = CK_HF_HOLE;
			gap->name = e->name;
			gap->name_len = e->name_len;
		}
	}
}

static int refuse_unknown(struct ck_hf_set *s, struct span *spans,
			  const struct ck_hf_gaps *g, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < s->files.nr && !ret; i++) {
		const struct ck_hf_gap *gap = ck_hf_gaps_of(g, s, i);
		const struct ck_st_file *f = &s->st[i];

		if (gap->what == CK_HF_WHOLE)
			continue;
		for (size_t k = 0; k < f->tensors.nr && !ret; k++) {
			const struct ck_st_entry *e = &f->tensors.v[k];
			struct span *sp = &spans[ck_strmap_get(
				&s->names, e->name, e->name_len)];

			if (!sp->shape)
				continue;
			free(sp->shape);
			sp->shape = NULL;
			ret = ck_hf_gap_refuse(gap, g, s, e, err);
		}
	}
	return ret;
}

static int add(struct ck_hf_set *s, struct span *spans, struct ck_hf_gaps *g,
	       struct ck_err *err)
{
	int ret = ck_hf_gaps_find(g, s, err);

	ret = ret ? ret : ck_hf_gaps_say(g, s, err);
	ret = ret ? ret : measure(s, spans, err);
	if (ret)
		return ret;
	find_holes(s, spans, g);
	ret = refuse_unknown(s, spans, g, err);
	return ret ? ret : add_boxes(s, spans, err);
}

int ck_hf_set_add_sharded(struct ck_hf_set *s, struct ck_err *err)
{
	struct span *spans = calloc(s->held.nr + 1, sizeof(*spans));
	struct ck_hf_gaps gaps = { 0 };
	int ret;

	if (!spans)
		return ck_no_memory(err);
	ret = add(s, spans, &gaps, err);
	for (size_t i = 0; i < s->held.nr; i++)
		free(spans[i].shape);
	free(spans);
	ck_hf_gaps_free(&gaps);
	return ret;
}
