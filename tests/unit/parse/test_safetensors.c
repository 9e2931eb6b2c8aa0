/* SPDX-License-Identifier: Apache-2.0 */
/* Headers whose entries are right, and entries that are wrong in each way. */
#include "core/parse/safetensors.h"
#include "tests/lib/sameheader.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct ck_err err;
static struct ck_st_header h;

static int parse(const char *json)
{
	return ck_st_header_parse(&h, json, strlen(json), &err);
}

/* The only tensor of a header is refused with @text and named all the same. */
static void wrong(const char *json, const char *text)
{
	struct ck_st_tensor t = { 0 };

	cr_assert_eq(parse(json), 0, "%s", err.msg);
	cr_assert(ck_st_next(&h, &t));
	cr_expect(t.name_len >= 1 && t.name[0] == 't');
	cr_assert(t.why, "%s", json);
	cr_expect(strstr(t.why, text), "%s: %s", json, t.why);
	cr_expect(!ck_st_next(&h, &t));
	ck_st_header_free(&h);
}

#define ENTRY(dtype, shape, offsets)                       \
	"{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
	",\"data_offsets\":" offsets "}}"

Test(safetensors, length)
{
	static const uint8_t bytes[8] = { 60 };
	static const uint8_t none[8] = { 0 };
	static const uint8_t huge[8] = { 0, 0, 0, 0, 0, 0, 0, 0x80 };
	static const uint8_t big[8] = { 1, 0, 0x40, 6 };
	uint64_t len = 0;

	cr_expect_eq(ck_st_header_len(bytes, 68, &len, &err), 0);
	cr_expect_eq(len, 60);
	cr_expect_eq(ck_st_header_len(bytes, 67, &len, &err), -EINVAL);
	cr_expect_eq(ck_st_header_len(bytes, 7, &len, &err), -EINVAL);
	cr_expect_eq(ck_st_header_len(none, 100, &len, &err), -EINVAL);
	cr_expect_eq(ck_st_header_len(huge, INT64_MAX, &len, &err), -EINVAL);
	cr_expect(strstr(err.msg, "9223372036854775808"), "%s", err.msg);
	cr_expect_eq(ck_st_header_len(big, INT64_MAX, &len, &err), -EINVAL);
}

Test(safetensors, order_metadata_offsets)
{
	struct ck_st_tensor t;

	cr_assert_eq(parse("{\"z\":{\"dtype\":\"BF16\",\"shape\":[2,3],"
			   "\"data_offsets\":[4,16],\"extra\":1},"
			   "\"__metadata__\":{\"format\":\"pt\"},"
			   "\"a\":{\"data_offsets\":[0,4],\"shape\":[],"
			   "\"dtype\":\"F32\"}}     "),
		     0, "%s", err.msg);
	cr_expect_str_eq(
		json_string_value(json_object_get(h.metadata, "format")), "pt");
	cr_assert(ck_st_next(&h, &t));
	cr_expect(t.name_len == 1 && *t.name == 'z');
	cr_expect(!t.why && t.dtype == CK_DT_BF16 && t.rank == 2, "%s", t.why);
	cr_expect(t.shape[0] == 2 && t.shape[1] == 3);
	cr_expect_eq(t.begin, h.data_off + 4);
	cr_expect_eq(t.end, h.data_off + 16);
	cr_assert(ck_st_next(&h, &t));
	cr_expect(*t.name == 'a' && !t.why && t.rank == 0);
	cr_expect(!ck_st_next(&h, &t));
	cr_expect(!ck_st_next(&h, &t));
	ck_st_header_free(&h);
	ck_st_header_free(&h);
}

Test(safetensors, empty_and_refused_files)
{
	struct ck_st_tensor t;

	cr_assert_eq(parse("{}      "), 0);
	cr_expect_eq(h.data_off, 16);
	cr_expect(!ck_st_next(&h, &t) && !h.metadata);
	ck_st_header_free(&h);
	cr_expect_eq(parse("[]"), -EINVAL);
	cr_expect_eq(parse("{\"__metadata__\":3}"), -EINVAL);
	cr_expect_eq(parse("{\"a\":1,\"a\":2}"), -EINVAL);
	cr_expect(strstr(err.msg, "safetensors header: byte 10: duplicate"),
		  "%s", err.msg);
	cr_expect_eq(parse("{\"a\":"), -EINVAL);
}

Test(safetensors, wrong_entries)
{
	wrong("{\"t\":3}", "no JSON object");
	wrong("{\"t\":{}}", "dtype is no string");
	wrong(ENTRY("F33", "[1]", "[0,4]"), "dtype is unknown");
	wrong(ENTRY("f32", "[1]", "[0,4]"), "dtype is unknown");
	wrong(ENTRY("F32", "[-1]", "[0,4]"), "shape is no list");
	wrong(ENTRY("F32", "[1.0]", "[0,4]"), "shape is no list");
	wrong(ENTRY("F32", "3", "[0,4]"), "shape is no list");
	wrong(ENTRY("F32", "[1]", "[0]"), "no pair of offsets");
	wrong(ENTRY("F32", "[1]", "[0,4,8]"), "no pair of offsets");
	wrong(ENTRY("F32", "[1]", "[4,0]"), "run backwards");
	wrong(ENTRY("F32", "[2]", "[0,4]"), "do not fill");
	wrong(ENTRY("F32", "[1]", "[0,5]"), "do not fill");
	wrong(ENTRY("F32", "[]", "[0,0]"), "do not fill");
	wrong(ENTRY("F32", "[4294967296,4294967296]", "[0,4]"), "too large");
	wrong(ENTRY("U8", "[1]", "[4611686018427387902,4611686018427387903]"),
	      "too large");
	wrong("{\"t\\u0000x\":{\"dtype\":\"U8\",\"shape\":[1],"
	      "\"data_offsets\":[0,1]}}",
	      "NUL");
}

Test(safetensors, rank)
{
	char json[1024] =
		"{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1";
	struct ck_st_tensor t;
	size_t stem;

	for (unsigned i = 1; i < CK_MAX_RANK; i++)
		strcat(json, ",1");
	stem = strlen(json);
	strcat(json, "]}}");
	cr_assert_eq(parse(json), 0);
	cr_assert(ck_st_next(&h, &t));
	cr_expect(!t.why && t.rank == CK_MAX_RANK, "%s", t.why);
	ck_st_header_free(&h);
	strcpy(json + stem, ",1]}}");
	wrong(json, "at most 64");
}

Test(safetensors, empty_tensors)
{
	struct ck_st_tensor t;

	cr_assert_eq(parse(ENTRY("F32", "[4294967296,4294967296,0]", "[7,7]")),
		     0);
	cr_assert(ck_st_next(&h, &t));
	cr_expect(!t.why, "%s", t.why);
	ck_st_header_free(&h);
}

/* F4 counts nibbles there, pairs of them here; F6 stays as it is. */
Test(safetensors, less_than_a_byte)
{
	struct ck_st_tensor t;

	cr_assert_eq(parse(ENTRY("F4", "[3,8]", "[0,12]")), 0);
	cr_assert(ck_st_next(&h, &t));
	cr_expect(!t.why && t.dtype == CK_DT_F4_E2M1FN_X2, "%s", t.why);
	cr_expect(t.shape[0] == 3 && t.shape[1] == 4);
	ck_st_header_free(&h);
	wrong(ENTRY("F4", "[8,3]", "[0,12]"), "not whole bytes");
	wrong(ENTRY("F4", "[3]", "[0,2]"), "do not fill");
	cr_assert_eq(parse(ENTRY("F6_E2M3", "[4]", "[0,3]")), 0);
	cr_assert(ck_st_next(&h, &t));
	cr_expect(!t.why && t.dtype == CK_DT_F6_E2M3, "%s", t.why);
	ck_st_header_free(&h);
}

/* The form that writers use, and what is nearly of it: as the library reads it. */
Test(safetensors, usual_form_as_the_library_reads_it)
{
#define PAIR "\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]"
	static const char *const header[] = {
		"{\"t\":{" PAIR "}}",
		"{\"t\":{" PAIR "},\"u\":{" PAIR "}}   ",
		"{\"t\":{" PAIR "},\"__metadata__\":{\"a\":\"}{\\\"\"}}",
		"{ \"t\" :\t{ \"shape\" : [ ] , \"data_offsets\":[ 0 , 4 ],"
		"\"dtype\": \"F32\" } }\n",
		"{\"t\":{" PAIR ",\"extra\":1},\"u\":{" PAIR "}}",
		"{\"t\":{" PAIR "},\"t\":{" PAIR "}}",
		"{\"t\":{" PAIR ",\"dtype\":\"F32\"}}",
		"{\"t\":{\"dtype\":\"F33\",\"shape\":[],\"data_offsets\":[0,0]}}",
		"{\"t\":{\"dtype\":\"F32\",\"shape\":[02],\"data_offsets\":[0,8]}}",
		"{\"t\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}",
		"{\"t\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
		"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,],\"data_offsets\":[0,8]}}",
		"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
		"{\"t\":{\"dtype\":\"F32\",\"shape\":[9999999999999999999],"
		"\"data_offsets\":[0,8]}}",
		"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}",
		"{\"t\":{},\"u\":[],\"v\":null}",
		"{\"t\\n\":{" PAIR "}}",
		"{\"\xff\":{" PAIR "}}",
		"{\"\xc3\xa9\":{" PAIR "}}",
		"{\"t\":{" PAIR "}} x",
		"{\"t\":{" PAIR "}",
		"{\"t\":{" PAIR "},}",
		"{}",
		"{\"__metadata__\":3,\"t\":{" PAIR "}}",
		"{\"__metadata__\":{\"a\":}},\"t\":{" PAIR "}}",
	};
	char text[512];

	for (size_t i = 0; i < sizeof(header) / sizeof(*header); i++) {
		size_t len = strlen(header[i]);

		cr_expect_null(same_header(header[i], len), "%s", header[i]);
		/* cut, in memory of just that size */
		for (size_t n = 1; n < len; n++) {
			char *cut = malloc(n);

			memcpy(cut, header[i], n);
			cr_expect_null(same_header(cut, n));
			free(cut);
		}
		/* each byte exchanged for each that means something */
		for (size_t at = 0; at < len; at++)
			for (const char *c = "{}[]\",:\\ 09atu-.\x01\xc3"; *c;
			     c++) {
				memcpy(text, header[i], len);
				text[at] = *c;
				cr_expect_null(same_header(text, len), "%.*s",
					       (int)len, text);
			}
	}
}

Test(safetensors, the_usual_form_costs_no_tree)
{
	cr_assert_eq(parse(ENTRY("F32", "[2]", "[0,8]")), 0);
	cr_expect_null(h.json);
	ck_st_header_free(&h);
	cr_assert_eq(parse("{\"\\u0074\":0}"), 0);
	cr_expect(h.json);
	ck_st_header_free(&h);
}
