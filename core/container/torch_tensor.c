// SPDX-License-Identifier: Apache-2.0
/*
 * torch_tensor.c - from a rebuild call to storage, dtype, shape and strides
 *
 *   _rebuild_tensor       storage, offset, size, stride
 *   _rebuild_tensor_v2    ..., requires_grad, hooks[, metadata]
 *   _rebuild_tensor_v3    ..., requires_grad, hooks, dtype[, metadata]
 *   _rebuild_qtensor      storage, offset, size, stride, quantizer, ...
 *   _rebuild_parameter*   tensor, ...
 *   _rebuild_device_tensor_from_cpu_tensor  tensor, ...
 *   _rebuild_from_type*   function, class, its arguments, state
 */
#include "core/container/torch_tensor.h"

#include "core/base/check.h"
#include "core/geom/catalog.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_WRAPPERS 16

static const char *const kind_names[] = {
	[CK_P_NONE] = "None",	   [CK_P_BOOL] = "a bool",
	[CK_P_INT] = "an int",	   [CK_P_BIGINT] = "an int",
	[CK_P_FLOAT] = "a float",  [CK_P_STR] = "a string",
	[CK_P_BYTES] = "bytes",	   [CK_P_TUPLE] = "a tuple",
	[CK_P_LIST] = "a list",	   [CK_P_DICT] = "a dict",
	[CK_P_SET] = "a set",	   [CK_P_GLOBAL] = "a class or function",
	[CK_P_CALL] = "an object", [CK_P_PERSID] = "a storage",
};

/* A call that is being looked at; those that wrap another are peeled off. */
struct call {
	ck_pv callee, args;
};

/* Why a tensor that some function of torch's makes is not one of ours. */
static const char *kind_of(const char *name, size_t len)
{
	static const char *const kinds[][2] = {
		{ "_rebuild_sparse", "a sparse tensor, which is not read:" },
		{ "_rebuild_nested", "a nested tensor, which is not read:" },
		{ "_rebuild_meta",
		  "a tensor of the meta device, without data:" },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(kinds); i++)
		if (len > strlen(kinds[i][0]) &&
		    !memcmp(name, kinds[i][0], strlen(kinds[i][0])))
			return kinds[i][1];
	return "expected a tensor, found";
}

static int no_tensor(const struct ck_pickle *p, ck_pv v, struct ck_err *err)
{
	const char *module, *name;
	size_t module_len, name_len;

	if (ck_pv_kind(v) == CK_P_CALL)
		v = ck_pv_callee(p, v);
	if (ck_pv_global(p, v, &module, &module_len, &name, &name_len))
		return ck_fail(err, EINVAL, "%s %.*s.%.*s",
			       kind_of(name, name_len),
			       (int)CK_MIN(module_len, 200), module,
			       (int)CK_MIN(name_len, 200), name);
	return ck_fail(err, EINVAL, "expected a tensor, found %s",
		       kind_names[ck_pv_kind(v)]);
}

/* Whether it calls a function of torch's that is named @name. */
static bool calls(const struct ck_pickle *p, const struct call *c,
		  const char *name)
{
	const char *module, *s;
	size_t module_len, len;

	return ck_pv_is_global(p, c->callee, NULL, name) &&
	       ck_pv_global(p, c->callee, &module, &module_len, &s, &len) &&
	       module_len >= 5 && !memcmp(module, "torch", 5) &&
	       (module_len == 5 || module[5] == '.');
}

static bool open_call(const struct ck_pickle *p, ck_pv v, struct call *out)
{
	if (ck_pv_kind(v) != CK_P_CALL)
		return false;
	*out = (struct call){ ck_pv_callee(p, v), ck_pv_args(p, v) };
	return true;
}

/* 1: @c was a wrapper and is now what it wrapped; 0: it was none. */
static int unwrap(const struct ck_pickle *p, struct call *c, struct ck_err *err)
{
	ck_pv v;

	if (calls(p, c, "_rebuild_from_type_v2") ||
	    calls(p, c, "_rebuild_from_type")) {
		struct call inner;

		if (ck_pv_at(p, c->args, 0, &inner.callee) &&
		    ck_pv_at(p, c->args, 2, &inner.args) &&
		    ck_pv_kind(inner.args) == CK_P_TUPLE) {
			*c = inner;
			return 1;
		}
		return ck_fail(err, EINVAL, "malformed _rebuild_from_type");
	}
	if (!calls(p, c, "_rebuild_parameter") &&
	    !calls(p, c, "_rebuild_parameter_with_state") &&
	    !calls(p, c, "_rebuild_device_tensor_from_cpu_tensor"))
		return 0;
	if (!ck_pv_at(p, c->args, 0, &v))
		return ck_fail(err, EINVAL, "a parameter without its tensor");
	return open_call(p, v, c) ? 1 : no_tensor(p, v, err);
}

static int peel(const struct ck_pickle *p, ck_pv v, struct call *c,
		struct ck_err *err)
{
	int ret = 1;

	if (!open_call(p, v, c))
		return no_tensor(p, v, err);
	for (unsigned i = 0; ret > 0 && i < MAX_WRAPPERS; i++)
		ret = unwrap(p, c, err);
	if (ret > 0)
		return ck_fail(err, EINVAL,
			       "a tensor wrapped more than %d times",
			       MAX_WRAPPERS);
	return ret;
}

static bool uint_at(const struct ck_pickle *p, ck_pv args, uint64_t i,
		    uint64_t *out)
{
	int64_t n;
	ck_pv v;

	if (!ck_pv_at(p, args, i, &v) || !ck_pv_int(p, v, &n) || n < 0 ||
	    (uint64_t)n >= CK_SIZE_MAX)
		return false;
	*out = (uint64_t)n;
	return true;
}

/* A tuple or list of integers, torch.Size(...) too. */
static bool ints_at(const struct ck_pickle *p, ck_pv args, uint64_t i,
		    int64_t *out, unsigned *nr)
{
	struct ck_piter it;
	ck_pv v;

	if (!ck_pv_at(p, args, i, &v))
		return false;
	if (ck_pv_is_global(p, ck_pv_callee(p, v), "torch", "Size") &&
	    !ck_pv_at(p, ck_pv_args(p, v), 0, &v))
		return false;
	if ((ck_pv_kind(v) != CK_P_TUPLE && ck_pv_kind(v) != CK_P_LIST) ||
	    ck_pv_len(p, v) > CK_MAX_RANK)
		return false;
	*nr = 0;
	ck_piter_init(&it, p, v);
	while (ck_piter_next(&it, &v))
		if (!ck_pv_int(p, v, &out[(*nr)++]))
			return false;
	return true;
}

static int read_shape(const struct ck_pickle *p, ck_pv args,
		      struct ck_torch_tensor *t, struct ck_err *err)
{
	int64_t shape[CK_MAX_RANK];
	unsigned nr_strides;

	if (!uint_at(p, args, 1, &t->storage_offset) ||
	    !ints_at(p, args, 2, shape, &t->rank) ||
	    !ints_at(p, args, 3, t->stride, &nr_strides) ||
	    nr_strides != t->rank)
		return ck_fail(
			err, EINVAL,
			"a tensor with malformed offset, size or strides");
	for (unsigned d = 0; d < t->rank; d++) {
		if (shape[d] < 0 || (uint64_t)shape[d] >= CK_SIZE_MAX)
			return ck_fail(err, EINVAL,
				       "a tensor with a size of %" PRId64,
				       shape[d]);
		t->shape[d] = (uint64_t)shape[d];
	}
	return 0;
}

static bool is_true(const struct ck_pickle *p, ck_pv dict, const char *key)
{
	int64_t n;
	ck_pv v;

	return ck_pv_key(p, dict, key, &v) && ck_pv_int(p, v, &n) && n;
}

static bool torch_dtype(const struct ck_pickle *p, ck_pv v, enum ck_dtype *out)
{
	const char *module, *name;
	size_t module_len, name_len;

	if (!ck_pv_global(p, v, &module, &module_len, &name, &name_len))
		return false;
	*out = ck_dtype_by_torch(name, name_len);
	return *out != CK_DT_NONE;
}

/* What follows the strides differs by version. */
static int read_rest(const struct ck_pickle *p, const struct call *c,
		     struct ck_torch_tensor *t, struct ck_err *err)
{
	uint64_t metadata_at = 6;
	ck_pv v;

	if (calls(p, c, "_rebuild_tensor") || calls(p, c, "_rebuild_qtensor"))
		return 0;
	if (calls(p, c, "_rebuild_tensor_v3")) {
		if (!ck_pv_at(p, c->args, 6, &v) ||
		    !torch_dtype(p, v, &t->dtype))
			return ck_fail(err, EINVAL,
				       "a tensor of a dtype that is not known");
		metadata_at = 7;
	}
	if (ck_pv_at(p, c->args, metadata_at, &v)) {
		t->conj = is_true(p, v, "conj");
		t->neg = is_true(p, v, "neg");
	}
	return 0;
}

/* The storage's class says the dtype, unless it was said before. */
static int read_class(const struct ck_pickle *p, ck_pv class, uint64_t count,
		      struct ck_torch_tensor *t, struct ck_err *err)
{
	const char *module, *name;
	size_t module_len, name_len;
	enum ck_dtype dt;
	uint64_t unit = 1;

	if (!ck_pv_global(p, class, &module, &module_len, &name, &name_len))
		return ck_fail(err, EINVAL, "a storage without a class");
	if (!ck_pv_is_global(p, class, NULL, "UntypedStorage")) {
		dt = ck_dtype_by_storage(name, name_len);
		unit = ck_dtype_info(dt)->size;
		if (t->dtype == CK_DT_NONE)
			t->dtype = dt;
	}
	if (!unit || !ck_dtype_info(t->dtype)->size)
		return ck_fail(
			err, EINVAL,
			"a %.*s, whose elements are not known to be whole bytes",
			(int)CK_MIN(name_len, 200), name);
	if (!ck_mul_ok(count, unit, &t->storage_len))
		return ck_fail(err, EINVAL, "a storage of %" PRIu64 " elements",
			       count);
	return 0;
}

static int read_storage(const struct ck_pickle *p, ck_pv args,
			struct ck_torch_tensor *t, struct ck_err *err)
{
	ck_pv v, id, class, key;
	uint64_t count;

	if (!ck_pv_at(p, args, 0, &v) || ck_pv_kind(v) != CK_P_PERSID)
		return ck_fail(err, EINVAL, "a tensor without a storage");
	id = ck_pv_persid(p, v);
	if (!ck_pv_at(p, id, 0, &v) || !ck_pv_is_str(p, v, "storage") ||
	    !ck_pv_at(p, id, 1, &class) || !ck_pv_at(p, id, 2, &key) ||
	    !ck_pv_str(p, key, &t->key, &t->key_len) ||
	    !uint_at(p, id, 4, &count))
		return ck_fail(err, EINVAL, "a malformed storage");
	if (ck_pv_at(p, id, 3, &v) && ck_pv_is_str(p, v, "meta"))
		return ck_fail(err, EINVAL,
			       "a tensor of the meta device, without data");
	return read_class(p, class, count, t, err);
}

/* Bytes from the first to the last element of a product of sizes. */
static bool size_ok(const struct ck_torch_tensor *t)
{
	uint64_t bytes = ck_dtype_info(t->dtype)->size;
	bool ok = true;

	for (unsigned d = 0; d < t->rank; d++) {
		if (!t->shape[d])
			return true;
		ok = ok && ck_mul_ok(bytes, t->shape[d], &bytes);
	}
	return ok;
}

/* Lowest and highest element touched, for a tensor that has elements. */
static bool reach_ok(const struct ck_torch_tensor *t, uint64_t count)
{
	uint64_t above = t->storage_offset, below = 0, step;

	for (unsigned d = 0; d < t->rank; d++) {
		uint64_t stride = t->stride[d] < 0 ? -(uint64_t)t->stride[d] :
						     (uint64_t)t->stride[d];
		uint64_t *resolved = t->stride[d] < 0 ? &below : &above;

		if (!t->shape[d])
			return true;
		if (!ck_mul_ok(t->shape[d] - 1, stride, &step) ||
		    !ck_add_ok(*resolved, step, resolved))
			return false;
	}
	return below <= t->storage_offset && above < count;
}

static bool is_empty(const struct ck_torch_tensor *t)
{
	for (unsigned d = 0; d < t->rank; d++)
		if (!t->shape[d])
			return true;
	return false;
}

static int check_reach(const struct ck_torch_tensor *t, struct ck_err *err)
{
	uint64_t count = t->storage_len / ck_dtype_info(t->dtype)->size;

	if (!size_ok(t))
		return ck_fail(err, EINVAL, "a tensor of 2^62 bytes or more");
	if (is_empty(t) ? t->storage_offset > count : !reach_ok(t, count))
		return ck_fail(
			err, EINVAL,
			"a tensor that reaches out of its storage of %" PRIu64
			" elements",
			count);
	return 0;
}

int ck_torch_tensor_read(const struct ck_pickle *p, ck_pv v,
			 struct ck_torch_tensor *out, struct ck_err *err)
{
	struct call c;
	int ret = peel(p, v, &c, err);

	*out = (struct ck_torch_tensor){ .dtype = CK_DT_NONE };
	if (ret)
		return ret;
	if (!calls(p, &c, "_rebuild_tensor") &&
	    !calls(p, &c, "_rebuild_tensor_v2") &&
	    !calls(p, &c, "_rebuild_tensor_v3") &&
	    !calls(p, &c, "_rebuild_qtensor"))
		return no_tensor(p, c.callee, err);
	ret = read_shape(p, c.args, out, err);
	if (!ret)
		ret = read_rest(p, &c, out, err);
	if (!ret)
		ret = read_storage(p, c.args, out, err);
	return ret ? ret : check_reach(out, err);
}

bool ck_torch_xform(const struct ck_torch_tensor *t, bool big_endian,
		    uint8_t *out)
{
	bool swap = big_endian && ck_dtype_info(t->dtype)->size > 1;

	*out = swap    ? CK_XF_BYTESWAP :
	       t->conj ? CK_XF_CONJ :
	       t->neg  ? CK_XF_NEG :
			 CK_XF_NONE;
	return swap + t->conj + t->neg <= 1;
}
