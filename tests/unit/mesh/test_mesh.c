/* SPDX-License-Identifier: Apache-2.0 */
/* Placements against lists of indices that are dealt out one by one. */
#include "core/base/check.h"
#include "core/mesh/mesh.h"
#include "tests/lib/boxes.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX 48 /* indices along one dimension */

static unsigned seed = 1;

static unsigned below(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

/* Indices along one dimension that somebody holds, in their order. */
struct list {
	unsigned nr, v[MAX];
};

/* How many each of @nr gets of @extent, dealt one by one; false: not so. */
static bool deal(const struct ck_split *s, uint64_t extent, uint64_t *sizes)
{
	uint64_t each = 0, sum = 0;

	memset(sizes, 0, s->nr * sizeof(*sizes));
	if (s->how == CK_SIZES_GIVEN) {
		memcpy(sizes, s->given, s->nr * sizeof(*sizes));
		for (uint64_t i = 0; i < s->nr; i++)
			sum += sizes[i];
		return sum == extent;
	}
	while (each * s->nr < extent)
		each++; /* the smallest that is enough for all */
	for (uint64_t i = 0; i < extent; i++)
		sizes[s->how == CK_SIZES_CEIL ? i / each : i % s->nr]++;
	return s->how != CK_SIZES_EVEN || extent % s->nr == 0;
}

/* Adds part @part of in->v[from, from + len) to @out. */
static bool add_part(const struct ck_mesh_step *s, const struct list *in,
		     unsigned from, unsigned len, uint64_t part,
		     struct list *out)
{
	uint64_t sizes[64];

	if (!deal(&s->split, len, sizes))
		return false;
	if (s->nonempty && len && len < s->split.nr)
		return false;
	for (uint64_t i = 0; i < part; i++)
		from += (unsigned)sizes[i];
	for (uint64_t i = 0; i < sizes[part]; i++)
		out->v[out->nr++] = in->v[from + i];
	return true;
}

static bool naive_step(const struct ck_mesh_step *s, uint64_t part,
		       struct list *l)
{
	const struct list in = *l;
	unsigned from = 0, sum = 0;
	uint64_t sizes[64];

	l->nr = 0;
	if (!s->blocks)
		return add_part(s, &in, 0, in.nr, part, l);
	for (unsigned b = 0; b < s->blocks; b++)
		sum += (unsigned)s->weight[b];
	if (sum && in.nr % sum)
		return false;
	if (!sum && !deal(&(struct ck_split){ (enum ck_sizes)s->block_how,
					      s->blocks, NULL },
			  in.nr, sizes))
		return false;
	for (unsigned b = 0; b < s->blocks; b++) {
		unsigned len = sum ? in.nr / sum * (unsigned)s->weight[b] :
				     (unsigned)sizes[b];

		if (!add_part(s, &in, from, len, part, l))
			return false;
		from += len;
	}
	return true;
}

/* What place @at has, dimension by dimension; false: it cannot be cut so. */
static bool naive(const struct ck_placement *p, uint32_t at,
		  const uint64_t *shape, unsigned rank, struct list *out)
{
	for (unsigned d = 0; d < rank; d++) {
		out[d].nr = (unsigned)shape[d];
		for (unsigned i = 0; i < out[d].nr; i++)
			out[d].v[i] = i;
	}
	for (unsigned i = 0; i < p->nr; i++) {
		const struct ck_mesh_step *s = &p->step[i];
		uint64_t part = 0;

		for (unsigned k = 0; k < s->nr_axes; k++) {
			uint32_t left = at;

			for (unsigned a = p->mesh.nr; a-- > s->axis[k] + 1u;)
				left /= p->mesh.size[a];
			part = part * p->mesh.size[s->axis[k]] +
			       left % p->mesh.size[s->axis[k]];
		}
		if (!naive_step(s, part % s->split.nr, &out[s->dim]))
			return false;
	}
	return true;
}

/* Element by element, in the shard's own order. */
static void compare(const struct ck_shard *s, const uint64_t *shape,
		    unsigned rank, const struct list *want)
{
	uint64_t volume = 1;

	for (unsigned d = 0; d < rank; d++) {
		cr_assert_eq(s->box.len[d], want[d].nr, "dim %u", d);
		volume *= want[d].nr;
	}
	for (uint64_t e = 0; e < volume; e++) {
		uint64_t skip, left = e, index = 0, at[CK_MAX_RANK];
		unsigned mine[CK_MAX_RANK];
		struct ck_box box;

		for (unsigned d = rank; d-- > 0; left /= want[d].nr)
			mine[d] = want[d].v[left % want[d].nr];
		for (unsigned d = 0; d < rank; d++)
			index = index * shape[d] + mine[d];
		ck_shard_at(s, e, &box, &skip);
		ck_dims_coords(box.len, rank, skip, at);
		for (unsigned d = 0; d < rank; d++)
			at[d] += box.start[d];
		cr_assert_eq(ck_dims_index(shape, rank, at), index);
	}
}

static uint64_t some[16];

static void any_step(struct ck_placement *p, unsigned rank,
		     const uint64_t *shape, unsigned *axis)
{
	struct ck_mesh_step *s = ck_placement_shard(p, below(rank), *axis,
						    (enum ck_sizes)below(3));

	++*axis;
	if (!below(4) && *axis < p->mesh.nr) { /* along two axes */
		s->axis[s->nr_axes++] = (uint8_t)*axis;
		s->split.nr *= p->mesh.size[(*axis)++];
	}
	s->nonempty = !below(8);
	if (!below(3)) {
		s->blocks = 1 + below(4);
		s->block_how = (uint8_t)below(3);
		for (unsigned b = 0;
		     s->blocks > 1 && p->nr % 2 && b < s->blocks; b++)
			s->weight[b] = 1 + below(3);
	} else if (!below(3) && p->nr == 1) {
		uint64_t left = shape[s->dim];

		for (uint64_t i = 0; i < s->split.nr; i++) {
			some[i] = i + 1 == s->split.nr ?
					  left :
					  below((unsigned)left + 1);
			left -= some[i];
		}
		s->split.how = CK_SIZES_GIVEN;
		s->split.given = some;
	}
}

static void any_placement(struct ck_placement *p, unsigned rank,
			  const uint64_t *shape)
{
	unsigned axis = 0;

	*p = (struct ck_placement){ 0 };
	for (unsigned nr = 1 + below(4); nr-- > 0;)
		ck_mesh_add_axis(&p->mesh, 1 + below(3), 1000);
	while (axis < p->mesh.nr)
		if (below(4))
			any_step(p, rank, shape, &axis);
		else
			axis++; /* replicated */
}

/* Parts are the same where, and only where, the elements are. */
static void check_parts(const struct ck_placement *p, uint32_t at,
			const struct ck_shard *mine, const uint64_t *shape,
			unsigned rank)
{
	uint32_t nr, part = ck_placement_part(p, -1, at, &nr);

	cr_assert_lt(part, nr);
	for (uint32_t o = 0; o < at; o++) {
		struct ck_shard s;
		bool zeros;

		if (ck_placement_part(p, -1, o, &nr) != part)
			continue;
		cr_assert_eq(
			ck_placement_at(p, o, shape, rank, &s, &zeros, NULL),
			0);
		cr_assert(box_equal(&s.box, &mine->box));
		cr_assert_eq(s.nr, mine->nr);
	}
}

/* The parts of a dimension, one place of each, make all of it. */
static void check_extent(const struct ck_placement *p, const uint64_t *shape,
			 unsigned rank)
{
	for (unsigned d = 0; d < rank; d++) {
		uint64_t sum = 0;
		bool seen[256] = { false };

		for (uint32_t at = 0; at < p->mesh.ranks; at++) {
			uint32_t nr,
				part = ck_placement_part(p, (int)d, at, &nr);
			struct ck_shard s;
			bool zeros;

			cr_assert_lt(part, nr);
			if (ck_placement_at(p, at, shape, rank, &s, &zeros,
					    NULL))
				return;
			sum += seen[part] ? 0 : s.box.len[d];
			seen[part] = true;
		}
		cr_assert_eq(sum, shape[d]);
	}
}

Test(mesh, a_place_holds_what_was_dealt_to_it)
{
	unsigned cut = 0, refused = 0;

	for (unsigned turn = 0; turn < 6000; turn++) {
		unsigned rank = 1 + below(3);
		uint64_t shape[3];
		struct ck_placement p;

		for (unsigned d = 0; d < rank; d++)
			shape[d] = below(3) ? 12 * below(4) : below(25);
		any_placement(&p, rank, shape);
		for (uint32_t at = 0; at < p.mesh.ranks; at++) {
			struct ck_shard s;
			struct list want[3];
			struct ck_err err = { 0 };
			bool zeros;
			bool ok = naive(&p, at, shape, rank, want);
			int ret = ck_placement_at(&p, at, shape, rank, &s,
						  &zeros, &err);

			cr_assert_eq(ret, ok ? 0 : -EINVAL, "turn %u: %s", turn,
				     err.msg);
			refused += !ok;
			if (!ok)
				continue;
			compare(&s, shape, rank, want);
			check_parts(&p, at, &s, shape, rank);
			cut++;
		}
		check_extent(&p, shape, rank);
	}
	cr_expect_gt(cut, 10000);
	cr_expect_gt(refused, 1000);
}

/* Even cuts, and sizes given: each piece's shape tells the tensor's. */
Test(mesh, the_full_shape_follows_from_what_is_stored)
{
	for (unsigned turn = 0; turn < 4000; turn++) {
		uint64_t shape[2] = { 12 * below(4), 12 * below(4) }, full[2];
		struct ck_placement p;

		any_placement(&p, 2, shape);
		for (unsigned i = 0; i < p.nr; i++) {
			p.step[i].blocks = p.step[i].nonempty = 0;
			if (p.step[i].split.how != CK_SIZES_GIVEN)
				p.step[i].split.how = CK_SIZES_EVEN;
		}
		for (uint32_t at = 0; at < p.mesh.ranks; at++) {
			struct ck_err err = { 0 };
			struct ck_shard s;
			bool zeros;

			if (ck_placement_at(&p, at, shape, 2, &s, &zeros, NULL))
				continue;
			cr_assert_eq(ck_placement_full(&p, at, s.box.len, 2,
						       full, &err),
				     0, "%s", err.msg);
			cr_assert_arr_eq(full, shape, sizeof(shape));
		}
	}
}

Test(mesh, equal_blocks_are_a_box_of_a_grid)
{
	for (unsigned turn = 0; turn < 500; turn++) {
		unsigned blocks = 1 + below(5), nr = 1 + below(4), dim;
		uint64_t shape[2], grid[4], at[4];
		struct ck_placement p = { 0 };
		struct ck_mesh_step *s;

		dim = below(2);
		shape[dim] = (uint64_t)blocks * nr * below(3);
		shape[!dim] = below(4);
		ck_mesh_add_axis(&p.mesh, nr, 100);
		s = ck_placement_shard(&p, dim, 0, CK_SIZES_EVEN);
		s->blocks = blocks;
		for (uint32_t i = 0; i < nr; i++) {
			struct ck_box box;
			struct list want[2];

			cr_assert(naive(&p, i, shape, 2, want));
			cr_assert(
				ck_placement_grid(&p, i, shape, 2, grid, &box));
			cr_assert(ck_grid_refines(shape, 2, grid, 4, NULL));
			cr_assert_eq(ck_box_volume(&box),
				     (uint64_t)want[0].nr * want[1].nr);
			for (uint64_t e = 0; e < ck_box_volume(&box); e++) {
				uint64_t row = want[0].v[e / want[1].nr];

				ck_dims_coords(box.len, 4, e, at);
				for (unsigned d = 0; d < 4; d++)
					at[d] += box.start[d];
				cr_assert_eq(ck_dims_index(grid, 4, at),
					     row * shape[1] +
						     want[1].v[e % want[1].nr]);
			}
		}
		shape[dim]++;
		cr_assert_eq(ck_placement_grid(&p, 0, shape, 2, grid,
					       &(struct ck_box){ 0 }),
			     blocks * nr == 1);
	}
}

/* DTensor's _StridedShard(0, 2), and Shard(0) along the axis after it. */
Test(mesh, strided_shards_go_through_what_is_left_for_others)
{
	const uint64_t shape[] = { 8 };
	struct ck_placement p = { 0 };
	struct ck_mesh_step *s;

	ck_mesh_add_axis(&p.mesh, 2, 4);
	ck_mesh_add_axis(&p.mesh, 2, 4);
	s = ck_placement_shard(&p, 0, 0, CK_SIZES_CEIL);
	s->blocks = 2;
	s->block_how = CK_SIZES_CEIL;
	ck_placement_shard(&p, 0, 1, CK_SIZES_CEIL);
	for (uint32_t at = 0; at < 4; at++) {
		static const uint64_t start[] = { 0, 4, 2, 6 };
		struct ck_shard out;
		bool zeros;

		cr_assert_eq(
			ck_placement_at(&p, at, shape, 1, &out, &zeros, NULL),
			0);
		cr_expect_eq(out.box.start[0], start[at]);
		cr_expect_eq(out.box.len[0], 2);
		cr_expect_eq(out.nr, 0);
	}
}

Test(mesh, all_of_a_sum_is_at_the_first_place)
{
	struct ck_placement p = { .partial = 2 };
	struct ck_shard s;
	bool zeros;

	ck_mesh_add_axis(&p.mesh, 2, 6);
	ck_mesh_add_axis(&p.mesh, 3, 6);
	for (uint32_t at = 0; at < 6; at++) {
		cr_assert_eq(ck_placement_at(&p, at, NULL, 0, &s, &zeros, NULL),
			     0);
		cr_expect_eq(zeros, at % 3 != 0);
	}
}

Test(mesh, ranks_and_places)
{
	static const struct ck_mesh_place place[] = {
		{ 2, 1 }, { 5, 3 }, { 7, 0 }, { 9, 2 }
	};
	struct ck_mesh m = { .base = 10 };
	uint32_t at;

	cr_expect_eq(ck_mesh_add_axis(&m, 0, 100), CK_MESH_AXES);
	cr_expect_eq(ck_mesh_add_axis(&m, 2, 4), 0);
	cr_expect_eq(ck_mesh_add_axis(&m, 3, 4), CK_MESH_AXES);
	cr_expect_eq(ck_mesh_add_axis(&m, 2, 4), 1);
	cr_expect_eq(ck_mesh_rank_at(&m, 3), 13);
	cr_expect(ck_mesh_find(&m, 13, &at) && at == 3);
	cr_expect_not(ck_mesh_find(&m, 14, &at));
	cr_expect_not(ck_mesh_find(&m, 9, &at));
	m.place = place;
	for (uint32_t i = 0; i < 4; i++) {
		cr_expect_eq(ck_mesh_rank_at(&m, place[i].at), place[i].rank);
		cr_expect(ck_mesh_find(&m, place[i].rank, &at) &&
			  at == place[i].at);
	}
	cr_expect_not(ck_mesh_find(&m, 6, &at));
	cr_expect_not(ck_mesh_find(&m, 10, &at));
}

Test(mesh, parts_are_as_dealt)
{
	for (int how = CK_SIZES_EVEN; how <= CK_SIZES_BALANCED; how++)
		for (uint64_t nr = 1; nr < 9; nr++)
			for (uint64_t extent = 0; extent < 40; extent++) {
				const struct ck_split s = {
					.how = (enum ck_sizes)how, .nr = nr
				};
				uint64_t sizes[9], at = 0, start, len;
				struct ck_err err;

				deal(&s, extent, sizes);
				for (uint64_t i = 0; i < nr; i++) {
					int ret = ck_split_part(&s, extent, i,
								&start, &len,
								&err);

					if (how == CK_SIZES_EVEN &&
					    extent % nr) {
						cr_expect_eq(ret, -EINVAL);
						continue;
					}
					cr_assert_eq(ret, 0);
					cr_expect_eq(start, at);
					cr_expect_eq(len, sizes[i]);
					at += sizes[i];
				}
			}
}

Test(mesh, given_sizes_must_add_up)
{
	const uint64_t given[] = { 3, 0, 4 }, huge[] = { CK_SIZE_MAX, 9 };
	struct ck_split s = { CK_SIZES_GIVEN, 3, given };
	uint64_t start, len;
	struct ck_err err;

	cr_assert_eq(ck_split_part(&s, 7, 2, &start, &len, &err), 0);
	cr_expect(start == 3 && len == 4);
	cr_expect_eq(ck_split_part(&s, 8, 0, &start, &len, &err), -EINVAL);
	cr_expect(strstr(err.msg, "make 7"), "%s", err.msg);
	s = (struct ck_split){ CK_SIZES_GIVEN, 2, huge };
	cr_expect_eq(ck_split_part(&s, 8, 0, &start, &len, &err), -EINVAL);
}

/* Every element of [a, b] lies in the box of exactly one mesh position. */
static void check_tiling(const struct ck_mesh_step *steps, unsigned nr,
			 const uint64_t dims[2], uint64_t n0, uint64_t n1)
{
	unsigned char seen[24 * 24] = { 0 };
	struct ck_err err = { 0 };

	for (uint64_t pos = 0; pos < n0 * n1; pos++) {
		const uint64_t at[2] = { pos / n1, pos % n1 };
		struct ck_placed p;
		uint64_t order = 0;

		cr_assert_eq(ck_mesh_place(steps, nr, at, dims, 2, &p, &err), 0,
			     "%s", err.msg);
		for (uint64_t i = 0; i < p.len[0]; i++)
			for (uint64_t k = 0; k < p.len[1]; k++, order++)
				if (!p.flat || (order >= p.lo && order < p.hi))
					seen[(p.start[0] + i) * dims[1] +
					     p.start[1] + k]++;
	}
	for (uint64_t i = 0; i < dims[0] * dims[1]; i++)
		cr_assert_eq(seen[i], 1, "element %lu: %u times",
			     (unsigned long)i, seen[i]);
}

Test(mesh, two_axes_tile_a_matrix)
{
	srand(7);
	for (int n = 0; n < 3000; n++) {
		uint64_t dims[2] = { 1 + (uint64_t)rand() % 24,
				     1 + (uint64_t)rand() % 24 };
		uint64_t size[2] = { 1 + (uint64_t)rand() % 5,
				     1 + (uint64_t)rand() % 5 };
		struct ck_mesh_step s[2];

		for (unsigned i = 0; i < 2; i++) {
			s[i] = (struct ck_mesh_step){
				.axis = { (uint8_t)i },
				.nr_axes = 1,
				.axis_name = "ab",
				.dim = (uint8_t)(rand() % 2),
				.split = { rand() % 2 ? CK_SIZES_CEIL :
							CK_SIZES_BALANCED,
					   size[i], NULL },
			};
		}
		s[1].flat = rand() % 3 == 0;
		s[0].flat = s[1].flat && rand() % 2;
		if (rand() % 3 == 0 && !s[0].flat)
			s[0].padded = dims[s[0].dim] + (uint64_t)rand() % 9;
		if (rand() % 2) { /* the other axis cuts first */
			s[0].axis[0] = 1;
			s[0].split.nr = size[1];
			s[1].axis[0] = 0;
			s[1].split.nr = size[0];
		}
		check_tiling(s, 2, dims, size[0], size[1]);
	}
}
