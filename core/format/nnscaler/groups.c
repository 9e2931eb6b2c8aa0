/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c - an optimizer's param_groups, and its parameters' numbers
 *
 * A merged file has torch.optim's own form: states by number, and groups that
 * list the numbers.  Each rank numbers what it holds, its buckets or slices;
 * of these it is made as nnScaler's merge does, which counts through
 * origin_param_names and keeps the first rank's only group.  So a state's path
 * is optimizer/state/NUMBER/STATE, whatever its name says.
 */
#include "core/format/nnscaler/priv.h"
#include "core/optim/groups.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define OPTIMIZER "optimizer"

/* ---- numbers ---- */

/* Whether one parallelised module has all that the optimizer numbers. */
static const struct ck_nn_module *only_module(const struct ck_nn_rank *r)
{
	const struct ck_nn_module *m = r->modules.nr == 1 ? r->modules.v : NULL;

	return m && m->has_states && m->ordered && !m->virtual_one &&
			       r->known_optimizer && !m->offset &&
			       m->count == r->nr_ids ?
		       m :
		       NULL;
}

/* @names: the module's list.  1; 0: it is none; or -ENOMEM. */
static int count_names(struct ck_nn_set *s, const struct ck_nn_file *f,
		       const struct ck_nn_module *m, ck_pv names)
{
	struct ck_piter it;
	ck_pv v;

	ck_piter_init(&it, f->p, names);
	for (uint32_t i = 0; ck_piter_next(&it, &v); i++) {
		const struct ck_strmap_key prefix = s->names.map.v[m->prefix];
		uint32_t name, at;
		const char *text;
		size_t len;

		if (!ck_pv_str(f->p, v, &text, &len))
			return 0;
		name = ck_nn_name2(&s->names, prefix.s, prefix.len, text, len);
		if (name == CK_STRMAP_NONE)
			return -ENOMEM;
		at = ck_strmap_put(&s->numbers, s->names.v.v[name],
				   s->names.map.v[name].len);
		if (at == CK_STRMAP_NONE)
			return -ENOMEM;
		if (at != i) /* twice the same */
			return 0;
	}
	return s->numbers.nr > 0;
}

/* 1 where parameters are numbered; 0 or -ENOMEM */
static int read_numbers(struct ck_nn_set *s, const struct ck_nn_file *f,
			ck_pv groups)
{
	const struct ck_nn_module *m;
	ck_pv model, extra, names;

	if (!ck_optim_groups_ok(f->p, groups) || s->merged)
		return s->merged && ck_optim_groups_ok(f->p, groups);
	m = only_module(&s->ranks.v[s->first]);
	if (!m || ck_pv_len(f->p, groups) != 1 ||
	    !ck_pv_key(f->p, f->root, "model", &model) ||
	    !ck_nn_extra(f->p, model, &extra) ||
	    !ck_nn_field(f->p, extra, "origin_param_names", &names))
		return 0;
	return count_names(s, f, m, names);
}

int64_t ck_nn_number(const struct ck_nn_set *s, const struct ck_nn_piece *p,
		     const char *param, size_t len)
{
	uint32_t at;

	if (!s->numbered || p->state == CK_STRMAP_NONE)
		return -1;
	if (s->merged)
		return p->id;
	at = ck_strmap_get(&s->numbers, param, len);
	return at == CK_STRMAP_NONE ? -1 : (int64_t)at;
}

/* ---- groups ---- */

struct saying {
	struct ck_nn_set *s;
	struct ck_optim_groups g;
	const struct ck_object_in *in;
};

/* Of ranks the only group, which lists what each of them calls by numbers. */
static int rank_say(void *ctx, const char *key, size_t len, ck_pv value,
		    struct ck_err *err)
{
	const struct saying *w = ctx;

	(void)value;
	return len == strlen(CK_OPTIM_PARAMS) &&
			       !memcmp(key, CK_OPTIM_PARAMS, len) ?
		       ck_optim_groups_params(&w->g, 0, 0, w->s->numbers.nr,
					      err) :
		       ck_optim_groups_add(&w->g, 0, key, len, w->in, err);
}

int ck_nn_groups_say(struct ck_nn_set *s, const struct ck_nn_file *f,
		     const struct ck_object_in *in, struct ck_err *err)
{
	struct saying w = { .s = s,
			    .g = { .b = s->b, .dict = OPTIMIZER },
			    .in = in };
	ck_pv optimizer, groups, group;
	int ret;

	if (!ck_pv_key(f->p, f->root, OPTIMIZER, &optimizer) ||
	    !ck_pv_key(f->p, optimizer, CK_OPTIM_GROUPS, &groups))
		return 0;
	ret = read_numbers(s, f, groups);
	if (ret < 0)
		return ck_fail(err, ENOMEM, "no memory for names");
	s->numbered = ret;
	if (!ret)
		return 0;
	if (s->merged)
		return ck_optim_groups_report(&w.g, f->p, groups, in, err);
	return ck_pv_at(f->p, groups, 0, &group) ?
		       ck_optim_group_each(f->p, group, rank_say, &w, err) :
		       0;
}
