/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors, parsed by the reader of such files. */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/parse/safetensors.h"
#include "core/view/merged.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ck_view_ops ck_view_safetensors;

static struct viewkit k;
static struct ck_view *v;
static unsigned char *bytes;
static uint64_t len;
static struct ck_st_header h;
static struct ck_err err;
static bool odd; /* whole tensors before lost ones are */

static void setup(void)
{
	vk_init(&k);
}

static void teardown(void)
{
	ck_st_header_free(&h);
	free(bytes);
	ck_view_close(v);
	vk_free(&k);
}
TestSuite(merged, .init = setup, .fini = teardown);

static void parse(uint64_t n)
{
	ck_st_header_free(&h);
	cr_assert_eq(ck_st_header_parse(&h, (char *)bytes + 8, n, &err), 0,
		     "%s", err.msg);
}

static void open_view(void)
{
	uint64_t n;

	v = vk_open(&k, &ck_view_safetensors, NULL);
	cr_assert(v);
	bytes = vk_bytes(v, vk_file(v, "model.safetensors"), &len);
	cr_assert_eq(ck_st_header_len(bytes, len, &n, &err), 0, "%s", err.msg);
	cr_expect(n % 8 == 0 || odd);
	parse(n);
}

/* Every entry's bytes are its tensor's, none are left over: how many. */
static unsigned check_entries(void)
{
	struct ck_st_tensor t;
	uint64_t end = h.data_off;
	unsigned nr = 0;

	while (ck_st_next(&h, &t)) {
		uint32_t i =
			ck_catalog_find_name(&k.ck.img, 0, t.name, t.name_len);
		const struct ck_tensor *want;

		cr_assert_neq(i, CK_NONE, "%s", t.name);
		cr_assert_null(t.why, "%s: %s", t.name, t.why);
		want = &k.ck.img.tensors[i];
		cr_expect_eq(t.dtype, want->dtype);
		cr_expect_eq(t.rank, want->rank);
		cr_expect_eq(memcmp(t.shape, k.ck.img.dims + want->shape,
				    t.rank * sizeof(*t.shape)),
			     0, "%s", t.name);
		cr_expect_eq(t.end - t.begin, want->size);
		for (uint64_t b = t.begin; b < t.end; b++)
			cr_assert_eq(bytes[b], vk_byte(i, b - t.begin), "%s",
				     t.name);
		end = CK_MAX(end, t.end);
		nr++;
	}
	cr_expect_eq(end, len);
	return nr;
}

Test(merged, dtypes_shapes_and_names)
{
	static const char *const names[] = {
		"plain.weight",
		"with \"quotes\" and \\",
		"\xc3\xa9\xe2\x82\xac",
		"tab\tline\n",
		"\x01\x7f",
		"a/b",
	};

	for (unsigned i = 0; i < CK_ARRAY_LEN(names); i++)
		vk_tensor(&k, names[i], CK_DT_F32, 2, DIMS(2, 3));
	vk_tensor(&k, "bf16", CK_DT_BF16, 3, DIMS(2, 3, 5));
	vk_tensor(&k, "bool", CK_DT_BOOL, 1, DIMS(7));
	vk_tensor(&k, "scalar", CK_DT_I64, 0, NULL);
	vk_tensor(&k, "empty", CK_DT_F64, 2, DIMS(0, 9));
	vk_tensor(&k, "fp8", CK_DT_F8_E4M3FN, 1, DIMS(3));
	vk_tensor(&k, "f4", CK_DT_F4_E2M1FN_X2, 2, DIMS(2, 4));
	vk_tensor(&k, "u16", CK_DT_U16, 1, DIMS(3));
	open_view();
	cr_expect_eq(check_entries(), CK_ARRAY_LEN(names) + 7);
	cr_expect(memmem(bytes, len, "\"f4\":{\"dtype\":\"F4\",\"shape\":[2,8]",
			 32));
	cr_expect_str_eq(
		json_string_value(json_object_get(h.metadata, "format")), "pt");
}

Test(merged, wide_elements_come_first_so_all_are_aligned)
{
	struct ck_st_tensor t;

	vk_tensor(&k, "a.u8", CK_DT_U8, 1, DIMS(3));
	vk_tensor(&k, "b.bf16", CK_DT_BF16, 1, DIMS(3));
	vk_tensor(&k, "c.f64", CK_DT_F64, 1, DIMS(3));
	vk_tensor(&k, "d.f32", CK_DT_F32, 1, DIMS(3));
	vk_tensor(&k, "e.c64", CK_DT_C64, 1, DIMS(3));
	open_view();
	while (ck_st_next(&h, &t))
		cr_expect_eq(t.begin % CK_MIN(ck_dtype_info(t.dtype)->size, 8u),
			     0, "%s at %d", t.name, (int)t.begin);
}

Test(merged, equals_follow_the_order_of_the_shards)
{
	static const char *const order[] = { "z", "m", "a", "q" };
	struct ck_st_tensor t;
	uint64_t last = 0;

	for (unsigned i = 0; i < 4; i++)
		vk_tensor(&k, order[i], CK_DT_F32, 1, DIMS(3));
	open_view();
	for (unsigned i = 0; ck_st_next(&h, &t); i++) {
		cr_expect_str_eq(t.name, order[i]);
		cr_expect_geq(t.begin, last);
		last = t.begin;
	}
}

Test(merged, what_it_cannot_hold_is_said)
{
	char *problems;

	vk_tensor(&k, "ok", CK_DT_F32, 1, DIMS(3));
	vk_tensor(&k, "quantized", CK_DT_QINT8, 1, DIMS(3));
	vk_tensor(&k, "bad\xff", CK_DT_F32, 1, DIMS(3));
	vk_tensor(&k, "__metadata__", CK_DT_F32, 1, DIMS(3));
	vk_tensor(&k, "f4 scalar", CK_DT_F4_E2M1FN_X2, 0, NULL);
	open_view();
	cr_expect_eq(check_entries(), 1);
	problems = vk_problems(&k);
	cr_expect(strstr(problems, "quantized: left out of model.safetensors: "
				   "safetensors has no name for its dtype"),
		  "%s", problems);
	cr_expect(strstr(problems, "its name is not UTF-8"), "%s", problems);
	cr_expect(strstr(problems, "reserves the name __metadata__"), "%s",
		  problems);
	cr_expect(strstr(problems, "f4 scalar: left out"), "%s", problems);
	free(problems);
}

Test(merged, nothing_to_show_is_an_empty_file)
{
	open_view();
	cr_expect_eq(check_entries(), 0);
}

/* Names that fill the header: counted before anything is made. */
Test(merged, a_header_over_the_limit_leaves_the_view_out, .timeout = 60)
{
	enum { NR = 420, LEN = 60000 };
	char *name = malloc(LEN + 1);
	char *problems;

	/* a control character takes six bytes in JSON */
	memset(name, 1, LEN);
	name[LEN] = '\0';
	for (unsigned i = 0; i < NR; i++) {
		sprintf(name + LEN - 4, "%04u", i);
		vk_tensor(&k, name, CK_DT_U8, 1, DIMS(1));
	}
	free(name);
	v = vk_open(&k, &ck_view_safetensors, NULL);
	cr_expect_null(v);
	problems = vk_problems(&k);
	cr_expect(strstr(problems, "note: model.safetensors: its header would "
				   "have 151"),
		  "%.300s", problems);
	free(problems);
}

Test(merged, lengths_are_bounded_and_counted_right)
{
	struct ck_merged_tensor m[3];
	struct ck_merged_in in = { .v = m, .nr = 3 };
	uint64_t most = 0;

	vk_tensor(&k, "a\n", CK_DT_U8, 1, DIMS(3));
	vk_tensor(&k, "\xc3\xa9", CK_DT_F64, 3, DIMS(3, 5, 7));
	vk_tensor(&k, "z", CK_DT_F8_E5M2FNUZ, 2, DIMS(100000, 5));
	open_view();
	in.img = &k.ck.img;
	for (uint32_t t = 0; t < 3; t++) {
		m[t].tensor = t;
		m[t].name = ck_catalog_str(in.img, in.img->tensors[t].name,
					   &m[t].name_len);
		most += ck_merged_entry_max(in.img, &m[t]);
	}
	in.metadata = "{\"format\":\"pt\"}";
	in.metadata_len = 15;
	ck_merged_sort(&in);
	cr_expect_leq(ck_merged_header_len(&in), most + 40);
	/* the file has the same metadata; padding adds at most 7 */
	cr_expect(ck_merged_header_len(&in) <= h.data_off - 8 + 2 &&
			  ck_merged_header_len(&in) + 8 > h.data_off - 8,
		  "%d %d", (int)ck_merged_header_len(&in), (int)h.data_off - 8);
}

/* Whole tensors and the header on pages without a lost byte, in any order. */
static void lost_are_apart(unsigned nr_odd)
{
	uint64_t lost = UINT64_MAX, whole = 0;
	struct ck_st_tensor t;
	char name[32];

	vk_tensor(&k, "a", CK_DT_F32, 1, DIMS(1500));
	for (unsigned i = 0; i < nr_odd; i++) {
		snprintf(name, sizeof(name), "odd%u", i);
		vk_tensor(&k, name, CK_DT_U8, 1, DIMS(5));
	}
	vk_lose(&k);
	vk_tensor(&k, "b lost", CK_DT_F64, 1, DIMS(7));
	vk_tensor(&k, "c lost", CK_DT_U8, 1, DIMS(3));
	open_view();
	cr_expect_eq(check_entries(), 3 + nr_odd);
	parse(h.data_off - 8);
	while (ck_st_next(&h, &t)) {
		if (memmem(t.name, t.name_len, "lost", 4))
			lost = CK_MIN(lost, t.begin);
		else
			whole = CK_MAX(whole, t.end);
	}
	cr_expect_eq(lost % CK_LOST_PAGE, 0, "%d", (int)lost);
	cr_expect_eq(whole, lost, "%d %d", (int)whole, (int)lost);
}

Test(merged, lost_tensors_are_apart)
{
	lost_are_apart(0);
}

Test(merged, lost_tensors_are_apart_from_odd_ones)
{
	odd = true;
	lost_are_apart(3);
}

Test(merged, nothing_but_lost_tensors)
{
	vk_lose(&k);
	vk_tensor(&k, "b", CK_DT_F64, 1, DIMS(7));
	open_view();
	cr_expect_eq(check_entries(), 1);
	cr_expect_eq(h.data_off % CK_LOST_PAGE, 0);
}
