/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused.c - which layers are fused, and where a rank's shares belong
 *
 *	rank 0 has Q0 K0 V0, rank 1 has Q1 K1 V1; the weight is Q0 Q1 K0 K1 V0 V1
 */
#include "core/format/colossalai/colossalai.h"

#include "core/base/check.h"
#include "core/base/number.h"
#include "core/mesh/mesh.h"
#include "core/mesh/names.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define OPTION "fused"

static int bad(const char *value, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "-o fused=%s: expected a number of equal parts, the "
		       "rows of each (64+16+16), or no",
		       value);
}

int ck_colossalai_fused_get(struct colossalai_fused *f,
			    const struct ck_opts *opts, struct ck_err *err)
{
	const char *value = ck_opts_get(opts, OPTION), *at = value, *end;

	*f = (struct colossalai_fused){ .given = value != NULL };
	if (!value || !strcmp(value, "no"))
		return 0;
	for (;; at = end + 1) {
		uint64_t n;

		if (f->nr == COLOSSALAI_MAX_FUSED)
			return bad(value, err);
		end = at + ck_digits(at, SIZE_MAX, &n);
		if (!n || n > CK_SIZE_MAX / COLOSSALAI_MAX_FUSED ||
		    (*end && *end != '+'))
			return bad(value, err);
		f->rows[f->nr++] = n;
		if (!*end)
			break;
	}
	if (f->nr > 1)
		return 0;
	f->equal = true;
	f->nr = (unsigned)CK_MIN(f->rows[0], (uint64_t)UINT32_MAX);
	return f->nr <= COLOSSALAI_MAX_FUSED ? 0 : bad(value, err);
}

bool ck_colossalai_is_fused(const char *name, size_t len)
{
	static const char *const ends[] = { ".weight", ".bias" };

	for (size_t e = 0; e < CK_ARRAY_LEN(ends); e++) {
		size_t n = strlen(ends[e]), to, from;

		if (len <= n || memcmp(name + len - n, ends[e], n) != 0)
			continue;
		to = from = len - n;
		while (from && name[from - 1] != '.')
			from--;
		return ck_name_is(name + from, to - from, ck_names_fused);
	}
	return false;
}

int ck_colossalai_fused_shard(const struct colossalai_fused *f,
			      const uint64_t *shape, unsigned rank,
			      unsigned dim, uint64_t off, uint64_t len,
			      struct ck_shard *out, struct ck_err *err)
{
	uint64_t all = shape[dim], sum = 0, ranks;
	struct ck_placement p = { .nr = 0 };
	struct ck_mesh_step *s;
	bool whole, zeros;

	if (!len || all % len || off % len || off >= all)
		return ck_fail(err, EINVAL,
			       "its pieces are not equally long: %" PRIu64
			       " of %" PRIu64 " rows from %" PRIu64,
			       len, all, off);
	ranks = all / len;
	whole = ck_mesh_add_axis(&p.mesh, (uint32_t)ranks, UINT32_MAX) == 0 &&
		ranks <= UINT32_MAX;
	s = ck_placement_shard(&p, dim, 0, CK_SIZES_EVEN);
	s->blocks = f->nr;
	for (unsigned k = 0; k < f->nr; k++) {
		uint64_t part = f->equal ? all / f->nr : f->rows[k];

		sum += part;
		whole &= part % ranks == 0;
		s->weight[k] = f->equal ? 0 : part;
	}
	if (sum != all || !whole)
		return ck_fail(err, EINVAL,
			       "-o fused= has parts of %" PRIu64
			       " rows in all, where it has %" PRIu64
			       " over %" PRIu64 " ranks",
			       sum, all, ranks);
	return ck_placement_at(&p, (uint32_t)(off / len), shape, rank, out,
			       &zeros, err);
}
