/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank.c - what one rank's file says of its modules
 *
 * The state dict's key PREFIX.CUBE_EXTRA_STATE marks a parallelised module,
 * whose other keys are PREFIX.ATTRIBUTE; what is left is ordinary.  Which part
 * of which tensor an attribute is, a record of the param_area_map says:
 *
 *   up_weight_83: {orig_name: up.weight, shape: (10, 6),
 *                  slicers: (slice(0, 5), slice(0, 6)), is_param: True, ...}
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/base/check.h"
#include "core/geom/range.h"
#include "core/mesh/mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One module of a rank while it is read. */
struct reader {
	struct nnscaler *n;
	struct nnscaler_file *f;
	struct nnscaler_module *m;
	/* The state dict, and of it what modules have; NULL: none of its tensors. */
	struct ck_strmap *keys, *used;
	ck_pv extra, zero3; /* zero3 0: there is none */
	const char *prefix;
	size_t prefix_len;
	uint32_t rank;
};

/* "model.PREFIX.NAME" among the names. */
static struct nnscaler_name *full_name(struct reader *j, const char *name,
				       size_t len)
{
	ck_nnscaler_below(j->n, "model.", j->prefix, j->prefix_len, name, len);
	return ck_nnscaler_name(j->n);
}

/* ---- boxes ---- */

static bool read_slice(const struct ck_pickle *p, ck_pv v, uint64_t dim,
		       uint64_t *start, uint64_t *len)
{
	int64_t n[3] = { 0, (int64_t)dim, 1 }; /* from, to, step */
	ck_pv args, at;

	if (ck_pv_kind(v) != CK_P_CALL ||
	    !ck_pv_is_global(p, ck_pv_callee(p, v), NULL, "slice"))
		return false;
	args = ck_pv_args(p, v);
	if (ck_pv_len(p, args) != 3)
		return false;
	for (unsigned i = 0; i < 3; i++)
		if (!ck_pv_at(p, args, i, &at) ||
		    (ck_pv_kind(at) != CK_P_NONE && !ck_pv_int(p, at, &n[i])))
			return false;
	if (n[2] != 1 || n[0] < 0 || n[1] < n[0] || (uint64_t)n[1] > dim)
		return false;
	*start = (uint64_t)n[0];
	*len = (uint64_t)(n[1] - n[0]);
	return true;
}

/* Ellipsis, '...' or () stand for all of a scalar. */
static bool is_ellipsis(const struct ck_pickle *p, ck_pv v)
{
	return ck_pv_is_global(p, v, NULL, "Ellipsis") ||
	       ck_pv_is_str(p, v, "...");
}

static int read_box(struct reader *j, ck_pv rec, struct nnscaler_attr *a,
		    struct ck_err *why)
{
	const struct ck_pickle *p = j->f->p;
	static const struct ck_asm_box nothing = { .rank = 0 };
	uint64_t shape[CK_MAX_RANK], volume;
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
	unsigned rank;
	ck_pv v, item;

	a->box = &nothing;
	if (!ck_pq_dims(p, rec, "shape", shape, &rank) ||
	    !ck_dims_volume(shape, rank, &volume))
		return ck_fail(why, EINVAL, "no shape in the param_area_map");
	if (!ck_pq(p, rec, "slicers", &v))
		return ck_fail(why, EINVAL, "no slicers in the param_area_map");
	if (is_ellipsis(p, v)) {
		a->box = ck_asm_box(&j->n->a, NULL, shape, shape, rank);
		return a->box ? 0 : ck_no_memory(why);
	}
	if (ck_pv_kind(v) != CK_P_TUPLE || ck_pv_len(p, v) != rank)
		return ck_fail(
			why, EINVAL,
			"its slicers are not one slice for each of %u dimensions",
			rank);
	for (unsigned d = 0; d < rank; d++)
		if (!ck_pv_at(p, v, d, &item) ||
		    !read_slice(p, item, shape[d], &start[d], &len[d]))
			return ck_fail(
				why, EINVAL,
				"slicer %u is no range in its dimension of %" PRIu64,
				d, shape[d]);
	a->box = ck_asm_box(&j->n->a, start, len, shape, rank);
	return a->box ? 0 : ck_no_memory(why);
}

/*
 * Where the flat piece of ZeRO 3 lies in the slice's order.  Without a table
 * the ranks of a zero group that have the same slice follow each other.
 */
static int read_stretch(struct reader *j, const char *attr,
			const struct nnscaler_attr *a, struct nnscaler_piece *t,
			struct ck_err *why)
{
	const struct ck_pickle *p = j->f->p;
	const int64_t *fact = j->m->fact, plan = fact[NNSCALER_PLAN];
	uint64_t have = ck_nnscaler_volume(&t->x), volume = 0, len = 0;
	ck_pv rec;

	ck_dims_volume(a->box->len, a->box->rank, &volume);
	t->flat = j->zero3 && ck_pv_key(p, j->zero3, attr, &rec) &&
		  ck_pv_kind(rec) != CK_P_NONE;
	if (t->flat) {
		int64_t lo = ck_pq_int_or(p, rec, "start", -1);
		int64_t hi = ck_pq_int_or(p, rec, "end", -1);

		if (lo < 0 || hi < 0)
			return ck_fail(
				why, EINVAL,
				"no start and end in zero3_param_metadata");
		t->lo = CK_MIN((uint64_t)lo, volume);
		t->hi = CK_MAX(CK_MIN((uint64_t)hi, volume), t->lo);
	} else {
		bool sharded = fact[NNSCALER_ZERO] > 1;
		bool same = t->x.rank == a->box->rank &&
			    !memcmp(t->x.shape, a->box->len,
				    t->x.rank * sizeof(*t->x.shape));
		int64_t parts = plan > 0 && fact[NNSCALER_GROUPS] > 0 ?
					fact[NNSCALER_WORLD] / plan /
						fact[NNSCALER_GROUPS] :
					0;

		if (same && (!sharded || volume != 1 || !a->is_param))
			return 0;
		if (!sharded || parts < 1 || t->x.rank != 1 ||
		    have != CK_DIV_UP(volume, (uint64_t)parts))
			return same ? 0 :
				      ck_fail(why, EINVAL,
					      "the stored tensor is not of the shape of its slicers");
		t->flat = true;
		ck_split_part(&(struct ck_split){ CK_SIZES_CEIL,
						  (uint64_t)parts, NULL },
			      volume, (uint64_t)(j->rank / plan % parts),
			      &t->lo, &len, NULL);
		t->hi = t->lo + len;
	}
	if (t->x.rank != 1 || t->x.stride || t->hi - t->lo > have)
		return ck_fail(why, EINVAL,
			       "%" PRIu64
			       " elements in a row are said of it, and %" PRIu64
			       " are stored",
			       t->hi - t->lo, have);
	return 0;
}

/* ---- attributes ---- */

/* The state dict's value for the attribute, which is a module's then. */
static bool find_stored(struct reader *j, const char *attr, size_t len,
			ck_pv *v)
{
	struct ck_str *key = ck_nnscaler_below(j->n, "", j->prefix,
					       j->prefix_len, attr, len);
	uint32_t at;

	j->n->a.mem.failed |= key->failed;
	if (key->failed || !j->keys)
		return false;
	at = ck_strmap_get(j->keys, key->v, key->len);
	if (at == CK_STRMAP_NONE)
		return false;
	*v = j->keys->v[at].user;
	j->n->a.mem.failed |= ck_strmap_put(j->used, j->keys->v[at].s,
					    key->len) == CK_STRMAP_NONE;
	return true;
}

static int read_part(struct reader *j, const char *key, size_t len, ck_pv rec,
		     struct nnscaler_attr *a, struct ck_err *why)
{
	struct nnscaler_piece t = { .name = a->name,
				    .rank = j->rank,
				    .shown.weight = a->is_param };
	struct ck_str *attr;
	int ret = read_box(j, rec, a, why);
	ck_pv v;

	if (!ret && ck_pq_int_or(j->f->p, rec, "val_chunks", 1) > 1)
		ret = ck_fail(
			why, EINVAL,
			"it is a sum over ranks (val_chunks), which nothing merges");
	a->bad = ret;
	if (ret || !find_stored(j, key, len, &v))
		return ret;
	ret = ck_nnscaler_extent(j->n, j->f, v, &t.x, why);
	if (ret)
		return ret;
	attr = ck_nnscaler_text(j->n, "");
	ck_str_add(attr, key, len);
	if (attr->failed)
		return ck_no_memory(why);
	t.box = a->box;
	ret = read_stretch(j, attr->v, a, &t, why);
	if (!ret)
		ck_nnscaler_piece(j->n, &t);
	return ret;
}

/* Refused ones are kept too: parameters are numbered by their place. */
static int read_attr(struct reader *j, const struct ck_pq_each *e,
		     struct nnscaler_attr ***last, struct ck_err *err)
{
	const struct ck_pickle *p = j->f->p;
	struct nnscaler_attr *a = ck_arena_alloc(&j->n->a.mem, sizeof(*a));
	struct ck_err why = { 0 };
	const char *name;
	size_t name_len;
	int ret;

	if (!a)
		return ck_no_memory(err);
	if (!e->name || !ck_pq_str(p, e->v, "orig_name", &name, &name_len))
		return ck_fail(
			err, EINVAL,
			"%s: a record without orig_name in the param_area_map",
			j->f->c.name);
	a->name = full_name(j, name, name_len);
	a->name->mapped = true;
	a->is_param = ck_pq_int_or(p, e->v, "is_param", 0);
	**last = a;
	*last = &a->next;
	ret = read_part(j, e->name, e->len, e->v, a, &why);
	if (ret == -EINVAL)
		return ck_builder_refuse(j->n->a.b, 0, a->name->s,
					 strlen(a->name->s), err, "%s: %s",
					 j->f->c.name, why.msg);
	return ret ? ck_fail(err, -ret, "%s", why.msg) : 0;
}

/* cube_param_names has the order in which an optimizer sees parameters. */
static bool in_order(const struct reader *j, ck_pv map)
{
	const struct ck_pickle *p = j->f->p;
	struct ck_pq_each want;
	ck_pv list;

	if (!ck_pq(p, j->extra, "cube_param_names", &list) ||
	    ck_pv_kind(list) == CK_P_NONE)
		return true;
	want = ck_pq_begin(p, list, "[]");
	for (struct ck_pq_each e = ck_pq_begin(p, map, "{}"); ck_pq_next(&e);)
		if (ck_pq_int_or(p, e.v, "is_param", 0) &&
		    (!ck_pq_next(&want) || !want.name || !e.name ||
		     want.len != e.len ||
		     memcmp(want.name, e.name, e.len) != 0))
			return false;
	return !ck_pq_next(&want);
}

static int read_module(struct reader *j, struct nnscaler_module **out,
		       struct ck_err *err)
{
	const struct ck_pickle *p = j->f->p;
	struct nnscaler *n = j->n;
	struct nnscaler_rank *r = &n->ranks.v[j->rank];
	struct nnscaler_module **last = &r->modules;
	struct nnscaler_attr **last_attr;
	ck_pv map;
	int ret = 0;

	while (*last)
		last = &(*last)->next;
	*out = j->m = *last = ck_arena_alloc(&n->a.mem, sizeof(*j->m));
	if (!j->m)
		return ck_no_memory(err);
	ck_str_add(ck_nnscaler_text(n, ""), j->prefix, j->prefix_len);
	j->m->prefix = ck_nnscaler_name(n);
	if (!ck_pq(p, j->extra, "param_area_map", &map))
		return ck_fail(err, EINVAL,
			       "%s: no param_area_map in its " NNSCALER_EXTRA,
			       j->f->c.name);
	ck_nnscaler_config(p, j->extra, j->m->fact);
	if (!ck_pq(p, j->extra, "zero3_param_metadata", &j->zero3))
		j->zero3 = 0;
	j->m->ordered = in_order(j, map);
	last_attr = &j->m->attrs;
	for (struct ck_pq_each e = ck_pq_begin(p, map, "{}");
	     !ret && ck_pq_next(&e);)
		ret = read_attr(j, &e, &last_attr, err);
	return ret ? ret : ck_nnscaler_tables(n, j->f, j->m, j->extra, err);
}

int ck_nnscaler_virtual_module(struct nnscaler *n, uint32_t rank,
			       struct nnscaler_file *f, ck_pv extra,
			       struct nnscaler_module **out, struct ck_err *err)
{
	struct reader j = {
		.n = n, .f = f, .extra = extra, .prefix = "", .rank = rank
	};
	int ret = read_module(&j, out, err);

	if (!ret)
		j.m->is_virtual = true;
	return ret;
}

/* ---- the lists of a module ---- */

/* NULL: it is none, as was said. */
static struct nnscaler_name *item_name(struct reader *j,
				       const struct ck_pq_each *e,
				       struct ck_err *err)
{
	if (e->name)
		return full_name(j, e->name, e->len);
	ck_fail(err, EINVAL,
		"%s: expected names in the lists of its " NNSCALER_EXTRA,
		j->f->c.name);
	return NULL;
}

static int read_tie(struct reader *j, ck_pv list, struct ck_err *err)
{
	struct nnscaler *n = j->n;
	size_t nr = ck_pv_len(j->f->p, list);
	struct nnscaler_tie **last = &n->ties, *tie;

	tie = nr < SIZE_MAX / 16 ?
		      ck_arena_alloc(&n->a.mem,
				     sizeof(*tie) + nr * sizeof(*tie->names)) :
		      NULL;
	if (!tie)
		return ck_no_memory(err);
	for (struct ck_pq_each e = ck_pq_begin(j->f->p, list, "[]");
	     tie->nr < nr && ck_pq_next(&e);) {
		struct nnscaler_name *name = item_name(j, &e, err);

		if (!name)
			return -EINVAL;
		name->tie = tie;
		tie->names[tie->nr++] = name;
	}
	while (*last)
		last = &(*last)->next;
	*last = tie;
	return 0;
}

/*
 * Names that the state dict of the original module has, and those of one
 * tensor.  All ranks have the same lists.
 */
static int read_lists(struct reader *j, struct ck_err *err)
{
	const struct ck_pickle *p = j->f->p;
	int ret = 0;

	if (j->n->listed)
		return 0;
	for (struct ck_pq_each e =
		     ck_pq_begin(p, j->extra, "origin_state_dict_names/[]");
	     ck_pq_next(&e);) {
		struct nnscaler_name *name = item_name(j, &e, err);

		if (!name)
			return -EINVAL;
		name->listed = true;
	}
	for (struct ck_pq_each e =
		     ck_pq_begin(p, j->extra, "origin_shared_param_names/[]");
	     !ret && ck_pq_next(&e);)
		ret = read_tie(j, e.v, err);
	return ret;
}

/* ---- the state dict ---- */

static int read_modules(struct nnscaler *n, uint32_t rank,
			struct nnscaler_file *f, struct ck_strmap *keys,
			struct ck_strmap *used, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < keys->nr && !ret; i++) {
		const struct ck_strmap_key *key = &keys->v[i];
		struct nnscaler_module *m;
		struct reader j = { .n = n,
				    .f = f,
				    .keys = keys,
				    .used = used,
				    .extra = key->user,
				    .prefix = key->s,
				    .rank = rank };

		if (!ck_nnscaler_is_extra(key->s, key->len, &j.prefix_len))
			continue;
		ret = read_module(&j, &m, err);
		if (!ret)
			ret = read_lists(&j, err);
	}
	n->listed = true;
	return ret;
}

/* @x NULL: where a module stands among the tensors. */
static void add_plain(struct nnscaler *n, const struct nnscaler_name *name,
		      const struct ck_extent *x)
{
	const struct nnscaler_plain p = { .name = name,
					  .is_module = !x,
					  .x = x ? *x :
						   (struct ck_extent){ 0 } };

	n->a.mem.failed |= ck_vec_put(&n->plain, NULL, p) != 0;
}

/* A tensor of an ordinary module, which every rank has whole. */
static int read_tensor(struct nnscaler *n, uint32_t rank,
		       struct nnscaler_file *f, struct nnscaler_name *name,
		       ck_pv v, struct ck_err *err)
{
	struct nnscaler_piece t = { .name = name,
				    .rank = rank,
				    .shown.weight = true };
	struct ck_err why = { 0 };
	int ret = ck_nnscaler_extent(n, f, v, &t.x, &why);

	if (ret == -EINVAL)
		return ck_builder_refuse(n->a.b, 0, name->s, strlen(name->s),
					 err, "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	ck_nnscaler_piece(n, &t);
	if (rank == n->first)
		add_plain(n, name, &t.x);
	return 0;
}

/* Ordinary tensors; where modules stand among them decides their numbers. */
static int read_plain(struct nnscaler *n, uint32_t rank,
		      struct nnscaler_file *f, const struct ck_strmap *keys,
		      const struct ck_strmap *used, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < keys->nr && !ret; i++) {
		const struct ck_strmap_key *key = &keys->v[i];
		size_t len = key->len;
		bool is_module = ck_nnscaler_is_extra(key->s, key->len, &len);

		if (!is_module && (!ck_nnscaler_is_tensor(f, key->user) ||
				   ck_strmap_has(used, key->s, len)))
			continue;
		ck_str_add(ck_nnscaler_text(n, is_module ? "" : "model."),
			   key->s, len);
		if (!is_module)
			ret = read_tensor(n, rank, f, ck_nnscaler_name(n),
					  key->user, err);
		else if (rank == n->first)
			add_plain(n, ck_nnscaler_name(n), NULL);
	}
	return ret;
}

int ck_nnscaler_rank(struct nnscaler *n, uint32_t rank, struct nnscaler_file *f,
		     struct ck_err *err)
{
	ck_auto_strmap struct ck_strmap keys = { 0 };
	ck_auto_strmap struct ck_strmap used = { 0 };
	ck_pv model, optimizer;
	int ret;

	if (!ck_nnscaler_parts(f, &model, &optimizer))
		return ck_fail(err, EINVAL, "%s: it has no model", f->c.name);
	ret = ck_pq_index(&keys, f->p, model, "{}", err);
	if (!ret)
		ret = read_modules(n, rank, f, &keys, &used, err);
	if (!ret)
		ret = read_plain(n, rank, f, &keys, &used, err);
	if (!ret)
		ret = ck_nnscaler_states(n, rank, f, optimizer, err);
	if (!ret && n->a.mem.failed)
		ret = ck_no_memory(err);
	return ret;
}
