/* SPDX-License-Identifier: Apache-2.0 */
/* rank_file.c - the own bytes of a rank's file, and what lies between them */
#include "core/view/reshard/rank_file.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/search.h"
#include "core/emit/st_out.h"
#include "core/geom/dtype.h"
#include "core/emit/ckpt_records.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ck_rank_file_free(struct ck_rank_file *f)
{
	free(f->pieces.v);
	*f = (struct ck_rank_file){ 0 };
}

const char *ck_rank_suffix(enum ck_rank_form form)
{
	return form == CK_RANK_CKPT ? ".ckpt" : ".safetensors";
}

static int too_large(struct ck_err *err)
{
	return ck_no_memory(err);
}

/* @own_len more own bytes, then @len of @tensor. */
static int add_piece(struct ck_rank_file *f, const struct ck_rank_piece *in,
		     uint64_t len, struct ck_err *err)
{
	struct ck_rank_piece *p = ck_vec_push(&f->pieces);

	if (!p)
		return too_large(err);
	*p = *in;
	p->off = f->size;
	return ck_add_ok(f->size, len, &f->size) &&
			       ck_add_ok(f->size, p->own_len, &f->size) ?
		       0 :
		       too_large(err);
}

static uint64_t bytes_of(const struct ck_catalog *img, uint32_t tensor,
			 const struct ck_reshard_part *part)
{
	return ck_box_volume(&part->shard.box) *
	       ck_dtype_info(img->tensors[tensor].dtype)->size;
}

/* ---- safetensors ---- */

static int take_part(struct ck_rank_file *f, struct ck_str *json,
		     const struct ck_catalog *img,
		     const struct ck_merged_tensor *m, struct ck_err *err)
{
	const struct ck_tensor *t = &img->tensors[m->tensor];
	struct ck_rank_piece piece = { .tensor = m->tensor };
	struct ck_reshard_part part;
	uint64_t bytes;

	if (!ck_reshard_part(f->rs, f->rank, m->tensor, &part))
		return 0;
	bytes = bytes_of(img, m->tensor, &part);
	ck_st_out_entry(json, m->name, m->name_len, t->dtype,
			part.shard.box.len, t->rank, f->size, bytes);
	return bytes ? add_piece(f, &piece, bytes, err) : 0;
}

static int make_header(struct ck_rank_file *f, struct ck_str *json,
		       const struct ck_merged_in *in, struct ck_err *err)
{
	uint64_t whole = CK_ST_OUT_ALL;
	int ret = 0;

	ck_st_out_begin(json, in->metadata, in->metadata_len);
	for (uint32_t i = 0; i < in->nr && !ret; i++) {
		if (whole == CK_ST_OUT_ALL &&
		    ck_merged_is_lost(in->img, in->v[i].tensor))
			whole = f->size;
		ret = take_part(f, json, in->img, &in->v[i], err);
	}
	ck_st_out_end(json, whole);
	return ret;
}

/* Puts the header before the first piece. */
static int put_header(struct ck_rank_file *f, const struct ck_str *json,
		      struct ck_str *own, struct ck_err *err)
{
	uint64_t len = htole64(json->len), own_len = json->len + sizeof(len);
	struct ck_rank_piece *p;

	ck_str_add(own, &len, sizeof(len));
	ck_str_add(own, json->v, json->len);
	if (!ck_vec_reserve(&f->pieces, 1) ||
	    !ck_add_ok(f->size, own_len, &f->size))
		return too_large(err);
	p = f->pieces.v;
	for (size_t i = 0; i < f->pieces.nr; i++)
		p[i].off += own_len;
	memmove(p + 1, p, f->pieces.nr++ * sizeof(*p));
	*p = (struct ck_rank_piece){ .own_len = (uint32_t)own_len,
				     .tensor = CK_NONE };
	return 0;
}

static int make_safetensors(struct ck_rank_file *f, struct ck_str *own,
			    const struct ck_merged_in *in, struct ck_err *err)
{
	ck_auto_str struct ck_str json = { 0 };
	int ret = make_header(f, &json, in, err);

	if (!ret && json.failed)
		ret = ck_no_memory(err);
	if (!ret && json.len > CK_MAX_HEADER)
		ret = ck_fail(err, E2BIG,
			      "rank %" PRIu32 ": the header would have %zu "
			      "bytes, the format allows %" PRIu64,
			      f->rank, json.len, CK_MAX_HEADER);
	return ret ? ret : put_header(f, &json, own, err);
}

/* ---- .ckpt ---- */

static int take_records(struct ck_rank_file *f, struct ck_str *own,
			const struct ck_catalog *img,
			const struct ck_merged_tensor *m, struct ck_err *err)
{
	const struct ck_tensor *t = &img->tensors[m->tensor];
	struct ck_rank_piece piece = { .tensor = m->tensor };
	struct ck_reshard_part part;
	uint64_t bytes, len;
	int ret = 0;

	if (!ck_reshard_part(f->rs, f->rank, m->tensor, &part))
		return 0;
	/* a part without elements is none there: MindSpore writes none */
	bytes = bytes_of(img, m->tensor, &part);
	for (uint64_t at = 0; at < bytes && !ret; at += len) {
		len = CK_MIN(bytes - at, CK_CKPT_RECORD_MAX);
		piece.own_at = (uint32_t)own->len;
		ck_ckpt_records_add(own, m->name, m->name_len, t->dtype,
				    part.shard.box.len, t->rank, len);
		if (own->failed || own->len > UINT32_MAX)
			return too_large(err);
		piece.own_len = (uint32_t)own->len - piece.own_at;
		ret = add_piece(f, &piece, len, err);
		piece.slice++;
	}
	return ret;
}

static int make_ckpt(struct ck_rank_file *f, struct ck_str *own,
		     const struct ck_merged_in *in, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < in->nr && !ret; i++) {
		ret = take_records(f, own, in->img, &in->v[i], err);
		if (f->pieces.nr > in->nr + CK_CKPT_RECORDS_MAX)
			ret = too_large(err);
	}
	return ret;
}

int ck_rank_file_make(struct ck_rank_file *out, struct ck_str *own,
		      enum ck_rank_form form, const struct ck_reshard *rs,
		      uint32_t rank, const struct ck_merged_in *in,
		      struct ck_err *err)
{
	int ret;

	*out = (struct ck_rank_file){ .rs = rs, .rank = rank };
	ret = form == CK_RANK_CKPT ? make_ckpt(out, own, in, err) :
				     make_safetensors(out, own, in, err);
	if (!ret && own->failed)
		ret = too_large(err);
	if (ret)
		ck_rank_file_free(out);
	return ret;
}

/* ---- reading ---- */

static const struct ck_rank_piece *piece_at(const struct ck_rank_file *f,
					    uint64_t off)
{
	return &f->pieces.v[CK_LAST(i, 0, f->pieces.nr,
				    f->pieces.v[i].off <= off)];
}

/* Elements and bytes: what of @tensor's part is @off bytes from its beginning. */
static void part_at(uint32_t tensor, const struct ck_catalog *img,
		    const struct ck_shard *shard, uint64_t off,
		    struct ck_span *out)
{
	const struct ck_tensor *t = &img->tensors[tensor];
	uint64_t elem = ck_dtype_info(t->dtype)->size, skip, first;

	ck_shard_at(shard, off / elem, &out->box, &skip);
	out->ref = tensor;
	out->off = skip * elem + off % elem;
	out->len = ck_box_volume(&out->box) * elem - out->off;
	out->kind = CK_SPAN_BOX;
	if (ck_box_is_stretch(&out->box, img->dims + t->shape, &first)) {
		out->kind = CK_SPAN_TENSOR;
		out->off += first * elem;
	}
}

void ck_rank_file_at(const struct ck_rank_file *f, const struct ck_catalog *img,
		     uint64_t off, struct ck_span *out)
{
	const struct ck_rank_piece *p = piece_at(f, off);
	const struct ck_rank_piece *end = f->pieces.v + f->pieces.nr;
	uint64_t in = off - p->off;
	uint64_t left = (p + 1 < end ? p[1].off : f->size) - off;
	struct ck_reshard_part part;

	out->ref = CK_NONE;
	if (in < p->own_len) {
		out->kind = CK_SPAN_MADE;
		out->off = p->own_at + in;
		out->len = p->own_len - in;
		return;
	}
	in += p->slice * CK_CKPT_RECORD_MAX - p->own_len;
	if (!ck_reshard_part(f->rs, f->rank, p->tensor, &part)) {
		out->len =
			0; /* cannot be: it was there when the file was made */
		return;
	}
	out->kind = CK_SPAN_ZEROS;
	out->off = in;
	out->len = left;
	if (!part.zeros)
		part_at(p->tensor, img, &part.shard, in, out);
	out->len = CK_MIN(out->len, left);
}
