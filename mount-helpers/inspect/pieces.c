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
#include "core/geom/dtype.h"
#include "core/geom/range.h"

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

static const uint64_t *corner_of(const struct pieces *p, uint32_t chunk)
{
	return p->img->dims + p->img->chunks[chunk].corner;
}

static const struct ck_layout *layout_of(const struct pieces *p, uint32_t chunk)
{
	return &p->img->layouts[p->img->chunks[chunk].layout];
}

static void put_box(struct pieces *p, uint32_t chunk)
{
	const uint64_t *corner = corner_of(p, chunk);
	const struct ck_layout *l = layout_of(p, chunk);
	unsigned rank = p->t->grid_rank;

	text_box(&p->out, corner, p->img->dims + l->len, rank);
	if (l->flags & CK_LAYOUT_FLAT)
		ck_str_fmt(&p->out, " flat %" PRIu64 ":%" PRIu64, corner[rank],
			   corner[rank + 1]);
}

/* Bytes of the piece: what it covers, at one element each. */
static uint64_t bytes_of(const struct pieces *p, uint32_t chunk)
{
	const struct ck_layout *l = layout_of(p, chunk);
	const uint64_t *corner = corner_of(p, chunk);
	uint64_t volume = 0, elem = ck_dtype_info(l->dtype)->size;
	unsigned rank = p->t->grid_rank;

	if (l->flags & CK_LAYOUT_FLAT)
		return (corner[rank + 1] - corner[rank]) * elem;
	ck_dims_volume(p->img->dims + l->len, rank, &volume);
	return volume * elem;
}

static bool is_dense(const int64_t *stride, const uint64_t *len, unsigned rank)
{
	uint64_t dense = 1;

	for (unsigned d = rank; d-- > 0; dense *= len[d])
		if (len[d] > 1 && stride[d] != (int64_t)dense)
			return false;
	return true;
}

static void put_strides(struct pieces *p, uint32_t chunk, const int64_t *stride)
{
	const uint64_t *len = p->img->dims + layout_of(p, chunk)->len;

	if (!stride || is_dense(stride, len, p->t->grid_rank))
		return;
	ck_str_puts(&p->out, ", strides [");
	for (unsigned d = 0; d < p->t->grid_rank; d++)
		ck_str_fmt(&p->out, "%s%" PRId64, d ? ", " : "", stride[d]);
	ck_str_puts(&p->out, "]");
}

static void put_item(struct pieces *p, uint32_t chunk)
{
	const struct ck_layout *l = layout_of(p, chunk);
	struct ck_place place = { 0 };
	enum ck_resolved_state state = CK_RESOLVED_UNKNOWN;

	if (p->resolved)
		state = ck_resolved_get(p->resolved, chunk, &place);
	if (state == CK_RESOLVED_PLACED) {
		ck_str_fmt(&p->out, " offset %" PRIu64, place.off);
		if (!(l->flags & CK_LAYOUT_FLAT))
			put_strides(p, chunk, place.stride);
		return;
	}
	ck_str_fmt(&p->out, " item at %" PRIu64, p->img->chunks[chunk].off);
	if (state == CK_RESOLVED_BAD)
		ck_str_fmt(&p->out, ", BAD: %s", strerror(place.err));
}

static void put_place(struct pieces *p, uint32_t chunk)
{
	const struct ck_chunk *c = &p->img->chunks[chunk];
	const struct ck_layout *l = layout_of(p, chunk);
	const struct ck_src *src = &p->img->srcs[c->src];
	uint32_t file = ck_catalog_file_of(p->img, c->src);

	text_ref(&p->out, p->img, file);
	if (file == CK_NONE)
		ck_str_puts(&p->out, "(in the index)");
	if (l->flags & CK_LAYOUT_DEFERRED) {
		put_item(p, chunk);
	} else {
		ck_str_fmt(&p->out, " offset %" PRIu64, c->off);
		if (!(l->flags & CK_LAYOUT_FLAT) && l->stride != CK_NONE)
			put_strides(p, chunk,
				    (const int64_t *)p->img->dims + l->stride);
	}
	if (src->kind == CK_SRC_CODEC)
		ck_str_fmt(&p->out,
			   " of what zstd makes of bytes %" PRIu64
			   " to %" PRIu64,
			   src->off, src->off + src->len);
}

static void put_piece(struct pieces *p, uint32_t chunk, bool copy)
{
	const struct ck_chunk *c = &p->img->chunks[chunk];
	size_t from = p->out.len;

	ck_str_puts(&p->out, copy ? "  = " : "  ");
	if (!copy)
		put_box(p, chunk);
	text_pad(&p->out, from, p->box_width + 4);
	put_place(p, chunk);
	ck_str_fmt(&p->out, ", %" PRIu64 " bytes", bytes_of(p, chunk));
	if (layout_of(p, chunk)->dtype != p->t->dtype)
		ck_str_fmt(&p->out, " of %s",
			   ck_dtype_info(layout_of(p, chunk)->dtype)->name);
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
	const struct ck_layout *l = layout_of(p, chunk);
	uint64_t h = bytes_of(p, chunk) * 2 + copy;

	h = h * 4 + p->img->chunks[chunk].state;
	for (unsigned d = 0; d < p->t->grid_rank; d++)
		h = (h ^ p->img->dims[l->len + d]) *
		    UINT64_C(0x9e3779b97f4a7c15);
	return h ^ l->dtype;
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
		   text->v ? text->v : "", bytes_of(p, chunk), nr,
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

	for (uint32_t i = 0; v && i < p->t->nr; i++) {
		uint32_t first = p->t->first + i, at = first;

		add_fold(p, &v[nr++], first, false);
		while ((at = p->img->chunks[at].next) != CK_NONE &&
		       at != first && nr < p->t->nr_all)
			add_fold(p, &v[nr++], at, true);
	}
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
	for (uint32_t i = 0; i < t->nr && p.ok; i++) {
		uint32_t first = t->first + i, at = first;

		put_piece(&p, first, false);
		for (uint32_t n = t->nr_all; n > 0; n--) {
			at = img->chunks[at].next;
			if (at == CK_NONE || at == first)
				break;
			put_piece(&p, at, true);
		}
	}
	ck_str_free(&p.out);
	return p.ok;
}
