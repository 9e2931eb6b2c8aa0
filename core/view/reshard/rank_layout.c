/* SPDX-License-Identifier: Apache-2.0 */
/* rank_layout.c - tensors with a box for each part; see the header */
#include "core/view/reshard/rank_layout.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Names are templates, in which braces are doubled. */
static void add_template(struct ck_str *out, const char *name, size_t len)
{
	ck_auto_str struct ck_str s = { 0 };

	for (size_t i = 0; i < len; i++) {
		ck_str_add(&s, name + i, 1);
		if (name[i] == '{' || name[i] == '}')
			ck_str_add(&s, name + i, 1);
	}
	ck_str_json(out, s.v ? s.v : "", s.len);
	out->failed = out->failed || s.failed;
}

/* The rank files, each as far as the tensors before this one. */
struct ranks {
	enum ck_rank_form form;
	bool raw; /* parts are named by where they are, not by key */
	uint32_t nr;
	uint32_t boxes; /* written down so far */
	struct ck_rank_file *file; /* raw: the piece that comes next is at */
	size_t *at;
};

/* One box of a tensor: where it is in which file. */
struct place {
	uint32_t rank;
	bool whole; /* the key's elements are the box */
	uint64_t skip; /* elements of the key that come before */
	uint64_t off; /* raw: bytes of the file */
	uint64_t lo, hi; /* elements of the box that are there */
};

static void add_box(struct ck_str *out, const struct ranks *r, bool first,
		    const struct ck_merged_tensor *m, const struct ck_box *box,
		    const struct place *at)
{
	ck_str_fmt(out, "%s\n   {\"file\": \"rank-%05" PRIu32 "%s\", ",
		   first ? "" : ",", at->rank, ck_rank_suffix(r->form));
	if (r->raw) {
		ck_str_fmt(out, "\"offset\": %" PRIu64, at->off);
	} else {
		ck_str_puts(out, "\"kind\": \"safetensors\", \"key\": ");
		ck_str_json(out, m->name, m->name_len);
	}
	ck_str_puts(out, ", \"start\": ");
	ck_str_json_u64(out, box->start, box->rank);
	ck_str_puts(out, ", \"size\": ");
	ck_str_json_u64(out, box->len, box->rank);
	/* elements of the key, whose own shape is that of all pieces */
	if (!r->raw && !at->whole)
		ck_str_fmt(out, ", \"skip\": %" PRIu64, at->skip);
	if (!at->whole)
		ck_str_fmt(out, ", \"flat\": [%" PRIu64 ", %" PRIu64 "]",
			   at->lo, at->hi);
	ck_str_puts(out, "}");
}

/*
 * Where the bytes of the rank's part begin that come next.  A part that is
 * several records of a .ckpt is several boxes: *bytes of it are in this one.
 */
static uint64_t next_record(struct ranks *r, uint32_t rank, uint64_t *bytes)
{
	const struct ck_rank_file *f = &r->file[rank];
	const struct ck_rank_piece *p = &f->pieces.v[r->at[rank]++];
	uint64_t begin = p->off + p->own_len;

	*bytes = (r->at[rank] < f->pieces.nr ? p[1].off : f->size) - begin;
	return begin;
}

static void skip_part(struct ranks *r, uint32_t rank, const struct ck_shard *s,
		      uint64_t elem)
{
	uint64_t left = ck_box_volume(&s->box) * elem, bytes;

	for (; r->raw && left; left -= bytes)
		next_record(r, rank, &bytes);
}

static void add_records(struct ck_str *out, struct ranks *r, bool *any,
			uint32_t rank, const struct ck_merged_tensor *m,
			const struct ck_shard *s, uint64_t elem)
{
	uint64_t volume = ck_box_volume(&s->box), done = 0;

	while (done < volume) {
		struct place p = { .rank = rank, .whole = !s->nr };
		uint64_t bytes, end, n;
		struct ck_box box;

		p.off = next_record(r, rank, &bytes);
		end = done + bytes / elem;
		p.whole = p.whole && !done && end == volume;
		for (; done < end; done += n, p.off += n * elem) {
			ck_shard_at(s, done, &box, &p.lo);
			n = CK_MIN(end - done, ck_box_volume(&box) - p.lo);
			p.hi = p.lo + n;
			add_box(out, r, !*any, m, &box, &p);
			*any = true;
		}
	}
}

/* Pieces whose rows lie in turns in the file: boxes with strides. */
static bool add_strided(struct ck_str *out, struct ranks *r, bool *any,
			uint32_t rank, const struct ck_shard *s, uint64_t elem)
{
	uint64_t stride[CK_MAX_RANK], n = 1, off, bytes;
	uint64_t to[CK_MAX_RANK];
	struct ck_box box;

	for (unsigned d = s->box.rank; d-- > 0; n *= s->box.len[d])
		stride[d] = n;
	if (!n)
		return true;
	if (!r->raw)
		return false;
	off = next_record(r, rank, &bytes);
	if (bytes != n * elem)
		return false;
	for (unsigned i = 0; i < ck_shard_pieces(s); i++) {
		uint64_t at = off;

		ck_shard_piece(s, i, &box, to);
		for (unsigned d = 0; d < box.rank; d++)
			at += to[d] * stride[d] * elem;
		ck_str_fmt(out,
			   "%s\n   {\"file\": \"rank-%05" PRIu32
			   "%s\", \"offset\": %" PRIu64 ", \"stride\": ",
			   *any ? "," : "", rank, ck_rank_suffix(r->form), at);
		ck_str_json_u64(out, stride, box.rank);
		ck_str_puts(out, ", \"start\": ");
		ck_str_json_u64(out, box.start, box.rank);
		ck_str_puts(out, ", \"size\": ");
		ck_str_json_u64(out, box.len, box.rank);
		ck_str_puts(out, "}");
		*any = true;
	}
	return true;
}

/* False: only raw parts can be so, and not if they are in several records. */
static bool add_part(struct ck_str *out, struct ranks *r, bool *any,
		     uint32_t rank, const struct ck_merged_tensor *m,
		     const struct ck_shard *s, uint64_t elem)
{
	struct place p = { .rank = rank, .whole = !s->nr };
	uint64_t volume = ck_box_volume(&s->box);
	struct ck_box box;

	for (unsigned d = 0; s->nr && d < s->cut[s->nr - 1].dim; d++)
		if (s->box.len[d] != 1)
			return add_strided(out, r, any, rank, s, elem);
	if (r->raw) {
		add_records(out, r, any, rank, m, s, elem);
		return true;
	}
	for (; p.skip < volume; p.skip += p.hi) {
		uint64_t in_box;

		ck_shard_at(s, p.skip, &box, &in_box);
		p.hi = ck_box_volume(&box);
		add_box(out, r, !*any, m, &box, &p);
		*any = true;
	}
	return true;
}

static bool add_tensor(struct ck_str *out, struct ranks *r,
		       const struct ck_reshard *rs,
		       const struct ck_catalog *img,
		       const struct ck_merged_tensor *m)
{
	const struct ck_tensor *t = &img->tensors[m->tensor];
	const struct ck_dtype_info *info = ck_dtype_info(t->dtype);
	struct ck_reshard_part part;
	bool any = false;

	ck_str_puts(out, "  {\"name\": ");
	add_template(out, m->name, m->name_len);
	ck_str_fmt(out, ", \"dtype\": \"%s\", \"shape\": ", info->name);
	ck_str_json_u64(out, img->dims + t->shape, t->rank);
	ck_str_puts(out, ", \"boxes\": [");
	for (uint32_t i = 0; i < r->nr; i++) {
		if (!ck_reshard_part(rs, i, m->tensor, &part))
			continue;
		r->boxes += ck_shard_pieces(&part.shard);
		if (r->boxes > CK_RANK_LAYOUT_PARTS)
			return false;
		if (part.zeros) { /* in the file, and no part of anything */
			skip_part(r, i, &part.shard, info->size);
			continue;
		}
		if (!add_part(out, r, &any, i, m, &part.shard, info->size))
			return false;
	}
	ck_str_puts(out, "]}");
	return true;
}

static int make_files(struct ranks *r, const struct ck_reshard *rs,
		      const struct ck_merged_in *in, struct ck_err *err)
{
	int ret = 0;

	if (!r->raw)
		return 0;
	r->file = calloc(r->nr, sizeof(*r->file));
	r->at = calloc(r->nr, sizeof(*r->at));
	if (!r->file || !r->at)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < r->nr && !ret; i++) {
		ck_auto_str struct ck_str own = { 0 };

		ret = ck_rank_file_make(&r->file[i], &own, r->form, rs, i, in,
					err);
		/* the header of a .safetensors is a piece by itself */
		r->at[i] = r->form == CK_RANK_SAFETENSORS;
	}
	return ret;
}

static void free_files(struct ranks *r)
{
	for (uint32_t i = 0; r->file && i < r->nr; i++)
		ck_rank_file_free(&r->file[i]);
	free(r->file);
	free(r->at);
}

static int add_tensors(struct ck_str *out, struct ranks *r,
		       const struct ck_reshard *rs,
		       const struct ck_merged_in *in, struct ck_err *err)
{
	ck_str_puts(out, "{\"unshard_layout\": 1, \"tensors\": [\n");
	for (uint32_t i = 0; i < in->nr && !out->failed; i++) {
		if (!in->v[i].name_len) /* no layout may have such a name */
			return -ENOENT;
		ck_str_puts(out, i ? ",\n" : "");
		if (!add_tensor(out, r, rs, in->img, &in->v[i]))
			return -ENOENT;
	}
	ck_str_puts(out, "\n]}\n");
	return out->failed ? ck_no_memory(err) : 0;
}

static int make(struct ck_str *out, struct ranks *r,
		const struct ck_reshard *rs, const struct ck_merged_in *in,
		struct ck_err *err)
{
	int ret = make_files(r, rs, in, err);

	if (!ret)
		ret = add_tensors(out, r, rs, in, err);
	free_files(r);
	return ret;
}

int ck_rank_layout_make(struct ck_str *out, enum ck_rank_form form,
			const struct ck_reshard *rs,
			const struct ck_merged_in *in, struct ck_err *err)
{
	struct ranks r = { .form = form,
			   .raw = form == CK_RANK_CKPT,
			   .nr = ck_reshard_ranks(rs) };
	int ret;

	if ((uint64_t)in->nr * r.nr > CK_RANK_LAYOUT_PARTS)
		return -ENOENT;
	ret = make(out, &r, rs, in, err);
	if (ret != -ENOENT || r.raw)
		return ret;
	ck_str_free(out);
	r.raw = true;
	r.boxes = 0;
	return make(out, &r, rs, in, err);
}
