/* SPDX-License-Identifier: Apache-2.0 */
/* rank_file.c - the header of a rank's file, and what lies behind it */
#include "core/view/rank_file.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/geom/dtype.h"

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

static int take_part(struct ck_rank_file *f, struct ck_str *json,
		     const struct ck_image *img,
		     const struct ck_merged_tensor *m, struct ck_err *err)
{
	const struct ck_tensor *t = &img->tensors[m->tensor];
	struct ck_reshard_part part;
	struct ck_rank_piece *p;
	uint64_t bytes;

	if (!ck_reshard_part(f->rs, f->rank, m->tensor, &part))
		return 0;
	bytes = ck_box_volume(&part.shard.box) * ck_dtype_info(t->dtype)->size;
	if (json->len > 1)
		ck_str_puts(json, ",");
	ck_merged_entry(json, m, t->dtype, part.shard.box.len, t->rank, f->size,
			bytes);
	if (!bytes)
		return 0;
	p = ck_vec_push(&f->pieces);
	if (!p || !ck_add_ok(f->size, bytes, &f->size))
		return ck_fail(err, ENOMEM, "no memory for a rank's file");
	p->off = f->size - bytes;
	p->tensor = m->tensor;
	return 0;
}

static int make_header(struct ck_rank_file *f, struct ck_str *json,
		       const struct ck_merged_in *in, struct ck_err *err)
{
	int ret = 0;

	ck_str_puts(json, "{");
	if (in->metadata) {
		ck_str_puts(json, "\"__metadata__\":");
		ck_str_add(json, in->metadata, in->metadata_len);
	}
	for (uint32_t i = 0; i < in->nr && !ret; i++)
		ret = take_part(f, json, in->img, &in->v[i], err);
	ck_str_puts(json, "}");
	while (json->len % 8 && !json->failed)
		ck_str_puts(json, " ");
	return ret;
}

int ck_rank_file_make(struct ck_rank_file *out, struct ck_str *header,
		      const struct ck_reshard *rs, uint32_t rank,
		      const struct ck_merged_in *in, struct ck_err *err)
{
	ck_auto_str struct ck_str json = { 0 };
	uint64_t begin, len;
	int ret;

	*out = (struct ck_rank_file){ .rs = rs, .rank = rank };
	ret = make_header(out, &json, in, err);
	if (!ret && json.failed)
		ret = ck_fail(err, ENOMEM, "no memory for a header");
	if (!ret && json.len > CK_MAX_HEADER)
		ret = ck_fail(err, E2BIG,
			      "rank %" PRIu32 ": the header would have %zu "
			      "bytes, the format allows %" PRIu64,
			      rank, json.len, CK_MAX_HEADER);
	if (ret) {
		ck_rank_file_free(out);
		return ret;
	}
	begin = json.len + sizeof(len);
	out->size += begin;
	for (size_t i = 0; i < out->pieces.nr; i++)
		out->pieces.v[i].off += begin;
	if (header) {
		len = htole64(json.len);
		ck_str_add(header, &len, sizeof(len));
		ck_str_add(header, json.v, json.len);
	}
	return 0;
}

/* The piece that @off is in; NULL: it is in the header. */
static const struct ck_rank_piece *piece_at(const struct ck_rank_file *f,
					    uint64_t off)
{
	size_t lo = 0, hi = f->pieces.nr;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->pieces.v[mid].off <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? &f->pieces.v[lo - 1] : NULL;
}

static uint64_t header_end(const struct ck_rank_file *f)
{
	return f->pieces.nr ? f->pieces.v[0].off : f->size;
}

/* Elements and bytes: what of @p's part is @off bytes from its beginning. */
static void part_at(const struct ck_rank_piece *p, const struct ck_image *img,
		    const struct ck_shard *shard, uint64_t off,
		    struct ck_span *out)
{
	const struct ck_tensor *t = &img->tensors[p->tensor];
	uint64_t elem = ck_dtype_info(t->dtype)->size, skip, first;

	ck_shard_at(shard, off / elem, &out->box, &skip);
	out->ref = p->tensor;
	out->off = skip * elem + off % elem;
	out->len = ck_box_volume(&out->box) * elem - out->off;
	out->kind = CK_SPAN_BOX;
	if (ck_box_is_stretch(&out->box, img->dims + t->shape, &first)) {
		out->kind = CK_SPAN_TENSOR;
		out->off += first * elem;
	}
}

void ck_rank_file_at(const struct ck_rank_file *f, const struct ck_image *img,
		     uint64_t off, struct ck_span *out)
{
	const struct ck_rank_piece *p = piece_at(f, off), *end;
	struct ck_reshard_part part;

	out->ref = CK_NONE;
	out->off = off;
	if (!p) {
		out->kind = CK_SPAN_MADE;
		out->len = header_end(f) - off;
		return;
	}
	if (!ck_reshard_part(f->rs, f->rank, p->tensor, &part)) {
		out->len =
			0; /* cannot be: it was there when the file was made */
		return;
	}
	end = f->pieces.v + f->pieces.nr;
	out->kind = CK_SPAN_ZEROS;
	out->len = (p + 1 < end ? p[1].off : f->size) - off;
	if (!part.zeros)
		part_at(p, img, &part.shard, off - p->off, out);
}
