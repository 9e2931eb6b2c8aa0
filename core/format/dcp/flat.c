/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.c - Megatron's flattened optimizer tensors (up to 0.15)
 *
 * A tensor-parallel shard of local shape (x, y) is flattened and cut at any
 * element.  What is stored has shape (X/x, Y/y, x*y) and boxes
 * (1, 1, n) at (i, j, lo); the true shape (X, Y) stands in mcore_data only.
 * The true form: elements [lo, lo+n) of the box of (x, y) at (i*x, j*y).
 *
 * PyTorch's own loader shows what is stored, and so is the default here; -o
 * unflatten gives the true form.
 */
#include "core/format/dcp/dcp.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define TRUE_SHAPE_KEY "nd_reformulated_orig_global_shape"

int ck_dcp_flat_index(struct ck_dcp *d, struct ck_err *err)
{
	const struct ck_pickle *p = d->m->p;

	ck_strmap_free(&d->mcore);
	for (struct ck_pq_each e =
		     ck_pq_begin(p, d->m->mcore, "{}/" TRUE_SHAPE_KEY);
	     ck_pq_next(&e);) {
		uint32_t at = CK_STRMAP_NONE;

		if (!e.name)
			continue;
		at = ck_strmap_put(&d->mcore, e.name, e.len);
		if (at == CK_STRMAP_NONE)
			return ck_no_memory(err);
		d->mcore.v[at].user = e.v;
	}
	return 0;
}

/* What each axis was divided by must multiply up to the flattened axis. */
static bool find_local(struct ck_dcp_tensor *t)
{
	uint64_t volume;

	for (unsigned i = 0; i < t->true_rank; i++) {
		if (!t->shape[i] || t->true_shape[i] % t->shape[i])
			return false;
		t->local[i] = t->true_shape[i] / t->shape[i];
	}
	return ck_dims_volume(t->local, t->true_rank, &volume) &&
	       volume == t->shape[t->true_rank];
}

int ck_dcp_flat_shape(struct ck_dcp *d, struct ck_dcp_tensor *t,
		      struct ck_err *why)
{
	uint32_t at = ck_strmap_get(&d->mcore, t->name, t->name_len);

	t->flat = false;
	if (at == CK_STRMAP_NONE)
		return 0;
	ck_opts_use(d->dir->opts, "unflatten");
	if (!d->unflatten) {
		d->nr_flat++;
		return 0;
	}
	if (!ck_pq_dims(d->m->p, d->mcore.v[at].user, "", t->true_shape,
			&t->true_rank))
		return ck_fail(why, EINVAL,
			       "mcore_data: " TRUE_SHAPE_KEY
			       " is no list of sizes");
	if (t->true_rank + 1 != t->rank || !find_local(t))
		return ck_fail(why, EINVAL,
			       "mcore_data: " TRUE_SHAPE_KEY
			       " does not go with the stored shape");
	t->flat = true;
	return 0;
}

int ck_dcp_flat_note(struct ck_dcp *d, struct ck_err *err)
{
	const struct ck_problem_in note = { .severity = CK_NOTE };

	if (!d->nr_flat)
		return 0;
	return ck_builder_problem(d->b, &note, err,
				  "%" PRIu64
				  " tensors are shown as Megatron flattened "
				  "them; -o unflatten gives them the shape "
				  "that they had",
				  d->nr_flat);
}

bool ck_dcp_flat_box(const struct ck_dcp_tensor *t,
		     const struct ck_dcp_chunk *c, uint64_t *start,
		     uint64_t flat[2])
{
	for (unsigned i = 0; i < t->true_rank; i++) {
		if (c->len[i] != 1 || c->at[i] >= t->shape[i])
			return false;
		start[i] = c->at[i] * t->local[i];
	}
	flat[0] = c->at[t->true_rank];
	return ck_add_ok(flat[0], c->len[t->true_rank], &flat[1]);
}
