/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_show.c - explicit boxes, one for each stored piece and its copies
 *
 * Each is a stretch of a raw file: where the bytes are is known by now,
 * whatever container they lie in.
 */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/text.h"

#include "core/base/utf8.h"
#include "core/geom/chunk.h"
#include "core/geom/dtype.h"

#include <inttypes.h>
#include <string.h>

/* What the catalog and the item together say of a piece. */
struct piece {
	const struct ck_tensor *t;
	const struct ck_src *src;
	struct ck_chunk_at at;
};

static bool sayable(const struct ck_catalog *img, uint32_t ref)
{
	const char *s;
	size_t len;

	if (ref == CK_NONE)
		return false;
	s = ck_catalog_str(img, ref, &len);
	return !memchr(s, 0, len) && ck_utf8_ok(s, len);
}

static void put_ref(struct layout_show *s, uint32_t ref)
{
	size_t len;
	const char *text = ck_catalog_str(s->img, ref, &len);

	ck_str_json(&s->out, text, len);
}

static bool find_piece(const struct layout_show *s, const struct ck_tensor *t,
		       uint32_t chunk, struct piece *p)
{
	const struct ck_chunk *c = &s->img->chunks[chunk];

	p->t = t;
	p->src = &s->img->srcs[c->src];
	ck_chunk_at(s->img, s->resolved, t->grid_rank, c, &p->at);
	return p->at.item ? p->at.placed : p->src->kind != CK_SRC_MEM;
}

static void put_order(struct layout_show *s, const struct piece *p)
{
	static const char *const xforms[] = { [CK_XF_CONJ] = "conj",
					      [CK_XF_NEG] = "neg",
					      [CK_XF_BYTESWAP] = "byteswap" };
	const struct ck_chunk_at *at = &p->at;

	if (at->flat)
		ck_str_fmt(&s->out, ", \"flat\": [%" PRIu64 ", %" PRIu64 "]",
			   at->lo, at->hi);
	if (at->stride) {
		ck_str_puts(&s->out, ", \"stride\": [");
		for (unsigned d = 0; d < at->rank; d++)
			ck_str_fmt(&s->out, "%s%" PRId64, d ? ", " : "",
				   at->stride[d]);
		ck_str_puts(&s->out, "]");
	}
	if (at->xform)
		ck_str_fmt(&s->out, ", \"transform\": \"%s\"",
			   xforms[at->xform]);
	if (at->layout->dtype != p->t->dtype)
		ck_str_fmt(&s->out, ", \"stored_dtype\": \"%s\"",
			   ck_dtype_info(at->layout->dtype)->name);
}

static void put_piece(struct layout_show *s, const struct piece *p,
		      uint32_t file, bool first)
{
	ck_str_puts(&s->out, first ? "\n   {\"file\": " : ",\n   {\"file\": ");
	put_ref(s, file);
	ck_str_fmt(&s->out,
		   ", \"offset\": %" PRIu64 ", \"start\": ", p->at.off);
	ck_str_json_u64(&s->out, p->at.corner, p->at.rank);
	ck_str_puts(&s->out, ", \"size\": ");
	ck_str_json_u64(&s->out, p->at.len, p->at.rank);
	put_order(s, p);
	if (p->src->kind == CK_SRC_CODEC)
		ck_str_fmt(&s->out, ", \"zstd\": [%" PRIu64 ", %" PRIu64 "]",
			   p->src->off, p->src->len);
	ck_str_puts(&s->out, "}");
}

/* One piece, if it can be said; *nr counts those that were. */
static void one_piece(struct layout_show *s, const struct ck_tensor *t,
		      uint32_t chunk, uint64_t *nr)
{
	uint32_t file = ck_catalog_file_of(s->img, s->img->chunks[chunk].src);
	struct piece p;

	if (!find_piece(s, t, chunk, &p) || !sayable(s->img, file)) {
		s->left_out++;
		return;
	}
	put_piece(s, &p, file, !*nr);
	++*nr;
}

static void put_boxes(struct layout_show *s, const struct ck_tensor *t)
{
	uint64_t nr = 0;

	ck_str_puts(&s->out, ",\n  \"boxes\": [");
	for (uint32_t cell = t->first; cell < t->first + t->nr; cell++)
		for (uint32_t at = cell; at != CK_NONE;
		     at = ck_ring_next(s->img, cell, at))
			one_piece(s, t, at, &nr);
	ck_str_puts(&s->out, "]}");
}

static void put_tensor(struct layout_show *s, const struct ck_tensor *t)
{
	ck_str_puts(&s->out, " {\"name\": ");
	put_ref(s, t->name);
	if (t->tree) {
		ck_str_puts(&s->out, ", \"tree\": ");
		put_ref(s, s->img->trees[t->tree]);
	}
	ck_str_fmt(&s->out, ", \"dtype\": \"%s\", \"shape\": ",
		   ck_dtype_info(t->dtype)->name);
	ck_str_json_u64(&s->out, s->img->dims + t->shape, t->rank);
	if (t->grid != t->shape || t->grid_rank != t->rank) {
		ck_str_puts(&s->out, ", \"view\": ");
		ck_str_json_u64(&s->out, s->img->dims + t->grid, t->grid_rank);
	}
	put_boxes(s, t);
}

bool layout_show(struct layout_show *s)
{
	bool any = false, ok = true;

	ck_str_puts(&s->out, "{\"unshard_layout\": 1,\n\"comment\": ");
	ck_str_puts(&s->out, "\"made from a checkpoint of format ");
	ck_str_puts(&s->out, ck_catalog_str(s->img, s->img->format, NULL));
	ck_str_puts(&s->out, "\",\n\"tensors\": [");
	for (uint32_t i = 0; i < s->img->nr_tensors && ok; i++) {
		const struct ck_tensor *t = &s->img->tensors[i];

		if (!sayable(s->img, t->name) ||
		    (t->tree && !sayable(s->img, s->img->trees[t->tree]))) {
			s->left_out++;
			continue;
		}
		ck_str_puts(&s->out, any ? ",\n" : "\n");
		any = true;
		put_tensor(s, t);
		ok = text_flush(&s->out);
	}
	ck_str_puts(&s->out, "\n]}\n");
	ok = ok && text_flush(&s->out);
	ck_str_free(&s->out);
	return ok;
}
