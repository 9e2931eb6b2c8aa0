/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_torch.c - model.pt: all tensors as one torch.save archive
 *
 *   archive/data.pkl      the nested dicts and lists, torch_tree.h
 *   archive/byteorder     "little"
 *   archive/data/<k>      storage k: one tensor, 64-byte aligned
 *   archive/version       "3\n"
 *
 * torch.load(mmap=True, weights_only=True) opens it.  Tensors that lie on the
 * same bytes in the same way (tied weights) share one storage.  CRCs of
 * storages stand as 0: they are not known without reading everything, and
 * torch does not check them.
 */
#include "core/view/nest.h"
#include "core/view/object_value.h"
#include "core/view/single.h"
#include "core/view/torch/torch_flat.h"
#include "core/view/torch/torch_tree.h"
#include "core/view/torch/torch_value.h"
#include "core/view/torch/zip_out.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/utf8.h"
#include "core/emit/torch_blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model.pt"

struct torch_view {
	struct ck_single one;
	uint32_t *held; /* tensors in path order */
	uint32_t nr_held;
	uint32_t *storage; /* of held[i]: its number, in order of first use */
	bool ids; /* parameters of optimizers by number */
};

static bool utf8_path(const struct ck_catalog *img, uint32_t t)
{
	for (unsigned i = 0; i < ck_nest_depth(img, t); i++) {
		struct ck_nest_part part = ck_nest_part(img, t, i);

		if (part.key && !ck_utf8_ok(part.key, part.len))
			return false;
	}
	return true;
}

static const char *refuses(const struct ck_catalog *img, uint32_t t)
{
	if (!ck_torch_has_dtype(img->tensors[t].dtype))
		return "torch has no dtype for it";
	if (!utf8_path(img, t))
		return "its name is not UTF-8";
	return NULL;
}

/* A key cannot be a tensor and a dict at once: the longer path goes. */
static uint32_t drop_clashes(struct torch_view *v)
{
	const struct ck_catalog *img = v->one.base.img;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < v->nr_held; i++) {
		uint32_t t = v->held[i];

		if (kept && ck_nest_common(img, v->held[kept - 1], t) ==
				    ck_nest_depth(img, v->held[kept - 1])) {
			ck_view_leave_out(
				&v->one.base, t,
				"another tensor has the name of the dict that it is in");
			continue;
		}
		v->held[kept++] = t;
	}
	return kept;
}

static bool same_bytes(const struct ck_catalog *img, uint32_t ta, uint32_t tb)
{
	const struct ck_tensor *a = &img->tensors[ta], *b = &img->tensors[tb];
	const struct ck_chunk *ca = &img->chunks[a->first];
	const struct ck_chunk *cb = &img->chunks[b->first];

	return a->nr == 1 && b->nr == 1 && a->size == b->size && a->size &&
	       ca->src == cb->src && ca->off == cb->off &&
	       ca->layout == cb->layout && a->dtype == b->dtype;
}

static int bytes_order(const void *pa, const void *pb, void *ctx)
{
	const struct torch_view *v = ctx;
	const struct ck_catalog *img = v->one.base.img;
	uint32_t ia = *(const uint32_t *)pa, ib = *(const uint32_t *)pb;
	const struct ck_tensor *a = &img->tensors[v->held[ia]];
	const struct ck_tensor *b = &img->tensors[v->held[ib]];
	const struct ck_chunk *ca = a->nr ? &img->chunks[a->first] : NULL;
	const struct ck_chunk *cb = b->nr ? &img->chunks[b->first] : NULL;

	if (ca && cb && ca->src != cb->src)
		return ca->src < cb->src ? -1 : 1;
	if (ca && cb && ca->off != cb->off)
		return ca->off < cb->off ? -1 : 1;
	if (!ca != !cb)
		return ca ? -1 : 1;
	return ia < ib ? -1 : ia > ib;
}

/* Numbers the storages: the same for tensors that lie on the same bytes. */
static int number_storages(struct torch_view *v, uint32_t *nr_storages)
{
	ck_auto_free uint32_t *order = calloc(v->nr_held + 1, sizeof(*order));
	ck_auto_free uint32_t *same_as =
		calloc(v->nr_held + 1, sizeof(*same_as));
	uint32_t next = 0;

	if (!order || !same_as)
		return -ENOMEM;
	for (uint32_t i = 0; i < v->nr_held; i++)
		order[i] = same_as[i] = i;
	qsort_r(order, v->nr_held, sizeof(*order), bytes_order, v);
	for (uint32_t k = 1; k < v->nr_held; k++)
		if (same_bytes(v->one.base.img, v->held[order[k - 1]],
			       v->held[order[k]]))
			same_as[order[k]] = same_as[order[k - 1]];
	for (uint32_t i = 0; i < v->nr_held; i++)
		v->storage[i] =
			same_as[i] == i ? next++ : v->storage[same_as[i]];
	*nr_storages = next;
	return 0;
}

/* ---- what is no tensor ---- */

#define MAX_OBJECTS 65536
#define MAX_VALUES ((size_t)64 << 20)

/* All leaves, and the pickles of those that are no tensors. */
struct leaves {
	const struct torch_view *v;
	struct ck_tree_leaves leaf;
	struct ck_str values;
	struct ck_object_values source;
	uint32_t nr_out; /* objects left out */
	char first_out[512]; /* the first of them, and why */
};

static int zip_value(struct leaves *l, uint32_t i, const char **why,
		     struct ck_err *err)
{
	struct ck_ckpt *ck = l->v->one.base.ck;
	uint64_t len = ck_ckpt_catalog(ck)->objects[i].len;
	ck_auto_free char *bytes = NULL;
	int ret;

	if (len > CK_TORCH_VALUE_MAX) {
		*why = "it is too large";
		return 0;
	}
	bytes = malloc(len + 1);
	if (!bytes)
		return ck_no_memory(err);
	ret = ck_ckpt_read_object(ck, i, bytes, len, 0, err);
	if (!ret)
		ck_torch_value_zip(&l->values, bytes, len, why);
	return ret;
}

static int pickle_value(struct leaves *l, uint32_t i, const char **why,
			struct ck_err *err)
{
	ck_auto_str struct ck_str one = { 0 };
	int ret = ck_object_value(&l->source, i, &one, why, err);

	if (ret > 0 && !one.failed)
		ck_torch_value(&l->values, one.v, one.len, why);
	return one.failed ? ck_no_memory(err) : CK_MIN(ret, 0);
}

/* Appends its value; *why: it has none that can be shown. */
static int value_of(struct leaves *l, uint32_t ref, const char **why,
		    struct ck_err *err)
{
	const struct ck_catalog *img = l->v->one.base.img;
	uint32_t i = ref - img->nr_tensors;

	if (l->leaf.nr >= MAX_OBJECTS + (size_t)l->v->nr_held ||
	    l->values.len >= MAX_VALUES)
		*why = "there are too many of them";
	else if (!utf8_path(img, ref))
		*why = "its name is not UTF-8";
	else if (ck_nest_depth(img, ref) > CK_TREE_DEPTH)
		*why = "it is nested too deeply";
	else if (img->objects[i].enc == CK_ENC_TORCH_ZIP)
		return zip_value(l, i, why, err);
	else
		return pickle_value(l, i, why, err);
	return 0;
}

static void leave_object_out(struct leaves *l, uint32_t ref, const char *why)
{
	const struct ck_catalog *img = l->v->one.base.img;
	const struct ck_object *o = &img->objects[ref - img->nr_tensors];

	if (!l->nr_out++)
		snprintf(l->first_out, sizeof(l->first_out), "%.200s: %.200s",
			 ck_catalog_str(img, o->name, NULL), why);
}

static int take_object(struct leaves *l, uint32_t ref, struct ck_err *err)
{
	struct ck_tree_leaf leaf = { .ref = ref, .at = l->values.len };
	struct ck_err local = { 0 };
	struct ck_tree_leaf *to;
	const char *why = NULL;
	int ret = value_of(l, ref, &why, &local);

	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", local.msg);
	if (ret || why) {
		leave_object_out(l, ref, ret ? local.msg : why);
		l->values.len = leaf.at;
		return 0;
	}
	leaf.len = l->values.len - leaf.at;
	to = ck_vec_push(&l->leaf);
	if (!to)
		return ck_no_memory(err);
	*to = leaf;
	return 0;
}

/* A header's __metadata__ is of the file, not of what was saved in it. */
static bool is_saved(const struct ck_view *v, const struct ck_object *o)
{
	return o->tree == v->tree &&
	       (o->enc == CK_ENC_PICKLE || o->enc == CK_ENC_TORCH_ZIP);
}

static int take_objects(struct leaves *l, struct ck_err *err)
{
	const struct ck_view *v = &l->v->one.base;
	char why[600];
	int ret = 0;

	ck_object_values_init(&l->source, v->ck);
	for (uint32_t i = 0; i < v->img->nr_objects && !ret; i++)
		if (is_saved(v, &v->img->objects[i]))
			ret = take_object(l, v->img->nr_tensors + i, err);
	ck_object_values_free(&l->source);
	if (ret || !l->nr_out)
		return ret;
	snprintf(why, sizeof(why), "%u items that are no tensors: %s",
		 l->nr_out, l->first_out);
	ck_view_leave_out(v, CK_NONE, why);
	return 0;
}

/* What is no tensor gives way where its key is also a dict, or a tensor's. */
static void drop_objects(struct leaves *l, const struct ck_catalog *img)
{
	size_t kept = 0;

	for (size_t i = 0; i < l->leaf.nr; i++) {
		struct ck_tree_leaf *one = &l->leaf.v[i];
		struct ck_tree_leaf *last = kept ? &l->leaf.v[kept - 1] : NULL;

		if (last && ck_nest_common(img, last->ref, one->ref) ==
				    ck_nest_depth(img, last->ref)) {
			if (last->ref < img->nr_tensors ||
			    ck_leaf_depth(img, last) == ck_leaf_depth(img, one))
				continue;
			kept--;
		}
		l->leaf.v[kept++] = *one;
	}
	l->leaf.nr = kept;
}

static int take_leaves(struct leaves *l, struct ck_err *err)
{
	const struct torch_view *v = l->v;
	const struct ck_catalog *img = v->one.base.img;
	int ret;

	if (!ck_vec_reserve(&l->leaf, (size_t)v->nr_held + 1))
		return ck_no_memory(err);
	for (uint32_t i = 0; i < v->nr_held; i++)
		l->leaf.v[l->leaf.nr++] =
			(struct ck_tree_leaf){ .ref = v->held[i],
					       .storage = v->storage[i] };
	ret = take_objects(l, err);
	if (ret)
		return ret;
	ck_leaves_sort(img, &l->leaf);
	drop_objects(l, img);
	return 0;
}

static bool small_tensor(void *ctx, uint32_t tensor, void *buf, uint64_t len)
{
	const struct torch_view *v = ctx;

	return !ck_ckpt_read(v->one.base.ck, tensor, buf, len, 0, NULL);
}

/* What get_optimizer_state_dict() flattened, as torch.optim has it. */
static int nest_flat(struct leaves *l, struct ck_torch_flat *f,
		     struct ck_err *err)
{
	const struct ck_view *v = &l->v->one.base;
	char text[600];
	int ret;

	*f = (struct ck_torch_flat){ .img = v->img,
				     .leaves = &l->leaf,
				     .values = &l->values,
				     .read = small_tensor,
				     .ctx = (void *)l->v };
	ret = ck_torch_flat_nest(f, err);
	if (!ret && f->nr) {
		snprintf(text, sizeof(text),
			 "optimizers that were saved flattened "
			 "(param_groups.NAME.lr): %" PRIu32 ", shown with "
			 "%" PRIu32 " groups, as torch.optim has them; groups "
			 "that followed each other with equal values are one",
			 f->nr, f->nr_groups);
		ck_view_leave_out(v, CK_NONE, text);
	}
	if (!ret && f->why) {
		snprintf(text, sizeof(text),
			 "an optimizer is as it was saved, flattened "
			 "(param_groups.NAME.lr): torch.optim does not load it "
			 "so, set_optimizer_state_dict of "
			 "torch.distributed.checkpoint.state_dict does; %s",
			 f->why);
		ck_view_leave_out(v, CK_NONE, text);
	}
	return ret;
}

static int make_pickle(const struct torch_view *v, struct ck_str *out,
		       struct ck_err *err)
{
	struct ck_torch_tree tree = { .img = v->one.base.img, .ids = v->ids };
	struct ck_torch_flat flat = { 0 };
	struct leaves l = { .v = v };
	int ret = take_leaves(&l, err);

	if (!ret)
		ret = nest_flat(&l, &flat, err);
	tree.v = l.leaf.v;
	tree.nr = (uint32_t)l.leaf.nr;
	tree.values = l.values.v;
	if (!ret && !ck_torch_tree_pickle(&tree, out) && v->ids)
		ck_view_leave_out(
			&v->one.base, CK_NONE,
			"-o optimizer=ids: parameters are not numbered, "
			"for no list of a param_groups says their order");
	if (!ret && (out->failed || l.values.failed))
		ret = ck_no_memory(err);
	ck_torch_flat_free(&flat);
	free(l.leaf.v);
	ck_str_free(&l.values);
	return ret;
}

/* ---- the file ---- */

static void put_storages(const struct torch_view *v, struct ck_zip_out *z)
{
	uint32_t next = 0;
	char name[32];

	for (uint32_t i = 0; i < v->nr_held; i++) {
		if (v->storage[i] != next)
			continue;
		snprintf(name, sizeof(name), "archive/data/%u", next++);
		ck_zip_out_tensor(z, name, v->one.base.img, v->held[i]);
	}
}

static int make_file(struct ck_compose *file, void *ctx, struct ck_err *err)
{
	__attribute__((cleanup(
		ck_zip_out_free))) struct ck_zip_out z = { .file = file };
	ck_auto_str struct ck_str pickle = { 0 };
	struct torch_view *v = ctx;
	uint32_t nr_storages;
	int ret;

	if (number_storages(v, &nr_storages))
		return ck_no_memory(err);
	ret = make_pickle(v, &pickle, err);
	if (ret)
		return ret;
	ck_zip_out_bytes(&z, "archive/data.pkl", pickle.v, pickle.len);
	ck_zip_out_bytes(&z, "archive/byteorder", "little", 6);
	put_storages(v, &z);
	ck_zip_out_bytes(&z, "archive/version", "3\n", 2);
	return ck_zip_out_end(&z, err);
}

static void torch_close(struct ck_view *base)
{
	struct torch_view *v = (struct torch_view *)base;

	ck_lazy_free(&v->one.file);
	free(v->held);
	free(v->storage);
	free(v);
}

static void take_tensors(struct torch_view *v)
{
	const struct ck_catalog *img = v->one.base.img;

	for (uint32_t t = v->one.base.first;
	     t < v->one.base.first + v->one.base.nr; t++) {
		const char *why = refuses(img, t);

		if (!why && ck_nest_depth(img, t) > CK_TREE_DEPTH)
			why = "it is nested too deeply";
		if (why)
			ck_view_leave_out(&v->one.base, t, why);
		else
			v->held[v->nr_held++] = t;
	}
	ck_nest_sort(img, v->held, v->nr_held);
	v->nr_held = drop_clashes(v);
}

static int torch_open(struct ck_view **out, const struct ck_view *base,
		      const struct ck_opts *opts, struct ck_err *err)
{
	const char *keys = opts ? ck_opts_get(opts, "optimizer") : NULL;
	struct torch_view *v = calloc(1, sizeof(*v));

	if (!v)
		return ck_no_memory(err);
	v->one.base = *base;
	v->ids = keys && !strcmp(keys, "ids");
	ck_lazy_init(&v->one.file, make_file, v);
	v->held = calloc((size_t)base->nr + 1, sizeof(*v->held));
	v->storage = calloc((size_t)base->nr + 1, sizeof(*v->storage));
	if (!v->held || !v->storage) {
		torch_close(&v->one.base);
		return ck_no_memory(err);
	}
	take_tensors(v);
	*out = &v->one.base;
	return 0;
}

const struct ck_view_ops ck_view_torch = {
	.name = FILE_NAME,
	.is_dir = false,
	.open = torch_open,
	.close = torch_close,
	.nr = ck_single_nr,
	.file = ck_single_file,
	.label = ck_single_label,
	.find = ck_single_find,
	.at = ck_single_at,
	.made = ck_single_made,
};
