/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices.c - param_slice_mappings: where each rank has what, said again
 *
 *   [{NAME: fragment_address(numel, start), ...} of each group]
 *
 * In the file of each rank of stages 1 and 2.  param_shapes and the size of a
 * partition say the same; where they do not, nobody knows what is where.  With
 * round_robin_gradients DeepSpeed lays the vectors out as param_shapes has it
 * and, in some releases, counts the fragments as if it had not (its weights
 * and gradients, which are views of the vectors, show which of them is right).
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static int read_slice(struct ck_ds_rank *r, const struct ck_ds_model *m,
		      const struct ck_pickle *p, uint32_t group, ck_pv key,
		      ck_pv v, struct ck_err *err)
{
	struct ck_ds_slice *to;
	int64_t start, numel;
	const char *name;
	uint32_t param;
	size_t len;
	ck_pv s, n;

	if (!ck_pv_str(p, key, &name, &len) || !ck_pv_attr(p, v, "start", &s) ||
	    !ck_pv_attr(p, v, "numel", &n) || !ck_pv_int(p, s, &start) ||
	    !ck_pv_int(p, n, &numel) || start < 0 || numel < 0)
		return 0;
	param = ck_strmap_get(&m->by_name, name, len);
	if (param == CK_STRMAP_NONE || m->params.v[param].group != group) {
		r->bad_slices = true;
		return 0;
	}
	to = ck_vec_push(&r->slices);
	if (!to)
		return ck_fail(err, ENOMEM, "no memory for slices");
	*to = (struct ck_ds_slice){ param, (uint64_t)start, (uint64_t)numel };
	return 0;
}

int ck_ds_slices_read(struct ck_ds_rank *r, const struct ck_ds_model *m,
		      const struct ck_pickle *p, ck_pv lists,
		      struct ck_err *err)
{
	struct ck_piter groups, it;
	ck_pv group, key, v;
	int ret = 0;

	ck_piter_init(&groups, p, lists);
	for (uint32_t g = 0; !ret && ck_piter_next(&groups, &group); g++) {
		ck_piter_init_pairs(&it, p, group);
		while (!ret && ck_piter_next2(&it, &key, &v))
			ret = read_slice(r, m, p, g, key, v, err);
	}
	return ret;
}

uint64_t ck_ds_round_robin(uint64_t i, uint64_t nr, uint64_t ranks)
{
	uint64_t turn = i % ranks;

	/* Of nr / ranks whole rounds each turn has one, and of the last some. */
	return turn * (nr / ranks) + CK_MIN(turn, nr % ranks) + i / ranks;
}

/* Where each parameter of the group would begin without round robin. */
static int undo_round_robin(const struct ck_ds_zero *z, uint32_t group,
			    uint64_t *pos)
{
	const struct ck_ds_param *p = z->m->params.v;
	size_t first = 0, nr = 0;
	uint64_t at = 0;

	while (first < z->m->params.nr && p[first].group != group)
		first++;
	while (first + nr < z->m->params.nr && p[first + nr].group == group)
		nr++;
	for (size_t i = 0; i < nr; i++) {
		size_t k = first + ck_ds_round_robin(i, nr, z->count);

		pos[k] = at;
		if (!ck_add_ok(at, p[k].numel, &at))
			return -EINVAL;
	}
	return 0;
}

/* The file of a rank that says otherwise than parameters at @pos; or NULL. */
static const struct ck_ds_rank *find_other(const struct ck_ds_zero *z,
					   uint32_t group, uint64_t size,
					   const uint64_t *pos, bool *any)
{
	for (size_t i = 0; i < z->ranks.nr; i++) {
		const struct ck_ds_rank *r = &z->ranks.v[i];

		for (size_t k = 0; r->usable && k < r->slices.nr; k++) {
			const struct ck_ds_slice *s = &r->slices.v[k];
			const struct ck_ds_param *p = &z->m->params.v[s->param];
			uint64_t lo, hi, at;

			if (p->group != group || !s->numel)
				continue;
			*any = true;
			if (r->bad_slices ||
			    !ck_ds_piece12(pos[s->param], p->numel, size, i,
					   &lo, &hi, &at) ||
			    at != s->start || hi - lo != s->numel)
				return r;
		}
	}
	return NULL;
}

int ck_ds_slices_check(const struct ck_ds_zero *z, uint32_t group,
		       uint64_t size, bool *any, bool *undone,
		       struct ck_err *why)
{
	const struct ck_ds_rank *r = find_other(z, group, size, z->pos, any);
	ck_auto_free uint64_t *pos = NULL;

	*undone = false;
	if (!r)
		return 0;
	pos = calloc(z->m->params.nr + 1, sizeof(*pos));
	if (!pos)
		return ck_fail(why, ENOMEM, "no memory for parameters");
	*undone = !undo_round_robin(z, group, pos) &&
		  !find_other(z, group, size, pos, any);
	return *undone ? 0 :
			 ck_fail(why, EINVAL,
				 "%s: param_slice_mappings of group %" PRIu32
				 " is no partition of %" PRIu64
				 " elements in the order of param_shapes",
				 r->file->name, group, size);
}
