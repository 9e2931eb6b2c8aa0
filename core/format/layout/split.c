/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - the arithmetic of placements; see split.h */
#include "core/format/layout/split.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>

static int part_given(const struct ck_lay_split *s, uint64_t extent, uint64_t i,
		      uint64_t *start, uint64_t *len, struct ck_err *err)
{
	uint64_t sum = 0;

	for (uint64_t k = 0; k < s->nr; k++) {
		if (k == i) {
			*start = sum;
			*len = s->given[k];
		}
		if (!ck_add_ok(sum, s->given[k], &sum))
			return ck_fail(err, EINVAL, "sizes are too large");
	}
	return sum == extent ?
		       0 :
		       ck_fail(err, EINVAL,
			       "sizes make %" PRIu64 ", there are %" PRIu64,
			       sum, extent);
}

int ck_lay_part(const struct ck_lay_split *s, uint64_t extent, uint64_t i,
		uint64_t *start, uint64_t *len, struct ck_err *err)
{
	uint64_t each = extent / s->nr, more = extent % s->nr;

	switch (s->how) {
	case CK_LAY_EVEN:
		if (more)
			return ck_fail(err, EINVAL,
				       "%" PRIu64 " do not make %" PRIu64
				       " even parts (ceil, balanced or a list "
				       "of sizes cut unevenly)",
				       extent, s->nr);
		*start = i * each;
		*len = each;
		return 0;
	case CK_LAY_CEIL:
		each += more > 0;
		/* i * each may pass the extent, by less than nr * nr */
		*start = CK_MIN(extent, i * each);
		*len = CK_MIN(each, extent - *start);
		return 0;
	case CK_LAY_BALANCED:
		*start = i * each + CK_MIN(i, more);
		*len = each + (i < more);
		return 0;
	case CK_LAY_GIVEN:
		return part_given(s, extent, i, start, len, err);
	}
	return -EINVAL;
}

static int cut_flat(const struct ck_lay_step *s, uint64_t i,
		    struct ck_lay_place *out, struct ck_err *err)
{
	uint64_t start, len, extent = s->padded ? s->padded : out->stored;
	int ret;

	if (extent < out->stored)
		return ck_fail(err, EINVAL,
			       "padded to %" PRIu64 ", but there are %" PRIu64
			       " elements",
			       extent, out->stored);
	ret = ck_lay_part(&s->split, extent, i, &start, &len, err);
	if (ret)
		return ret;
	out->lo += start;
	out->stored = len;
	return 0;
}

static int cut_dim(const struct ck_lay_step *s, uint64_t i,
		   struct ck_lay_place *out, struct ck_err *err)
{
	uint64_t start, len, extent = out->full[s->dim];
	int ret;

	if (s->padded && s->padded < extent)
		return ck_fail(err, EINVAL,
			       "padded to %" PRIu64 ", but there are %" PRIu64,
			       s->padded, extent);
	if (s->padded)
		extent = s->padded;
	ret = ck_lay_part(&s->split, extent, i, &start, &len, err);
	if (ret)
		return ret;
	out->start[s->dim] += start;
	out->full[s->dim] = len;
	return 0;
}

/* What of a stored length is inside, and not padding. */
static uint64_t clip(uint64_t start, uint64_t len, uint64_t extent)
{
	return start < extent ? CK_MIN(len, extent - start) : 0;
}

static void begin(const uint64_t *dims, unsigned rank, struct ck_lay_place *out)
{
	out->flat = false;
	out->lo = out->hi = out->stored = 0;
	for (unsigned d = 0; d < rank; d++) {
		out->start[d] = 0;
		out->full[d] = dims[d];
	}
}

static void clip_dims(const uint64_t *dims, unsigned rank,
		      struct ck_lay_place *out)
{
	for (unsigned d = 0; d < rank; d++) {
		out->len[d] = clip(out->start[d], out->full[d], dims[d]);
		/* an empty box lies inside too */
		out->start[d] = CK_MIN(out->start[d], dims[d]);
	}
}

int ck_lay_place(const struct ck_lay_step *steps, unsigned nr,
		 const uint64_t *dims, unsigned rank, const uint64_t *at,
		 struct ck_lay_place *out, struct ck_err *err)
{
	uint64_t volume = 0;
	int ret = 0;

	begin(dims, rank, out);
	for (unsigned i = 0; i < nr && !ret; i++) {
		const struct ck_lay_step *s = &steps[i];

		if (!s->flat && s->dim >= rank)
			return ck_fail(err, EINVAL,
				       "dim %u is cut by %s, of %u dims",
				       s->dim, s->axis_name, rank);
		if (s->flat && !out->flat) {
			clip_dims(dims, rank, out);
			if (!ck_dims_volume(out->len, rank, &volume))
				return ck_fail(err, EINVAL, "too large");
			out->stored = volume;
			out->flat = true;
		}
		ret = s->flat ? cut_flat(s, at[s->axis], out, err) :
				cut_dim(s, at[s->axis], out, err);
		if (ret && s->flat)
			return ck_wrap(err, ret, "flat, cut by %s",
				       s->axis_name);
		if (ret)
			return ck_wrap(err, ret, "dim %u, cut by %s", s->dim,
				       s->axis_name);
	}
	clip_dims(dims, rank, out);
	out->hi = CK_MIN(out->lo, volume) + clip(out->lo, out->stored, volume);
	out->lo = CK_MIN(out->lo, volume);
	return ret;
}
