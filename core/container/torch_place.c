/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_place.c - from a tensor in a pickle to its bytes in the file
 */
#include "core/container/torch_place.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/container/torch_walk.h"
#include "core/geom/catalog.h"

#include <errno.h>
#include <string.h>

int ck_torch_open(struct ck_torch_open *f, const struct ck_dir *dir,
		  struct ck_builder *b, const char *name, bool *ok,
		  struct ck_err *err)
{
	struct ck_container c;
	struct ck_err why;
	int ret = ck_container_open_as(&c, dir, b, name, false, ok, &why, err);

	*f = c.t;
	return ret || *ok || !f->s ? ret :
				     ck_builder_report_file(b, CK_ERROR, name,
							    err, "%s", why.msg);
}

void ck_torch_open_close(struct ck_torch_open *f)
{
	ck_torch_save_close(&f->ts);
	ck_source_close(f->s);
	*f = (struct ck_torch_open){ 0 };
}

static int place(struct ck_torch_open *f, ck_pv v, struct ck_torch_place *at,
		 struct ck_err *why)
{
	const struct ck_torch_tensor *t = &at->t;
	struct ck_extent *x = &at->x;
	uint64_t skip;
	int ret = ck_torch_tensor_read(f->ts.pickle, v, &at->t, why);

	*x = (struct ck_extent){ .src = f->src };
	if (!ret)
		ret = ck_torch_save_place(&f->ts, t, &x->storage, why);
	if (ret)
		return ret;
	x->shape = t->shape;
	x->stride = t->stride;
	x->dtype = (uint8_t)t->dtype;
	x->rank = (uint8_t)t->rank;
	if (!ck_mul_ok(t->storage_offset, ck_dtype_info(t->dtype)->size,
		       &skip) ||
	    !ck_add_ok(x->storage, skip, &x->off))
		return ck_fail(why, EINVAL, "its offset overflows");
	if (!ck_torch_xform(t, f->ts.big_endian, &x->xform))
		return ck_fail(why, EINVAL,
			       "two of big-endian, conjugated and negated");
	return 0;
}

int ck_torch_extent(struct ck_torch_open *f, ck_pv v,
		    struct ck_torch_place *out, struct ck_err *why,
		    struct ck_err *err)
{
	int ret = place(f, v, out, why);

	if (ret && ret != -EINVAL)
		return ck_fail(err, -ret, "%s", why->msg);
	out->x.fault = ret ? why->msg : NULL;
	return 0;
}

int ck_torch_place(struct ck_torch_open *f, ck_pv v, struct ck_torch_place *out,
		   struct ck_err *why)
{
	return ck_wrap(why, place(f, v, out, why), "%s", f->s->name);
}

static bool number_at(struct ck_torch_open *f, const struct ck_torch_place *at,
		      double *out)
{
	const char *dtype = ck_dtype_info(at->t.dtype)->name;
	union {
		float f32;
		double f64;
		int32_t i32;
		int64_t i64;
	} u;
	size_t size = ck_dtype_info(at->t.dtype)->size;

	if (at->t.rank || at->x.xform != CK_XF_NONE || size > sizeof(u) ||
	    ck_source_read(f->s, &u, size, at->x.off, NULL))
		return false;
	if (!strcmp(dtype, "float32"))
		*out = (double)u.f32;
	else if (!strcmp(dtype, "float64"))
		*out = u.f64;
	else if (!strcmp(dtype, "int32"))
		*out = u.i32;
	else if (!strcmp(dtype, "int64"))
		*out = (double)u.i64;
	else
		return false;
	return true;
}

int ck_torch_number(struct ck_torch_open *f, ck_pv v, double *out)
{
	struct ck_torch_place at;
	int64_t n;
	int ret;

	if (ck_torch_is_rebuild(f->ts.pickle, v)) {
		ret = ck_torch_place(f, v, &at, NULL);
		if (ret)
			return ret == -ENOMEM ? ret : 0;
		return number_at(f, &at, out);
	}
	if (ck_pv_int(f->ts.pickle, v, &n)) {
		*out = (double)n;
		return 1;
	}
	return ck_pv_float(f->ts.pickle, v, out);
}

static int leaf_tensor(struct ck_torch_open *f, struct ck_builder *b, ck_pv v,
		       const struct ck_str *name, struct ck_err *err)
{
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	int ret = ck_torch_place(f, v, &at, &why);
	const struct ck_part part = ck_extent_part(&at.x, name->v, name->len);

	if (ret == -EINVAL)
		return ck_builder_refuse(b, 0, name->v, name->len, err, "%s",
					 why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	return ck_builder_add(b, &part, err);
}

int ck_torch_leaf_add(struct ck_torch_open *f, struct ck_builder *b, ck_pv v,
		      const struct ck_str *name,
		      const struct ck_path_part *path, unsigned nr,
		      struct ck_err *err)
{
	const struct ck_object_in o = { .name = name->v,
					.name_len = name->len,
					.src = f->src,
					.enc = CK_ENC_PICKLE,
					.off = f->ts.pickle_off,
					.len = f->ts.pickle_len };
	int ret;

	if (name->failed)
		return ck_no_memory(err);
	ret = ck_torch_is_rebuild(f->ts.pickle, v) ?
		      leaf_tensor(f, b, v, name, err) :
		      ck_builder_object(b, &o, err);
	return ret || !nr ?
		       ret :
		       ck_builder_path(b, 0, name->v, name->len, path, nr, err);
}

struct rest {
	struct ck_torch_open *f;
	struct ck_builder *b;
	const char *prefix;
	const char *const *skip;
	struct ck_str name;
	/* that prefix without its dot, and the leaf's */
	struct ck_path_part path[CK_TORCH_MAX_DEPTH + 1];
};

static bool skipped(const struct rest *r, const struct ck_torch_leaf *leaf)
{
	if (!leaf->depth || leaf->path[0].index >= 0)
		return false;
	for (const char *const *s = r->skip; *s; s++)
		if (strlen(*s) == leaf->path[0].key_len &&
		    !memcmp(*s, leaf->path[0].key, leaf->path[0].key_len))
			return true;
	return false;
}

/* Nested as it was saved, below the prefix. */
static int rest_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct rest *r = ctx;
	size_t len = strlen(r->prefix);
	unsigned own = len != 0;

	if (skipped(r, leaf))
		return 0;
	r->name.len = 0;
	ck_str_puts(&r->name, r->prefix);
	ck_str_add(&r->name, leaf->name, leaf->name_len);
	if (own)
		r->path[0] = (struct ck_path_part){ r->prefix, len - 1, -1 };
	memcpy(r->path + own, leaf->path, leaf->depth * sizeof(*leaf->path));
	return ck_torch_leaf_add(r->f, r->b, leaf->value, &r->name, r->path,
				 leaf->depth ? own + leaf->depth : 0, err);
}

int ck_torch_rest(struct ck_torch_open *f, struct ck_builder *b,
		  const char *prefix, const char *const *skip,
		  struct ck_err *err)
{
	struct rest r = { .f = f, .b = b, .prefix = prefix, .skip = skip };
	int ret = ck_torch_walk(f->ts.pickle, ck_pickle_root(f->ts.pickle),
				rest_leaf, &r, err);

	ck_str_free(&r.name);
	return ret;
}
