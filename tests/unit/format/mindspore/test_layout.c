/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts against a reference that splits ranges and searches for copies. */
#include "core/format/mindspore/mindspore.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252;

static unsigned pick(unsigned n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state % n);
}

static void coordinates(const struct ck_strategy_layout *l, unsigned device,
			unsigned *at)
{
	unsigned below = 1;

	for (unsigned i = l->nr_dev; i-- > 0; below *= (unsigned)l->dev[i])
		at[i] = device / below % (unsigned)l->dev[i];
}

static bool is_used(const struct ck_strategy_layout *l, unsigned axis)
{
	for (unsigned i = 0; i < l->nr_map; i++)
		if (l->axis[i] == (int)axis)
			return true;
	return false;
}

static bool same_slice(const struct ck_strategy_layout *l, unsigned a,
		       unsigned b)
{
	unsigned x[CK_STRATEGY_AXES], y[CK_STRATEGY_AXES];

	coordinates(l, a, x);
	coordinates(l, b, y);
	for (unsigned i = 0; i < l->nr_dev; i++)
		if (is_used(l, i) && x[i] != y[i])
			return false;
	return true;
}

struct want {
	uint64_t start[4], len[4];
};

/* One axis after the other halves, thirds, ... what the device has. */
static void split(const struct ck_strategy_layout *l, const uint64_t *shape,
		  unsigned rank, unsigned device, unsigned devices,
		  unsigned shards, struct want *w)
{
	unsigned at[CK_STRATEGY_AXES], position = 0;

	coordinates(l, device, at);
	for (unsigned d = 0; d < rank; d++) {
		w->start[d] = 0;
		w->len[d] = shape[d];
	}
	for (unsigned i = 0; i < l->nr_map; i++) {
		unsigned d = l->dim[i];

		if (l->axis[i] < 0)
			continue;
		w->len[d] /= l->dev[l->axis[i]];
		w->start[d] += at[l->axis[i]] * w->len[d];
	}
	for (unsigned other = 0; other < device && other < devices; other++)
		position += same_slice(l, other, device);
	w->len[0] /= shards;
	w->start[0] += position % shards * w->len[0];
}

/* A random device matrix, and its axes dealt out to some dimensions. */
static void deal(struct ck_strategy_layout *l, unsigned rank, unsigned least,
		 unsigned *devices)
{
	int8_t order[4] = { 0, 1, 2, 3 };
	unsigned next = 0;

	*l = (struct ck_strategy_layout){ .nr_dev = (uint8_t)(1 + pick(4)) };
	*devices = 1;
	for (unsigned i = 0; i < l->nr_dev; i++) {
		l->dev[i] = least + pick(3);
		*devices *= (unsigned)l->dev[i];
	}
	for (unsigned i = l->nr_dev; i-- > 1;) {
		unsigned k = pick(i + 1);
		int8_t moved = order[i];

		order[i] = order[k];
		order[k] = moved;
	}
	for (unsigned d = 0; d < rank; d++) {
		unsigned nr = pick(3), before = l->nr_map;

		for (; nr && next < l->nr_dev; nr--) {
			l->dim[l->nr_map] = (uint8_t)d;
			l->axis[l->nr_map++] = order[next++];
		}
		if (l->nr_map == before) {
			l->dim[l->nr_map] = (uint8_t)d;
			l->axis[l->nr_map++] = -1;
		}
	}
	l->nr_dims = (uint8_t)rank;
}

static unsigned copies_of(const struct ck_strategy_layout *l, unsigned devices)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < devices; i++)
		nr += same_slice(l, 0, i);
	return nr;
}

static void local_shape(const struct ck_strategy_layout *l, unsigned rank,
			unsigned shards, uint64_t *local, uint64_t *shape)
{
	for (unsigned d = 0; d < rank; d++) {
		local[d] = 1 + pick(4);
		shape[d] = local[d] * (d ? 1 : shards);
	}
	for (unsigned i = 0; i < l->nr_map; i++)
		if (l->axis[i] >= 0)
			shape[l->dim[i]] *= l->dev[l->axis[i]];
}

/* The map and shape as the JSON form has them: a dimension for each axis. */
static void expand(const struct ck_strategy_layout *l, const uint64_t *shape,
		   struct ck_strategy_layout *out)
{
	*out = *l;
	out->expanded = out->has_shape = true;
	out->shape_rank = out->nr_dims = l->nr_map;
	for (unsigned i = 0; i < l->nr_map; i++) {
		bool last = i + 1 == l->nr_map || l->dim[i + 1] != l->dim[i];
		uint64_t rest = shape[l->dim[i]];

		for (unsigned k = 0; k < i; k++)
			if (l->dim[k] == l->dim[i] && l->axis[k] >= 0)
				rest /= l->dev[l->axis[k]];
		out->shape[i] = last ? rest : l->dev[l->axis[i]];
		out->dim[i] = (uint8_t)i;
	}
}

static void expect_piece(const struct ck_strategy_layout *l,
			 const struct want *w, const uint64_t *local,
			 const uint64_t *shape, unsigned rank, unsigned device,
			 bool may_refuse, unsigned *refused)
{
	struct mindspore_place p;
	struct ck_err why = { 0 };
	int ret = ck_mindspore_place(l, MINDSPORE_CUT, local, rank, device, &p,
				     &why);

	if (ret && may_refuse) {
		cr_assert(strstr(why.msg, "more than one"), "%s", why.msg);
		++*refused;
		return;
	}
	cr_assert_eq(ret, 0, "%s", why.msg);
	cr_assert_eq(p.rank, rank);
	cr_assert_eq(p.grid_rank, 0);
	for (unsigned d = 0; d < rank; d++) {
		cr_assert_eq(p.shape[d], shape[d]);
		cr_assert_eq(p.start[d], w->start[d], "device %u, axis %u",
			     device, d);
		cr_assert_eq(p.len[d], w->len[d]);
	}
}

Test(ms_layout, agrees_with_splitting_ranges)
{
	unsigned refused = 0, tried = 0;

	for (unsigned n = 0; n < 4000; n++) {
		struct ck_strategy_layout l, json;
		unsigned rank = 1 + pick(3), devices, copies, shards;
		uint64_t local[4], shape[4];
		struct want w;

		/* the JSON form has no axes of one device */
		deal(&l, rank, 1 + n % 2, &devices);
		copies = copies_of(&l, devices);
		l.shards = (int64_t)pick(4) - 1;
		shards = l.shards < 0		     ? copies :
			 !l.shards		     ? 1 :
			 (unsigned)l.shards > copies ? copies :
						       (unsigned)l.shards;
		if (copies % shards)
			l.shards = shards = 1;
		local_shape(&l, rank, shards, local, shape);
		expand(&l, shape, &json);
		for (unsigned i = 0; i < devices; i++) {
			split(&l, shape, rank, i, devices, shards, &w);
			expect_piece(&l, &w, local, shape, rank, i, false,
				     &refused);
			if (n % 2)
				expect_piece(&json, &w, local, shape, rank, i,
					     true, &refused);
			tried++;
		}
	}
	cr_expect_gt(tried, 10000);
	cr_expect_lt(refused, tried / 3, "%u of %u", refused, tried);
}

/* Rows that devices 0.. store, as [first, last]. */
static void expect_rows(const struct ck_strategy_layout *l, uint64_t rows,
			uint64_t columns, const unsigned (*want)[2],
			unsigned nr)
{
	const uint64_t stored[2] = { rows, columns };

	for (unsigned i = 0; i < nr; i++) {
		struct mindspore_place p;
		struct ck_err why = { 0 };

		cr_assert_eq(ck_mindspore_place(l, MINDSPORE_CUT, stored, 2, i,
						&p, &why),
			     0, "%s", why.msg);
		cr_expect_eq(p.start[0], want[i][0], "device %u", i);
		cr_expect_eq(p.start[0] + p.len[0] - 1, want[i][1]);
	}
}

/* What runs of 2.10 stored: axes left of, around and between the cut one. */
Test(ms_layout, shards_of_copies_that_are_not_neighbours)
{
	static const unsigned apart[8][2] = { { 0, 1 },	  { 2, 3 },  { 8, 9 },
					      { 10, 11 }, { 4, 5 },  { 6, 7 },
					      { 12, 13 }, { 14, 15 } };
	static const unsigned turned[8][2] = { { 0, 1 }, { 4, 5 }, { 0, 1 },
					       { 4, 5 }, { 2, 3 }, { 6, 7 },
					       { 2, 3 }, { 6, 7 } };
	struct ck_strategy_layout l = { .dev = { 2, 2, 2 },
					.nr_dev = 3,
					.nr_map = 2,
					.nr_dims = 2,
					.dim = { 0, 1 },
					.axis = { 1, -1 },
					.shards = -1 };

	expect_rows(&l, 2, 3, apart, 8);
	l.axis[0] = 2;
	l.axis[1] = 1;
	expect_rows(&l, 2, 2, turned, 8);
}

Test(ms_layout, rows_interleave_in_fields)
{
	struct ck_strategy_layout l = { .dev = { 2 },
					.nr_dev = 1,
					.nr_map = 2,
					.nr_dims = 2,
					.dim = { 0, 1 },
					.axis = { 0, -1 },
					.field = 3 };
	const uint64_t stored[] = { 6, 5 }, grid[] = { 3, 2, 2, 5 };
	struct mindspore_place p;

	cr_assert_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 1, &p, NULL),
		0);
	cr_expect_eq(p.shape[0], 12);
	cr_expect_eq(p.grid_rank, 4);
	for (unsigned d = 0; d < 4; d++) {
		cr_expect_eq(p.grid[d], grid[d]);
		cr_expect_eq(p.start[d], d == 1 ? 1 : 0);
		cr_expect_eq(p.len[d], d == 1 ? 1 : grid[d]);
	}
	l.field = 4;
	cr_expect_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 1, &p, NULL),
		-EINVAL);
}

Test(ms_layout, rows_split_by_hand)
{
	const uint64_t rows[] = { 3, 1, 4 };
	struct ck_strategy_layout l = { .dev = { 3 },
					.nr_dev = 1,
					.nr_map = 2,
					.nr_dims = 2,
					.dim = { 0, 1 },
					.axis = { 0, -1 },
					.rows = rows,
					.nr_rows = 3 };
	const uint64_t stored[] = { 4, 2 };
	struct mindspore_place p;

	cr_assert_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 2, &p, NULL),
		0);
	cr_expect_eq(p.shape[0], 8);
	cr_expect_eq(p.start[0], 4);
	cr_expect_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 1, &p, NULL),
		-EINVAL);
}

Test(ms_layout, what_cannot_be_is_refused)
{
	struct ck_strategy_layout l = { .dev = { 2, 2 },
					.nr_dev = 2,
					.nr_map = 2,
					.nr_dims = 2,
					.dim = { 0, 1 },
					.axis = { 1, 1 } };
	const uint64_t stored[] = { UINT64_C(1) << 61, 3 };
	struct mindspore_place p;
	struct ck_err why;

	cr_expect_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 0, &p, &why),
		-EINVAL);
	cr_expect(strstr(why.msg, "twice"), "%s", why.msg);
	l.axis[1] = 7;
	cr_expect_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 0, &p, &why),
		-EINVAL);
	cr_expect(strstr(why.msg, "lacks"), "%s", why.msg);
	l.axis[1] = 0;
	cr_expect_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 1, 0, &p, &why),
		-ERANGE);
	l.dev[0] = 4;
	cr_expect_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 0, &p, &why),
		0);
	l.axis[0] = 0;
	l.axis[1] = -1;
	cr_expect_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 0, &p, &why),
		-EINVAL);
	cr_expect(strstr(why.msg, "overflows"), "%s", why.msg);
	l.dev[1] = UINT64_C(1) << 40;
	cr_expect_eq(
		ck_mindspore_place(&l, MINDSPORE_CUT, stored, 2, 0, &p, &why),
		-EINVAL);
	cr_expect(strstr(why.msg, "matrix"), "%s", why.msg);
}
