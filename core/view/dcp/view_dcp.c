/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_dcp.c - dcp/: a directory that torch.distributed.checkpoint loads
 *
 *   .metadata             what there is, and where: emit/dcp_out.h
 *   __0_0.distcp ...      archives of tensors and objects, at most -o
 *                         dcp-shard-size= each: dcp_layout.h
 *
 * Only the places of archives, and of every 64th piece of .metadata, are kept:
 * what is around the elements is made anew when it is read.
 */
#include "core/view/dcp/dcp_layout.h"
#include "core/base/search.h"
#include "core/view/lazy.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/emit/torch_blob.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_SIZE UINT64_C(5000000000)
#define META ".metadata"
#define STEP 64 /* pieces of .metadata between two places that are kept */

#define KEPT 16

/* What is around the elements of an item that was looked at lately. */
struct kept {
	pthread_mutex_t lock;
	bool made;
	uint32_t item;
	uint64_t at; /* bytes of the tensor before it */
	struct ck_torch_blob blob;
};

struct dcp_view {
	struct ck_view base;
	uint64_t file_size;
	/* made at first look: */
	struct ck_lazy lazy;
	struct ck_dcp_layout l;
	CK_VEC(uint64_t) meta; /* offset of each STEPth piece */
	uint64_t meta_size;
	struct kept kept[KEPT]; /* an item is in number item % KEPT */
};

/* ---- made at first look ---- */

static int measure_meta(struct dcp_view *v, struct ck_err *err)
{
	ck_auto_str struct ck_str s = { 0 };
	struct ck_dcp_out out;
	uint64_t nr;
	int ret = 0;

	ck_dcp_layout_out(&v->l, &out);
	nr = ck_dcp_out_pieces(&out);
	for (uint64_t p = 0; p < nr && !ret; p++) {
		uint64_t *at = p % STEP ? &v->meta_size : ck_vec_push(&v->meta);

		if (!at)
			return ck_no_memory(err);
		*at = v->meta_size;
		s.len = 0;
		ret = ck_dcp_out_piece(&out, p, &s, err);
		v->meta_size += s.len;
	}
	return ret;
}

static int make_all(struct ck_compose *unused, void *ctx, struct ck_err *err)
{
	struct dcp_view *v = ctx;
	int ret = ck_dcp_layout_make(&v->l, &v->base, v->file_size, err);

	(void)unused;
	return ret ? ret : measure_meta(v, err);
}

static const struct dcp_view *get(const struct ck_view *base,
				  struct ck_err *err)
{
	struct dcp_view *v = (struct dcp_view *)base;

	return ck_lazy_get(&v->lazy, err) ? v : NULL;
}

static void dcp_close(struct ck_view *base)
{
	struct dcp_view *v = (struct dcp_view *)base;

	for (unsigned i = 0; i < KEPT; i++) {
		pthread_mutex_destroy(&v->kept[i].lock);
		ck_torch_blob_free(&v->kept[i].blob);
	}
	ck_lazy_free(&v->lazy);
	ck_dcp_layout_free(&v->l);
	free(v->meta.v);
	free(v);
}

static int dcp_open(struct ck_view **out, const struct ck_view *base,
		    const struct ck_opts *opts, struct ck_err *err)
{
	struct dcp_view *v;

	if (!ck_dcp_layout_any(base))
		return 0;
	v = calloc(1, sizeof(*v));
	if (!v)
		return ck_no_memory(err);
	v->base = *base;
	v->file_size = ck_opts_size(opts, "dcp-shard-size", FILE_SIZE);
	for (unsigned i = 0; i < KEPT; i++)
		pthread_mutex_init(&v->kept[i].lock, NULL);
	ck_lazy_init(&v->lazy, make_all, v);
	*out = &v->base;
	return 0;
}

/* ---- files: .metadata is number 0 ---- */

static uint32_t dcp_nr(const struct ck_view *base)
{
	const struct dcp_view *v = get(base, NULL);

	return v ? 1 + (uint32_t)v->l.file.nr : 0;
}

static bool dcp_file(const struct ck_view *base, uint32_t i,
		     struct ck_vfile *out)
{
	const struct dcp_view *v = get(base, NULL);

	if (!v || i > v->l.file.nr)
		return false;
	out->size = i ? v->l.file.v[i - 1].size : v->meta_size;
	out->newest = v->l.newest;
	out->tensor = CK_NONE;
	out->like = NULL;
	return true;
}

static void dcp_label(const struct ck_view *base, uint32_t i,
		      char name[CK_VIEW_NAME])
{
	const struct dcp_view *v = get(base, NULL);

	snprintf(name, CK_VIEW_NAME, "%s", i ? v->l.file.v[i - 1].name : META);
}

static uint32_t dcp_find(const struct ck_view *base, const char *name,
			 size_t len)
{
	char text[32], label[CK_VIEW_NAME];
	uint64_t n;
	uint32_t nr = 0;
	struct ck_vfile f;

	if (len >= sizeof(text))
		return CK_NONE;
	memcpy(text, name, len);
	text[len] = '\0';
	if (strcmp(text, META) && !strncmp(text, "__", 2) &&
	    ck_digits(text + 2, SIZE_MAX, &n) && n < UINT32_MAX)
		nr = (uint32_t)n + 1;
	if (nr == UINT32_MAX || !dcp_file(base, nr, &f))
		return CK_NONE;
	dcp_label(base, nr, label);
	return strcmp(label, text) ? CK_NONE : nr;
}

/* ---- archives ---- */

/* Locked, until put(); NULL: no memory. */
static struct kept *take(const struct dcp_view *v, uint32_t nr)
{
	struct kept *k = (struct kept *)&v->kept[nr % KEPT];
	const struct ck_dcp_entry *e = &v->l.entry.v[v->l.item.v[nr].entry];
	const struct ck_tensor *t = &v->base.img->tensors[e->ref];
	uint64_t start[CK_MAX_RANK], shape[CK_MAX_RANK];

	pthread_mutex_lock(&k->lock);
	if (k->made && k->item == nr)
		return k;
	ck_torch_blob_free(&k->blob);
	k->blob = (struct ck_torch_blob){ 0 };
	k->item = nr;
	ck_dcp_layout_item_box(&v->l, nr, start, shape, &k->at);
	k->made = !ck_torch_blob_make(&k->blob, t->dtype, shape, t->rank);
	if (k->made)
		return k;
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

static void put(struct kept *k)
{
	pthread_mutex_unlock(&k->lock);
}

/* Of item @nr, which is a tensor's, from byte @in of it on. */
static void item_at(const struct dcp_view *v, uint32_t nr, uint64_t in,
		    struct ck_span *out)
{
	struct kept *k = take(v, nr);
	uint64_t head;

	if (!k) {
		out->len = 0; /* no memory: EIO */
		return;
	}
	head = k->blob.head.len;
	if (in < head) {
		out->len = head - in;
	} else if (in < head + k->blob.payload) {
		out->kind = CK_SPAN_TENSOR;
		out->ref = v->l.entry.v[v->l.item.v[nr].entry].ref;
		out->off = k->at + (in - head);
		out->len = k->blob.payload - (in - head);
	}
	put(k);
}

static void dcp_at(const struct ck_view *base, uint32_t i, uint64_t off,
		   struct ck_span *out)
{
	const struct dcp_view *v = (const struct dcp_view *)base;
	const struct ck_dcp_layout_item *it;
	uint32_t nr;

	out->kind = CK_SPAN_MADE;
	out->ref = CK_NONE;
	out->off = off;
	out->len = v->meta_size - off;
	if (!i)
		return;
	nr = ck_dcp_item_at(&v->l, i - 1, off);
	it = &v->l.item.v[nr];
	out->len = ck_dcp_item_end(&v->l, nr) - off;
	if (!ck_dcp_is_object(&v->l, it->entry))
		item_at(v, nr, off - it->off, out);
}

static int copy(const struct ck_str *s, void *buf, uint64_t len, uint64_t off,
		struct ck_err *err)
{
	if (s->failed)
		return ck_no_memory(err);
	if (!ck_range_ok(off, len, s->len))
		return ck_fail(err, EIO, "dcp/: nothing is at %llu",
			       (unsigned long long)off);
	memcpy(buf, s->v + off, len);
	return 0;
}

static int object_bytes(const struct dcp_view *v, const struct ck_dcp_entry *e,
			void *buf, uint64_t len, uint64_t off,
			struct ck_err *err)
{
	ck_auto_str struct ck_str zip = { 0 };

	if (!e->value_len)
		return ck_ckpt_read_object(v->base.ck, e->ref, buf, len, off,
					   err);
	ck_torch_blob_pickle(&zip, v->l.values.v + e->value, e->value_len);
	return copy(&zip, buf, len, off, err);
}

static int item_bytes(const struct dcp_view *v, uint32_t i, void *buf,
		      uint64_t len, uint64_t off, struct ck_err *err)
{
	uint32_t nr = ck_dcp_item_at(&v->l, i - 1, off);
	const struct ck_dcp_layout_item *it = &v->l.item.v[nr];
	uint64_t in = off - it->off, tail;
	struct kept *k;
	int ret;

	if (ck_dcp_is_object(&v->l, it->entry))
		return object_bytes(v, &v->l.entry.v[it->entry], buf, len, in,
				    err);
	k = take(v, nr);
	if (!k)
		return ck_no_memory(err);
	tail = k->blob.head.len + k->blob.payload;
	ret = in < tail ? copy(&k->blob.head, buf, len, in, err) :
			  copy(&k->blob.tail, buf, len, in - tail, err);
	put(k);
	return ret;
}

/* ---- .metadata ---- */

/* The last kept piece that begins at or before @off. */
static size_t meta_step(const struct dcp_view *v, uint64_t off)
{
	return CK_LAST(i, 0, v->meta.nr, v->meta.v[i] <= off);
}

static int meta_bytes(const struct dcp_view *v, char *buf, uint64_t len,
		      uint64_t off, struct ck_err *err)
{
	ck_auto_str struct ck_str s = { 0 };
	size_t step = meta_step(v, off);
	uint64_t at = v->meta.v[step], n;
	struct ck_dcp_out out;
	int ret = 0;

	ck_dcp_layout_out(&v->l, &out);
	for (uint64_t p = (uint64_t)step * STEP; len && !ret; p++) {
		if (p >= ck_dcp_out_pieces(&out))
			return ck_fail(err, EIO, META ": ends before");
		s.len = 0;
		ret = ck_dcp_out_piece(&out, p, &s, err);
		if (ret || at + s.len <= off) {
			at += s.len;
			continue;
		}
		n = CK_MIN(len, at + s.len - off);
		memcpy(buf, s.v + (off - at), n);
		at += s.len;
		buf += n;
		off += n;
		len -= n;
	}
	return ret;
}

static int dcp_made(const struct ck_view *base, uint32_t i, void *buf,
		    uint64_t len, uint64_t off, struct ck_err *err)
{
	const struct dcp_view *v = get(base, err);

	if (!v)
		return -EIO;
	return i ? item_bytes(v, i, buf, len, off, err) :
		   meta_bytes(v, buf, len, off, err);
}

const struct ck_view_ops ck_view_dcp = {
	.name = "dcp",
	.is_dir = true,
	.open = dcp_open,
	.close = dcp_close,
	.nr = dcp_nr,
	.file = dcp_file,
	.label = dcp_label,
	.find = dcp_find,
	.at = dcp_at,
	.made = dcp_made,
};
