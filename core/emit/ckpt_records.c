/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_records.c - heads of protobuf records; the header has the picture */
#include "core/emit/ckpt_records.h"

#include "core/base/utf8.h"
#include "core/geom/dtype.h"

#include <string.h>

/* Field numbers and wire types, as one byte. */
enum {
	RECORD = 0x0a,
	NAME = 0x0a,
	TENSOR = 0x12,
	DIM = 0x08,
	TYPE = 0x12,
	CONTENT = 0x1a,
};

const char *ck_ckpt_records_refuse(const struct ck_catalog *img, uint32_t t,
				   const char *name, size_t name_len)
{
	const struct ck_tensor *tensor = &img->tensors[t];

	switch (tensor->dtype) {
	case CK_DT_C64:
	case CK_DT_C128:
	case CK_DT_F8_E4M3FN:
	case CK_DT_F8_E5M2:
		return "MindSpore does not load its dtype";
	default:
		break;
	}
	if (!ck_dtype_info(tensor->dtype)->mindspore)
		return "MindSpore has no name for its dtype";
	if (tensor->size > CK_CKPT_TENSOR_MAX)
		return "it would take over 65536 records of 512 MiB";
	if (tensor->rank == 1 && !img->dims[tensor->shape])
		return "MindSpore takes the shape [0] for a number";
	if (!ck_utf8_ok(name, name_len))
		return "its name is not UTF-8, which protobuf's are";
	return NULL;
}

static unsigned varint_len(uint64_t v)
{
	unsigned n = 1;

	while (v >>= 7)
		n++;
	return n;
}

static void put_varint(struct ck_str *out, uint64_t v)
{
	unsigned char bytes[10], n = 0;

	do {
		bytes[n] = (unsigned char)(v & 0x7f);
		v >>= 7;
		bytes[n++] |= v ? 0x80 : 0;
	} while (v);
	ck_str_add(out, bytes, n);
}

static void put_field(struct ck_str *out, char field, uint64_t value)
{
	ck_str_add(out, &field, 1);
	put_varint(out, value);
}

static uint64_t field_len(uint64_t value)
{
	return 1 + varint_len(value);
}

void ck_ckpt_records_add(struct ck_str *out, const char *name, size_t name_len,
			 uint8_t dtype, const uint64_t *shape, unsigned rank,
			 uint64_t len)
{
	static const uint64_t text_dim = 0;
	const char *type = ck_dtype_info(dtype)->mindspore;
	uint64_t tensor =
		field_len(strlen(type)) + strlen(type) + field_len(len) + len;
	uint64_t record;

	if (dtype == CK_DT_STR) { /* of any length */
		shape = &text_dim;
		rank = 1;
	}
	for (unsigned d = 0; d < rank; d++)
		tensor += field_len(shape[d]);
	record = field_len(name_len) + name_len + field_len(tensor) + tensor;
	put_field(out, RECORD, record);
	put_field(out, NAME, name_len);
	ck_str_add(out, name, name_len);
	put_field(out, TENSOR, tensor);
	for (unsigned d = 0; d < rank; d++)
		put_field(out, DIM, shape[d]);
	put_field(out, TYPE, strlen(type));
	ck_str_puts(out, type);
	put_field(out, CONTENT, len);
}
