/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c - what a file of each kind says it holds
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/container/st_file.h"
#include "core/container/torch_save.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- safetensors ---- */

static int take_entry(struct ck_lay_load *ld, uint32_t inst,
		      const struct ck_st_file *st, const struct ck_st_entry *e,
		      struct ck_err *err)
{
	const struct ck_lay_found f = {
		.key = { e->name, e->name_len },
		.off = e->begin,
		.shape = ck_st_file_shape(st, e),
		.rank = e->rank,
		.dtype = e->dtype,
	};

	if (e->why)
		return ck_lay_say(ld, st->name, err, "%.*s: %s (dtype %s)",
				  (int)CK_MIN(e->name_len, 200), e->name,
				  e->why, e->dtype_name);
	return ck_lay_take(ld, inst, &f, err);
}

static int read_safetensors(struct ck_lay_load *ld, uint32_t inst,
			    struct ck_source *s, struct ck_err *err)
{
	const char *path = ld->insts.v[inst].path;
	struct ck_st_file st = { 0 };
	struct ck_err why;
	int ret = ck_st_file_read(&st, path, ld->insts.v[inst].src, s, 0, &why);

	if (ret == -EINVAL) {
		ld->insts.v[inst].bad = true;
		ret = ck_lay_say(ld, path, err, "%s", why.msg);
	} else if (ret) {
		ret = ck_fail(err, -ret, "%s", why.msg);
	}
	if (!ld->insts.v[inst].bad)
		for (size_t i = 0; i < st.tensors.nr && !ret; i++)
			ret = take_entry(ld, inst, &st, &st.tensors.v[i], err);
	if (!ld->insts.v[inst].bad && !ret)
		ret = ck_st_file_say_tail(&st, ld->b, err);
	ck_st_file_free(&st);
	return ret;
}

/* ---- torch.save ---- */

struct torch_file {
	struct ck_lay_load *ld;
	uint32_t inst;
	struct ck_torch_save ts;
};

static int xform_of(const struct torch_file *f, const struct ck_torch_tensor *t,
		    struct ck_err *why)
{
	bool swap = f->ts.big_endian && ck_dtype_info(t->dtype)->size > 1;

	if (swap + t->conj + t->neg > 1)
		return ck_fail(why, EINVAL,
			       "two of big-endian, conjugated and negated");
	return swap    ? CK_XF_BYTESWAP :
	       t->conj ? CK_XF_CONJ :
	       t->neg  ? CK_XF_NEG :
			 CK_XF_NONE;
}

static int place(struct torch_file *f, const struct ck_torch_tensor *t,
		 uint64_t *off, struct ck_err *why)
{
	uint64_t skip;
	int ret = ck_torch_save_place(&f->ts, t, off, why);

	if (!ret && (!ck_mul_ok(t->storage_offset,
				ck_dtype_info(t->dtype)->size, &skip) ||
		     !ck_add_ok(*off, skip, off)))
		ret = ck_fail(why, EINVAL, "its offset overflows");
	return ret;
}

static int take_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct torch_file *f = ctx;
	struct ck_torch_tensor t;
	struct ck_lay_found found = {
		.key = { leaf->name, leaf->name_len },
	};
	struct ck_err why = { 0 };
	int xform = 0, ret;

	if (!ck_torch_is_rebuild(f->ts.pickle, leaf->value))
		return 0; /* no tensor: a number, a text */
	ret = ck_torch_tensor_read(f->ts.pickle, leaf->value, &t, &why);
	if (!ret)
		ret = place(f, &t, &found.off, &why);
	if (!ret)
		xform = xform_of(f, &t, &why);
	if (!ret && xform < 0)
		ret = xform;
	if (ret == -EINVAL)
		return ck_lay_say(f->ld, f->ld->insts.v[f->inst].path, err,
				  "%.*s: %s", (int)CK_MIN(leaf->name_len, 200),
				  leaf->name, why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	found.shape = t.shape;
	found.stride = t.stride;
	found.rank = t.rank;
	found.dtype = (uint8_t)t.dtype;
	found.xform = (uint8_t)xform;
	return ck_lay_take(f->ld, f->inst, &found, err);
}

static int read_torch(struct ck_lay_load *ld, uint32_t inst,
		      struct ck_source *s, struct ck_err *err)
{
	const char *path = ld->insts.v[inst].path;
	struct torch_file f = { .ld = ld, .inst = inst };
	struct ck_err why = { 0 };
	int ret = ck_torch_save_open(&f.ts, s, &why);

	if (ret == -EINVAL) {
		ld->insts.v[inst].bad = true;
		ret = ck_lay_say(ld, path, err, "%s", why.msg);
	} else if (ret) {
		ret = ck_fail(err, -ret, "%s", why.msg);
	} else {
		ret = ck_torch_walk(f.ts.pickle, ck_pickle_root(f.ts.pickle),
				    take_leaf, &f, err);
		if (!ret)
			ret = ck_torch_lost_report(
				&(struct ck_torch_lost_in){
					.p = f.ts.pickle,
					.from = ck_pickle_root(f.ts.pickle),
					.b = ld->b,
					.file = path,
					.any = true },
				err);
	}
	ck_torch_save_close(&f.ts);
	return ret;
}

/* ---- raw ---- */

static int offset_of(const struct ck_lay_load *ld,
		     const struct ck_lay_inst *inst,
		     const struct ck_lay_item *it, uint64_t *out,
		     struct ck_err *err)
{
	ck_auto_str struct ck_str text = { 0 };
	const struct ck_lay_vars v = {
		.mesh = &ld->doc.mesh,
		.at = ld->dims.v + inst->at,
		.rank = inst->rank,
	};
	struct ck_err why;
	char *end;
	int ret;

	*out = it->offset;
	if (!it->offset_text)
		return 0;
	ret = ck_lay_expand(it->offset_text, &v, &text, NULL, &why);
	if (ret)
		return ck_fail(err, -ret, "%s: %s: offset of %s: %s",
			       ld->doc.name, inst->path,
			       it->key ? it->key : "the file", why.msg);
	errno = 0;
	*out = strtoull(text.v, &end, 10);
	if (errno || *end || end == text.v || *out > CK_SIZE_MAX)
		return ck_fail(err, EINVAL,
			       "%s: %s: offset of %s: expected a number, found "
			       "\"%.80s\"",
			       ld->doc.name, inst->path,
			       it->key ? it->key : "the file", text.v);
	return 0;
}

static int take_item(struct ck_lay_load *ld, uint32_t inst,
		     const struct ck_lay_item *it, struct ck_err *err)
{
	const struct ck_lay_inst *i = &ld->insts.v[inst];
	struct ck_lay_found f = {
		.dtype = it->dtype,
		.key = i->key,
		.whole = !it->key,
		.rank = it->shape.rank,
	};
	int ret = offset_of(ld, i, it, &f.off, err);

	if (ret)
		return ret;
	if (it->key)
		f.key = (struct ck_lay_slice){ it->key, strlen(it->key) };
	if (it->shape.given)
		f.shape = ld->doc.dims.v + it->shape.first;
	return ck_lay_take(ld, inst, &f, err);
}

static int take_raw(struct ck_lay_load *ld, uint32_t inst, struct ck_err *err)
{
	const struct ck_lay_files *f;
	int ret = 0;

	if (ld->insts.v[inst].entry == CK_NONE)
		return 0;
	f = &ld->doc.files.v[ld->insts.v[inst].entry];
	if (f->has_key)
		return take_item(ld, inst, &f->whole, err);
	for (size_t i = 0; i < f->nr_items && !ret; i++)
		ret = take_item(ld, inst, &ld->doc.items.v[f->first_item + i],
				err);
	return ret;
}

int ck_lay_read_keys(struct ck_lay_load *ld, uint32_t inst, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	struct ck_lay_inst *i = &ld->insts.v[inst];
	int ret = ck_dir_source(ld->dir, ld->b, i->path, &i->src, &s, err);

	if (ret)
		return ret;
	i->missing = !s;
	i->size = s ? (uint64_t)s->st.st_size : 0;
	if (i->kind == CK_LAY_RAW)
		return take_raw(ld, inst, err);
	if (!s)
		return 0;
	return i->kind == CK_LAY_TORCH ? read_torch(ld, inst, s, err) :
					 read_safetensors(ld, inst, s, err);
}
