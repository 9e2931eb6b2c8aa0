/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - the table of element types; see dtype.h */
#include "core/geom/dtype.h"

#include "core/base/check.h"

#include <string.h>
#include <strings.h>

#define DT(id, name_, torch_, storage_, safetensors_, mindspore_, size_) \
	[CK_DT_##id] = { .name = (name_),                                \
			 .torch = (torch_),                              \
			 .storage = (storage_),                          \
			 .safetensors = (safetensors_),                  \
			 .mindspore = (mindspore_),                      \
			 .size = (size_) }

/*
 * A shape counts elements of @size bytes.  Torch packs quint4x2 and quint2x4
 * without its shapes saying so, hence 0; the bits and float4 types count whole
 * bytes in torch, while safetensors' F4 counts nibbles.
 */
static const struct ck_dtype_info infos[] = {
	DT(NONE, "unknown", NULL, NULL, NULL, NULL, 0),
	DT(BOOL, "bool", "bool", "BoolStorage", "BOOL", "Bool", 1),
	DT(U8, "uint8", "uint8", "ByteStorage", "U8", "UInt8", 1),
	DT(I8, "int8", "int8", "CharStorage", "I8", "Int8", 1),
	DT(U16, "uint16", "uint16", NULL, "U16", "UInt16", 2),
	DT(I16, "int16", "int16", "ShortStorage", "I16", "Int16", 2),
	DT(U32, "uint32", "uint32", NULL, "U32", "UInt32", 4),
	DT(I32, "int32", "int32", "IntStorage", "I32", "Int32", 4),
	DT(U64, "uint64", "uint64", NULL, "U64", "UInt64", 8),
	DT(I64, "int64", "int64", "LongStorage", "I64", "Int64", 8),
	DT(F16, "float16", "float16", "HalfStorage", "F16", "Float16", 2),
	DT(BF16, "bfloat16", "bfloat16", "BFloat16Storage", "BF16", "BFloat16",
	   2),
	DT(F32, "float32", "float32", "FloatStorage", "F32", "Float32", 4),
	DT(F64, "float64", "float64", "DoubleStorage", "F64", "Float64", 8),
	DT(C32, "complex32", "complex32", NULL, NULL, NULL, 4),
	DT(C64, "complex64", "complex64", "ComplexFloatStorage", "C64",
	   "Complex64", 8),
	DT(C128, "complex128", "complex128", "ComplexDoubleStorage", NULL,
	   "Complex128", 16),
	DT(F8_E4M3FN, "float8_e4m3fn", "float8_e4m3fn", NULL, "F8_E4M3",
	   "Float8E4M3FN", 1),
	DT(F8_E5M2, "float8_e5m2", "float8_e5m2", NULL, "F8_E5M2", "Float8E5M2",
	   1),
	DT(F8_E4M3FNUZ, "float8_e4m3fnuz", "float8_e4m3fnuz", NULL,
	   "F8_E4M3FNUZ", NULL, 1),
	DT(F8_E5M2FNUZ, "float8_e5m2fnuz", "float8_e5m2fnuz", NULL,
	   "F8_E5M2FNUZ", NULL, 1),
	DT(F8_E8M0FNU, "float8_e8m0fnu", "float8_e8m0fnu", NULL, "F8_E8M0",
	   NULL, 1),
	DT(F4_E2M1FN_X2, "float4_e2m1fn_x2", "float4_e2m1fn_x2", NULL, "F4",
	   NULL, 1),
	DT(BITS8, "bits8", "bits8", NULL, NULL, NULL, 1),
	DT(BITS1X8, "bits1x8", "bits1x8", NULL, NULL, NULL, 1),
	DT(BITS2X4, "bits2x4", "bits2x4", NULL, NULL, NULL, 1),
	DT(BITS4X2, "bits4x2", "bits4x2", NULL, NULL, NULL, 1),
	DT(BITS16, "bits16", "bits16", NULL, NULL, NULL, 2),
	DT(QINT8, "qint8", "qint8", "QInt8Storage", NULL, NULL, 1),
	DT(QUINT8, "quint8", "quint8", "QUInt8Storage", NULL, NULL, 1),
	DT(QINT32, "qint32", "qint32", "QInt32Storage", NULL, NULL, 4),
	DT(QUINT4X2, "quint4x2", "quint4x2", "QUInt4x2Storage", NULL, NULL, 0),
	DT(QUINT2X4, "quint2x4", "quint2x4", "QUInt2x4Storage", NULL, NULL, 0),
	DT(BC32, "bcomplex32", "bcomplex32", NULL, NULL, NULL, 4),
	DT(F6_E2M3, "float6_e2m3fn", NULL, NULL, "F6_E2M3", NULL, 0),
	DT(F6_E3M2, "float6_e3m2fn", NULL, NULL, "F6_E3M2", NULL, 0),
	DT(INT4, "int4", NULL, NULL, NULL, "Int4", 1),
	DT(STR, "str", NULL, NULL, NULL, "str", 1),
};
_Static_assert(CK_ARRAY_LEN(infos) == CK_DT_NR, "a dtype lacks its row");

const struct ck_dtype_info *ck_dtype_info(enum ck_dtype dt)
{
	return &infos[(unsigned)dt < CK_DT_NR ? dt : CK_DT_NONE];
}

static bool same(const char *known, const char *name, size_t len)
{
	return known && strlen(known) == len && !memcmp(known, name, len);
}

#define FIND(column)                                          \
	do {                                                  \
		for (unsigned i = 1; i < CK_DT_NR; i++)       \
			if (same(infos[i].column, name, len)) \
				return (enum ck_dtype)i;      \
		return CK_DT_NONE;                            \
	} while (0)

enum ck_dtype ck_dtype_by_name(const char *name, size_t len)
{
	FIND(name);
}

enum ck_dtype ck_dtype_by_torch(const char *name, size_t len)
{
	FIND(torch);
}

enum ck_dtype ck_dtype_by_storage(const char *name, size_t len)
{
	FIND(storage);
}

enum ck_dtype ck_dtype_by_safetensors(const char *name, size_t len)
{
	FIND(safetensors);
}

/* Compared without case: hash tables have numpy's names. */
enum ck_dtype ck_dtype_by_mindspore(const char *name, size_t len)
{
	for (unsigned i = 1; i < CK_DT_NR; i++)
		if (infos[i].mindspore && strlen(infos[i].mindspore) == len &&
		    !strncasecmp(infos[i].mindspore, name, len))
			return (enum ck_dtype)i;
	return CK_DT_NONE;
}
