/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - box, place and peculiarities of each piece of a tensor
 *
 * A cell, then its copies.  Nothing is kept but the widths of columns.
 */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/inspect/fold.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/chunk.h"
#include "core/geom/dtype.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MANY 48 /* beyond it pieces are folded */
#define BOX_MAX 40 /* width that one long box does not pass */

struct pieces {
	const struct ck_catalog *img;
	const struct ck_resolved *resolved;
	const struct ck_tensor *t;
	size_t box_width;
	struct ck_str out;
	bool ok;
};

static struct ck_chunk_at place_of(const struct pieces *p, uint32_t chunk)
{
	struct ck_chunk_at at;

	ck_chunk_at(p->img, p->resolved, p->t->grid_rank,
		    &p->img->chunks[chunk], &at);
	return at;
}

static void put_box(struct pieces *p, uint32_t chunk)
{
	struct ck_chunk_at at = place_of(p, chunk);

	text_box(&p->out, at.corner, at.len, at.rank);
	if (at.flat)
		ck_str_fmt(&p->out, " flat %" PRIu64 ":%" PRIu64, at.lo, at.hi);
}

static void put_strides(struct pieces *p, const struct ck_chunk_at *at)
{
	ck_str_puts(&p->out, ", strides [");
	for (unsigned d = 0; d < at->rank; d++)
		ck_str_fmt(&p->out, "%s%" PRId64, d ? ", " : "", at->stride[d]);
	ck_str_puts(&p->out, "]");
}

static void put_place(struct pieces *p, const struct ck_chunk *c,
		      const struct ck_chunk_at *at)
{
	const struct ck_src *src = &p->img->srcs[c->src];
	uint32_t file = ck_catalog_file_of(p->img, c->src);

	text_ref(&p->out, p->img, file);
	if (file == CK_NONE)
		ck_str_puts(&p->out, "(in the index)");
	ck_str_fmt(&p->out,
		   at->placed ? " offset %" PRIu64 : " item at %" PRIu64,
		   at->off);
	if (at->err)
		ck_str_fmt(&p->out, ", BAD: %s", strerror(at->err));
	if (at->stride)
		put_strides(p, at);
	if (src->kind == CK_SRC_CODEC)
		ck_str_fmt(&p->out,
			   " of what zstd makes of bytes %" PRIu64
			   " to %" PRIu64,
			   src->off, src->off + src->len);
}

static void put_piece(struct pieces *p, uint32_t chunk, bool copy)
{
	const struct ck_chunk *c = &p->img->chunks[chunk];
	struct ck_chunk_at at = place_of(p, chunk);
	size_t from = p->out.len;

	ck_str_puts(&p->out, copy ? "  = " : "  ");
	if (!copy)
		put_box(p, chunk);
	text_pad(&p->out, from, p->box_width + 4);
	put_place(p, c, &at);
	ck_str_fmt(&p->out, ", %" PRIu64 " bytes", at.bytes);
	if (at.layout->dtype != p->t->dtype)
		ck_str_fmt(&p->out, " of %s",
			   ck_dtype_info(at.layout->dtype)->name);
	if (c->state != CK_OK)
		ck_str_fmt(&p->out, ", %s",
			   c->state == CK_TORN ? "TORN" : "MISSING");
	ck_str_puts(&p->out, "\n");
	p->ok = p->ok && text_flush(&p->out);
}

static void measure(struct pieces *p)
{
	for (uint32_t i = 0; i < p->t->nr; i++) {
		p->out.len = 0;
		put_box(p, p->t->first + i);
		p->box_width =
			CK_MAX(p->box_width, CK_MIN(p->out.len, BOX_MAX));
	}
	p->out.len = 0;
}

/* ---- of many: folded by the names of their files ---- */

static uint64_t key_of(const struct pieces *p, uint32_t chunk, bool copy)
{
	struct ck_chunk_at at = place_of(p, chunk);
	uint64_t h = at.bytes * 2 + copy;

	h = h * 4 + p->img->chunks[chunk].state;
	for (unsigned d = 0; d < p->t->grid_rank; d++)
		h = (h ^ at.len[d]) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ at.layout->dtype;
}

/* "[0:4, 0:8] to [4092:4096, 0:8]  rank_{0..1023}.pt, 128 bytes each, 1024 of them" */
static bool put_fold(void *ctx, const struct ck_str *text,
		     const struct fold_name *v, size_t nr)
{
	struct pieces *p = ctx;
	uint32_t chunk = (uint32_t)(v->index >> 1);
	bool copy = v->index & 1;

	if (nr == 1) {
		put_piece(p, chunk, copy);
		return p->ok;
	}
	ck_str_puts(&p->out, copy ? "  = " : "  ");
	put_box(p, chunk);
	ck_str_puts(&p->out, " to ");
	put_box(p, (uint32_t)(v[nr - 1].index >> 1));
	ck_str_fmt(&p->out, "  %s, %" PRIu64 " bytes each, %zu of them%s\n",
		   text->v ? text->v : "", place_of(p, chunk).bytes, nr,
		   p->img->chunks[chunk].state == CK_OK	  ? "" :
		   p->img->chunks[chunk].state == CK_TORN ? ", TORN" :
							    ", MISSING");
	return text_flush(&p->out);
}

static void add_fold(struct pieces *p, struct fold_name *to, uint32_t chunk,
		     bool copy)
{
	uint32_t file = ck_catalog_file_of(p->img, p->img->chunks[chunk].src);

	to->name = file == CK_NONE ? "(in the index)" :
				     ck_catalog_str(p->img, file, NULL);
	to->class = (size_t)key_of(p, chunk, copy);
	to->index = (size_t)chunk << 1 | copy;
}

static bool print_folded(struct pieces *p)
{
	ck_auto_free struct fold_name *v =
		calloc(p->t->nr_all + 1u, sizeof(*v));
	size_t nr = 0;

	for (uint32_t i = p->t->first; v && i < p->t->first + p->t->nr; i++)
		for (uint32_t at = i; at != CK_NONE;
		     at = ck_ring_next(p->img, i, at))
			add_fold(p, &v[nr++], at, at != i);
	return v && fold_names(v, nr, put_fold, p);
}

bool pieces_print(const struct ck_catalog *img,
		  const struct ck_resolved *resolved, const struct ck_tensor *t,
		  bool all)
{
	struct pieces p = {
		.img = img, .resolved = resolved, .t = t, .ok = true
	};

	if (!all && t->nr_all > MANY) {
		p.ok = print_folded(&p);
		ck_str_free(&p.out);
		return p.ok;
	}
	measure(&p);
	for (uint32_t i = t->first; i < t->first + t->nr && p.ok; i++)
		for (uint32_t at = i; at != CK_NONE;
		     at = ck_ring_next(img, i, at))
			put_piece(&p, at, at != i);
	ck_str_free(&p.out);
	return p.ok;
}
