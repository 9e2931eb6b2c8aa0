/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_layout.c - which archive is where; the header has the picture
 */
#include "core/view/dcp/dcp_layout.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/base/utf8.h"
#include "core/emit/torch_blob.h"
#include "core/view/merged.h"
#include "core/view/nest.h"
#include "core/view/object_value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS (UINT64_C(1) << 20) /* about, beyond one a tensor */

static bool utf8_names(const struct ck_catalog *img, uint32_t path,
		       uint32_t name)
{
	size_t len;
	const char *s = ck_catalog_str(img, name, &len);
	unsigned depth = ck_nest_path_depth(img, path);

	if (!ck_utf8_ok(s, len))
		return false;
	for (unsigned i = 0; i < depth; i++) {
		struct ck_nest_part p = ck_nest_path_part(img, path, name, i);

		if (p.key && !ck_utf8_ok(p.key, p.len))
			return false;
	}
	return true;
}

static const char *refuses(const struct ck_catalog *img, uint32_t t)
{
	if (!ck_torch_has_dtype(img->tensors[t].dtype))
		return "torch has no dtype for it";
	if (!utf8_names(img, img->tensors[t].path, img->tensors[t].name))
		return "its name is not UTF-8";
	return NULL;
}

bool ck_dcp_layout_any(const struct ck_view *v)
{
	for (uint32_t t = v->first; t < v->first + v->nr; t++)
		if (!refuses(v->img, t))
			return true;
	return !v->img->nr_tensors; /* of objects alone, or of nothing */
}

void ck_dcp_layout_free(struct ck_dcp_layout *l)
{
	free(l->entry.v);
	free(l->item.v);
	free(l->file.v);
	ck_str_free(&l->values);
	free(l->planned);
	*l = (struct ck_dcp_layout){ 0 };
}

/* ---- items and files ---- */

static void begin_file(struct ck_dcp_layout *l, struct ck_dcp_layout_file *f)
{
	*f = (struct ck_dcp_layout_file){ .first = (uint32_t)l->item.nr - 1 };
	snprintf(f->name, sizeof(f->name), "__%zu_0.distcp", l->file.nr - 1);
}

static int add_item(struct ck_dcp_layout *l, uint64_t size, uint64_t file_size,
		    struct ck_err *err)
{
	struct ck_dcp_layout_item *it = ck_vec_push(&l->item);
	struct ck_dcp_layout_file *f =
		l->file.nr ? &l->file.v[l->file.nr - 1] : NULL;

	if (!f || (f->size && size > file_size - CK_MIN(f->size, file_size))) {
		f = ck_vec_push(&l->file);
		if (f)
			begin_file(l, f);
	}
	if (!it || !f)
		return ck_no_memory(err);
	*it = (struct ck_dcp_layout_item){ .off = f->size,
					   .entry = (uint32_t)l->entry.nr - 1,
					   .file = (uint32_t)l->file.nr - 1 };
	if (l->item.nr > CK_MAX_CHUNKS || !ck_add_ok(f->size, size, &f->size))
		return ck_fail(err, E2BIG, "dcp/: too many parts");
	return 0;
}

static struct ck_dcp_entry *add_entry(struct ck_dcp_layout *l, uint32_t ref)
{
	struct ck_dcp_entry *e = ck_vec_push(&l->entry);

	if (e)
		*e = (struct ck_dcp_entry){ .ref = ref,
					    .first = (uint32_t)l->item.nr };
	return e;
}

/* Whole rows that make about a chunk; of a scalar and what is small: all. */
static uint64_t rows_of(const struct ck_dcp_layout *l,
			const struct ck_tensor *t)
{
	uint64_t rows = t->rank ? l->view->img->dims[t->shape] : 1, row;

	if (t->size <= l->chunk || rows < 2)
		return rows;
	row = t->size / rows;
	return row > l->chunk ? 1 : l->chunk / row;
}

static void box_of(const struct ck_dcp_layout *l, const struct ck_tensor *t,
		   uint32_t k, uint64_t *start, uint64_t *shape, uint64_t *at)
{
	uint64_t rows = rows_of(l, t), all;

	memset(start, 0, t->rank * sizeof(*start));
	memcpy(shape, l->view->img->dims + t->shape, t->rank * sizeof(*shape));
	*at = 0;
	if (!t->rank)
		return;
	all = shape[0];
	start[0] = k * rows;
	shape[0] = CK_MIN(rows, all - start[0]);
	*at = all ? t->size / all * start[0] : 0;
}

/* Bytes of the archive of part @k; 0: no memory. */
static uint64_t blob_size(const struct ck_dcp_layout *l,
			  const struct ck_tensor *t, uint32_t k)
{
	uint64_t start[CK_MAX_RANK], shape[CK_MAX_RANK], at;
	struct ck_torch_blob b = { 0 };
	int ret;

	box_of(l, t, k, start, shape, &at);
	ret = ck_torch_blob_make(&b, t->dtype, shape, t->rank);
	ck_torch_blob_free(&b);
	return ret ? 0 : b.size;
}

static void take_newest(struct ck_dcp_layout *l, uint32_t src)
{
	const struct ck_src *srcs = l->view->img->srcs;

	if (src != CK_NONE &&
	    (l->newest == CK_NONE ||
	     srcs[src].id.mtime_ns > srcs[l->newest].id.mtime_ns))
		l->newest = src;
}

static int add_tensor(struct ck_dcp_layout *l, uint32_t ref, uint64_t file_size,
		      struct ck_err *err)
{
	const struct ck_tensor *t = &l->view->img->tensors[ref];
	uint64_t all = t->rank ? l->view->img->dims[t->shape] : 1;
	uint64_t rows = rows_of(l, t), size = 0;
	uint32_t nr = rows < all ? (uint32_t)CK_DIV_UP(all, rows) : 1;

	if (!add_entry(l, ref))
		return ck_no_memory(err);
	for (uint32_t k = 0; k < nr; k++) {
		int ret;

		if (!k || k + 1 == nr) /* those between are like the first */
			size = blob_size(l, t, k);
		ret = size ? add_item(l, size, file_size, err) :
			     ck_no_memory(err);
		if (ret)
			return ret;
	}
	take_newest(l, t->newest);
	return 0;
}

/* ---- objects ---- */

struct objects {
	struct ck_dcp_layout *l;
	struct ck_object_values values;
	uint64_t file_size;
	uint32_t left_out;
	char first[400]; /* of them, and why */
};

static void leave_out(struct objects *in, const struct ck_object *o,
		      const char *why)
{
	if (!in->left_out++)
		snprintf(in->first, sizeof(in->first), "%.150s: %.200s",
			 ck_catalog_str(in->l->view->img, o->name, NULL), why);
}

static uint64_t zip_size(const struct ck_str *values,
			 const struct ck_dcp_entry *e)
{
	ck_auto_str struct ck_str zip = { 0 };

	ck_torch_blob_pickle(&zip, values->v + e->value, e->value_len);
	return zip.failed ? 0 : zip.len;
}

static int add_value(struct objects *in, uint32_t i, const struct ck_object *o,
		     struct ck_err *err)
{
	struct ck_dcp_layout *l = in->l;
	struct ck_dcp_entry *e;
	struct ck_err local = { 0 };
	size_t at = l->values.len;
	const char *why;
	int ret = ck_object_value(&in->values, i, &l->values, &why, &local);

	if (ret == -ENOMEM || l->values.failed)
		return ck_no_memory(err);
	if (ret <= 0 || l->values.len > UINT32_MAX) {
		l->values.len = at;
		leave_out(in, o,
			  ret < 0 ? local.msg :
			  ret	  ? "there are too many" :
				    why);
		return 0;
	}
	e = add_entry(l, i);
	if (!e)
		return ck_no_memory(err);
	e->value = (uint32_t)at;
	e->value_len = (uint32_t)(l->values.len - at);
	return add_item(l, zip_size(&l->values, e), in->file_size, err);
}

/* Megatron's common.pt, which no loader of a DCP looks for inside of it. */
static bool is_file(const struct ck_catalog *img, const struct ck_object *o)
{
	const struct ck_src *src = &img->srcs[o->src];

	return src->kind == CK_SRC_FILE && o->enc == CK_ENC_TORCH_ZIP &&
	       !strcmp(ck_catalog_str(img, src->name, NULL),
		       ck_catalog_str(img, o->name, NULL));
}

static int add_object(struct objects *in, uint32_t i, struct ck_err *err)
{
	const struct ck_catalog *img = in->l->view->img;
	const struct ck_object *o = &img->objects[i];

	if (!utf8_names(img, o->path, o->name)) {
		leave_out(in, o, "its name is not UTF-8");
		return 0;
	}
	if (img->srcs[o->src].kind == CK_SRC_ABSENT) {
		leave_out(in, o, "its file is missing");
		return 0;
	}
	if (is_file(img, o)) {
		leave_out(in, o, "it is a file beside the tensors' files");
		return 0;
	}
	if (o->enc != CK_ENC_TORCH_ZIP)
		return add_value(in, i, o, err);
	return add_entry(in->l, i) ?
		       add_item(in->l, o->len, in->file_size, err) :
		       ck_no_memory(err);
}

/* They are sorted by name. */
static bool same_name(const struct ck_catalog *img, uint32_t a, uint32_t b)
{
	size_t na, nb;
	const char *sa = ck_catalog_str(img, img->objects[a].name, &na);
	const char *sb = ck_catalog_str(img, img->objects[b].name, &nb);

	return img->objects[a].tree == img->objects[b].tree && na == nb &&
	       !memcmp(sa, sb, na);
}

static int add_objects(struct ck_dcp_layout *l, uint64_t file_size,
		       struct ck_err *err)
{
	const struct ck_catalog *img = l->view->img;
	struct objects in = { .l = l, .file_size = file_size };
	char text[480];
	int ret = 0;

	ck_object_values_init(&in.values, l->view->ck);
	for (uint32_t i = 0; i < img->nr_objects && !ret; i++)
		if (img->objects[i].tree == l->view->tree &&
		    !(i && same_name(img, i - 1, i)))
			ret = add_object(&in, i, err);
	ck_object_values_free(&in.values);
	l->nr_objects = (uint32_t)l->entry.nr;
	if (!ret && in.left_out) {
		snprintf(text, sizeof(text),
			 "%" PRIu32 " objects are left out; the first is %s",
			 in.left_out, in.first);
		ck_view_leave_out(l->view, CK_NONE, text);
	}
	return ret;
}

/* ---- all of it ---- */

struct place {
	uint64_t src, off;
	uint32_t tensor;
};

static int stored_order(const void *pa, const void *pb)
{
	const struct place *a = pa, *b = pb;

	if (a->src != b->src)
		return a->src < b->src ? -1 : 1;
	return ck_order2(a->off, b->off, a->tensor, b->tensor);
}

static int add_tensors(struct ck_dcp_layout *l, uint64_t file_size,
		       struct ck_err *err)
{
	const struct ck_view *v = l->view;
	ck_auto_free struct place *p = calloc((size_t)v->nr + 1, sizeof(*p));
	uint32_t nr = 0;
	int ret = 0;

	if (!p)
		return ck_no_memory(err);
	for (uint32_t t = v->first; t < v->first + v->nr; t++) {
		const char *why = refuses(v->img, t);
		uint64_t at[2];

		if (why) {
			ck_view_leave_out(v, t, why);
			continue;
		}
		ck_merged_first_place(v->img, t, at);
		p[nr++] = (struct place){ at[0], at[1], t };
	}
	if (nr)
		qsort(p, nr, sizeof(*p), stored_order);
	for (uint32_t i = 0; i < nr && !ret; i++)
		ret = add_tensor(l, p[i].tensor, file_size, err);
	return ret;
}

/* Of petabytes there are still no more than some millions. */
static uint64_t chunk_size(const struct ck_view *v)
{
	uint64_t total = 0;

	for (uint32_t t = v->first; t < v->first + v->nr; t++)
		if (!ck_add_ok(total, v->img->tensors[t].size, &total))
			return CK_SIZE_MAX;
	return CK_MAX(CK_DCP_CHUNK, total / MAX_ITEMS);
}

int ck_dcp_layout_make(struct ck_dcp_layout *l, const struct ck_view *v,
		       uint64_t file_size, struct ck_err *err)
{
	int ret;

	l->view = v;
	l->newest = CK_NONE;
	l->chunk = chunk_size(v);
	ret = add_objects(l, file_size, err);
	if (!ret)
		ret = add_tensors(l, file_size, err);
	if (!ret)
		ret = ck_dcp_paths_resolve(l, err);
	return ret ? ret : ck_dcp_paths_plan(l, err);
}

uint32_t ck_dcp_item_at(const struct ck_dcp_layout *l, uint32_t file,
			uint64_t off)
{
	uint32_t end = file + 1 < l->file.nr ? l->file.v[file + 1].first :
					       (uint32_t)l->item.nr;

	return CK_LAST(i, l->file.v[file].first, end, l->item.v[i].off <= off);
}

uint64_t ck_dcp_item_end(const struct ck_dcp_layout *l, uint32_t item)
{
	const struct ck_dcp_layout_item *it = &l->item.v[item];

	return item + 1 < l->item.nr && it[1].file == it->file ?
		       it[1].off :
		       l->file.v[it->file].size;
}

/* How many items @entry has. */
static uint32_t nr_items(const struct ck_dcp_layout *l, uint32_t entry)
{
	uint32_t end = entry + 1 < l->entry.nr ? l->entry.v[entry + 1].first :
						 (uint32_t)l->item.nr;

	return end - l->entry.v[entry].first;
}

bool ck_dcp_is_object(const struct ck_dcp_layout *l, uint32_t entry)
{
	return entry < l->nr_objects;
}

void ck_dcp_layout_item_box(const struct ck_dcp_layout *l, uint32_t item,
			    uint64_t *start, uint64_t *shape, uint64_t *at)
{
	const struct ck_dcp_entry *e = &l->entry.v[l->item.v[item].entry];

	box_of(l, &l->view->img->tensors[e->ref], item - e->first, start, shape,
	       at);
}

/* ---- as .metadata says it ---- */

static int tell_entry(void *ctx, uint64_t i, struct ck_dcp_out_entry *out,
		      struct ck_err *err)
{
	const struct ck_dcp_layout *l = ctx;
	const struct ck_catalog *img = l->view->img;
	uint32_t path, name;

	(void)err;
	ck_dcp_entry_path(l, (uint32_t)i, &path, &name);
	out->name = ck_catalog_str(img, name, &out->len);
	out->object = ck_dcp_is_object(l, (uint32_t)i);
	out->nr_chunks = nr_items(l, (uint32_t)i);
	out->depth = l->entry.v[i].flat ? 0 : ck_nest_path_depth(img, path);
	if (!out->object) {
		const struct ck_tensor *t = &img->tensors[l->entry.v[i].ref];

		out->dtype = t->dtype;
		out->rank = t->rank;
		out->shape = img->dims + t->shape;
	}
	return 0;
}

static int tell_chunk(void *ctx, uint64_t i, uint64_t k,
		      struct ck_dcp_out_chunk *out, struct ck_err *err)
{
	const struct ck_dcp_layout *l = ctx;
	uint32_t nr = l->entry.v[i].first + (uint32_t)k;
	const struct ck_dcp_layout_item *it = &l->item.v[nr];
	uint64_t at;

	(void)err;
	if (!ck_dcp_is_object(l, (uint32_t)i))
		ck_dcp_layout_item_box(l, nr, out->start, out->shape, &at);
	out->file = l->file.v[it->file].name;
	out->off = it->off;
	out->size = ck_dcp_item_end(l, nr) - it->off;
	return 0;
}

static uint64_t tell_planned(void *ctx, uint64_t i)
{
	const struct ck_dcp_layout *l = ctx;

	return l->planned[i];
}

static void tell_part(void *ctx, uint64_t i, unsigned level,
		      struct ck_dcp_out_part *out)
{
	const struct ck_dcp_layout *l = ctx;
	struct ck_nest_part p;
	uint32_t path, name;

	ck_dcp_entry_path(l, (uint32_t)i, &path, &name);
	p = ck_nest_path_part(l->view->img, path, name, level);
	*out = (struct ck_dcp_out_part){ p.key, p.len, p.index };
}

void ck_dcp_layout_out(const struct ck_dcp_layout *l, struct ck_dcp_out *out)
{
	const struct ck_catalog *img = l->view->img;
	const char *id = ck_catalog_str(img, img->save, NULL);

	*out = (struct ck_dcp_out){
		.ctx = (void *)l,
		.nr = l->entry.nr,
		.entry = tell_entry,
		.chunk = tell_chunk,
		.planned = tell_planned,
		.part = tell_part,
		.save_id = *id ? id : NULL,
		.saved_to = ck_catalog_str(img, img->saved_to, NULL),
	};
}
