/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank.c - what one rank's file says of its modules
 *
 * The state dict's key PREFIX.CUBE_EXTRA_STATE marks a parallelised module,
 * whose other keys are PREFIX.ATTRIBUTE; what is left is ordinary.
 */
#include "core/format/nnscaler/rank_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ck_nn_rank_free(struct ck_nn_rank *r)
{
	free(r->modules.v);
	free(r->attrs.v);
	free(r->buckets.v);
	free(r->rank_nrs.v);
	free(r->states.v);
	free(r->plain.v);
	r->modules.v = NULL;
	r->attrs.v = NULL;
	r->buckets.v = NULL;
	r->rank_nrs.v = NULL;
	r->states.v = NULL;
	r->plain.v = NULL;
	r->modules.nr = r->modules.room = 0;
	r->attrs.nr = r->attrs.room = 0;
	r->buckets.nr = r->buckets.room = 0;
	r->rank_nrs.nr = r->rank_nrs.room = 0;
	r->states.nr = r->states.room = 0;
	r->plain.nr = r->plain.room = 0;
}

int ck_nn_mark(struct ck_nn_set *s, uint32_t name, uint8_t bit)
{
	while (s->marks.nr <= name) {
		uint8_t *to = ck_vec_push(&s->marks);

		if (!to)
			return -ENOMEM;
		*to = 0;
	}
	s->marks.v[name] |= bit;
	return 0;
}

static void keys_free(struct ck_nn_keys *k)
{
	ck_strmap_free(&k->map);
	free(k->v.v);
}
#define auto_keys __attribute__((cleanup(keys_free)))

static int keys_read(struct ck_nn_keys *k, const struct ck_pickle *p,
		     ck_pv model, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv key, v;

	ck_piter_init_pairs(&it, p, model);
	while (ck_piter_next2(&it, &key, &v)) {
		const char *s;
		size_t len;
		uint32_t at;

		if (!ck_pv_str(p, key, &s, &len))
			continue;
		at = ck_strmap_put(&k->map, s, len);
		if (at == CK_STRMAP_NONE || !ck_vec_reserve(&k->v, 1))
			return ck_fail(err, ENOMEM, "no memory for names");
		k->v.nr += at == k->v.nr; /* the same key again: the last */
		k->v.v[at] = (struct ck_nn_key){ .value = v };
	}
	return 0;
}

/* cube_param_names has the order in which an optimizer sees parameters. */
static bool in_order(const struct ck_nn_reader *j, ck_pv map)
{
	const struct ck_pickle *p = j->f->p;
	struct ck_piter it, want;
	ck_pv list, key, rec, name;
	const char *a, *b;
	size_t a_len, b_len;

	if (!ck_nn_field(p, j->extra, "cube_param_names", &list) ||
	    ck_pv_kind(list) == CK_P_NONE)
		return true;
	ck_piter_init(&want, p, list);
	ck_piter_init_pairs(&it, p, map);
	while (ck_piter_next2(&it, &key, &rec)) {
		if (!ck_nn_int(p, rec, "is_param", 0))
			continue;
		if (!ck_piter_next(&want, &name) ||
		    !ck_pv_str(p, name, &a, &a_len) ||
		    !ck_pv_str(p, key, &b, &b_len) || a_len != b_len ||
		    memcmp(a, b, a_len) != 0)
			return false;
	}
	return !ck_piter_next(&want, &name);
}

int ck_nn_module_read(struct ck_nn_reader *j, struct ck_err *err)
{
	const struct ck_pickle *p = j->f->p;
	struct ck_nn_module *m = ck_vec_push(&j->r->modules);
	struct ck_piter it;
	ck_pv map, key, rec;
	int ret = 0;

	if (!m)
		return ck_fail(err, ENOMEM, "no memory for modules");
	*m = (struct ck_nn_module){ .attrs = j->r->attrs.nr };
	j->m = m;
	m->prefix = ck_nn_name(&j->s->names, j->prefix, j->prefix_len);
	if (m->prefix == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	if (!ck_nn_field(p, j->extra, "param_area_map", &map))
		return ck_fail(err, EINVAL,
			       "%s: no param_area_map in its " CK_NN_EXTRA,
			       j->f->name);
	ck_nn_config_read(p, j->extra, &m->id);
	if (!ck_nn_field(p, j->extra, "zero3_param_metadata", &j->zero3))
		j->zero3 = 0;
	m->ordered = in_order(j, map);
	ck_piter_init_pairs(&it, p, map);
	while (!ret && ck_piter_next2(&it, &key, &rec))
		ret = ck_nn_attr_read(j, key, rec, err);
	m->nr_attrs = j->r->attrs.nr - m->attrs;
	return ret ? ret : ck_nn_tables_read(j, err);
}

static int item_name(struct ck_nn_reader *j, ck_pv item, uint32_t *name,
		     struct ck_err *err)
{
	const char *s = "";
	size_t len = 0;

	if (!ck_pv_str(j->f->p, item, &s, &len))
		return ck_fail(
			err, EINVAL,
			"%s: expected names in the lists of its " CK_NN_EXTRA,
			j->f->name);
	*name = ck_nn_full_name(j, s, len);
	return *name == CK_STRMAP_NONE ?
		       ck_fail(err, ENOMEM, "no memory for names") :
		       0;
}

/* Names that the module's own lists have, as model.PREFIX.NAME. */
static int list_read(struct ck_nn_reader *j, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv list, item;
	uint32_t at;
	int ret = 0;

	if (!ck_nn_field(j->f->p, j->extra, "origin_state_dict_names", &list))
		return 0;
	ck_piter_init(&it, j->f->p, list);
	while (!ret && ck_piter_next(&it, &item)) {
		ret = item_name(j, item, &at, err);
		if (!ret && ck_nn_mark(j->s, at, CK_NN_LISTED))
			ret = ck_fail(err, ENOMEM, "no memory for names");
	}
	return ret;
}

static int tie(struct ck_nn_set *s, uint32_t name, uint32_t with,
	       struct ck_err *err)
{
	struct ck_nn_tie *to = ck_vec_push(&s->ties);

	if (!to)
		return ck_fail(err, ENOMEM, "no memory for names");
	*to = (struct ck_nn_tie){ name, with };
	return 0;
}

/* Tied names: each with the first of its list. */
static int ties_read(struct ck_nn_reader *j, struct ck_err *err)
{
	struct ck_piter lists, it;
	ck_pv all, list, item;
	int ret = 0;

	if (!ck_nn_field(j->f->p, j->extra, "origin_shared_param_names", &all))
		return 0;
	ck_piter_init(&lists, j->f->p, all);
	while (!ret && ck_piter_next(&lists, &list)) {
		uint32_t first = CK_STRMAP_NONE;

		ck_piter_init(&it, j->f->p, list);
		while (!ret && ck_piter_next(&it, &item)) {
			uint32_t at;

			ret = item_name(j, item, &at, err);
			if (ret)
				break;
			first = first == CK_STRMAP_NONE ? at : first;
			ret = tie(j->s, at, first, err);
		}
	}
	return ret;
}

/* All ranks have the same lists. */
static int lists_read(struct ck_nn_reader *j, struct ck_err *err)
{
	int ret = j->s->listed ? 0 : list_read(j, err);

	return ret || j->s->listed ? ret : ties_read(j, err);
}

static int modules_read(struct ck_nn_set *s, struct ck_nn_rank *r,
			struct ck_nn_file *f, struct ck_nn_keys *keys,
			struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < keys->map.nr && !ret; i++) {
		struct ck_nn_reader j = { .s = s,
					  .r = r,
					  .f = f,
					  .keys = keys,
					  .extra = keys->v.v[i].value,
					  .prefix = keys->map.v[i].s,
					  .kind = "model." };

		if (!ck_nn_is_extra(keys->map.v[i].s, keys->map.v[i].len,
				    &j.prefix_len))
			continue;
		keys->v.v[i].used = true;
		ret = ck_nn_module_read(&j, err);
		if (!ret)
			ret = lists_read(&j, err);
	}
	s->listed = true;
	return ret;
}

static int plain_add(struct ck_nn_set *s, struct ck_nn_rank *r,
		     struct ck_nn_file *f, const struct ck_strmap_key *key,
		     ck_pv v, struct ck_err *err)
{
	struct ck_nn_plain t = { 0 }, *to;
	struct ck_err why = { 0 };
	int ret;

	t.key = ck_nn_name(&s->names, key->s, key->len);
	t.name = ck_nn_name2(&s->names, "model", 5, key->s, key->len);
	if (t.key == CK_STRMAP_NONE || t.name == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	ret = ck_nn_place(f, v, &s->dims, &t.t, &why);
	if (ret == -EINVAL)
		return ck_builder_refuse(s->b, 0, s->names.v.v[t.name],
					 strlen(s->names.v.v[t.name]), err,
					 "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	to = ck_vec_push(&r->plain);
	if (!to)
		return ck_fail(err, ENOMEM, "no memory for tensors");
	*to = t;
	return 0;
}

/* Ordinary tensors; where modules stand among them decides their numbers. */
static int plain_read(struct ck_nn_set *s, struct ck_nn_rank *r,
		      struct ck_nn_file *f, const struct ck_nn_keys *keys,
		      struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < keys->map.nr && !ret; i++) {
		const struct ck_strmap_key *key = &keys->map.v[i];
		const struct ck_nn_key *k = &keys->v.v[i];
		size_t prefix;

		if (ck_nn_is_extra(key->s, key->len, &prefix)) {
			struct ck_nn_plain *mark = ck_vec_push(&r->plain);
			uint32_t at = ck_nn_name(&s->names, key->s, prefix);

			if (!mark || at == CK_STRMAP_NONE)
				return ck_fail(err, ENOMEM,
					       "no memory for names");
			*mark = (struct ck_nn_plain){ .is_module = true,
						      .key = at };
		} else if (!k->used && ck_nn_is_tensor(f, k->value)) {
			ret = plain_add(s, r, f, key, k->value, err);
		}
	}
	return ret;
}

int ck_nn_rank_read(struct ck_nn_set *s, struct ck_nn_rank *r,
		    struct ck_nn_file *f, struct ck_err *err)
{
	auto_keys struct ck_nn_keys keys = { 0 };
	ck_pv model, optimizer;
	int ret;

	if (!ck_nn_parts(f, &model, &optimizer))
		return ck_fail(err, EINVAL, "%s: it has no model", f->name);
	ret = keys_read(&keys, f->p, model, err);
	if (!ret)
		ret = modules_read(s, r, f, &keys, err);
	if (!ret)
		ret = plain_read(s, r, f, &keys, err);
	return ret ? ret : ck_nn_optim_read(s, r, f, optimizer, err);
}
