/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that is meant well, and JSON that is not. */
#include "core/base/limits.h"
#include "core/parse/json.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct ck_err err;

#define PARSE(j, literal) \
	ck_json_parse(&(j), literal, sizeof(literal) - 1, &err)

#define cr_refused(literal, text)                                \
	do {                                                     \
		json_t *j_ = NULL;                               \
		cr_expect_eq(PARSE(j_, literal), -EINVAL);       \
		cr_expect(!j_ && !strchr(err.msg, '\n'));        \
		cr_expect(strstr(err.msg, text), "%s", err.msg); \
		json_decref(j_);                                 \
	} while (0)

Test(json, values)
{
	json_t *j = NULL;
	uint64_t dims[4] = { 0 }, n = 0;
	unsigned nr = 0;

	cr_assert_eq(PARSE(j, " {\"a\": [1, 2, 4611686018427387903],"
			      "\"b\": 1.5, \"c\": -1, \"d\": [1, \"2\"],"
			      "\"e\": 4611686018427387904} \n"),
		     0, "%s", err.msg);
	cr_expect(ck_json_dims(json_object_get(j, "a"), dims, 4, &nr));
	cr_expect(nr == 3 && dims[1] == 2);
	cr_expect(ck_json_u64(json_array_get(json_object_get(j, "a"), 2), &n));
	cr_expect_eq(n, (UINT64_C(1) << 62) - 1);
	cr_expect(!ck_json_dims(json_object_get(j, "a"), dims, 2, &nr));
	cr_expect(!ck_json_dims(json_object_get(j, "d"), dims, 4, &nr));
	cr_expect(!ck_json_dims(json_object_get(j, "b"), dims, 4, &nr));
	cr_expect(!ck_json_dims(NULL, dims, 4, &nr));
	cr_expect(!ck_json_u64(json_object_get(j, "b"), &n));
	cr_expect(!ck_json_u64(json_object_get(j, "c"), &n));
	cr_expect(!ck_json_u64(json_object_get(j, "e"), &n));
	cr_expect(!ck_json_u64(NULL, &n));
	json_decref(j);
	cr_assert_eq(PARSE(j, "3"), 0);
	json_decref(j);
}

Test(json, refused_in_one_line)
{
	cr_refused("", "byte 0: expected JSON, found an empty file");
	cr_refused(" \n", "byte 2: expected JSON, found white space alone");
	cr_refused("\xef\xbb\xbf{}", "found a byte order mark (UTF-8)");
	cr_refused("\xff\xfe{", "found a byte order mark (UTF-16)");
	cr_refused("{\"a\":1} x", "byte 9: end of file expected");
	cr_refused("{\"a\":1,\"a\":2}", "byte 10: duplicate object key");
	cr_refused("{\"x\":{\"a\":1,\"\\u0061\":2}}", "duplicate object key");
	cr_refused("[1e400]", "byte 6: real number overflow");
	cr_refused("[99999999999999999999]", "byte 21: too big integer");
	cr_refused("[NaN]", "byte");
	cr_refused("[\"\xff\"]", "unable to decode byte 0xff");
	cr_refused("[\"\\ud800\"]", "byte");
	cr_refused("[\"\n\"]", "byte");
	cr_refused("[1,]", "byte");
	cr_refused("\"abc", "byte");
	cr_refused("[\"\\U0000\"]", "byte");
}

Test(json, what_it_is)
{
	static const struct {
		const char *text, *what;
	} some[] = {
		{ "null", "null" },
		{ "true", "true" },
		{ "false", "false" },
		{ "-3", "-3" },
		{ "2.5", "2.5" },
		{ "\"x\"", "\"x\"" },
		{ "[1, [2]]", "a list of 2" },
		{ "{\"a\": 1}", "an object" },
	};
	char buf[CK_JSON_WHAT];
	json_t *j;

	cr_expect_str_eq(ck_json_what(NULL, buf), "nothing");
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		cr_assert_eq(ck_json_parse(&j, some[i].text,
					   strlen(some[i].text), &err),
			     0);
		cr_expect_str_eq(ck_json_what(j, buf), some[i].what);
		json_decref(j);
	}
}

/* As against protobuf, whose first byte is a small number. */
Test(json, text_or_not)
{
	cr_expect(ck_json_is_text("", 0));
	cr_expect(ck_json_is_text("\xef\xbb\xbf{", 4));
	cr_expect(ck_json_is_text("\n{", 2));
	cr_expect(ck_json_is_text("null", 4));
	cr_expect(!ck_json_is_text("\x08\x01", 2));
	cr_expect(!ck_json_is_text("\x1a\x01", 2));
	cr_expect(!ck_json_is_text("\0", 1));
	cr_expect(!ck_json_is_text("\xef\xbb", 2));
}

static double refuse_flood(const char *unit, size_t len, const char *text)
{
	char *flood = malloc(len);
	struct timespec start, stop;
	json_t *j = NULL;

	for (size_t i = 0; i < len; i++)
		flood[i] = unit[i % strlen(unit)];
	clock_gettime(CLOCK_MONOTONIC, &start);
	cr_expect_eq(ck_json_parse(&j, flood, len, &err), -EINVAL);
	clock_gettime(CLOCK_MONOTONIC, &stop);
	cr_expect(strstr(err.msg, text), "%s", err.msg);
	free(flood);
	return (double)(stop.tv_sec - start.tv_sec) +
	       (double)(stop.tv_nsec - start.tv_nsec) / 1e9;
}

Test(json, floods)
{
	cr_expect_lt(refuse_flood("[", 100 << 20, "byte 64: nested deeper"),
		     0.1);
	cr_expect_lt(refuse_flood("{\"a\":", 100 << 20, "nested deeper"), 0.1);
	/* 2.7 GB of empty objects, out of 30 MiB. */
	cr_expect_lt(refuse_flood("{},", 30 << 20, "would need more than"),
		     2.0);
}

Test(json, depth)
{
	char text[2 * CK_MAX_JSON_DEPTH + 2];
	json_t *j = NULL;

	memset(text, '[', CK_MAX_JSON_DEPTH);
	memset(text + CK_MAX_JSON_DEPTH, ']', CK_MAX_JSON_DEPTH);
	cr_expect_eq(ck_json_parse(&j, text, 2 * CK_MAX_JSON_DEPTH, &err), 0);
	json_decref(j);
	/* Brackets in strings, behind escaped quotes too, do not nest. */
	memset(text, '[', sizeof(text));
	memcpy(text, "[\"\\\"", 4);
	memcpy(text + sizeof(text) - 4, "\\\\\"]", 4);
	cr_expect_eq(ck_json_parse(&j, text, sizeof(text), &err), 0, "%s",
		     err.msg);
	json_decref(j);
}

/* jansson alone refuses the first of these as a whole. */
Test(json, nul_in_names)
{
	json_t *j = NULL, *v;
	void *it;

	cr_assert_eq(PARSE(j,
			   "{\"x\": 1, \"a\\u0000b\": [{\"\\u0000\": "
			   "\"p\\u0000\\\\u0000\"}], \"y\": \"\xef\xa3\xb1\"}"),
		     0, "%s", err.msg);
	cr_assert_eq(json_object_size(j), 3);
	it = json_object_iter_next(j, json_object_iter(j));
	cr_expect_eq(json_object_iter_key_len(it), 3);
	cr_expect(!memcmp(json_object_iter_key(it), "a\0b", 3));
	v = json_array_get(json_object_iter_value(it), 0);
	it = json_object_iter(v);
	cr_expect_eq(json_object_iter_key_len(it), 1);
	v = json_object_iter_value(it);
	cr_expect_eq(json_string_length(v), 8);
	cr_expect(!memcmp(json_string_value(v), "p\0\\u0000", 8));
	cr_expect_str_eq(json_string_value(json_object_get(j, "y")),
			 "\xef\xa3\xb1");
	json_decref(j);
	cr_refused("{\"a\\u0000\": 1, \"a\\u0000\": 2}", "duplicate");
	cr_refused("[\"\\u0000\", \"\\uF8f0\"]", "NUL and with U+F8");
	cr_refused("[\"\\u0000\", \"\xef\xa3\xb0\"]", "NUL and with U+F8");
	/* The stand-in alone is an ordinary character. */
	cr_assert_eq(PARSE(j, "\"\\uf8f0\""), 0);
	cr_expect_str_eq(json_string_value(j), "\xef\xa3\xb0");
	json_decref(j);
}
