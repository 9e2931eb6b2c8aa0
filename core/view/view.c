/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - making views, and reading a view's file span by span
 */
#include "core/view/turned.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/cast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tensors are sorted by tree: the first one of @tree or a later one. */
static uint32_t tree_begin(const struct ck_catalog *img, uint32_t tree)
{
	return CK_FIRST(i, 0, img->nr_tensors, img->tensors[i].tree >= tree);
}

int ck_view_open(struct ck_view **out, const struct ck_view_ops *ops,
		 struct ck_ckpt *ck, uint32_t tree, const struct ck_opts *opts,
		 struct ck_err *err)
{
	struct ck_view base = { .ops = ops, .ck = ck, .tree = tree };

	base.img = ck_ckpt_catalog(ck);
	base.first = tree_begin(base.img, tree);
	base.nr = tree_begin(base.img, tree + 1) - base.first;
	*out = NULL;
	return ops->open(out, &base, opts, err);
}

void ck_view_close(struct ck_view *v)
{
	if (v)
		v->ops->close(v);
}

void ck_view_leave_out(const struct ck_view *v, uint32_t tensor,
		       const char *reason)
{
	ck_ckpt_view_problem(v->ck, v->ops->name, tensor, CK_VIEW_LACKS,
			     reason);
}

void ck_view_not_meant(const struct ck_view *v, uint32_t tensor,
		       const char *reason)
{
	ck_ckpt_view_problem(v->ck, v->ops->name, tensor, CK_VIEW_NOT_MEANT,
			     reason);
}

void ck_view_warn(const struct ck_view *v, const char *reason)
{
	ck_ckpt_view_problem(v->ck, v->ops->name, CK_NONE, CK_VIEW_WARNS,
			     reason);
}

void ck_view_find_problems(const struct ck_view *v)
{
	const struct ck_view_folder_ops *ops = v->ops->folders;
	char name[256];

	for (uint32_t d = 0; ops && d < ops->nr_listed(v); d++)
		ops->name(v, d, name);
}

int ck_views_find_problems(struct ck_ckpt *ck, const struct ck_opts *opts,
			   struct ck_err *err)
{
	for (size_t i = 0; ck_views[i]; i++) {
		struct ck_view *v;
		int ret;

		if (!ck_views[i]->folders ||
		    (ck_views[i]->nests && ck_ckpt_is_derived(ck)) ||
		    !ck_opts_get(opts, ck_views[i]->name))
			continue;
		ret = ck_view_open(&v, ck_views[i], ck, 0, opts, err);
		if (ret)
			return ret;
		if (v) {
			ck_view_find_problems(v);
			ck_view_close(v);
		}
	}
	return 0;
}

int ck_view_per_tensor_open(struct ck_view **out, const struct ck_view *base,
			    const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_view *v = malloc(sizeof(*v));

	(void)opts;
	if (!v)
		return ck_no_memory(err);
	*v = *base;
	*out = v;
	return 0;
}

void ck_view_per_tensor_close(struct ck_view *v)
{
	free(v);
}

uint32_t ck_view_find_none(const struct ck_view *v, const char *name,
			   size_t len)
{
	(void)v;
	(void)name;
	(void)len;
	return CK_NONE; /* only folders are here */
}

uint32_t ck_view_per_tensor_nr(const struct ck_view *v)
{
	return v->nr;
}

#define CAST_BYTES (UINT64_C(256) << 10) /* read at a time */

/* Elements [first, first + nr) as they are shown. */
static int read_elements(const struct ck_view *v, const struct ck_span *span,
			 char *in, char *out, uint64_t first, uint64_t nr,
			 struct ck_err *err)
{
	uint8_t from = v->img->tensors[span->ref].dtype;
	uint64_t size = ck_dtype_info(from)->size;
	int ret = ck_ckpt_read(v->ck, span->ref, in, nr * size, first * size,
			       err);

	if (!ret)
		(span->saturate ? ck_cast_saturated :
				  ck_cast)(from, in, span->dtype, out, nr);
	return ret;
}

static int read_cast(const struct ck_view *v, const struct ck_span *span,
		     char *buf, uint64_t len, struct ck_err *err)
{
	uint64_t from = ck_dtype_info(v->img->tensors[span->ref].dtype)->size;
	uint64_t to = ck_dtype_info(span->dtype)->size, n;
	ck_auto_free char *in = malloc(CAST_BYTES);
	char edge[8];
	int ret = 0;

	if (!in)
		return ck_no_memory(err);
	for (uint64_t off = span->off; len && !ret; off += n) {
		uint64_t first = off / to, skip = off % to;
		uint64_t nr = CK_MIN(CAST_BYTES / from, len / to);

		if (skip || !nr) { /* a part of one element */
			ret = read_elements(v, span, in, edge, first, 1, err);
			n = CK_MIN(to - skip, len);
			memcpy(buf, edge + skip, ret ? 0 : n);
		} else {
			ret = read_elements(v, span, in, buf, first, nr, err);
			n = nr * to;
		}
		buf += n;
		len -= n;
	}
	return ret;
}

static int read_span(const struct ck_view *v, uint32_t i,
		     const struct ck_span *span, void *buf, uint64_t len,
		     struct ck_err *err)
{
	if (span->kind == CK_SPAN_TENSOR)
		return ck_ckpt_read(v->ck, span->ref, buf, len, span->off, err);
	if (span->kind == CK_SPAN_BOX)
		return ck_ckpt_read_box_bytes(v->ck, span->ref, &span->box, buf,
					      len, span->off, err);
	if (span->kind == CK_SPAN_CAST)
		return read_cast(v, span, buf, len, err);
	if (span->kind == CK_SPAN_TURNED)
		return ck_turned_read(v, span, buf, len, err);
	if (span->kind == CK_SPAN_ZEROS) {
		memset(buf, 0, len);
		return 0;
	}
	return v->ops->made(v, i, buf, len, span->off, err);
}

int ck_view_read(const struct ck_view *v, uint32_t i, void *buf, uint64_t len,
		 uint64_t off, struct ck_err *err)
{
	unsigned char *to = buf;

	while (len) {
		struct ck_span span;
		uint64_t n;
		int ret;

		v->ops->at(v, i, off, &span);
		n = CK_MIN(len, span.len);
		if (!n)
			return ck_fail(err, EIO,
				       "view %s: file %u has nothing at %llu",
				       v->ops->name, i,
				       (unsigned long long)off);
		ret = read_span(v, i, &span, to, n, err);
		if (ret)
			return ret;
		to += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* [lo, hi): where the first lost byte is; all before @lo is in @buf. */
uint64_t ck_view_read_good(const struct ck_view *v, uint32_t i, void *buf,
			   uint64_t len, uint64_t off)
{
	uint64_t lo = 0, hi = len;

	while (hi - lo > 1) {
		uint64_t n = (hi - lo) / 2;

		if (ck_view_read(v, i, (char *)buf + lo, n, off + lo, NULL))
			hi = lo + n;
		else
			lo += n;
	}
	return lo;
}
