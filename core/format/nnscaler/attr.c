/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attr.c - which part of which tensor an attribute of a rank is
 *
 * A record of the param_area_map, with the tensor of the state dict:
 *
 *   up_weight_83: {orig_name: up.weight, shape: (10, 6),
 *                  slicers: (slice(0, 5), slice(0, 6)), is_param: True, ...}
 */
#include "core/format/nnscaler/rank_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool slice_read(const struct ck_pickle *p, ck_pv v, uint64_t dim,
		       uint64_t *start, uint64_t *len)
{
	int64_t from = 0, to = (int64_t)dim, step = 1;
	ck_pv args, at;

	if (ck_pv_kind(v) != CK_P_CALL ||
	    !ck_pv_is_global(p, ck_pv_callee(p, v), NULL, "slice"))
		return false;
	args = ck_pv_args(p, v);
	if (ck_pv_len(p, args) != 3)
		return false;
	ck_pv_at(p, args, 0, &at);
	if (ck_pv_kind(at) != CK_P_NONE && !ck_pv_int(p, at, &from))
		return false;
	ck_pv_at(p, args, 1, &at);
	if (ck_pv_kind(at) != CK_P_NONE && !ck_pv_int(p, at, &to))
		return false;
	ck_pv_at(p, args, 2, &at);
	if (ck_pv_kind(at) != CK_P_NONE && !ck_pv_int(p, at, &step))
		return false;
	if (step != 1 || from < 0 || to < from || (uint64_t)to > dim)
		return false;
	*start = (uint64_t)from;
	*len = (uint64_t)(to - from);
	return true;
}

/* Ellipsis, '...' or () stand for all of a scalar. */
static bool is_ellipsis(const struct ck_pickle *p, ck_pv v)
{
	return ck_pv_is_global(p, v, NULL, "Ellipsis") ||
	       ck_pv_is_str(p, v, "...");
}

static int box_read(struct ck_nn_set *s, const struct ck_pickle *p, ck_pv rec,
		    struct ck_nn_attr *a, struct ck_err *why)
{
	uint64_t box[3 * CK_MAX_RANK], volume;
	unsigned rank;
	ck_pv v, item;

	if (!ck_nn_field(p, rec, "shape", &v) ||
	    !ck_torch_size(p, v, box, &rank) ||
	    !ck_dims_volume(box, rank, &volume))
		return ck_fail(why, EINVAL, "no shape in the param_area_map");
	if (!ck_nn_field(p, rec, "slicers", &v))
		return ck_fail(why, EINVAL, "no slicers in the param_area_map");
	if (is_ellipsis(p, v)) {
		memset(box + rank, 0, rank * sizeof(*box));
		memcpy(box + 2 * (size_t)rank, box, rank * sizeof(*box));
	} else if (ck_pv_kind(v) != CK_P_TUPLE || ck_pv_len(p, v) != rank) {
		return ck_fail(
			why, EINVAL,
			"its slicers are not one slice for each of %u dimensions",
			rank);
	} else {
		for (unsigned d = 0; d < rank; d++)
			if (!ck_pv_at(p, v, d, &item) ||
			    !slice_read(p, item, box[d], &box[rank + d],
					&box[2 * rank + d]))
				return ck_fail(
					why, EINVAL,
					"slicer %u is no range in its dimension of %" PRIu64,
					d, box[d]);
	}
	a->rank = (uint8_t)rank;
	a->dims = s->dims.nr;
	if (!ck_vec_reserve(&s->dims, 3 * rank + 1u))
		return ck_fail(why, ENOMEM, "no memory for shapes");
	memcpy(s->dims.v + s->dims.nr, box, 3 * rank * sizeof(*box));
	s->dims.nr += 3 * (size_t)rank;
	return 0;
}

/*
 * Where the flat piece of ZeRO 3 lies in the slice's order.  Without a table
 * the ranks of a zero group that have the same slice follow each other.
 */
static int flat_range(struct ck_nn_reader *j, const char *attr,
		      struct ck_nn_attr *a, uint64_t volume, bool *flat,
		      struct ck_err *why)
{
	const struct ck_pickle *p = j->f->p;
	const struct ck_nn_identity *id = &j->m->id;
	uint64_t have = ck_nn_volume(&j->s->dims, &a->t);
	const uint64_t *len = j->s->dims.v + a->dims + 2 * (size_t)a->rank;
	int64_t lo, hi, part, parts;
	ck_pv rec;

	*flat = j->zero3 && ck_pv_key(p, j->zero3, attr, &rec) &&
		ck_pv_kind(rec) != CK_P_NONE;
	if (*flat) {
		lo = ck_nn_int(p, rec, "start", -1);
		hi = ck_nn_int(p, rec, "end", -1);
		if (lo < 0 || hi < 0)
			return ck_fail(
				why, EINVAL,
				"no start and end in zero3_param_metadata");
		a->lo = CK_MIN((uint64_t)lo, volume);
		a->hi = CK_MAX(CK_MIN((uint64_t)hi, volume), a->lo);
	} else {
		bool same = a->t.rank == a->rank &&
			    !memcmp(j->s->dims.v + a->t.dims, len,
				    a->rank * sizeof(*len));

		if (same && (id->zero < 2 || volume != 1 || !a->is_param))
			return 0;
		parts = id->plan > 0 && id->groups > 0 ?
				id->world / id->plan / id->groups :
				0;
		if (id->zero < 2 || parts < 1 || a->t.rank != 1 ||
		    have != CK_DIV_UP(volume, (uint64_t)parts))
			return same ? 0 :
				      ck_fail(why, EINVAL,
					      "the stored tensor is not of the shape of its slicers");
		part = (int64_t)(j->r - j->s->ranks.v) / id->plan % parts;
		*flat = true;
		a->lo = CK_MIN((uint64_t)part * have, volume);
		a->hi = CK_MIN(a->lo + have, volume);
	}
	if (a->t.rank != 1 || !a->t.dense || a->hi - a->lo > have)
		return ck_fail(why, EINVAL,
			       "%" PRIu64
			       " elements in a row are said of it, and %" PRIu64
			       " are stored",
			       a->hi - a->lo, have);
	return 0;
}

static int attr_tensor(struct ck_nn_reader *j, const char *attr, ck_pv v,
		       struct ck_nn_attr *a, struct ck_err *why)
{
	uint64_t volume = 0;
	int ret = ck_nn_place(j->f, v, &j->s->dims, &a->t, why);

	if (ret)
		return ret;
	ck_dims_volume(j->s->dims.v + a->dims + 2 * (size_t)a->rank, a->rank,
		       &volume);
	ret = flat_range(j, attr, a, volume, &a->flat, why);
	a->saved = !ret;
	return ret;
}

uint32_t ck_nn_full_name(struct ck_nn_reader *j, const char *name, size_t len)
{
	struct ck_str full = { 0 };
	uint32_t at = CK_STRMAP_NONE;

	ck_str_puts(&full, j->kind);
	ck_str_add(&full, j->prefix, j->prefix_len);
	ck_str_puts(&full, j->prefix_len ? "." : "");
	ck_str_add(&full, name, len);
	if (!full.failed)
		at = ck_nn_name(&j->s->names, full.v ? full.v : "", full.len);
	ck_str_free(&full);
	return at;
}

/* The state dict's value for the attribute: 1; it has none: 0; -ENOMEM. */
static int stored(struct ck_nn_reader *j, const char *attr, size_t len,
		  ck_pv *v)
{
	ck_auto_str struct ck_str key = { 0 };
	uint32_t at;

	if (!j->keys)
		return 0;
	ck_str_add(&key, j->prefix, j->prefix_len);
	ck_str_puts(&key, j->prefix_len ? "." : "");
	ck_str_add(&key, attr, len);
	if (key.failed)
		return -ENOMEM;
	at = ck_strmap_get(&j->keys->map, key.v ? key.v : "", key.len);
	if (at == CK_STRMAP_NONE)
		return 0;
	j->keys->v.v[at].used = true;
	*v = j->keys->v.v[at].value;
	return 1;
}

static int attr_fill(struct ck_nn_reader *j, const char *attr, size_t len,
		     ck_pv rec, struct ck_nn_attr *a, struct ck_err *why)
{
	int ret = box_read(j->s, j->f->p, rec, a, why);
	ck_pv v;

	if (!ret && ck_nn_int(j->f->p, rec, "val_chunks", 1) > 1)
		ret = ck_fail(
			why, EINVAL,
			"it is a sum over ranks (val_chunks), which nothing merges");
	a->bad = ret;
	if (ret)
		return ret;
	ret = stored(j, attr, len, &v);
	if (ret < 0)
		return ck_fail(why, ENOMEM, "no memory for names");
	return ret ? attr_tensor(j, attr, v, a, why) : 0;
}

int ck_nn_attr_read(struct ck_nn_reader *j, ck_pv key, ck_pv rec,
		    struct ck_err *err)
{
	const struct ck_pickle *p = j->f->p;
	struct ck_nn_attr a = { .name = CK_STRMAP_NONE }, *to;
	ck_auto_str struct ck_str attr = { 0 };
	struct ck_err why = { 0 };
	const char *s, *name;
	size_t len, name_len;
	ck_pv v;
	int ret;

	if (!ck_pv_str(p, key, &s, &len) ||
	    !ck_nn_field(p, rec, "orig_name", &v) ||
	    !ck_pv_str(p, v, &name, &name_len))
		return ck_fail(
			err, EINVAL,
			"%s: a record without orig_name in the param_area_map",
			j->f->name);
	a.name = ck_nn_full_name(j, name, name_len);
	ck_str_add(&attr, s, len);
	ck_str_puts(&attr, "");
	if (a.name == CK_STRMAP_NONE || attr.failed || !attr.v ||
	    ck_nn_mark(j->s, a.name, CK_NN_MAPPED))
		return ck_fail(err, ENOMEM, "no memory for names");
	a.is_param = ck_nn_int(p, rec, "is_param", 0);
	ret = attr_fill(j, attr.v, len, rec, &a, &why);
	if (ret == -EINVAL)
		ret = ck_builder_refuse(j->s->b, 0, j->s->names.v.v[a.name],
					strlen(j->s->names.v.v[a.name]), err,
					"%s: %s", j->f->name, why.msg);
	else if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	to = ret ? NULL : ck_vec_push(&j->r->attrs);
	if (!ret && !to)
		return ck_fail(err, ENOMEM, "no memory for attributes");
	if (to) /* refused ones too: parameters are numbered by their place */
		*to = a;
	return ret;
}
