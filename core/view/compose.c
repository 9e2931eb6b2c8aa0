/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compose.c - a file made of pieces; see the header for the picture
 */
#include "core/view/compose.h"

#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/dtype.h"
#include "core/view/turned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ck_compose_free(struct ck_compose *c)
{
	for (size_t i = 0; i < c->turned.nr; i++)
		free((void *)c->turned.v[i].turn.run);
	free(c->turned.v);
	ck_bands_free(c->bands);
	free(c->pieces.v);
	ck_str_free(&c->blob);
	*c = (struct ck_compose)CK_COMPOSE_INIT;
}

static struct ck_piece *push(struct ck_compose *c, uint64_t len)
{
	struct ck_piece *p = ck_vec_push(&c->pieces);

	if (!p || !ck_add_ok(c->size, len, &c->size)) {
		c->failed = true;
		return NULL;
	}
	*p = (struct ck_piece){ .off = c->size - len };
	return p;
}

void ck_compose_bytes(struct ck_compose *c, const void *bytes, size_t len)
{
	const struct ck_piece *last =
		c->pieces.nr ? &c->pieces.v[c->pieces.nr - 1] : NULL;
	struct ck_piece *p;

	if (!len || c->failed)
		return;
	if (c->blob.len + len > UINT32_MAX) {
		c->failed = true;
		return;
	}
	ck_str_add(&c->blob, bytes, len);
	if (last && last->tensor == CK_NONE) { /* one longer piece */
		c->size += len;
		return;
	}
	p = push(c, len);
	if (p) {
		p->tensor = CK_NONE;
		p->at = c->blob.len - len;
		p->dtype = 0;
	}
}

void ck_compose_zeros(struct ck_compose *c, uint64_t len)
{
	struct ck_piece *p = len && !c->failed ? push(c, len) : NULL;

	if (p)
		p->zeros = true;
}

/* The source that changed last shows its time on the whole file. */
static void take_newest(struct ck_compose *c, const struct ck_catalog *img,
			uint32_t src)
{
	if (src == CK_NONE)
		return;
	if (c->newest == CK_NONE ||
	    img->srcs[src].id.mtime_ns > img->srcs[c->newest].id.mtime_ns)
		c->newest = src;
}

void ck_compose_tensor(struct ck_compose *c, const struct ck_catalog *img,
		       uint32_t t)
{
	ck_compose_range(c, img, t, 0, img->tensors[t].size, 0);
}

struct ck_piece *ck_compose_range(struct ck_compose *c,
				  const struct ck_catalog *img, uint32_t t,
				  uint64_t at, uint64_t len, uint8_t dtype)
{
	const struct ck_tensor *tensor = &img->tensors[t];
	struct ck_piece *p;

	take_newest(c, img, tensor->newest);
	if (dtype == tensor->dtype)
		dtype = 0;
	if (dtype) {
		uint64_t from = ck_dtype_info(tensor->dtype)->size;
		uint64_t to = ck_dtype_info(dtype)->size;

		at = at / from * to;
		len = len / from * to;
	}
	if (!len || c->failed)
		return NULL;
	p = push(c, len);
	if (p) {
		p->tensor = t;
		p->at = at;
		p->dtype = dtype;
	}
	return p;
}

struct ck_piece *ck_compose_turned(struct ck_compose *c,
				   const struct ck_catalog *img,
				   const struct ck_turned *turned,
				   uint8_t dtype)
{
	uint64_t len = turned->turn.rows * turned->turn.cols *
		       ck_dtype_info(dtype)->size;
	struct ck_turned *t = ck_vec_push(&c->turned);
	struct ck_piece *p = NULL;

	if (!c->bands)
		c->bands = ck_bands_new();
	c->failed = c->failed || !t || !c->bands;
	if (t)
		*t = *turned;
	else
		free((void *)turned->turn.run);
	if (t)
		t->bands = c->bands;
	for (uint32_t i = 0; i < turned->turn.nr_runs && !c->failed; i++)
		take_newest(c, img,
			    img->tensors[turned->turn.run[i].ref].newest);
	if (len && !c->failed)
		p = push(c, len);
	if (!p)
		return NULL;
	p->tensor = (uint32_t)c->turned.nr - 1;
	p->turned = true;
	p->dtype = dtype;
	return p;
}

int ck_compose_done(const struct ck_compose *c, struct ck_err *err)
{
	if (c->failed || c->blob.failed)
		return ck_no_memory(err);
	return 0;
}

bool ck_compose_vfile(const struct ck_compose *c, struct ck_vfile *out)
{
	out->size = c->size;
	out->newest = c->newest;
	out->like = NULL;
	out->tensor = CK_NONE;
	return true;
}

static size_t piece_at(const struct ck_compose *c, uint64_t off)
{
	return CK_LAST(i, 0, c->pieces.nr, c->pieces.v[i].off <= off);
}

void ck_compose_at(const struct ck_compose *c, uint64_t off,
		   struct ck_span *out)
{
	size_t i = piece_at(c, off);
	const struct ck_piece *p = &c->pieces.v[i];
	uint64_t end = i + 1 < c->pieces.nr ? c->pieces.v[i + 1].off : c->size;

	out->turned = p->turned ? &c->turned.v[p->tensor] : NULL;
	out->kind = p->zeros		 ? CK_SPAN_ZEROS :
		    p->turned		 ? CK_SPAN_TURNED :
		    p->tensor == CK_NONE ? CK_SPAN_MADE :
		    p->dtype		 ? CK_SPAN_CAST :
					   CK_SPAN_TENSOR;
	out->ref = p->turned ? out->turned->turn.run->ref : p->tensor;
	out->dtype = p->dtype;
	out->saturate = p->saturate;
	out->off = p->at + (off - p->off);
	out->len = end - off;
}

int ck_compose_made(const struct ck_compose *c, void *buf, uint64_t len,
		    uint64_t off, struct ck_err *err)
{
	if (!ck_range_ok(off, len, c->blob.len))
		return ck_fail(err, EIO, "a view's own bytes end at %zu",
			       c->blob.len);
	memcpy(buf, c->blob.v + off, len);
	return 0;
}
