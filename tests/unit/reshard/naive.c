/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/reshard/naive.h"

#include "core/base/str.h"

#include <criterion/criterion.h>
#include <inttypes.h>

struct naive naive_all(unsigned nr)
{
	struct naive n = { .nr = nr };

	for (unsigned i = 0; i < nr; i++)
		n.v[i] = i;
	return n;
}

struct naive naive_chunk(const struct naive *in, unsigned parts, unsigned i)
{
	unsigned each = (in->nr + parts - 1) / parts;
	struct naive out = { 0 };

	for (unsigned k = 0; k < in->nr; k++)
		if (k / each == i)
			out.v[out.nr++] = in->v[k];
	return out;
}

struct naive naive_strided(const struct naive *in, unsigned factor,
			   unsigned parts, unsigned i)
{
	struct naive out = { 0 };

	for (unsigned b = 0; b < factor; b++) {
		struct naive block = naive_chunk(in, factor, b);
		struct naive mine = naive_chunk(&block, parts, i);

		for (unsigned k = 0; k < mine.nr; k++)
			out.v[out.nr++] = mine.v[k];
	}
	return out;
}

struct naive naive_balanced(const struct naive *in, unsigned parts, unsigned i)
{
	struct naive out = { 0 };
	unsigned at = 0;

	for (unsigned p = 0; p < parts; p++)
		for (unsigned n = in->nr / parts + (p < in->nr % parts); n--;
		     at++)
			if (p == i)
				out.v[out.nr++] = in->v[at];
	return out;
}

void naive_compare(const struct ck_reshard_part *part, const uint64_t *shape,
		   unsigned rank, const struct naive *want)
{
	uint64_t volume = 1;

	cr_assert_eq(part->shard.box.rank, rank);
	for (unsigned d = 0; d < rank; d++) {
		cr_assert_eq(part->shard.box.len[d], want[d].nr, "dim %u", d);
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
		ck_shard_at(&part->shard, e, &box, &skip);
		cr_assert_lt(skip, ck_box_volume(&box));
		ck_dims_coords(box.len, rank, skip, at);
		for (unsigned d = 0; d < rank; d++)
			at[d] += box.start[d];
		cr_assert_eq(ck_dims_index(shape, rank, at), index);
	}
}

void naive_holds(const struct ck_reshard *rs, uint32_t rank, uint32_t tensor,
		 const char *want)
{
	struct ck_reshard_part p;
	ck_auto_str struct ck_str s = { 0 };

	if (!ck_reshard_part(rs, rank, tensor, &p)) {
		cr_expect_null(want, "rank %u: nothing, not %s", rank, want);
		return;
	}
	ck_str_puts(&s, "[");
	for (unsigned d = 0; d < p.shard.box.rank; d++) {
		struct ck_shard_cut one = {
			d, 1, { { p.shard.box.start[d], p.shard.box.len[d] } }
		};
		const struct ck_shard_cut *c = &one;

		for (unsigned k = 0; k < p.shard.nr; k++)
			c = p.shard.cut[k].dim == d ? &p.shard.cut[k] : c;
		ck_str_puts(&s, d ? ", " : "");
		for (unsigned i = 0; i < c->nr; i++) {
			const struct ck_shard_run *r = &c->run[i];

			ck_str_fmt(&s, "%s%" PRIu64 ":%" PRIu64, i ? "+" : "",
				   r->start, r->start + r->len);
		}
	}
	ck_str_puts(&s, "]");
	cr_assert(want, "rank %u: %s", rank, s.v);
	cr_expect_str_eq(s.v, want, "rank %u: %s, not %s", rank, s.v, want);
}
