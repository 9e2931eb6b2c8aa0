/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.c - ranges of parts, and the full shape from the parts' shapes
 */
#include "core/format/oneflow/split.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>

void ck_of_balanced(uint64_t n, uint64_t k, uint64_t i, uint64_t *start,
		    uint64_t *len)
{
	uint64_t q = n / k, more = n % k;

	*len = q + (i < more);
	*start = i * q + CK_MIN(i, more);
}

uint32_t ck_of_nd_nr(const struct ck_of_nd *nd)
{
	uint32_t nr = 1;

	for (unsigned a = 0; a < nd->axes; a++)
		nr *= nd->size[a];
	return nr;
}

static void coords_of(const struct ck_of_nd *nd, uint32_t id,
		      uint32_t coord[CK_OF_MAX_AXES])
{
	for (unsigned a = nd->axes; a-- > 0;) {
		coord[a] = id % nd->size[a];
		id /= nd->size[a];
	}
}

void ck_of_nd_range(const struct ck_of_nd *nd, unsigned d, uint64_t n,
		    uint32_t id, uint64_t *start, uint64_t *len)
{
	uint32_t coord[CK_OF_MAX_AXES];
	uint64_t skip;

	coords_of(nd, id, coord);
	*start = 0;
	*len = n;
	for (unsigned a = 0; a < nd->axes; a++) {
		if (nd->sbp[a] != (int32_t)d)
			continue;
		ck_of_balanced(*len, nd->size[a], coord[a], &skip, len);
		*start += skip;
	}
}

bool ck_of_nd_same(const struct ck_of_nd *nd, uint32_t a, uint32_t b)
{
	uint32_t ca[CK_OF_MAX_AXES], cb[CK_OF_MAX_AXES];

	coords_of(nd, a, ca);
	coords_of(nd, b, cb);
	for (unsigned i = 0; i < nd->axes; i++)
		if (nd->sbp[i] >= 0 && ca[i] != cb[i])
			return false;
	return true;
}

/* Where the part with these coordinates is, of the axes that split @d. */
static uint32_t piece_of(const struct ck_of_nd *nd, unsigned d, uint32_t id,
			 uint32_t *nr)
{
	uint32_t coord[CK_OF_MAX_AXES], piece = 0;

	coords_of(nd, id, coord);
	*nr = 1;
	for (unsigned a = 0; a < nd->axes; a++) {
		if (nd->sbp[a] != (int32_t)d)
			continue;
		piece = piece * nd->size[a] + coord[a];
		*nr *= nd->size[a];
	}
	return piece;
}

/*
 * The rows of dimension @d: those of its pieces, one after the other; each is
 * held by some part.  Where no part is missing, ids go through the pieces in
 * order, and one pass meets each piece's first part.
 */
static int rows_of(const struct ck_of_nd *nd, unsigned d,
		   const uint64_t *const *local, uint64_t *rows, uint32_t *id,
		   struct ck_err *err)
{
	uint32_t nr = ck_of_nd_nr(nd), pieces = 1, seen = 0;

	*rows = 0;
	for (uint32_t i = 0; i < nr && seen < pieces; i++) {
		if (piece_of(nd, d, i, &pieces) != seen || !local[i])
			continue;
		seen++;
		*id = i;
		if (!ck_add_ok(*rows, local[i][d], rows))
			return ck_fail(err, EINVAL,
				       "dimension %u overflows with it", d);
	}
	if (seen == pieces)
		return 0;
	*rows = 0;
	for (uint32_t piece = 0; piece < pieces; piece++) {
		uint32_t i = 0;

		while (i < nr &&
		       (!local[i] || piece_of(nd, d, i, &pieces) != piece))
			i++;
		*id = i;
		if (!ck_add_ok(*rows, local[i][d], rows))
			return ck_fail(err, EINVAL,
				       "dimension %u overflows with it", d);
	}
	return 0;
}

/* Whether every box is held by some part, and each part is its box's size. */
static int check_part(const struct ck_of_nd *nd, unsigned rank,
		      const uint64_t *shape, const uint64_t *local, uint32_t id,
		      struct ck_err *err)
{
	uint64_t start, len;

	for (unsigned d = 0; d < rank; d++) {
		ck_of_nd_range(nd, d, shape[d], id, &start, &len);
		if (local[d] != len)
			return ck_fail(err, EINVAL,
				       "it has %" PRIu64
				       " rows of dimension %u, where %" PRIu64
				       " of %" PRIu64 " are its share",
				       local[d], d, len, shape[d]);
	}
	return 0;
}

static bool held(const struct ck_of_nd *nd, const uint64_t *const *local,
		 uint32_t id)
{
	uint32_t nr = ck_of_nd_nr(nd);

	if (local[id])
		return true;
	for (uint32_t i = 0; i < nr; i++)
		if (local[i] && ck_of_nd_same(nd, i, id))
			return true;
	return false;
}

int ck_of_nd_shape(const struct ck_of_nd *nd, unsigned rank,
		   const uint64_t *const *local, uint64_t *shape, uint32_t *id,
		   struct ck_err *err)
{
	uint32_t nr = ck_of_nd_nr(nd);
	int ret = 0;

	*id = 0;
	for (uint32_t i = 0; i < nr; i++)
		if (!held(nd, local, i)) {
			*id = i;
			return ck_fail(err, EINVAL, "it is missing");
		}
	for (unsigned d = 0; !ret && d < rank; d++)
		ret = rows_of(nd, d, local, &shape[d], id, err);
	for (uint32_t i = 0; !ret && i < nr; i++) {
		*id = i;
		if (local[i])
			ret = check_part(nd, rank, shape, local[i], i, err);
	}
	return ret;
}
