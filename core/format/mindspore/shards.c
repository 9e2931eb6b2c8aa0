/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.c - a strategy with the optimizer's shards, of files without
 *
 * Its copies of a slice are then said to be parts of one, and would make a
 * tensor that is too long, or in another order.  All the same, and not of one
 * value, they are copies; where some are, something is wrong.
 */
#include "core/format/mindspore/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct found {
	bool differ; /* two shards do: they are shards */
	bool shapes; /* a shape says so */
	const char *same; /* a tensor of which two shards are the same */
	uint32_t a, b; /* the files of these */
};

/* The slice of @t without shards, and with; false: there is nothing to see. */
static bool places(const struct ck_ms_set *s, const struct ck_ms_tensor *t,
		   const char *name, size_t len, uint64_t *slice,
		   uint64_t *shard, bool *shape)
{
	uint32_t rank = s->file.v[t->file].rank;
	const uint64_t *dims = s->dims.v + t->dims;
	const struct ck_strategy_item *it =
		ck_strategy_find(&s->strategy, name, len,
				 (uint32_t)(rank / s->strategy.devices));
	struct ck_ms_piece p;

	if (!it || it->why || !it->l.shards || t->why ||
	    !(t->flags & (CK_MS_HASHED | CK_MS_SAMPLED)) ||
	    t->flags & CK_MS_ALIKE ||
	    ck_ms_place(&it->l, CK_MS_UNSHARDED, dims, t->rank, rank, &p, NULL))
		return false;
	*slice = p.slice;
	if (ck_ms_place(&it->l, CK_MS_CUT, dims, t->rank, rank, &p, NULL))
		return false;
	*shard = p.slice;
	*shape = it->l.has_shape;
	return true;
}

struct first {
	uint64_t hash, shard;
	uint32_t file;
	bool any;
};

static void compare(const struct first *first, const struct ck_ms_tensor *t,
		    const char *name, struct found *out)
{
	if (first->hash != t->hash) {
		out->differ = true;
	} else if (!out->same) {
		out->same = name;
		out->a = first->file;
		out->b = t->file;
	}
}

static void look_at(const struct ck_ms_set *s, uint32_t name,
		    struct first *first, size_t nr, struct found *out)
{
	const struct ck_strmap_key *k = &s->names.v[name];
	uint64_t slice, shard;
	bool shape;

	memset(first, 0, nr * sizeof(*first));
	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next) {
		const struct ck_ms_tensor *t = &s->tensor.v[i];

		if (!places(s, t, k->s, k->len, &slice, &shard, &shape) ||
		    slice >= nr)
			continue;
		out->shapes |= shape;
		if (!first[slice].any)
			first[slice] =
				(struct first){ t->hash, shard, t->file, true };
		else if (first[slice].shard != shard)
			compare(&first[slice], t, k->s, out);
	}
}

int ck_ms_check_shards(const struct ck_ms_set *s, struct ck_err *err)
{
	const struct ck_problem_in odd = { .severity = CK_WARNING };
	size_t nr = (size_t)CK_MIN(s->strategy.devices, UINT64_C(1) << 20);
	ck_auto_free struct first *first = calloc(nr + 1, sizeof(*first));
	struct found f = { .differ = false };

	if (!first)
		return ck_mindspore_no_memory(err);
	for (uint32_t i = 0; i < s->name.nr && nr; i++)
		/* gradients are listed as sharded and stored whole */
		if (strncmp(s->names.v[i].s, "accu_grads.", 11) != 0)
			look_at(s, i, first, nr, &f);
	if (!f.same)
		return 0;
	if (f.differ || f.shapes)
		return ck_builder_problem(
			s->b, &odd, err,
			"%s: the strategy says that the optimizer's shards of it in %s and %s differ, and they are the same: it may be another run's strategy",
			f.same, s->file.v[f.a].name, s->file.v[f.b].name);
	return ck_fail(
		err, EINVAL,
		"%s: the strategy says that copies are cut further, for the optimizer, and all that should differ so hold the same (such as %s), as of a run without: give that run's strategy file with -o strategy=FILE, or say -o integrated=no if these are its parts",
		s->dir->path, f.same);
}
