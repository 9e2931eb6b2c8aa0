/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - box, place and peculiarities of each piece of a tensor
 *
 * A cell, then its copies.  Nothing is kept but the widths of columns.
 */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/text.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"

#include <inttypes.h>
#include <string.h>

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

bool pieces_print(const struct ck_catalog *img,
		  const struct ck_resolved *resolved, const struct ck_tensor *t)
{
	struct pieces p = {
		.img = img, .resolved = resolved, .t = t, .ok = true
	};

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
