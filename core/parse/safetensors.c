// SPDX-License-Identifier: Apache-2.0
/*
 * safetensors.c - the entries of a safetensors header, each checked by itself
 *
 * A fault of one entry is that entry's, so that the other tensors stay
 * readable; only a header that is no JSON object refuses the file.
 */
#include "core/parse/safetensors.h"

#include "core/base/check.h"
#include "core/base/le.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define LEN_BYTES 8

int ck_st_header_len(const void *first8, uint64_t file_size, uint64_t *len,
		     struct ck_err *err)
{
	uint64_t n;

	if (file_size < LEN_BYTES)
		return ck_fail(err, EINVAL,
			       "safetensors: a file of %" PRIu64 " bytes",
			       file_size);
	n = ck_le64(first8);
	if (!n || n > CK_MAX_HEADER)
		return ck_fail(err, EINVAL,
			       "safetensors: a header of %" PRIu64
			       " bytes; 1 to %" PRIu64 " are allowed",
			       n, CK_MAX_HEADER);
	if (n > file_size - LEN_BYTES)
		return ck_fail(err, EINVAL,
			       "safetensors: a header of %" PRIu64
			       " bytes in a file of %" PRIu64,
			       n, file_size);
	*len = n;
	return 0;
}

int ck_st_header_parse(struct ck_st_header *h, const char *bytes, size_t len,
		       struct ck_err *err)
{
	int ret;

	*h = (struct ck_st_header){ .data_off = LEN_BYTES + (uint64_t)len };
	ret = ck_json_parse(&h->json, bytes, len, err);
	if (ret)
		return ck_wrap(err, ret, "safetensors header");
	h->metadata = json_object_get(h->json, "__metadata__");
	if (!json_is_object(h->json) ||
	    (h->metadata && !json_is_object(h->metadata))) {
		ck_st_header_free(h);
		return ck_fail(err, EINVAL,
			       "safetensors header: expected a JSON object");
	}
	h->iter = json_object_iter(h->json);
	return 0;
}

void ck_st_header_free(struct ck_st_header *h)
{
	json_decref(h->json);
	*h = (struct ck_st_header){ 0 };
}

/* Bits of one element, in safetensors' own count; 0: unknown. */
static unsigned element_bits(enum ck_dtype dt)
{
	switch (dt) {
	case CK_DT_F4_E2M1FN_X2:
		return 4;
	case CK_DT_F6_E2M3:
	case CK_DT_F6_E3M2:
		return 6;
	default:
		return ck_dtype_info(dt)->size * 8u;
	}
}

/* The product of the shape and @bits; false: too large. */
static bool tensor_bits(const struct ck_st_tensor *t, uint64_t *out)
{
	uint64_t bits = element_bits(t->dtype);

	for (unsigned d = 0; d < t->rank; d++)
		if (!t->shape[d])
			bits = 0;
	for (unsigned d = 0; d < t->rank; d++)
		if (!ck_mul_ok(bits, t->shape[d], &bits))
			return false;
	*out = bits;
	return true;
}

/* The file counts 4-bit elements, our dtype is a byte of two of them. */
static const char *pair_nibbles(struct ck_st_tensor *t)
{
	if (t->dtype != CK_DT_F4_E2M1FN_X2)
		return NULL;
	if (!t->rank || t->shape[t->rank - 1] % 2)
		return "its rows of 4-bit elements are not whole bytes";
	t->shape[t->rank - 1] /= 2;
	return NULL;
}

static const char *check_size(struct ck_st_tensor *t)
{
	uint64_t bits;

	if (!tensor_bits(t, &bits))
		return "its shape is too large";
	if (bits % 8 || bits / 8 != t->end - t->begin)
		return "its shape and dtype do not fill its data_offsets";
	return pair_nibbles(t);
}

static const char *read_entry(const struct ck_st_header *h, const json_t *j,
			      struct ck_st_tensor *t)
{
	const json_t *dtype = json_object_get(j, "dtype");
	uint64_t off[2];
	unsigned nr;

	if (json_is_string(dtype))
		t->dtype_name = json_string_value(dtype);
	if (memchr(t->name, '\0', t->name_len))
		return "its name holds a NUL byte";
	if (t->name_len > CK_MAX_NAME)
		return "its name is longer than 64 KiB";
	if (!json_is_object(j))
		return "its entry is no JSON object";
	if (!json_is_string(dtype))
		return "its dtype is no string";
	t->dtype = ck_dtype_by_safetensors(t->dtype_name,
					   json_string_length(dtype));
	if (!ck_json_dims(json_object_get(j, "shape"), t->shape, CK_MAX_RANK,
			  &t->rank))
		return "its shape is no list of at most 64 sizes";
	if (!ck_json_dims(json_object_get(j, "data_offsets"), off, 2, &nr) ||
	    nr != 2)
		return "its data_offsets are no pair of offsets";
	if (off[0] > off[1])
		return "its data_offsets run backwards";
	if (!ck_add_ok(h->data_off, off[0], &t->begin) ||
	    !ck_add_ok(h->data_off, off[1], &t->end))
		return "its data_offsets are too large";
	if (t->dtype == CK_DT_NONE)
		return "its dtype is unknown";
	return check_size(t);
}

bool ck_st_next(struct ck_st_header *h, struct ck_st_tensor *out)
{
	const json_t *entry;

	if (h->iter && json_object_iter_value(h->iter) == h->metadata)
		h->iter = json_object_iter_next(h->json, h->iter);
	if (!h->iter)
		return false;
	*out = (struct ck_st_tensor){
		.name = json_object_iter_key(h->iter),
		.name_len = json_object_iter_key_len(h->iter),
		.dtype_name = "none",
	};
	entry = json_object_iter_value(h->iter);
	out->why = read_entry(h, entry, out);
	h->iter = json_object_iter_next(h->json, h->iter);
	return true;
}
