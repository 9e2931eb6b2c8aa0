/* SPDX-License-Identifier: Apache-2.0 */
#include "core/geom/dtype.h"

#include <criterion/criterion.h>
#include <string.h>

#define BY(how, text) ck_dtype_by_##how(text, strlen(text))

/* What each tool writes, from the tools' own tables, not from ours. */
static const struct {
	enum ck_dtype dt;
	unsigned size;
	const char *name, *torch, *storage, *safetensors;
} known[] = {
	{ CK_DT_F32, 4, "float32", "float32", "FloatStorage", "F32" },
	{ CK_DT_BF16, 2, "bfloat16", "bfloat16", "BFloat16Storage", "BF16" },
	{ CK_DT_F16, 2, "float16", "float16", "HalfStorage", "F16" },
	{ CK_DT_I64, 8, "int64", "int64", "LongStorage", "I64" },
	{ CK_DT_I8, 1, "int8", "int8", "CharStorage", "I8" },
	{ CK_DT_BOOL, 1, "bool", "bool", "BoolStorage", "BOOL" },
	{ CK_DT_U16, 2, "uint16", "uint16", NULL, "U16" },
	{ CK_DT_F8_E4M3FN, 1, "float8_e4m3fn", "float8_e4m3fn", NULL,
	  "F8_E4M3" },
	{ CK_DT_F8_E8M0FNU, 1, "float8_e8m0fnu", "float8_e8m0fnu", NULL,
	  "F8_E8M0" },
	{ CK_DT_F4_E2M1FN_X2, 1, "float4_e2m1fn_x2", "float4_e2m1fn_x2", NULL,
	  "F4" },
	{ CK_DT_C128, 16, "complex128", "complex128", "ComplexDoubleStorage",
	  NULL },
	{ CK_DT_QINT32, 4, "qint32", "qint32", "QInt32Storage", NULL },
	{ CK_DT_BITS16, 2, "bits16", "bits16", NULL, NULL },
};

Test(dtype, names_of_each_tool)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const char *n = known[i].name;

		cr_expect_eq(BY(name, n), known[i].dt, "%s", n);
		cr_expect_eq(BY(torch, known[i].torch), known[i].dt, "%s", n);
		cr_expect_eq(ck_dtype_info(known[i].dt)->size, known[i].size,
			     "%s", n);
		if (known[i].storage)
			cr_expect_eq(BY(storage, known[i].storage), known[i].dt,
				     "%s", n);
		if (known[i].safetensors)
			cr_expect_eq(BY(safetensors, known[i].safetensors),
				     known[i].dt, "%s", n);
	}
}

Test(dtype, every_row_finds_itself)
{
	for (unsigned i = 1; i < CK_DT_NR; i++) {
		const struct ck_dtype_info *d = ck_dtype_info((enum ck_dtype)i);

		cr_assert_not_null(d->name, "%u", i);
		cr_expect_eq(BY(name, d->name), i, "%s", d->name);
		if (d->torch)
			cr_expect_eq(BY(torch, d->torch), i, "%s", d->name);
		if (d->storage)
			cr_expect_eq(BY(storage, d->storage), i, "%s", d->name);
		if (d->safetensors)
			cr_expect_eq(BY(safetensors, d->safetensors), i, "%s",
				     d->name);
		if (d->mindspore)
			cr_expect_eq(BY(mindspore, d->mindspore), i, "%s",
				     d->name);
	}
}

Test(dtype, unknown_names)
{
	cr_expect_eq(BY(name, "float31"), CK_DT_NONE);
	cr_expect_eq(BY(name, "unknown"), CK_DT_NONE);
	cr_expect_eq(BY(torch, ""), CK_DT_NONE);
	cr_expect_eq(BY(storage, "UntypedStorage"), CK_DT_NONE);
	cr_expect_eq(BY(safetensors, "F32\0"), CK_DT_F32);
	cr_expect_eq(ck_dtype_by_safetensors("F321", 3), CK_DT_F32);
	cr_expect_eq(ck_dtype_by_safetensors("F3", 2), CK_DT_NONE);
	cr_expect_eq(BY(mindspore, "uint8"), CK_DT_U8);
	cr_expect_eq(BY(mindspore, "UInt"), CK_DT_NONE);
	cr_expect_str_eq(ck_dtype_info(CK_DT_NONE)->name, "unknown");
}
