/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.c - the catalog as JSON, a record at a time; problems as lines too
 *
 * Nothing is remembered between records but the position: a tensor's head, at
 * most SOURCES of its sources, an object.
 */
#include "core/catalog/dump.h"

#include "core/catalog/builder_priv.h"

#include <inttypes.h>
#include <string.h>

#define SOURCES 64

enum section { HEAD, TENSORS, OBJECTS, TAIL, END };

static const char *const state_names[] = {
	[CK_OK] = "ok",
	[CK_TORN] = "torn",
	[CK_MISSING] = "missing",
};

/* "key": "the string", or null where there is none. */
static void put_key(struct ck_str *out, const char *key,
		    const struct ck_catalog *img, uint32_t ref)
{
	size_t len;
	const char *text;

	ck_str_fmt(out, "\"%s\": ", key);
	if (ref == CK_NONE) {
		ck_str_puts(out, "null");
		return;
	}
	text = ck_catalog_str(img, ref, &len);
	ck_str_json(out, text, len);
}

static void put_u64(struct ck_str *out, const char *key, uint64_t v)
{
	ck_str_fmt(out, ", \"%s\": %" PRIu64, key, v);
}

static void put_box(struct ck_str *out, const uint64_t *start,
		    const uint64_t *len, unsigned rank)
{
	ck_str_puts(out, ", \"box\": [");
	for (unsigned d = 0; d < rank; d++)
		ck_str_fmt(out, "%s[%" PRIu64 ", %" PRIu64 "]", d ? ", " : "",
			   start[d], start[d] + len[d]);
	ck_str_puts(out, "]");
}

/* Said where "nbytes" from "offset" on is not what is read. */
static void put_strides(struct ck_str *out, const int64_t *stride,
			unsigned rank)
{
	ck_str_puts(out, ", \"stride\": [");
	for (unsigned d = 0; d < rank; d++)
		ck_str_fmt(out, "%s%" PRId64, d ? ", " : "", stride[d]);
	ck_str_puts(out, "]");
}

/* Where the bytes are: the file, or the compressed stretch of it. */
static void put_place(struct ck_str *out, const struct ck_catalog *img,
		      uint32_t src, uint64_t off, uint64_t len)
{
	const struct ck_src *s = &img->srcs[src];
	bool packed = s->kind == CK_SRC_CODEC;

	put_key(out, "file", img, ck_srcs_file(img->srcs, src));
	put_u64(out, "offset", packed ? s->off : off);
	put_u64(out, "nbytes", packed ? s->len : len);
	if (packed)
		ck_str_puts(out, ", \"codec\": \"zstd\"");
}

static void put_source(struct ck_str *out, const struct ck_catalog *img,
		       const struct ck_tensor *t, const struct ck_chunk *x,
		       const struct ck_chunk_at *at)
{
	unsigned r = t->grid_rank;

	put_place(out, img, x->src, at->off, at->placed ? at->bytes : at->item);
	if (!at->placed)
		ck_str_puts(out, ", \"deferred\": true");
	put_box(out, at->corner, at->len, r);
	if (t->grid != t->shape || t->grid_rank != t->rank) {
		ck_str_puts(out, ", \"grid\": ");
		ck_str_json_u64(out, img->dims + t->grid, r);
	}
	if (at->flat)
		ck_str_fmt(out, ", \"flat\": [%" PRIu64 ", %" PRIu64 "]",
			   at->lo, at->hi);
	else if (at->stride)
		put_strides(out, at->stride, r);
	if (at->layout->dtype != t->dtype)
		ck_str_fmt(out, ", \"stored\": \"%s\"",
			   ck_dtype_info(at->layout->dtype)->name);
	if (x->state != CK_OK)
		ck_str_fmt(out, ", \"state\": \"%s\"", state_names[x->state]);
	if (at->err) {
		ck_str_puts(out, ", \"error\": ");
		ck_str_json(out, strerror(at->err), strlen(strerror(at->err)));
	}
}

/* The cell of a replica: the end of its ring that comes before all others. */
static uint32_t cell_of(const struct ck_catalog *img, const struct ck_tensor *t,
			uint32_t chunk)
{
	while (chunk - t->first >= t->nr)
		chunk = img->chunks[chunk].next;
	return chunk - t->first;
}

static void put_sources(struct ck_str *out, const struct ck_catalog *img,
			const struct ck_resolved *resolved,
			const struct ck_tensor *t, struct ck_dump_pos *pos)
{
	struct ck_chunk_at where;
	uint32_t end = CK_MIN(t->nr_all, pos->chunk + SOURCES);
	uint32_t cell = CK_NONE;

	for (uint32_t i = pos->chunk; i < end; i++) {
		uint32_t at = t->first + i;

		/* rings lie in one piece: the last one's may go on */
		if (i >= t->nr &&
		    (cell == CK_NONE || img->chunks[at - 1].next != at))
			cell = cell_of(img, t, at);
		ck_str_puts(out, i ? ",\n  " : "\n  ");
		ck_chunk_at(img, resolved, t->grid_rank, &img->chunks[at],
			    &where);
		ck_str_puts(out, "{");
		put_source(out, img, t, &img->chunks[at], &where);
		if (i >= t->nr)
			put_u64(out, "replica_of", cell);
		ck_str_puts(out, "}");
	}
	pos->chunk = end;
}

static void put_tensor(struct ck_str *out, const struct ck_catalog *img,
		       const struct ck_tensor *t)
{
	ck_str_puts(out, "{");
	put_key(out, "name", img, t->name);
	ck_str_puts(out, ", ");
	put_key(out, "file", img, t->file);
	if (t->tree) {
		ck_str_puts(out, ", ");
		put_key(out, "tree", img, img->trees[t->tree]);
	}
	ck_str_fmt(out, ", \"dtype\": \"%s\", \"shape\": ",
		   ck_dtype_info(t->dtype)->name);
	ck_str_json_u64(out, img->dims + t->shape, t->rank);
	put_u64(out, "nbytes", t->size);
	ck_str_fmt(out, ", \"state\": \"%s\"", state_names[t->state]);
}

static void next_tensor(struct ck_str *out, const struct ck_catalog *img,
			const struct ck_resolved *resolved, bool sources,
			struct ck_dump_pos *pos)
{
	const struct ck_tensor *t = &img->tensors[pos->item];

	if (!pos->chunk) {
		ck_str_puts(out, pos->item ? ",\n" : "\n");
		put_tensor(out, img, t);
		if (sources)
			ck_str_puts(out, ", \"sources\": [");
	}
	if (sources)
		put_sources(out, img, resolved, t, pos);
	if (sources && pos->chunk < t->nr_all)
		return;
	ck_str_puts(out, sources ? "]}" : "}");
	pos->chunk = 0;
	pos->item++;
}

static void next_object(struct ck_str *out, const struct ck_catalog *img,
			struct ck_dump_pos *pos)
{
	static const char *const encodings[] = {
		[CK_ENC_RAW] = "raw",
		[CK_ENC_TORCH_ZIP] = "torch",
		[CK_ENC_PICKLE] = "pickle",
		[CK_ENC_JSON] = "json",
	};
	const struct ck_object *o = &img->objects[pos->item];

	ck_str_puts(out, pos->item ? ",\n{" : "\n{");
	put_key(out, "name", img, o->name);
	ck_str_puts(out, ", ");
	if (o->tree) {
		put_key(out, "tree", img, img->trees[o->tree]);
		ck_str_puts(out, ", ");
	}
	put_place(out, img, o->src, o->off, o->len);
	ck_str_fmt(out, ", \"encoding\": \"%s\"}", encodings[o->enc]);
	pos->item++;
}

static void next_section(struct ck_dump_pos *pos)
{
	*pos = (struct ck_dump_pos){ .section = pos->section + 1 };
}

static bool next_catalog(const struct ck_catalog *img,
			 const struct ck_resolved *resolved, bool sources,
			 uint64_t gen, struct ck_dump_pos *pos,
			 struct ck_str *out)
{
	switch (pos->section) {
	case HEAD:
		ck_str_puts(out, "{");
		put_key(out, "format", img, img->format);
		put_u64(out, "generation", gen);
		ck_str_puts(out, ", \"tensors\": [");
		next_section(pos);
		return true;
	case TENSORS:
		if (pos->item < img->nr_tensors) {
			next_tensor(out, img, resolved, sources, pos);
			return true;
		}
		ck_str_puts(out, "\n], \"objects\": [");
		next_section(pos);
		return true;
	case OBJECTS:
		if (pos->item < img->nr_objects) {
			next_object(out, img, pos);
			return true;
		}
		ck_str_puts(out, "\n]}\n");
		next_section(pos);
		return true;
	default:
		return false;
	}
}

/* ---- what is wrong ---- */

const char *ck_dump_severity(unsigned severity)
{
	static const char *const names[] = {
		[CK_NOTE] = "note",
		[CK_WARNING] = "warning",
		[CK_ERROR] = "error",
	};

	return names[severity];
}

static void put_optional(struct ck_str *out, const char *key,
			 const struct ck_catalog *img, uint32_t ref)
{
	if (ref == CK_NONE)
		return;
	ck_str_puts(out, ", ");
	put_key(out, key, img, ref);
}

static void put_problem(struct ck_str *out, const struct ck_catalog *img,
			const struct ck_problem *p)
{
	ck_str_fmt(out, "{\"severity\": \"%s\"", ck_dump_severity(p->severity));
	put_optional(out, "tensor", img, p->tensor);
	put_optional(out, "view", img, p->view);
	put_optional(out, "file", img, p->file);
	if (p->off || p->len)
		ck_str_fmt(out,
			   ", \"offset\": %" PRIu64 ", \"nbytes\": %" PRIu64,
			   p->off, p->len);
	put_optional(out, "reason", img, p->reason);
	ck_str_puts(out, "}");
}

static bool next_problem(const struct ck_catalog *img, struct ck_dump_pos *pos,
			 struct ck_str *out)
{
	if (pos->section)
		return false;
	ck_str_puts(out, pos->item ? "" : "[");
	if (pos->item < img->nr_problems) {
		ck_str_puts(out, pos->item ? ",\n" : "\n");
		put_problem(out, img, &img->problems[pos->item++]);
		return true;
	}
	ck_str_puts(out, "\n]\n");
	pos->section = 1;
	return true;
}

/* One line stays one line, whatever the names in it are. */
static void put_plain(struct ck_str *out, const struct ck_catalog *img,
		      uint32_t ref)
{
	size_t len;
	const char *s = ck_catalog_str(img, ref, &len);

	ck_str_plain(out, s, len);
}

static void put_named(struct ck_str *out, const char *what,
		      const struct ck_catalog *img, uint32_t ref)
{
	if (ref == CK_NONE)
		return;
	ck_str_fmt(out, "%s ", what);
	put_plain(out, img, ref);
	ck_str_puts(out, ": ");
}

static bool next_line(const struct ck_catalog *img, struct ck_dump_pos *pos,
		      struct ck_str *out)
{
	const struct ck_problem *p = &img->problems[pos->item];

	if (pos->item >= img->nr_problems)
		return false;
	ck_str_fmt(out, "%s: ", ck_dump_severity(p->severity));
	put_named(out, "tensor", img, p->tensor);
	put_named(out, "view", img, p->view);
	put_named(out, "file", img, p->file);
	if (p->off || p->len)
		ck_str_fmt(out, "bytes [%" PRIu64 ", %" PRIu64 "): ", p->off,
			   p->off + p->len);
	put_plain(out, img, p->reason);
	ck_str_puts(out, "\n");
	pos->item++;
	return true;
}

bool ck_dump_next(const struct ck_catalog *img, enum ck_dump_doc doc,
		  uint64_t gen, struct ck_dump_pos *pos, struct ck_str *out)
{
	switch (doc) {
	case CK_DUMP_CATALOG:
		return next_catalog(img, NULL, true, gen, pos, out);
	case CK_DUMP_LIST:
		return next_catalog(img, NULL, false, gen, pos, out);
	case CK_DUMP_PROBLEMS:
		return next_problem(img, pos, out);
	case CK_DUMP_PROBLEMS_TEXT:
		return next_line(img, pos, out);
	}
	return false;
}

bool ck_dump_next_resolved(const struct ck_catalog *img,
			   const struct ck_resolved *resolved, uint64_t gen,
			   struct ck_dump_pos *pos, struct ck_str *out)
{
	return next_catalog(img, resolved, true, gen, pos, out);
}
