/* SPDX-License-Identifier: Apache-2.0 */
/* st_out.c - what safetensors' header says of a tensor, and what it cannot */
#include "core/emit/st_out.h"

#include "core/base/utf8.h"
#include "core/geom/catalog.h"
#include "core/geom/dtype.h"

#include <string.h>

const char *ck_st_out_refuses(uint8_t dtype, unsigned rank, const char *name,
			      size_t len)
{
	if (!ck_dtype_info(dtype)->safetensors || !ck_dtype_info(dtype)->size)
		return "safetensors has no name for its dtype";
	if (dtype == CK_DT_F4_E2M1FN_X2 && !rank)
		return "safetensors counts 4-bit elements, a scalar holds two";
	if (len == 12 && !memcmp(name, "__metadata__", 12))
		return "safetensors reserves the name __metadata__";
	if (!ck_utf8_ok(name, len))
		return "its name is not UTF-8, which JSON must be";
	return NULL;
}

/* Elements as safetensors counts them: 4-bit ones one by one. */
static void add_shape(struct ck_str *json, uint8_t dtype, const uint64_t *shape,
		      unsigned rank)
{
	bool halves = dtype == CK_DT_F4_E2M1FN_X2;

	ck_str_puts(json, "[");
	for (unsigned d = 0; d < rank; d++) {
		uint64_t n = shape[d];

		if (halves && d + 1 == rank)
			n *= 2;
		ck_str_puts(json, d ? "," : "");
		ck_str_u64(json, n);
	}
	ck_str_puts(json, "]");
}

void ck_st_out_begin(struct ck_str *json, const char *metadata, size_t len)
{
	ck_str_puts(json, "{");
	if (metadata) {
		ck_str_puts(json, "\"__metadata__\":");
		ck_str_add(json, metadata, len);
	}
}

void ck_st_out_entry(struct ck_str *json, const char *name, size_t len,
		     uint8_t dtype, const uint64_t *shape, unsigned rank,
		     uint64_t at, uint64_t size)
{
	if (json->len && json->v[json->len - 1] != '{')
		ck_str_puts(json, ",");
	ck_str_json(json, name, len);
	ck_str_puts(json, ":{\"dtype\":\"");
	ck_str_puts(json, ck_dtype_info(dtype)->safetensors);
	ck_str_puts(json, "\",\"shape\":");
	add_shape(json, dtype, shape, rank);
	ck_str_puts(json, ",\"data_offsets\":[");
	ck_str_u64(json, at);
	ck_str_puts(json, ",");
	ck_str_u64(json, at + size);
	ck_str_puts(json, "]}");
}

void ck_st_out_end(struct ck_str *json, uint64_t whole)
{
	/* the header's length is before it */
	uint64_t at = CK_ST_OUT_LEN + (whole == CK_ST_OUT_ALL ? 0 : whole);
	uint64_t to = whole == CK_ST_OUT_ALL ? 8 : CK_LOST_PAGE;

	ck_str_puts(json, "}");
	while ((at + json->len) % to && !json->failed)
		ck_str_puts(json, " ");
}
