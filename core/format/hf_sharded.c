/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf_sharded.c - DCP's HuggingFaceStorageWriter, one file a rank
 *
 * Each entry is a box.  Its corner stands in __metadata__, under
 * DCP_SHARDING_INFO; the full shape stands nowhere and is what the boxes span,
 * so a last shard that is lost cannot be seen.
 */
#include "core/format/hf_set.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct span {
	uint64_t *shape; /* CK_MAX_RANK; NULL: refused */
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
	uint64_t at[CK_MAX_RANK], end;

	if (!first && !sp->shape)
		return 0;
	if (first) {
		sp->rank = e->rank;
		sp->shape = calloc(e->rank + 1u, sizeof(*sp->shape));
		if (!sp->shape)
			return ck_fail(err, ENOMEM, "no memory for shapes");
	}
	if (e->why)
		return refuse(s, e, sp, f->name, e->why, err);
	if (e->rank != sp->rank)
		return refuse(s, e, sp, f->name,
			      "its number of dimensions "
			      "differs between files",
			      err);
	if (!ck_st_file_corner(f, e, at))
		return refuse(s, e, sp, f->name,
			      "its saved_offsets are not "
			      "one number a dimension",
			      err);
	for (unsigned d = 0; d < e->rank; d++) {
		if (!ck_add_ok(at[d], ck_st_file_shape(f, e)[d], &end))
			return refuse(s, e, sp, f->name,
				      "its saved_offsets "
				      "are larger than any tensor",
				      err);
		sp->shape[d] = CK_MAX(sp->shape[d], end);
	}
	return 0;
}

static int measure(struct ck_hf_set *s, struct span *spans, struct ck_err *err)
{
	ck_auto_free bool *seen = calloc(s->held.nr + 1, sizeof(*seen));
	int ret = seen ? 0 : ck_fail(err, ENOMEM, "no memory for names");

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

/* Ranks are counted from 1 without a gap. */
static int check_ranks(struct ck_hf_set *s, struct ck_err *err)
{
	const struct ck_problem_in gap = { .severity = CK_WARNING };
	ck_auto_free bool *have = calloc(s->files.nr + 1, sizeof(*have));
	unsigned rank;

	if (!have)
		return ck_fail(err, ENOMEM, "no memory for names");
	for (size_t i = 0; i < s->files.nr; i++)
		if (ck_hf_is_shard(s->files.name[i], &rank, NULL) &&
		    rank <= s->files.nr)
			have[rank] = true;
	for (rank = 1; rank <= s->files.nr && have[rank]; rank++)
		;
	for (size_t i = 0; i < s->files.nr; i++) {
		unsigned later;

		if (ck_hf_is_shard(s->files.name[i], &later, NULL) &&
		    later > rank)
			return ck_builder_problem(
				s->b, &gap, err,
				"no file shard-%05u-model-*: "
				"there are later ones, so it may be missing",
				rank);
	}
	return 0;
}

int ck_hf_set_add_sharded(struct ck_hf_set *s, struct ck_err *err)
{
	const struct ck_problem_in implied = { .severity = CK_WARNING };
	struct span *spans = calloc(s->held.nr + 1, sizeof(*spans));
	int ret;

	if (!spans)
		return ck_fail(err, ENOMEM, "no memory for shapes");
	ret = ck_builder_problem(s->b, &implied, err,
				 "sharded files without "
				 "an index: shapes are what the boxes span; a "
				 "missing last shard would not be noticed");
	ret = ret ? ret : check_ranks(s, err);
	ret = ret ? ret : measure(s, spans, err);
	ret = ret ? ret : add_boxes(s, spans, err);
	for (size_t i = 0; i < s->held.nr; i++)
		free(spans[i].shape);
	free(spans);
	return ret;
}
