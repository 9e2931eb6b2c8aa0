/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.c - the shape of a whole tensor, from its pieces
 *
 * A dimension that nothing cuts is what the first piece has; one that is cut
 * is the sum over the mesh positions that cut it.  Even cuts need one piece
 * only.  Whether the others agree is found when they are placed.
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The steps that cut one dimension, or the flat order. */
struct cuts {
	const struct ck_mesh_step *step[CK_LAY_AXES];
	unsigned nr;
	bool even;
	uint64_t positions; /* how many parts they make */
};

static void find_cuts(const struct ck_lay_load *ld, const struct ck_lay_rule *r,
		      unsigned dim, struct cuts *c)
{
	*c = (struct cuts){ .even = true, .positions = 1 };
	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct ck_mesh_step *s =
			&ld->doc.steps.v[r->first_step + i];

		if (!s->flat && s->dim != dim)
			continue;
		c->step[c->nr++] = s;
		c->even &= s->split.how == CK_SIZES_EVEN;
		c->positions *= s->split.nr; /* at most 2^20 in all */
	}
}

static const struct ck_lay_piece *next_shaped(const struct ck_lay_load *ld,
					      uint32_t at)
{
	while (at != CK_NONE && ld->pieces.v[at].shape == SIZE_MAX)
		at = ld->pieces.v[at].next;
	return at == CK_NONE ? NULL : &ld->pieces.v[at];
}

static uint64_t position(const struct cuts *c, const uint64_t *at)
{
	uint64_t pos = 0;

	for (unsigned i = 0; i < c->nr; i++) {
		if (at[c->step[i]->axis[0]] == CK_LAY_FREE)
			return CK_LAY_FREE;
		pos = pos * c->step[i]->split.nr + at[c->step[i]->axis[0]];
	}
	return pos;
}

static int lacks(const struct cuts *c, uint64_t pos, unsigned dim,
		 struct ck_err *why)
{
	char text[256] = "";
	size_t n = 0;

	for (unsigned i = c->nr; i-- > 0;) {
		n += (size_t)snprintf(text + n, sizeof(text) - n,
				      "%s%.40s=%" PRIu64, n ? ", " : "",
				      c->step[i]->axis_name,
				      pos % c->step[i]->split.nr);
		pos /= c->step[i]->split.nr;
		if (n > sizeof(text) - 80)
			break;
	}
	return ck_fail(why, EINVAL,
		       "its dimension %u is not known, for the part of %s is "
		       "not there: expected \"shape\"",
		       dim, text);
}

static int sum_up(const struct ck_lay_load *ld, const struct ck_lay_tensor *t,
		  const struct cuts *c, unsigned dim, uint64_t *out,
		  struct ck_err *why)
{
	ck_auto_free uint64_t *part =
		reallocarray(NULL, c->positions, sizeof(*part));
	const struct ck_lay_piece *p = next_shaped(ld, t->first);

	if (!part)
		return ck_fail(why, ENOMEM, "no memory");
	memset(part, 0xff, c->positions * sizeof(*part));
	for (; p; p = next_shaped(ld, p->next)) {
		uint64_t pos = position(c, ld->dims.v + p->at);

		if (pos != CK_LAY_FREE && dim < p->rank)
			part[pos] = ld->dims.v[p->shape + dim];
	}
	*out = 0;
	for (uint64_t i = 0; i < c->positions; i++) {
		if (part[i] == CK_LAY_FREE)
			return lacks(c, i, dim, why);
		if (!ck_add_ok(*out, part[i], out))
			return ck_fail(why, EINVAL, "its shape is too large");
	}
	return 0;
}

static int one_dim(const struct ck_lay_load *ld, const struct ck_lay_tensor *t,
		   unsigned dim, uint64_t *out, struct ck_err *why)
{
	const struct ck_lay_piece *p = next_shaped(ld, t->first);
	struct cuts c;

	find_cuts(ld, &ld->doc.rules.v[t->rule], dim, &c);
	*out = ld->dims.v[p->shape + dim];
	if (!c.nr)
		return 0;
	if (c.even && !ck_mul_ok(*out, c.positions, out))
		return ck_fail(why, EINVAL, "its shape is too large");
	if (c.even)
		return 0;
	if (c.nr == 1 && c.step[0]->split.how == CK_SIZES_GIVEN) {
		*out = 0;
		for (uint64_t i = 0; i < c.step[0]->split.nr; i++)
			if (!ck_add_ok(*out, c.step[0]->split.given[i], out))
				return ck_fail(why, EINVAL,
					       "its shape is too large");
		return 0;
	}
	return sum_up(ld, t, &c, dim, out, why);
}

/* Boxes reach as far as the tensor does. */
static int from_boxes(const struct ck_lay_load *ld, const struct ck_lay_rule *r,
		      uint64_t *shape, unsigned *rank, struct ck_err *why)
{
	const uint64_t *dims = ld->doc.dims.v;

	*rank = ld->doc.boxes.v[r->first_box].size.rank;
	memset(shape, 0, *rank * sizeof(*shape));
	for (size_t i = 0; i < r->nr_boxes; i++) {
		const struct ck_lay_box *b = &ld->doc.boxes.v[r->first_box + i];

		if (b->size.rank != *rank)
			return ck_fail(why, EINVAL, "its boxes differ in rank");
		for (unsigned d = 0; d < *rank; d++) {
			uint64_t end;

			if (!ck_add_ok(dims[b->start.first + d],
				       dims[b->size.first + d], &end))
				return ck_fail(why, EINVAL,
					       "its shape is too large");
			shape[d] = CK_MAX(shape[d], end);
		}
	}
	return 0;
}

int ck_lay_shape(const struct ck_lay_load *ld, const struct ck_lay_tensor *t,
		 uint64_t *shape, unsigned *rank, struct ck_err *why)
{
	const struct ck_lay_rule *r = &ld->doc.rules.v[t->rule];
	const struct ck_lay_piece *p = next_shaped(ld, t->first);
	bool flat = false;
	int ret = 0;

	if (r->shape.given) {
		*rank = r->shape.rank;
		if (*rank)
			memcpy(shape, ld->doc.dims.v + r->shape.first,
			       *rank * sizeof(*shape));
		return 0;
	}
	if (r->nr_boxes)
		return from_boxes(ld, r, shape, rank, why);
	for (size_t i = 0; i < r->nr_steps; i++)
		flat |= ld->doc.steps.v[r->first_step + i].flat;
	if (!p)
		return ck_fail(why, EINVAL,
			       "raw files do not tell its shape: expected "
			       "\"shape\"");
	if (flat && p->rank != 1)
		return ck_fail(why, EINVAL,
			       "flat pieces do not tell its shape: expected "
			       "\"shape\"");
	*rank = p->rank;
	for (unsigned d = 0; d < *rank && !ret; d++)
		ret = one_dim(ld, t, d, &shape[d], why);
	return ret;
}
