/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.c - a tensor of OneFlow's: a folder, or an array in the pickle
 *
 *	oneflow.Tensor, state {path: "tensor_5"}
 *	                      {data: numpy array, dtype: 2, device: "cpu"}
 *	                      {data, dtype, placement, sbp}   pickled when global
 */
#include "core/format/oneflow/oneflow.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/geom/dtype.h"
#include "core/geom/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_META 65536 /* bytes of a folder's meta */

char *ck_oneflow_below(const char *path, const char *name, size_t len)
{
	size_t n = strlen(path) + len + 2;
	char *out = malloc(n);

	if (out)
		snprintf(out, n, "%s%s%.*s", path, *path && len ? "/" : "",
			 (int)len, name);
	return out;
}

bool ck_oneflow_is_tensor(const struct ck_pickle *p, ck_pv v)
{
	return ck_pq_is(p, v, "oneflow", "Tensor") ||
	       ck_pq_is(p, v, "oneflow", "Parameter");
}

/* Row-major, or column-major where @fortran; *nr is how many elements. */
static int lay_out(struct oneflow_save *s, struct ck_extent *x, unsigned rank,
		   bool fortran, uint64_t *nr, struct ck_err *err)
{
	uint64_t step = 1;

	*nr = 1;
	for (unsigned i = 0; i < rank; i++)
		if (!ck_mul_ok(*nr, s->shape[i], nr))
			return ck_fail(err, EINVAL, "its size overflows");
	for (unsigned i = 0; i < rank; i++) {
		unsigned d = fortran ? i : rank - 1 - i;

		s->stride[d] = (int64_t)step;
		if (*nr)
			step *= s->shape[d];
	}
	x->rank = (uint8_t)rank;
	x->shape = s->shape;
	x->stride = s->stride;
	return 0;
}

/*
 * bfloat16 is written as the same values in float32; that is what is served,
 * unless the bytes are as many as bfloat16 has.
 */
static int stored_type(int type, uint64_t nr, uint64_t len, struct ck_extent *x,
		       struct ck_err *err)
{
	int dtype = ck_oneflow_dtype(type);

	if (dtype == CK_DT_NONE)
		return ck_fail(err, EINVAL, "%s is not supported",
			       ck_oneflow_type_name(type));
	if (type == ONEFLOW_BFLOAT16 && len != 2 * nr)
		dtype = CK_DT_F32;
	x->dtype = (uint8_t)dtype;
	return 0;
}

/* @file of the folder @name below the save's. */
static char *file_in(const struct oneflow_save *s, const char *name, size_t len,
		     const char *file)
{
	ck_auto_free char *folder = ck_oneflow_below(s->path, name, len);

	return folder ? ck_oneflow_below(folder, file, strlen(file)) : NULL;
}

static int read_meta(const struct oneflow_save *s, const char *name, size_t len,
		     struct oneflow_meta *meta, struct ck_err *err)
{
	ck_auto_free char *path = file_in(s, name, len, "meta");
	ck_auto_free char *text = NULL;
	size_t text_len;
	int ret;

	if (!path)
		return ck_no_memory(err);
	ret = ck_dir_slurp(s->ld->a.dir, path, MAX_META, &text, &text_len, err);
	if (ret == -ENOENT)
		return ck_fail(err, EINVAL,
			       "%s does not exist: its shape is not known",
			       path);
	if (ret)
		return ret == -ENOMEM ?
			       ret :
			       ck_fail(err, EINVAL, "%s cannot be read", path);
	ret = ck_oneflow_meta_parse(meta, text, text_len, err);
	return ck_wrap(err, ret, "%s", path);
}

static int open_out(struct oneflow_save *s, const char *name, size_t len,
		    uint32_t *src, uint64_t *size, struct ck_err *err)
{
	ck_auto_free char *path = file_in(s, name, len, "out");
	ck_auto_source struct ck_source *out = NULL;
	int ret = path ? ck_dir_source(s->ld->a.dir, s->ld->a.b, path, src,
				       &out, err) :
			 ck_no_memory(err);

	*size = out ? (uint64_t)out->st.st_size : UINT64_MAX;
	return ret;
}

int ck_oneflow_folder(struct oneflow_save *s, const char *name, size_t len,
		      struct oneflow_leaf *leaf, struct ck_err *err)
{
	struct ck_extent *x = &leaf->x;
	struct oneflow_meta meta;
	uint64_t nr, size = 0, want;
	int ret = read_meta(s, name, len, &meta, err);

	if (!ret)
		ret = open_out(s, name, len, &x->src, &size, err);
	if (ret)
		return ret;
	memcpy(s->shape, meta.shape, sizeof(meta.shape));
	ret = lay_out(s, x, meta.rank, false, &nr, err);
	if (!ret)
		ret = stored_type(meta.type, nr, size, x, err);
	if (ret)
		return ret;
	if (!ck_mul_ok(nr, ck_dtype_info((enum ck_dtype)x->dtype)->size, &want))
		return ck_fail(err, EINVAL, "its size overflows");
	if (size != UINT64_MAX && size > want)
		return ck_fail(err, EINVAL,
			       "%.*s/out has %" PRIu64 " bytes, where meta "
			       "says %" PRIu64,
			       (int)CK_MIN(len, 100), name, size, want);
	return 0;
}

struct array {
	ck_pv shape, bytes;
	bool fortran;
	char order; /* '<', '>', '|' or '=' */
	unsigned size; /* bytes an element */
};

/* dtype("f4", False, True) with the state (3, "<", ...) */
static bool read_dtype(const struct ck_pickle *p, ck_pv v, struct array *a)
{
	const char *code, *order;
	size_t code_len, order_len;
	ck_pv arg, state;
	uint64_t size;

	if (!ck_pq_is(p, v, "numpy", NULL) ||
	    !ck_pv_at(p, ck_pv_args(p, v), 0, &arg) ||
	    !ck_pv_str(p, arg, &code, &code_len) || code_len < 2 ||
	    code_len > 3)
		return false;
	if (!ck_decimal(code + 1, code_len - 1, 99, &size))
		return false;
	a->size = (unsigned)size;
	a->order = '<';
	if (ck_pv_state(p, v, &state)) {
		if (!ck_pv_at(p, state, 1, &arg) ||
		    !ck_pv_str(p, arg, &order, &order_len) || order_len != 1)
			return false;
		a->order = *order;
	}
	return a->size > 0;
}

/*
 * _reconstruct(...), state (1, shape, dtype, fortran, bytes)
 * _frombuffer(bytes, dtype, shape, "C" or "F")
 */
static bool read_array(const struct ck_pickle *p, ck_pv v, struct array *a)
{
	ck_pv args, dtype, order;
	int64_t fortran;

	if (ck_pq_is(p, v, "numpy", "_frombuffer")) {
		args = ck_pv_args(p, v);
		if (!ck_pv_at(p, args, 0, &a->bytes) ||
		    !ck_pv_at(p, args, 1, &dtype) ||
		    !ck_pv_at(p, args, 2, &a->shape) ||
		    !ck_pv_at(p, args, 3, &order))
			return false;
		a->fortran = ck_pv_is_str(p, order, "F");
		return read_dtype(p, dtype, a);
	}
	if (!ck_pq_is(p, v, "numpy", "_reconstruct") ||
	    !ck_pv_state(p, v, &args) || !ck_pv_at(p, args, 1, &a->shape) ||
	    !ck_pv_at(p, args, 2, &dtype) || !ck_pv_at(p, args, 3, &order) ||
	    !ck_pv_at(p, args, 4, &a->bytes) || !ck_pv_int(p, order, &fortran))
		return false;
	a->fortran = fortran != 0;
	return read_dtype(p, dtype, a);
}

/*
 * Protocol 2 has no opcode for bytes: _codecs.encode(text, "latin1"), whose
 * bytes the file does not hold one by one.
 */
static int place_latin1(struct oneflow_save *s, ck_pv v, uint32_t *src,
			uint64_t *len, struct ck_err *err)
{
	ck_auto_free unsigned char *bytes = NULL;
	const unsigned char *in;
	const char *text;
	size_t n, nr = 0;
	ck_pv arg;

	if (!ck_pq_is(s->p, v, "_codecs", "encode") ||
	    !ck_pv_at(s->p, ck_pv_args(s->p, v), 0, &arg) ||
	    !ck_pv_str(s->p, arg, &text, &n))
		return ck_fail(err, EINVAL, "its array has no bytes");
	in = (const unsigned char *)text;
	bytes = malloc(n + 1);
	if (!bytes)
		return ck_no_memory(err);
	for (size_t i = 0; i < n; i++) {
		unsigned c = in[i];

		if (c >= 0x80) {
			if ((c & 0xfc) != 0xc0 || i + 1 == n ||
			    (in[i + 1] & 0xc0) != 0x80)
				return ck_fail(err, EINVAL,
					       "its array's text is not "
					       "latin1");
			c = (c & 3) << 6 | (in[++i] & 0x3f);
		}
		bytes[nr++] = (unsigned char)c;
	}
	*len = nr;
	return ck_builder_mem(s->ld->a.b, bytes, nr, src, err);
}

/* The number of OneFlow's dtype object: its state. */
static bool type_of(const struct ck_pickle *p, ck_pv v, int *type)
{
	ck_pv state;
	int64_t n;

	if (!ck_pv_attr(p, v, "dtype", &v) || !ck_pv_state(p, v, &state) ||
	    !ck_pv_int(p, state, &n) || n < 0 || n > 1000)
		return false;
	*type = (int)n;
	return true;
}

static int inline_array(struct oneflow_save *s, ck_pv v,
			struct oneflow_leaf *leaf, ck_pv data,
			struct ck_err *err)
{
	struct ck_extent *x = &leaf->x;
	uint64_t nr, len, want;
	struct array a;
	unsigned rank;
	int type, ret;
	ck_pv ignored;

	if (!type_of(s->p, v, &type))
		return ck_fail(err, EINVAL, "it has no dtype");
	if (!read_array(s->p, data, &a))
		return ck_fail(err, EINVAL,
			       "its data is no array of numbers of numpy's");
	if (!ck_pq_dims(s->p, a.shape, "", s->shape, &rank))
		return ck_fail(err, EINVAL, "its array has no shape");
	ret = lay_out(s, x, rank, a.fortran, &nr, err);
	x->src = s->src;
	if (!ret && !ck_pv_extent(s->p, a.bytes, &x->off, &len))
		ret = place_latin1(s, a.bytes, &x->src, &len, err);
	if (!ret)
		ret = stored_type(type, nr, len, x, err);
	if (ret)
		return ret;
	x->xform = a.order == '>' && a.size > 1 ? CK_XF_BYTESWAP : CK_XF_NONE;
	leaf->whole = ck_pv_attr(s->p, v, "placement", &ignored);
	if (ck_dtype_info((enum ck_dtype)x->dtype)->size != a.size)
		return ck_fail(err, EINVAL,
			       "its array has %u bytes an element, where %s "
			       "has %u",
			       a.size, ck_oneflow_type_name(type),
			       ck_dtype_info((enum ck_dtype)x->dtype)->size);
	if (!ck_mul_ok(nr, a.size, &want) || want != len)
		return ck_fail(err, EINVAL,
			       "its array has %" PRIu64 " bytes, where its "
			       "shape says %" PRIu64 " elements",
			       len, nr);
	return 0;
}

int ck_oneflow_node(struct oneflow_save *s, ck_pv v, struct oneflow_leaf *leaf,
		    struct ck_err *err)
{
	const char *path;
	size_t len;
	ck_pv part;

	if (ck_pv_attr(s->p, v, "path", &part) &&
	    ck_pv_str(s->p, part, &path, &len)) {
		if (!ck_dir_name_ok(path, len))
			return ck_fail(err, EINVAL,
				       "it is in %.*s, outside of the "
				       "checkpoint",
				       (int)CK_MIN(len, 200), path);
		return ck_oneflow_folder(s, path, len, leaf, err);
	}
	if (ck_pv_attr(s->p, v, "data", &part))
		return inline_array(s, v, leaf, part, err);
	return ck_fail(err, EINVAL, "it has neither a path nor data");
}
