/* SPDX-License-Identifier: Apache-2.0 */
/* npy headers of every dtype and rank, read as NumPy's format says. */
#include "core/geom/dtype.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ck_view_ops ck_view_npy;

static struct viewkit k;
static struct ck_view *v;

static void setup(void)
{
	vk_init(&k);
}

static void teardown(void)
{
	ck_view_close(v);
	vk_free(&k);
}
TestSuite(npy, .init = setup, .fini = teardown);

/* The dictionary of the file's header, checked around it; to free(). */
static char *dictionary(const char *file, uint64_t payload)
{
	uint64_t len;
	uint32_t i = vk_file(v, file);
	unsigned char *b = vk_bytes(v, i, &len);
	size_t n = 10 + b[8] + 256u * b[9];
	char *text = strndup((char *)b + 10, n - 10);

	cr_expect_eq(memcmp(b, "\x93NUMPY\x01\x00", 8), 0);
	cr_expect_eq(n % 64, 0, "%s", file);
	cr_assert_eq(len - n, payload, "%s", file);
	cr_expect_eq(text[n - 11], '\n');
	for (uint64_t at = 0; at < payload; at++)
		cr_assert_eq(b[n + at], vk_byte(v->first + i, at));
	*(strrchr(text, '}') + 1) = '\0';
	free(b);
	return text;
}

static void expect(const char *file, uint64_t payload, const char *want)
{
	char *text = dictionary(file, payload);

	cr_expect_str_eq(text, want);
	free(text);
}

Test(npy, shapes)
{
	vk_tensor(&k, "0d", CK_DT_F32, 0, NULL);
	vk_tensor(&k, "1d", CK_DT_I64, 1, DIMS(3));
	vk_tensor(&k, "2d", CK_DT_BOOL, 2, DIMS(3, 4));
	vk_tensor(&k, "none", CK_DT_C128, 3, DIMS(3, 0, 4));
	v = vk_open(&k, &ck_view_npy, NULL);
	expect("0d.npy", 4,
	       "{'descr': '<f4', 'fortran_order': False, 'shape': (), }");
	expect("1d.npy", 24,
	       "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }");
	expect("2d.npy", 12,
	       "{'descr': '|b1', 'fortran_order': False, 'shape': (3, 4), }");
	expect("none.npy", 0,
	       "{'descr': '<c16', 'fortran_order': False, 'shape': (3, 0, 4), }");
}

Test(npy, sixty_four_dimensions)
{
	uint64_t shape[64];
	char *text;

	for (unsigned d = 0; d < 64; d++)
		shape[d] = 1;
	shape[0] = 7;
	vk_tensor(&k, "deep", CK_DT_F16, 64, shape);
	v = vk_open(&k, &ck_view_npy, NULL);
	text = dictionary("deep.npy", 14);
	cr_expect(strstr(text, "'shape': (7, 1, 1, "), "%s", text);
	cr_expect(strstr(text, ", 1, 1), }"), "%s", text);
	free(text);
}

Test(npy, numbers_of_any_length_fit)
{
	uint64_t shape[64];

	/* nothing is stored of it, and its header is the longest there is */
	for (unsigned d = 0; d < 64; d++)
		shape[d] = UINT64_C(4611686018427387903);
	shape[63] = 0;
	vk_tensor(&k, "wide", CK_DT_U8, 64, shape);
	vk_image(&k);
	if (kit_find(&k.kit, "wide") == CK_NONE)
		cr_skip_test("the gate refuses such a shape");
	v = vk_open(&k, &ck_view_npy, NULL);
	free(dictionary("wide.npy", 0));
}

Test(npy, every_dtype_has_a_size_that_numpy_reads)
{
	char name[32], file[48];

	for (int dt = CK_DT_NONE + 1; dt < CK_DT_NR; dt++)
		if (ck_dtype_info((enum ck_dtype)dt)->size) {
			snprintf(name, sizeof(name), "d%d", dt);
			vk_tensor(&k, name, (enum ck_dtype)dt, 1, DIMS(6));
		}
	v = vk_open(&k, &ck_view_npy, NULL);
	for (int dt = CK_DT_NONE + 1; dt < CK_DT_NR; dt++) {
		unsigned size = ck_dtype_info((enum ck_dtype)dt)->size;
		char *text, *descr;

		if (!size)
			continue;
		snprintf(file, sizeof(file), "d%d.npy", dt);
		text = dictionary(file, 6 * size);
		descr = strstr(text, "'descr': '") + 10;
		cr_expect(strchr(size == 1 ? "|" : "<|", *descr), "%s", text);
		cr_expect_eq(strtoul(descr + 2, NULL, 10), size, "%s", text);
		free(text);
	}
	expect("d11.npy", 12,
	       CK_DT_BF16 == 11 ?
		       "{'descr': '|V2', 'fortran_order': False, 'shape': (6,), }" :
		       "");
}

Test(npy, names)
{
	struct ck_vfile f;
	char name[CK_VIEW_NAME];

	vk_tensor(&k, "a/b", CK_DT_F32, 0, NULL);
	vk_tensor(&k, "x.npy", CK_DT_F32, 0, NULL);
	v = vk_open(&k, &ck_view_npy, NULL);
	cr_expect(v->ops->file(v, vk_file(v, "a%2Fb.npy"), &f));
	v->ops->label(v, vk_file(v, "a%2Fb.npy"), name);
	cr_expect_str_eq(name, "a%2Fb.npy");
	vk_file(v, "x.npy.npy");
	cr_expect_eq(v->ops->find(v, "x.npy", 5), CK_NONE);
	cr_expect_eq(v->ops->find(v, ".npy", 4), CK_NONE);
	cr_expect_eq(v->ops->find(v, "npy", 3), CK_NONE);
	cr_expect(!v->ops->file(v, 2, &f));
}
