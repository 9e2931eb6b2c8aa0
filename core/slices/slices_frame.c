/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_frame.c - what lies around the pieces in the files of a plan
 *
 * safetensors: a header that names all of them, and fillers where they are
 * apart.  DCP: each piece is the elements of a torch.save archive.
 */
#include "core/slices/slices_plan_priv.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/emit/st_out.h"
#include "core/emit/torch_blob.h"
#include "core/layout/write.h"
#include "core/geom/dtype.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void report_entry(struct ck_str *s, const char *name, uint8_t dtype,
			 const uint64_t *shape, unsigned rank, uint64_t from,
			 uint64_t len)
{
	ck_st_out_entry(s, name, strlen(name), dtype, shape, rank, from, len);
}

static void report_piece(const struct ck_slice_plan *p,
			 const struct ck_slice_plan_piece *x, uint64_t data,
			 struct ck_str *s)
{
	const struct ck_slice_plan_tensor *t = &p->tensors[x->tensor];
	const uint64_t *shape = p->dims + x->dims + 2 * (size_t)t->grid_rank;
	uint64_t flat = x->len / ck_dtype_info(t->dtype)->size;

	report_entry(s, ck_slice_plan_str(p, t->name), t->dtype,
		     x->flat ? &flat : shape, x->flat ? 1 : t->grid_rank,
		     x->off - data, x->len);
}

int ck_slice_plan_header(const struct ck_slice_plan *p, uint32_t f,
			 struct ck_str *out, struct ck_err *err)
{
	static const char metadata[] = "{\"format\":\"pt\"}";
	const struct ck_slice_plan_file *file = &p->files[f];
	uint64_t at = file->data, len;
	unsigned fillers = 0;
	char name[64];

	ck_str_add(out, "\0\0\0\0\0\0\0", CK_ST_OUT_LEN);
	ck_st_out_begin(out, metadata, sizeof(metadata) - 1);
	for (uint32_t i = 0; i < file->nr; i++) {
		const struct ck_slice_plan_piece *x =
			&p->pieces[file->first + i];

		/* the format allows no gaps */
		if (x->off > at) {
			uint64_t gap = x->off - at;

			snprintf(name, sizeof(name), CK_LAYOUT_FILLER "%u",
				 fillers++);
			report_entry(out, name, CK_DT_U8, &gap, 1,
				     at - file->data, gap);
		}
		report_piece(p, x, file->data, out);
		at = x->off + x->len;
	}
	ck_str_puts(out, "}");
	while (!out->failed && out->len < file->data)
		ck_str_puts(out, " ");
	if (out->failed)
		return ck_no_memory(err);
	if (out->len > CK_MAX_HEADER)
		return ck_fail(err, E2BIG,
			       "%s: its header would have %zu bytes, of at "
			       "most %" PRIu64,
			       ck_slice_plan_str(p, file->name), out->len,
			       CK_MAX_HEADER);
	len = htole64(out->len - 8);
	memcpy(out->v, &len, sizeof(len));
	return 0;
}

static int make_blob(const struct ck_slice_plan *p,
		     const struct ck_slice_plan_piece *x, uint32_t crc,
		     struct ck_torch_blob *out, struct ck_err *err)
{
	const struct ck_slice_plan_tensor *t = &p->tensors[x->tensor];
	const uint64_t *len = p->dims + x->dims + t->grid_rank;

	*out = (struct ck_torch_blob){ .crc = crc };
	if (ck_torch_blob_make(out, t->dtype, len, t->rank))
		return ck_no_memory(err);
	return 0;
}

int ck_slice_plan_blob(const struct ck_slice_plan *p,
		       const struct ck_slice_plan_piece *x,
		       struct ck_torch_blob *out, struct ck_err *err)
{
	return make_blob(p, x, 0, out, err);
}

int ck_slice_plan_frame_of(const struct ck_slice_plan *p, uint32_t piece,
			   uint32_t crc,
			   int (*put)(void *ctx, uint64_t off,
				      const void *bytes, size_t len,
				      struct ck_err *err),
			   void *ctx, struct ck_err *err)
{
	const struct ck_slice_plan_piece *x = &p->pieces[piece];
	struct ck_torch_blob b;
	int ret = make_blob(p, x, crc, &b, err);

	if (!ret && x->off < b.head.len)
		ret = ck_fail(err, EINVAL, "plan of slices: no room for %s",
			      ck_slice_plan_str(p, p->tensors[x->tensor].name));
	if (!ret)
		ret = put(ctx, x->off - b.head.len, b.head.v, b.head.len, err);
	if (!ret)
		ret = put(ctx, x->off + x->len, b.tail.v, b.tail.len, err);
	ck_torch_blob_free(&b);
	return ret;
}

int ck_slice_plan_frame(const struct ck_slice_plan *p, uint32_t f,
			const uint32_t *crc,
			int (*put)(void *ctx, uint64_t off, const void *bytes,
				   size_t len, struct ck_err *err),
			void *ctx, struct ck_err *err)
{
	const struct ck_slice_plan_file *file = &p->files[f];
	ck_auto_str struct ck_str head = { 0 };
	int ret = 0;

	if (!p->dcp) {
		ret = ck_slice_plan_header(p, f, &head, err);
		return ret ? ret : put(ctx, 0, head.v, head.len, err);
	}
	for (uint32_t i = file->first; i < file->first + file->nr && !ret; i++)
		ret = ck_slice_plan_frame_of(p, i, crc ? crc[i] : 0, put, ctx,
					     err);
	return ret;
}
