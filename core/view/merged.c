/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merged.c - one safetensors file of many tensors; the header has the picture
 */
#include "core/view/merged.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/emit/st_out.h"
#include "core/geom/dtype.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *ck_merged_refuses(const struct ck_catalog *img, uint32_t t,
			      const char *name, size_t name_len)
{
	const struct ck_tensor *tensor = &img->tensors[t];

	return ck_st_out_refuses(tensor->dtype, tensor->rank, name, name_len);
}

void ck_merged_first_place(const struct ck_catalog *img, uint32_t t,
			   uint64_t at[2])
{
	const struct ck_tensor *tensor = &img->tensors[t];
	uint64_t best[2] = { UINT64_MAX, UINT64_MAX };

	for (uint32_t i = 0; i < CK_MIN(tensor->nr, 64u); i++) {
		const struct ck_chunk *c = &img->chunks[tensor->first + i];

		if (c->src < best[0] ||
		    (c->src == best[0] && c->off < best[1])) {
			best[0] = c->src;
			best[1] = c->off;
		}
	}
	memcpy(at, best, sizeof(best));
}

bool ck_merged_is_lost(const struct ck_catalog *img, uint32_t t)
{
	return img->tensors[t].size && img->tensors[t].state != CK_OK;
}

/* The largest power of two that divides the element size, at most 8. */
static unsigned alignment(uint8_t dtype)
{
	unsigned size = ck_dtype_info(dtype)->size;

	return CK_MIN(size & -size, 8u);
}

static int file_order(const void *pa, const void *pb, void *ctx)
{
	const struct ck_catalog *img = ctx;
	const struct ck_merged_tensor *a = pa, *b = pb;
	unsigned wa = alignment(img->tensors[a->tensor].dtype);
	unsigned wb = alignment(img->tensors[b->tensor].dtype);
	bool la = ck_merged_is_lost(img, a->tensor);
	bool lb = ck_merged_is_lost(img, b->tensor);
	uint64_t fa[2], fb[2];

	if (la != lb)
		return la ? 1 : -1;
	if (wa != wb)
		return wa > wb ? -1 : 1;
	ck_merged_first_place(img, a->tensor, fa);
	ck_merged_first_place(img, b->tensor, fb);
	for (int i = 0; i < 2; i++)
		if (fa[i] != fb[i])
			return fa[i] < fb[i] ? -1 : 1;
	return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

void ck_merged_sort(const struct ck_merged_in *in)
{
	if (in->nr)
		qsort_r(in->v, in->nr, sizeof(*in->v), file_order,
			(void *)in->img);
}

static void add_entry(struct ck_str *json, const struct ck_catalog *img,
		      const struct ck_merged_tensor *m, uint64_t *at)
{
	const struct ck_tensor *t = &img->tensors[m->tensor];

	ck_st_out_entry(json, m->name, m->name_len, t->dtype,
			img->dims + t->shape, t->rank, *at, t->size);
	*at += t->size;
}

static void make_header(struct ck_str *json, const struct ck_merged_in *in)
{
	uint64_t at = 0, whole = CK_ST_OUT_ALL;

	ck_st_out_begin(json, in->metadata, in->metadata_len);
	for (uint32_t i = 0; i < in->nr; i++) {
		if (whole == CK_ST_OUT_ALL &&
		    ck_merged_is_lost(in->img, in->v[i].tensor))
			whole = at;
		add_entry(json, in->img, &in->v[i], &at);
	}
	ck_st_out_end(json, whole);
}

uint64_t ck_merged_entry_max(const struct ck_catalog *img,
			     const struct ck_merged_tensor *m)
{
	/* 20 digits a number, 6 bytes an escaped character */
	return 6 * (uint64_t)m->name_len +
	       21 * (uint64_t)img->tensors[m->tensor].rank + 128;
}

uint64_t ck_merged_header_len(const struct ck_merged_in *in)
{
	ck_auto_str struct ck_str one = { 0 };
	uint64_t at = 0, len = 2 + in->metadata_len + 17;

	for (uint32_t i = 0; i < in->nr; i++) {
		one.len = 0;
		add_entry(&one, in->img, &in->v[i], &at);
		len += one.len + 1;
	}
	return len;
}

int ck_merged_make(struct ck_compose *out, const struct ck_merged_in *in,
		   struct ck_err *err)
{
	ck_auto_str struct ck_str json = { 0 };
	uint64_t len;

	make_header(&json, in);
	if (json.failed)
		return ck_no_memory(err);
	if (json.len > CK_MAX_HEADER)
		return ck_fail(
			err, E2BIG,
			"the header would have %zu bytes, the format allows %" PRIu64,
			json.len, CK_MAX_HEADER);
	len = htole64(json.len);
	ck_compose_bytes(out, &len, sizeof(len));
	ck_compose_bytes(out, json.v, json.len);
	for (uint32_t i = 0; i < in->nr; i++)
		ck_compose_tensor(out, in->img, in->v[i].tensor);
	return ck_compose_done(out, err);
}
