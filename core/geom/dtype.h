/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.h - element types and what each tool calls them
 *
 * Our names are NumPy's and ml_dtypes'; where neither has one, torch's.
 * The number of a dtype is stored in catalogs: new ones go at the end.
 */
#ifndef CK_DTYPE_H
#define CK_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ck_dtype {
	CK_DT_NONE, /* unknown */
	CK_DT_BOOL,
	CK_DT_U8,
	CK_DT_I8,
	CK_DT_U16,
	CK_DT_I16,
	CK_DT_U32,
	CK_DT_I32,
	CK_DT_U64,
	CK_DT_I64,
	CK_DT_F16,
	CK_DT_BF16,
	CK_DT_F32,
	CK_DT_F64,
	CK_DT_C32,
	CK_DT_C64,
	CK_DT_C128,
	CK_DT_F8_E4M3FN,
	CK_DT_F8_E5M2,
	CK_DT_F8_E4M3FNUZ,
	CK_DT_F8_E5M2FNUZ,
	CK_DT_F8_E8M0FNU,
	CK_DT_F4_E2M1FN_X2,
	CK_DT_BITS8,
	CK_DT_BITS1X8,
	CK_DT_BITS2X4,
	CK_DT_BITS4X2,
	CK_DT_BITS16,
	CK_DT_QINT8,
	CK_DT_QUINT8,
	CK_DT_QINT32,
	CK_DT_QUINT4X2,
	CK_DT_QUINT2X4,
	CK_DT_BC32,
	CK_DT_F6_E2M3,
	CK_DT_F6_E3M2,
	CK_DT_INT4, /* MindSpore: an element is a byte */
	CK_DT_STR, /* the bytes of a UTF-32 string */
	CK_DT_NR
};

struct ck_dtype_info {
	const char *name; /* ours: "float32", "bfloat16", "float8_e4m3fn" */
	const char *torch; /* "float32", "uint16": the global `torch NAME` */
	const char *storage; /* torch storage class, "FloatStorage"; or NULL */
	const char *safetensors; /* "F32", "F8_E4M3"; NULL: has none */
	const char *mindspore; /* "Float32", as .ckpt files spell it; or NULL */
	uint8_t size; /* bytes an element; 0 where elements are not whole bytes */
};

/* Never NULL; of what is none, and of CK_DT_NONE, "unknown". */
const struct ck_dtype_info *ck_dtype_info(enum ck_dtype dt);
/* Each returns CK_DT_NONE for a name that it does not know. */
enum ck_dtype ck_dtype_by_name(const char *name, size_t len);
enum ck_dtype ck_dtype_by_torch(const char *name, size_t len);
enum ck_dtype ck_dtype_by_storage(const char *name, size_t len);
enum ck_dtype ck_dtype_by_safetensors(const char *name, size_t len);
enum ck_dtype ck_dtype_by_mindspore(const char *name, size_t len);

#endif
