/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - the object in a file that nnScaler wrote, and its tensors
 *
 *   .ckpt          torch.save of the object
 *   .safetensors   tensors "0", "1", ...; __metadata__.obj is base64 of a
 *                  pickle of the object with _Index(number) for each tensor
 */
#include "core/format/nnscaler/priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/container/container.h"
#include "core/container/torch_walk.h"
#include "core/geom/range.h"
#include "core/parse/base64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Entries by number, so that an _Index finds its own at once. */
static int number_entries(struct ck_nn_file *f, struct ck_err *err)
{
	size_t nr = f->h.tensors.nr;

	if (!ck_vec_reserve(&f->entry, nr + 1))
		return ck_fail(err, ENOMEM, "no memory for tensors");
	f->entry.nr = nr;
	memset(f->entry.v, 0xff, nr * sizeof(*f->entry.v));
	for (size_t i = 0; i < nr; i++) {
		const struct ck_st_entry *e = &f->h.tensors.v[i];
		size_t n = 0, k;

		for (k = 0; k < e->name_len && k < 9; k++) {
			if (e->name[k] < '0' || e->name[k] > '9')
				break;
			n = n * 10 + (size_t)(e->name[k] - '0');
		}
		if (k && k == e->name_len && n < nr)
			f->entry.v[n] = (uint32_t)i;
	}
	return 0;
}

static int open_st(struct ck_nn_file *f, struct ck_err *why)
{
	const json_t *obj;
	int ret = ck_st_file_read(&f->h, f->name, f->t.src, f->t.s, 0, why);

	if (ret)
		return ret;
	obj = json_object_get(f->h.h.metadata, "obj");
	if (!json_is_string(obj))
		return ck_fail(why, EINVAL,
			       "%s: no \"obj\" in its __metadata__", f->name);
	ret = ck_base64_decode(json_string_value(obj), json_string_length(obj),
			       &f->bytes, &f->len, why);
	if (!ret)
		ret = ck_pickle_parse(&f->own, f->bytes, f->len, NULL, NULL,
				      why);
	if (ret)
		return ck_wrap(why, ret, "%s: __metadata__.obj", f->name);
	f->p = f->own;
	return number_entries(f, why);
}

static int open_source(struct ck_nn_file *f, const struct ck_dir *dir,
		       struct ck_builder *b, struct ck_err *err)
{
	return b ? ck_dir_source(dir, b, f->name, &f->t.src, &f->t.s, err) :
		   ck_dir_open(dir, f->name, &f->t.s, err);
}

int ck_nn_file_open(struct ck_nn_file *f, const struct ck_dir *dir,
		    struct ck_builder *b, const char *name, bool *ok,
		    struct ck_err *why, struct ck_err *err)
{
	int ret;

	*f = (struct ck_nn_file){ .name = name,
				  .st = ck_has_suffix(name, ".safetensors") };
	*ok = false;
	*why = (struct ck_err){ 0 };
	ret = open_source(f, dir, b, err);
	if (ret || !f->t.s)
		return ret;
	ret = f->st ? open_st(f, why) :
		      ck_torch_save_open(&f->t.ts, f->t.s, why);
	if (ret == -EINVAL || ret == -EIO)
		return 0;
	if (ret)
		return ck_fail(err, -ret, "%s", why->msg);
	if (!f->st)
		f->p = f->t.ts.pickle;
	f->root = ck_pickle_root(f->p);
	*ok = true;
	return 0;
}

void ck_nn_file_close(struct ck_nn_file *f)
{
	ck_torch_open_close(&f->t);
	ck_st_file_free(&f->h);
	ck_pickle_free(f->own);
	free(f->entry.v);
	free(f->bytes);
	*f = (struct ck_nn_file){ 0 };
}

bool ck_nn_field(const struct ck_pickle *p, ck_pv v, const char *key,
		 ck_pv *out)
{
	return ck_pv_key(p, v, key, out) ||
	       (ck_pv_kind(v) == CK_P_CALL && ck_pv_attr(p, v, key, out));
}

int64_t ck_nn_int(const struct ck_pickle *p, ck_pv v, const char *key,
		  int64_t otherwise)
{
	int64_t n;
	ck_pv field;

	return ck_nn_field(p, v, key, &field) && ck_pv_int(p, field, &n) ?
		       n :
		       otherwise;
}

bool ck_nn_parts(const struct ck_nn_file *f, ck_pv *model, ck_pv *optimizer)
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

bool ck_nn_is_extra(const char *key, size_t len, size_t *prefix_len)
{
	size_t n = strlen(CK_NN_EXTRA);

	if (len < n || memcmp(key + len - n, CK_NN_EXTRA, n) != 0 ||
	    (len > n && key[len - n - 1] != '.'))
		return false;
	*prefix_len = len > n ? len - n - 1 : 0;
	return true;
}

bool ck_nn_extra(const struct ck_pickle *p, ck_pv model, ck_pv *extra)
{
	struct ck_piter it;
	const char *s;
	size_t len, prefix;
	ck_pv key;

	ck_piter_init_pairs(&it, p, model);
	while (ck_piter_next2(&it, &key, extra))
		if (ck_pv_str(p, key, &s, &len) &&
		    ck_nn_is_extra(s, len, &prefix))
			return true;
	return false;
}

/* Its number among the file's tensors; false: it is no _Index. */
static bool index_of(const struct ck_nn_file *f, ck_pv v, int64_t *n)
{
	ck_pv field;

	return ck_pv_kind(v) == CK_P_CALL &&
	       ck_pv_is_global(f->p, ck_pv_callee(f->p, v),
			       "nnscaler.runtime.serialization", "_Index") &&
	       ck_pv_attr(f->p, v, "index", &field) &&
	       ck_pv_int(f->p, field, n);
}

bool ck_nn_is_tensor(const struct ck_nn_file *f, ck_pv v)
{
	int64_t n;

	return f->st ? index_of(f, v, &n) : ck_torch_is_rebuild(f->p, v);
}

static int place_st(struct ck_nn_file *f, ck_pv v, ck_nn_dims *dims,
		    struct ck_nn_tensor *out, struct ck_err *why)
{
	const struct ck_st_entry *e;
	uint64_t volume;
	int64_t n;

	if (!index_of(f, v, &n) || n < 0 || (uint64_t)n >= f->entry.nr ||
	    f->entry.v[n] == UINT32_MAX)
		return ck_fail(why, EINVAL, "%s: its header has no such tensor",
			       f->name);
	e = &f->h.tensors.v[f->entry.v[n]];
	if (e->why)
		return ck_fail(why, EINVAL, "%s: tensor %.*s: %s", f->name,
			       (int)e->name_len, e->name, e->why);
	if (!ck_dims_volume(ck_st_file_shape(&f->h, e), e->rank, &volume) ||
	    !ck_dtype_info(e->dtype)->size)
		return ck_fail(why, EINVAL, "%s: tensor %.*s: its size",
			       f->name, (int)e->name_len, e->name);
	*out = (struct ck_nn_tensor){ .off = e->begin,
				      .dims = dims->nr,
				      .src = f->t.src,
				      .dtype = e->dtype,
				      .rank = e->rank,
				      .dense = true };
	if (!ck_vec_reserve(dims, e->rank + 1u))
		return ck_fail(why, ENOMEM, "no memory for shapes");
	memcpy(dims->v + dims->nr, ck_st_file_shape(&f->h, e),
	       e->rank * sizeof(uint64_t));
	dims->nr += e->rank;
	return 0;
}

static bool is_dense(const struct ck_torch_tensor *t)
{
	uint64_t step = 1; /* may wrap only where there are no elements */

	for (unsigned d = t->rank; d-- > 0;) {
		if (t->shape[d] != 1 && (uint64_t)t->stride[d] != step)
			return false;
		step *= t->shape[d];
	}
	return true;
}

int ck_nn_place(struct ck_nn_file *f, ck_pv v, ck_nn_dims *dims,
		struct ck_nn_tensor *out, struct ck_err *why)
{
	struct ck_torch_place at;
	int ret;

	if (f->st)
		return place_st(f, v, dims, out, why);
	ret = ck_torch_place(&f->t, v, &at, why);
	if (ret)
		return ret;
	*out = (struct ck_nn_tensor){ .off = at.off,
				      .dims = dims->nr,
				      .src = at.src,
				      .dtype = (uint8_t)at.t.dtype,
				      .xform = at.xform,
				      .rank = (uint8_t)at.t.rank,
				      .dense = is_dense(&at.t) };
	if (!ck_vec_reserve(dims, 2 * at.t.rank + 1u))
		return ck_fail(why, ENOMEM, "no memory for shapes");
	memcpy(dims->v + dims->nr, at.t.shape, at.t.rank * sizeof(uint64_t));
	dims->nr += at.t.rank;
	if (!out->dense) {
		memcpy(dims->v + dims->nr, at.t.stride,
		       at.t.rank * sizeof(uint64_t));
		dims->nr += at.t.rank;
	}
	return 0;
}

uint64_t ck_nn_volume(const ck_nn_dims *dims, const struct ck_nn_tensor *t)
{
	uint64_t volume = 0;

	ck_dims_volume(dims->v + t->dims, t->rank, &volume);
	return volume;
}
