/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_duplicates.c - ranks that only names tell apart, by some of their
 * pieces
 *
 * Which tensors are looked at follows from their names, so that all ranks are
 * asked for the same.
 */
#include "core/catalog/builder_priv.h"

#include <inttypes.h>
#include <xxhash.h>

#define MAX_PIECES UINT64_C(65536)
#define MOST UINT64_C(64) /* tensors, about */
#define MAX_SAID 8
#define STRETCH (UINT32_C(1) << 31) /* added to its number: of no tensor */

int ck_builder_unlabelled_rank(struct ck_builder *b, uint32_t src,
			       const char *unit, struct ck_err *err)
{
	uint32_t ref;
	int ret;

	if (src >= b->srcs.nr)
		return ck_fail(err, EINVAL, "no source of %s", unit);
	ret = ck_intern_str(&b->in, unit, strlen(unit), &ref, err);
	if (ret)
		return ret;
	b->nr_units += ref != b->last_unit;
	b->last_unit = ref;
	b->srcs.v[src].unit = ref;
	return 0;
}

int ck_builder_stretch(struct ck_builder *b, const struct ck_stretch *s,
		       struct ck_err *err)
{
	struct ck_duplicate_piece p = { .off = s->off,
					.len = s->len,
					.src = s->src,
					.tensor = s->nr | STRETCH,
					.elem = s->elem };
	int ret;

	if (s->src >= b->srcs.nr)
		return ck_fail(err, EINVAL, "no source of %s", s->unit);
	if (!s->len || !s->elem || b->duplicates.v.nr > 4 * MAX_PIECES)
		return 0;
	ret = ck_intern_str(&b->in, s->unit, strlen(s->unit), &p.unit, err);
	if (ret)
		return ret;
	p.cell = p.unit; /* all lie in different places */
	return ck_vec_put(&b->duplicates.v, err, p);
}

/* About so many of all tensors are looked at. */
static bool is_chosen(const struct ck_cells *c)
{
	const struct ck_builder *b = c->b;
	uint64_t most = CK_MAX(MAX_PIECES / b->nr_units, UINT64_C(4));
	uint64_t len;
	size_t n;
	const char *name = ck_intern_text(&b->in, c->e->name, &n);

	most = CK_MIN(most, MOST);
	len = b->entries.nr;
	return len <= most || XXH3_64bits(name, n) % len < most;
}

static int keep(struct ck_builder *b, const struct ck_cells *c, uint32_t cell,
		const struct ck_chunk *x, struct ck_err *err)
{
	const struct ck_src *src = &b->srcs.v[x->src];
	struct ck_duplicate_piece p = { .unit = src->unit,
					.src = x->src,
					.tensor =
						(uint32_t)(c->e - b->entries.v),
					.cell = cell,
					.elem = c->elem };

	if (!src->unit || src->kind != CK_SRC_FILE || x->state != CK_OK ||
	    !ck_duplicate_extent(&c->img, x, c->rank, &p.off, &p.len))
		return 0;
	return ck_vec_put(&b->duplicates.v, err, p);
}

int ck_cells_duplicates(const struct ck_cells *c, struct ck_err *err)
{
	struct ck_builder *b = c->b;
	int ret = 0;

	if (b->nr_units < 2 || c->cell.nr < 2 || !b->reads.read ||
	    c->part.nr > MAX_PIECES || b->duplicates.v.nr > 4 * MAX_PIECES ||
	    !is_chosen(c))
		return 0;
	for (uint32_t i = 0; i < c->cell.nr; i++)
		for (uint32_t at = c->cell.v[i]; at != CK_NONE && !ret;
		     at = c->part.v[at].next)
			ret = keep(b, c, i, &c->part.v[at], err);
	return ret;
}

struct say {
	struct ck_builder *b;
	uint64_t nr;
};

static int read_src(void *ctx, uint32_t src, void *buf, size_t len,
		    uint64_t off, struct ck_err *err)
{
	struct ck_builder *b = ((struct say *)ctx)->b;

	return b->reads.read(b->reads.ctx, ck_builder_src_name(b, src), buf,
			     len, off, err);
}

static int say(void *ctx, uint32_t unit_a, uint32_t unit_b, uint64_t pieces,
	       struct ck_err *err)
{
	struct say *s = ctx;
	struct ck_problem at = { .severity = CK_WARNING,
				 .tensor = CK_NONE,
				 .view = CK_NONE,
				 .file = unit_b };

	if (s->nr++ >= MAX_SAID)
		return 0;
	return ck_builder_report(
		s->b, &at, err,
		"holds the same bytes as %s where %s should differ, in all %" PRIu64
		" pieces looked at: one may be a copy of the other, whose own is lost%s",
		ck_intern_text(&s->b->in, unit_a, NULL),
		s->b->nr_units ? "ranks" : "the two", pieces,
		s->b->nr_units ?
			" (unshard verify --replicas compares all of them)" :
			"");
}

int ck_builder_duplicates(struct ck_builder *b, struct ck_err *err)
{
	struct say s = { .b = b };
	const struct ck_duplicate_ranks_in in = { .read = read_src,
						  .each = say,
						  .ctx = &s };
	const struct ck_problem_in more = { .severity = CK_WARNING };
	int ret;

	if (!b->duplicates.v.nr || !b->reads.read)
		return 0;
	ret = ck_duplicate_ranks_find(&b->duplicates, &in, err);
	if (ret || s.nr <= MAX_SAID)
		return ret;
	return ck_builder_problem(b, &more, err,
				  "%" PRIu64 " more pairs of ranks are alike",
				  s.nr - MAX_SAID);
}
