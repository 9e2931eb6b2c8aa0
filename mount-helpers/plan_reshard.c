/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_reshard.c - one read for each pair of a new shard and a stored chunk
 * that meet, as loaders of torch_xla and DTensor count them
 *
 * Tensors that the mesh does not cut are read once.  Chunks are found through
 * each tensor's search tree, so that the work grows with the pairs that meet.
 * Streamed.
 */
#include "mount-helpers/plan_reshard.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/vec.h"
#include "core/geom/dtype.h"
#include "core/geom/tiling.h"
#include "core/reshard/reshard.h"
#include "core/view/extras.h"
#include "mount-helpers/health.h"
#include "mount-helpers/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct plan {
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	struct ck_reshard *rs;
	bool json, ok;
	uint64_t reads, shards;
	struct ck_str out;
	struct ck_str list; /* JSON: the shards, printed after the reads */
};

/* A shard that is being planned. */
struct dest {
	uint32_t tensor, rank;
	const struct ck_tensor *t;
	uint64_t elem;
	bool uncut;
	struct ck_reshard_part part;
	uint64_t at[CK_MAX_RANK];
};

static void flush(struct plan *p)
{
	p->ok = p->ok && text_flush(&p->out);
}

static void json_ref(struct ck_str *s, const struct ck_catalog *img,
		     uint32_t ref)
{
	size_t len;
	const char *text = ck_catalog_str(img, ref, &len);

	ck_str_json(s, text, len);
}

static void json_dims(struct ck_str *s, const char *key, const uint64_t *v,
		      unsigned nr)
{
	ck_str_fmt(s, ", \"%s\": ", key);
	ck_str_json_u64(s, v, nr);
}

static void json_file(struct plan *p, uint32_t src)
{
	uint32_t file = ck_catalog_file_of(p->img, src);

	ck_str_puts(&p->out, ", \"file\": ");
	if (file == CK_NONE)
		ck_str_puts(&p->out, "null");
	else
		json_ref(&p->out, p->img, file);
	ck_str_puts(&p->out, "}");
}

static void json_begin(struct plan *p, const struct dest *d)
{
	ck_str_puts(&p->out, p->reads ? ",\n  {\"fqn\": " : "\n  {\"fqn\": ");
	json_ref(&p->out, p->img, d->t->name);
	ck_str_fmt(&p->out, ", \"type\": \"TENSOR\", \"dest_shard\": %" PRIu32,
		   d->rank);
	json_dims(&p->out, "dest_shard_at", d->at, d->t->rank);
}

/* A box of the shape and a chunk of it. */
static void report_box(struct plan *p, const struct dest *d,
		       const struct ck_box *meet, const uint64_t *to,
		       const struct ck_chunk *c, const uint64_t *corner)
{
	uint64_t from[CK_MAX_RANK], bytes = ck_box_volume(meet) * d->elem;
	unsigned rank = d->t->rank;

	for (unsigned i = 0; i < rank; i++)
		from[i] = meet->start[i] - corner[i];
	if (p->json) {
		json_begin(p, d);
		json_dims(&p->out, "dest_offsets", to, rank);
		json_dims(&p->out, "chunk_at", corner, rank);
		json_dims(&p->out, "storage_offsets", from, rank);
		json_dims(&p->out, "lengths", meet->len, rank);
		ck_str_fmt(&p->out, ", \"nbytes\": %" PRIu64, bytes);
		json_file(p, c->src);
	} else {
		ck_str_puts(&p->out, "  ");
		text_box(&p->out, to, meet->len, rank);
		ck_str_fmt(&p->out, "  %" PRIu64 " bytes of the chunk at ",
			   bytes);
		text_dims(&p->out, corner, rank);
		ck_str_puts(&p->out, " in ");
		text_ref(&p->out, p->img, ck_catalog_file_of(p->img, c->src));
		ck_str_puts(&p->out, "\n");
	}
	p->reads++;
	flush(p);
}

static void plan_boxes(struct plan *p, const struct dest *d,
		       const struct ck_box *want, const uint64_t *in_shard)
{
	struct ck_tiling walk;
	uint32_t i;

	ck_tiling_init(&walk, p->img, d->t, want);
	while (p->ok && (i = ck_tiling_next(&walk)) != CK_NONE) {
		const struct ck_chunk *c = &p->img->chunks[i];
		uint64_t to[CK_MAX_RANK];
		struct ck_box cell, meet;

		ck_chunk_box(p->img, d->t->grid_rank, c, &cell);
		if (!ck_box_meet(&cell, want, &meet))
			continue;
		for (unsigned k = 0; k < d->t->rank; k++)
			to[k] = meet.start[k] - want->start[k] + in_shard[k];
		report_box(p, d, &meet, to, c, cell.start);
	}
}

struct share {
	uint32_t chunk;
	uint64_t bytes;
};

static int by_chunk(const void *a, const void *b)
{
	uint32_t ca = ((const struct share *)a)->chunk;
	uint32_t cb = ((const struct share *)b)->chunk;

	return (ca > cb) - (ca < cb);
}

/* Chunks that are no boxes of the shape: how much of each. */
static void report_share(struct plan *p, const struct dest *d,
			 const struct share *s)
{
	const struct ck_chunk *c = &p->img->chunks[s->chunk];

	if (p->json) {
		json_begin(p, d);
		json_dims(&p->out, "grid", p->img->dims + d->t->grid,
			  d->t->grid_rank);
		json_dims(&p->out, "chunk_at", p->img->dims + c->corner,
			  d->t->grid_rank);
		ck_str_fmt(&p->out, ", \"nbytes\": %" PRIu64, s->bytes);
		json_file(p, c->src);
	} else {
		ck_str_fmt(&p->out, "  %" PRIu64 " bytes of a chunk in ",
			   s->bytes);
		text_ref(&p->out, p->img, ck_catalog_file_of(p->img, c->src));
		ck_str_puts(&p->out, "\n");
	}
	p->reads++;
	flush(p);
}

static void plan_shares(struct plan *p, const struct dest *d,
			const struct ck_box *want)
{
	CK_VEC(struct share) v = { 0 };
	struct ck_cursor cur;
	struct ck_seg seg;

	ck_cursor_init_box(&cur, p->img, ck_ckpt_resolved(p->ck), d->t, want);
	while (p->ok && ck_cursor_next(&cur, &seg)) {
		struct share *s = v.nr ? &v.v[v.nr - 1] : NULL;

		if (s && s->chunk == seg.chunk) {
			s->bytes += seg.nbytes;
			continue;
		}
		s = ck_vec_push(&v);
		p->ok = s;
		if (s)
			*s = (struct share){ seg.chunk, seg.nbytes };
	}
	if (v.nr)
		qsort(v.v, v.nr, sizeof(*v.v), by_chunk);
	for (size_t i = 0, k; i < v.nr && p->ok; i = k) {
		for (k = i + 1; k < v.nr && v.v[k].chunk == v.v[i].chunk; k++)
			v.v[i].bytes += v.v[k].bytes;
		report_share(p, d, &v.v[i]);
	}
	free(v.v);
}

/* Whether cells are boxes of the shape. */
static bool plain(const struct ck_catalog *img, const struct ck_tensor *t)
{
	if (t->rank != t->grid_rank)
		return false;
	for (uint32_t i = 0; i < t->nr; i++)
		if (img->layouts[img->chunks[t->first + i].layout].flags &
		    CK_LAYOUT_FLAT)
			return false;
	return true;
}

/* An axis in pieces. */
static void json_cut(struct ck_str *o, const struct ck_shard_cut *c)
{
	ck_str_fmt(o, "\"dim\": %u, \"runs\": [", c->dim);
	for (unsigned i = 0; i < c->nr; i++)
		ck_str_fmt(o, "%s[%" PRIu64 ", %" PRIu64 "]", i ? ", " : "",
			   c->run[i].start, c->run[i].start + c->run[i].len);
	ck_str_puts(o, "]");
}

static void json_cuts(struct ck_str *o, const struct ck_shard *s)
{
	if (s->nr == 1) {
		ck_str_puts(o, ", ");
		json_cut(o, &s->cut[0]);
	}
	for (unsigned k = 0; s->nr > 1 && k < s->nr; k++) {
		ck_str_puts(o, k ? "}, {" : ", \"pieces\": [{");
		json_cut(o, &s->cut[k]);
	}
	ck_str_puts(o, s->nr > 1 ? "}]" : "");
}

static void report_shard(struct plan *p, const struct dest *d)
{
	const struct ck_shard *s = &d->part.shard;
	uint64_t bytes = ck_box_volume(&s->box) * d->elem;
	struct ck_str *o = p->json ? &p->list : &p->out;

	if (!p->json) {
		text_ref(o, p->img, d->t->name);
		ck_str_fmt(o, "  rank %" PRIu32 "  at ", d->rank);
		text_dims(o, d->at, d->t->rank);
		ck_str_puts(o, " size ");
		text_dims(o, s->box.len, d->t->rank);
		ck_str_puts(o, d->uncut ? "  uncut\n" : "\n");
		p->shards++;
		return;
	}
	ck_str_puts(o, p->shards++ ? ",\n  {\"fqn\": " : "\n  {\"fqn\": ");
	json_ref(o, p->img, d->t->name);
	ck_str_puts(o, ", \"shard\": ");
	ck_str_fmt(o, d->uncut ? "null" : "%" PRIu32, d->rank);
	json_dims(o, "at", d->at, d->t->rank);
	json_dims(o, "size", s->box.len, d->t->rank);
	ck_str_fmt(o, ", \"nbytes\": %" PRIu64, bytes);
	json_cuts(o, s);
	if (d->part.zeros)
		ck_str_puts(o, ", \"zeros\": true");
	ck_str_puts(o, "}");
}

static void plan_shard(struct plan *p, struct dest *d, bool boxes)
{
	const struct ck_shard *s = &d->part.shard;
	uint64_t to[CK_MAX_RANK];
	struct ck_box box;

	memcpy(d->at, s->box.start, d->t->rank * sizeof(d->at[0]));
	report_shard(p, d);
	if (d->part.zeros)
		return;
	for (unsigned i = 0; i < ck_shard_pieces(s) && p->ok; i++) {
		ck_shard_piece(s, i, &box, to);
		if (ck_box_volume(&box) && boxes)
			plan_boxes(p, d, &box, to);
		else if (ck_box_volume(&box))
			plan_shares(p, d, &box);
	}
}

static void plan_tensor(struct plan *p, uint32_t tensor)
{
	struct dest d = { .tensor = tensor, .t = &p->img->tensors[tensor] };
	uint32_t end = ck_reshard_ranks(p->rs);
	bool boxes = plain(p->img, d.t);

	d.elem = ck_dtype_info(d.t->dtype)->size;
	d.uncut = ck_reshard_uncut(p->rs, tensor);
	if (d.uncut)
		d.rank = ck_reshard_first(p->rs, tensor);
	for (; d.rank < end && p->ok; d.rank++) {
		if (ck_reshard_part(p->rs, d.rank, tensor, &d.part))
			plan_shard(p, &d, boxes);
		if (d.uncut)
			break;
	}
}

static int print(struct plan *p, const struct cmd *c, uint32_t nr)
{
	int ret;

	p->ok = true;
	if (p->json)
		ck_str_puts(&p->out, "{\"reads\": [");
	for (int cut = 0; cut < 2; cut++)
		for (uint32_t t = 0; t < nr && p->ok; t++)
			if (ck_reshard_uncut(p->rs, t) == !cut)
				plan_tensor(p, t);
	if (p->json) {
		ck_str_puts(&p->out, "\n], \"shards\": [");
		flush(p);
		p->ok = p->ok && text_flush(&p->list);
		ck_str_puts(&p->out, "\n]}\n");
	} else {
		text_count(&p->out, p->reads, "read");
		ck_str_puts(&p->out, " for ");
		text_count(&p->out, p->shards, "shard");
		ck_str_puts(&p->out, " of ");
		text_count(&p->out, ck_reshard_ranks(p->rs), "rank");
		ck_str_puts(&p->out, "\n");
	}
	flush(p);
	ret = cmd_flush(c);
	return ret || p->ok ? ret : cmd_fail(c, CMD_SYSTEM, "no memory");
}

#define ALL_WHOLE ": every rank has all of every tensor"

static uint32_t nr_of_model(const struct ck_catalog *img)
{
	uint32_t nr = 0;

	while (nr < img->nr_tensors && !img->tensors[nr].tree)
		nr++;
	return nr;
}

void plan_reshard_unused(const struct cmd *c, const char *path,
			 const struct ck_catalog *img,
			 const struct ck_opts *opts)
{
	struct ck_reshard_in in = { .img = img, .nr = nr_of_model(img) };

	for (size_t i = 0; (in.name = ck_opts_nth(opts, "reshard", i)); i++) {
		ck_auto_str struct ck_str note = { 0 };
		struct ck_reshard *r = NULL;
		struct ck_err err;
		bool of_spec;

		in.bytes = ck_opts_bytes(opts, "reshard", i, &in.len);
		/* what fails is a note of the view's, when it is looked at */
		if (!in.nr || !in.bytes ||
		    ck_reshard_new(&r, &in, &of_spec, &err))
			continue;
		ck_reshard_note(r, in.name, &note);
		if (ck_reshard_unused_options(r) && note.v)
			cmd_fail(c, CMD_OK,
				 "%s: warning: -o reshard=%s" ALL_WHOLE, path,
				 note.v);
		ck_reshard_free(r);
	}
}

int plan_reshard(const struct cmd *c, const char *path, struct ck_ckpt *ck,
		 const struct ck_opts *mesh, const struct ck_opts *opts)
{
	struct plan p = { .ck = ck,
			  .img = ck_ckpt_catalog(ck),
			  .json = ck_opts_get(opts, "json") };
	struct ck_reshard_in in = { .img = p.img,
				    .name = ck_opts_get(mesh, "reshard"),
				    .opts = opts };
	ck_auto_str struct ck_str note = { 0 };
	ck_auto_json json_t *config = NULL;
	struct ck_err err;
	bool of_spec;
	int ret;

	in.bytes = ck_opts_bytes(mesh, "reshard", 0, &in.len);
	in.nr = nr_of_model(p.img);
	if (ck_model_config(&config, ck_ckpt_root(ck), opts, &err))
		return cmd_err(c, &err);
	in.config = config;
	if (ck_reshard_new(&p.rs, &in, &of_spec, &err))
		return of_spec ? cmd_fail(c, CMD_USAGE, "%s", err.msg) :
				 cmd_err(c, &err);
	ck_reshard_note(p.rs, in.name, &note);
	if (note.v)
		cmd_fail(c, 0, "%s: %s%s",
			 ck_reshard_unused_options(p.rs) ? "warning" : "note",
			 note.v,
			 ck_reshard_unused_options(p.rs) ? ALL_WHOLE : "");
	ret = print(&p, c, in.nr);
	if (!ret) /* what is planned may be torn, and what was refused is not */
		ret = health_report(c, path, p.img, 0);
	ck_str_free(&p.out);
	ck_str_free(&p.list);
	ck_reshard_free(p.rs);
	return ret;
}
