/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - the object in a file that nnScaler wrote, and its tensors
 *
 *   .ckpt          torch.save of the object
 *   .safetensors   tensors "0", "1", ...; __metadata__.obj is base64 of a
 *                  pickle of the object with _Index(number) for each tensor
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/base/check.h"
#include "core/base/number.h"
#include "core/geom/range.h"
#include "core/parse/base64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Entries by number, so that an _Index finds its own at once. */
static int number_entries(struct nnscaler_file *f, struct ck_err *err)
{
	size_t nr = f->c.st.tensors.nr;

	if (!ck_vec_reserve(&f->entry, nr + 1))
		return ck_no_memory(err);
	f->entry.nr = nr;
	memset(f->entry.v, 0xff, nr * sizeof(*f->entry.v));
	for (size_t i = 0; i < nr; i++) {
		const struct ck_st_entry *e = &f->c.st.tensors.v[i];
		uint64_t n;

		if (e->name_len <= 9 && nr &&
		    ck_decimal(e->name, e->name_len, nr - 1, &n))
			f->entry.v[n] = (uint32_t)i;
	}
	return 0;
}

/* The pickle in the header of a safetensors file. */
static int read_object(struct nnscaler_file *f, struct ck_err *why)
{
	const char *name = f->c.name;
	const json_t *obj = json_object_get(f->c.st.h.metadata, "obj");
	int ret;

	if (!json_is_string(obj))
		return ck_fail(why, EINVAL,
			       "%s: no \"obj\" in its __metadata__", name);
	ret = ck_base64_decode(json_string_value(obj), json_string_length(obj),
			       &f->bytes, &f->len, why);
	if (!ret)
		ret = ck_pickle_parse(&f->own, f->bytes, f->len, NULL, NULL,
				      why);
	if (ret)
		return ck_wrap(why, ret, "%s: __metadata__.obj", name);
	f->p = f->own;
	return number_entries(f, why);
}

int ck_nnscaler_open(struct nnscaler_file *f, const struct ck_dir *dir,
		     struct ck_builder *b, const char *name, bool *ok,
		     struct ck_err *why, struct ck_err *err)
{
	int ret;

	*f = (struct nnscaler_file){ 0 };
	ret = ck_container_open(&f->c, dir, b, name, ok, why, err);
	if (ret || !*ok)
		return ret;
	f->p = f->c.t.ts.pickle;
	if (f->c.is_st)
		ret = read_object(f, why);
	*ok = !ret;
	if (ret)
		return ret == -EINVAL ? 0 : ck_fail(err, -ret, "%s", why->msg);
	f->root = ck_pickle_root(f->p);
	return 0;
}

void ck_nnscaler_close(struct nnscaler_file *f)
{
	ck_container_close(&f->c);
	ck_pickle_free(f->own);
	free(f->entry.v);
	free(f->bytes);
}

bool ck_nnscaler_parts(const struct nnscaler_file *f, ck_pv *model,
		       ck_pv *optimizer)
{
	*optimizer = 0;
	if (ck_pv_key(f->p, f->root, "model", model)) {
		ck_pv_key(f->p, f->root, "optimizer", optimizer);
		return true;
	}
	if (!ck_pv_key(f->p, f->root, "state_dict", model))
		return false;
	ck_pv_key(f->p, f->root, "optim_state_dict", optimizer);
	return true;
}

bool ck_nnscaler_is_extra(const char *key, size_t len, size_t *prefix_len)
{
	size_t n = strlen(NNSCALER_EXTRA);

	if (len < n || memcmp(key + len - n, NNSCALER_EXTRA, n) != 0 ||
	    (len > n && key[len - n - 1] != '.'))
		return false;
	*prefix_len = len > n ? len - n - 1 : 0;
	return true;
}

bool ck_nnscaler_extra(const struct ck_pickle *p, ck_pv model, ck_pv *extra)
{
	size_t prefix;

	for (struct ck_pq_each e = ck_pq_begin(p, model, "{}"); ck_pq_next(&e);)
		if (e.name && ck_nnscaler_is_extra(e.name, e.len, &prefix)) {
			*extra = e.v;
			return true;
		}
	return false;
}

/* Its number among the file's tensors; false: it is no _Index. */
static bool index_of(const struct nnscaler_file *f, ck_pv v, int64_t *n)
{
	ck_pv field;

	return ck_pv_kind(v) == CK_P_CALL &&
	       ck_pv_is_global(f->p, ck_pv_callee(f->p, v),
			       "nnscaler.runtime.serialization", "_Index") &&
	       ck_pv_attr(f->p, v, "index", &field) &&
	       ck_pv_int(f->p, field, n);
}

bool ck_nnscaler_is_tensor(const struct nnscaler_file *f, ck_pv v)
{
	int64_t n;

	return f->c.is_st ? index_of(f, v, &n) : ck_torch_is_rebuild(f->p, v);
}

static int entry_extent(const struct nnscaler_file *f, ck_pv v,
			struct ck_extent *x, struct ck_err *why)
{
	const char *name = f->c.name;
	const struct ck_st_entry *e;
	uint64_t volume;
	int64_t n;

	if (!index_of(f, v, &n) || n < 0 || (uint64_t)n >= f->entry.nr ||
	    f->entry.v[n] == UINT32_MAX)
		return ck_fail(why, EINVAL, "%s: its header has no such tensor",
			       name);
	e = &f->c.st.tensors.v[f->entry.v[n]];
	if (e->why)
		return ck_fail(why, EINVAL, "%s: tensor %.*s: %s", name,
			       (int)e->name_len, e->name, e->why);
	*x = (struct ck_extent){ .shape = ck_st_file_shape(&f->c.st, e),
				 .off = e->begin,
				 .src = f->c.t.src,
				 .dtype = e->dtype,
				 .rank = e->rank };
	if (!ck_dims_volume(x->shape, x->rank, &volume) ||
	    !ck_dtype_info(e->dtype)->size)
		return ck_fail(why, EINVAL, "%s: tensor %.*s: its size", name,
			       (int)e->name_len, e->name);
	return 0;
}

int ck_nnscaler_extent(struct nnscaler *n, struct nnscaler_file *f, ck_pv v,
		       struct ck_extent *x, struct ck_err *why)
{
	struct ck_torch_place at;
	int ret;

	if (f->c.is_st) {
		ret = entry_extent(f, v, x, why);
	} else {
		ret = ck_torch_place(&f->c.t, v, &at, why);
		*x = at.x;
	}
	if (ret)
		return ret;
	x->stride = ck_extent_is_dense(x) ?
			    NULL :
			    ck_arena_copy(&n->a.mem, x->stride,
					  x->rank * sizeof(*x->stride));
	x->shape =
		ck_arena_copy(&n->a.mem, x->shape, x->rank * sizeof(*x->shape));
	return n->a.mem.failed ? ck_no_memory(why) : 0;
}

uint64_t ck_nnscaler_volume(const struct ck_extent *x)
{
	uint64_t volume = 0;

	ck_dims_volume(x->shape, x->rank, &volume);
	return volume;
}
