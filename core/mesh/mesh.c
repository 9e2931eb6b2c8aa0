/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.c - ranks and places, parts of an extent, parts of a tensor */
#include "core/mesh/mesh.h"

#include "core/base/check.h"
#include "core/base/search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int part_given(const struct ck_split *s, uint64_t extent, uint64_t i,
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

int ck_split_part(const struct ck_split *s, uint64_t extent, uint64_t i,
		  uint64_t *start, uint64_t *len, struct ck_err *err)
{
	uint64_t each = extent / s->nr, more = extent % s->nr;

	switch (s->how) {
	case CK_SIZES_EVEN:
		if (more)
			return ck_fail(err, EINVAL,
				       "%" PRIu64 " do not make %" PRIu64
				       " even parts (ceil, balanced or a list "
				       "of sizes cut unevenly)",
				       extent, s->nr);
		*start = i * each;
		*len = each;
		return 0;
	case CK_SIZES_CEIL:
		each += more > 0;
		/* i * each may pass the extent, by less than nr * nr */
		*start = CK_MIN(extent, i * each);
		*len = CK_MIN(each, extent - *start);
		return 0;
	case CK_SIZES_BALANCED:
		*start = i * each + CK_MIN(i, more);
		*len = each + (i < more);
		return 0;
	case CK_SIZES_GIVEN:
		return part_given(s, extent, i, start, len, err);
	}
	return -EINVAL;
}

bool ck_split_meet(uint64_t size, uint64_t i, uint64_t pos, uint64_t nr,
		   uint64_t *lo, uint64_t *hi, uint64_t *at)
{
	uint64_t first = CK_MAX(pos, i * size);
	uint64_t end = CK_MIN(pos + nr, (i + 1) * size);

	if (first >= end)
		return false;
	*lo = first - pos;
	*hi = end - pos;
	*at = first - i * size;
	return true;
}

uint64_t ck_split_dealt(uint64_t i, uint64_t nr, uint64_t parts)
{
	uint64_t turn = i % parts;

	/* Of nr / parts whole rounds each turn has one, and of the last some. */
	return turn * (nr / parts) + CK_MIN(turn, nr % parts) + i / parts;
}

unsigned ck_mesh_add_axis(struct ck_mesh *m, uint32_t size, uint32_t max)
{
	uint64_t ranks = (m->nr ? m->ranks : 1) * (uint64_t)size;

	if (m->nr == CK_MESH_AXES || !size || ranks > max)
		return CK_MESH_AXES;
	m->ranks = (uint32_t)ranks;
	m->size[m->nr] = size;
	return m->nr++;
}

void ck_mesh_coords(const struct ck_mesh *m, uint32_t at, uint64_t *coord)
{
	for (unsigned i = m->nr; i-- > 0; at /= m->size[i])
		coord[i] = at % m->size[i];
}

uint32_t ck_mesh_rank_at(const struct ck_mesh *m, uint32_t at)
{
	if (!m->place)
		return m->base + at;
	if (m->place[at].at == at) /* places in the order of ranks */
		return m->place[at].rank;
	for (uint32_t i = 0; i < m->ranks; i++)
		if (m->place[i].at == at)
			return m->place[i].rank;
	return 0;
}

static int by_rank(const void *a, const void *b)
{
	uint32_t ra = ((const struct ck_mesh_place *)a)->rank;
	uint32_t rb = ((const struct ck_mesh_place *)b)->rank;

	return (ra > rb) - (ra < rb);
}

bool ck_mesh_sort(struct ck_mesh_place *place, uint32_t nr, uint32_t *twice)
{
	qsort(place, nr, sizeof(*place), by_rank);
	for (uint32_t i = 1; i < nr; i++)
		if (place[i].rank == place[i - 1].rank) {
			*twice = place[i].rank;
			return false;
		}
	return true;
}

bool ck_mesh_find(const struct ck_mesh *m, uint32_t rank, uint32_t *at)
{
	uint32_t k;

	if (!m->place) {
		*at = rank - m->base;
		return rank >= m->base && *at < m->ranks;
	}
	k = CK_FIRST(i, 0, m->ranks, m->place[i].rank >= rank);
	if (k == m->ranks || m->place[k].rank != rank)
		return false;
	*at = m->place[k].at;
	return true;
}

struct ck_mesh_step *ck_placement_shard(struct ck_placement *p, unsigned dim,
					unsigned axis, enum ck_sizes how)
{
	struct ck_mesh_step *s;

	if (p->nr == CK_MESH_STEPS || axis >= p->mesh.nr)
		return NULL;
	s = &p->step[p->nr++];
	s->dim = (uint8_t)dim;
	s->split.how = how;
	s->split.nr = p->mesh.size[axis];
	s->nr_axes = 1;
	s->axis[0] = (uint8_t)axis;
	return s;
}
