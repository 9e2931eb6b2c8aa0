/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_torch.c - model.pt: all tensors as one torch.save archive
 *
 *   archive/data.pkl      the nested dicts and lists, protocol 2
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
#include "core/view/single.h"
#include "core/view/zip_out.h"

#include "core/base/auto.h"
#include "core/base/utf8.h"
#include "core/emit/pickle_out.h"
#include "core/emit/torch_blob.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model.pt"

struct torch_view {
	struct ck_single one;
	uint32_t *held; /* tensors in path order */
	uint32_t nr_held;
	uint32_t *storage; /* of held[i]: its number, in order of first use */
};

static bool utf8_path(const struct ck_image *img, uint32_t t)
{
	for (unsigned i = 0; i < ck_nest_depth(img, t); i++) {
		struct ck_nest_part part = ck_nest_part(img, t, i);
		size_t n;

		for (size_t at = 0; part.key && at < part.len; at += n) {
			n = ck_utf8_len((const unsigned char *)part.key + at,
					part.len - at);
			if (!n)
				return false;
		}
	}
	return true;
}

static const char *refuses(const struct ck_image *img, uint32_t t)
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
	const struct ck_image *img = v->one.base.img;
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

static void add_tensor(struct ck_str *s, const struct ck_image *img, uint32_t t,
		       uint32_t storage)
{
	const struct ck_tensor *tensor = &img->tensors[t];

	ck_po_tensor(s, tensor->dtype, img->dims + tensor->shape, tensor->rank,
		     storage);
}

/*
 * Whether the level @level that begins at held[i] is a list without holes:
 * positions 0, 1, 2 ... of everything below the same parent.
 */
static bool is_list(const struct torch_view *v, uint32_t i, unsigned level)
{
	const struct ck_image *img = v->one.base.img;
	uint64_t want = 0;

	for (uint32_t k = i; k < v->nr_held; k++) {
		struct ck_nest_part part;

		if (ck_nest_common(img, v->held[i], v->held[k]) < level)
			break;
		part = ck_nest_part(img, v->held[k], level);
		if (part.key || (part.index != want && part.index + 1 != want))
			return false;
		want = part.index + 1;
	}
	return want != 0;
}

struct level {
	bool list;
};

static void open_level(const struct torch_view *v, struct ck_str *s, uint32_t i,
		       unsigned level, struct level *out)
{
	out->list = is_list(v, i, level);
	ck_po_op(s, out->list ? CK_PO_EMPTY_LIST : CK_PO_EMPTY_DICT);
	ck_po_op(s, CK_PO_MARK);
}

static void add_key(const struct torch_view *v, struct ck_str *s, uint32_t i,
		    unsigned level, const struct level *l)
{
	struct ck_nest_part part =
		ck_nest_part(v->one.base.img, v->held[i], level);

	if (l->list)
		return;
	if (part.key)
		ck_po_str(s, part.key, part.len);
	else
		ck_po_int(s, part.index);
}

#define MAX_DEPTH 64

/* Closes levels down to @to, which then is the number that are open. */
static void close_levels(struct ck_str *s, const struct level *l, unsigned from,
			 unsigned to)
{
	while (from > to)
		ck_po_op(s, l[--from].list ? CK_PO_APPENDS : CK_PO_SETITEMS);
}

/* A tensor that was saved by itself, in nothing, is the only one held. */
static bool is_bare(const struct torch_view *v)
{
	return v->nr_held && !ck_nest_depth(v->one.base.img, v->held[0]);
}

static void make_pickle(const struct torch_view *v, struct ck_str *s)
{
	const struct ck_image *img = v->one.base.img;
	struct level l[MAX_DEPTH];
	unsigned open = 1;

	ck_po_begin(s);
	if (is_bare(v)) {
		add_tensor(s, img, v->held[0], v->storage[0]);
		ck_po_end(s);
		return;
	}
	open_level(v, s, 0, 0, &l[0]);
	for (uint32_t i = 0; i < v->nr_held; i++) {
		unsigned depth = ck_nest_depth(img, v->held[i]);
		unsigned same =
			i ? ck_nest_common(img, v->held[i - 1], v->held[i]) : 0;

		close_levels(s, l, open, same + 1);
		for (open = same + 1; open < depth; open++) {
			add_key(v, s, i, open - 1, &l[open - 1]);
			open_level(v, s, i, open, &l[open]);
		}
		add_key(v, s, i, depth - 1, &l[depth - 1]);
		add_tensor(s, img, v->held[i], v->storage[i]);
	}
	close_levels(s, l, open, 0);
	ck_po_end(s);
}

static bool same_bytes(const struct ck_image *img, uint32_t ta, uint32_t tb)
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
	const struct ck_image *img = v->one.base.img;
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
	ck_auto_free uint32_t *twin = calloc(v->nr_held + 1, sizeof(*twin));
	uint32_t next = 0;

	if (!order || !twin)
		return -ENOMEM;
	for (uint32_t i = 0; i < v->nr_held; i++)
		order[i] = twin[i] = i;
	qsort_r(order, v->nr_held, sizeof(*order), bytes_order, v);
	for (uint32_t k = 1; k < v->nr_held; k++)
		if (same_bytes(v->one.base.img, v->held[order[k - 1]],
			       v->held[order[k]]))
			twin[order[k]] = twin[order[k - 1]];
	for (uint32_t i = 0; i < v->nr_held; i++)
		v->storage[i] = twin[i] == i ? next++ : v->storage[twin[i]];
	*nr_storages = next;
	return 0;
}

static int make_file(struct ck_compose *file, void *ctx, struct ck_err *err)
{
	__attribute__((cleanup(
		ck_zip_out_free))) struct ck_zip_out z = { .file = file };
	ck_auto_str struct ck_str pickle = { 0 };
	struct torch_view *v = ctx;
	uint32_t nr_storages, next = 0;
	char name[32];

	if (number_storages(v, &nr_storages))
		return ck_fail(err, ENOMEM, "no memory for " FILE_NAME);
	make_pickle(v, &pickle);
	if (pickle.failed)
		return ck_fail(err, ENOMEM, "no memory for " FILE_NAME);
	ck_zip_out_bytes(&z, "archive/data.pkl", pickle.v, pickle.len);
	ck_zip_out_bytes(&z, "archive/byteorder", "little", 6);
	for (uint32_t i = 0; i < v->nr_held; i++) {
		if (v->storage[i] != next)
			continue;
		snprintf(name, sizeof(name), "archive/data/%u", next++);
		ck_zip_out_tensor(&z, name, v->one.base.img, v->held[i]);
	}
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
	const struct ck_image *img = v->one.base.img;

	for (uint32_t t = v->one.base.first;
	     t < v->one.base.first + v->one.base.nr; t++) {
		const char *why = refuses(img, t);

		if (!why && ck_nest_depth(img, t) > MAX_DEPTH)
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
	struct torch_view *v = calloc(1, sizeof(*v));

	(void)opts;
	if (!v)
		return ck_fail(err, ENOMEM, "no memory for " FILE_NAME);
	v->one.base = *base;
	ck_lazy_init(&v->one.file, make_file, v);
	v->held = calloc((size_t)base->nr + 1, sizeof(*v->held));
	v->storage = calloc((size_t)base->nr + 1, sizeof(*v->storage));
	if (!v->held || !v->storage) {
		torch_close(&v->one.base);
		return ck_fail(err, ENOMEM, "no memory for " FILE_NAME);
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
	.find = ck_single_find,
	.at = ck_single_at,
	.made = ck_single_made,
};
