/* SPDX-License-Identifier: Apache-2.0 */
/* Values by the way that leads to them. */
#include "core/base/limits.h"
#include "core/parse/pickle_query.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct ck_err err;

static struct ck_pickle *parse(const char *bytes, size_t len)
{
	struct ck_pickle *p = NULL;

	cr_assert_eq(ck_pickle_parse(&p, bytes, len, NULL, NULL, &err), 0, "%s",
		     err.msg);
	return p;
}
#define PARSE(literal) parse(literal, sizeof(literal) - 1)

/* {"a": {"b": [10, (20, 30)]}, "s": "text", "n": -1} */
#define NESTED                                         \
	"}(X\1\0\0\0a}X\1\0\0\0b](K\x0a(K\x14K\x1etes" \
	"X\1\0\0\0sX\4\0\0\0textX\1\0\0\0nJ\xff\xff\xff\xffu."

/* An object of module.Class with {"x": 1, "y": {"z": 2}}. */
#define OBJECT                        \
	"cmodule.sub\nClass\n)\x81}(" \
	"X\1\0\0\0xK\1X\1\0\0\0y}X\1\0\0\0zK\2sub."

Test(pickle_query, follows_keys_and_positions)
{
	ck_auto_pickle struct ck_pickle *p = PARSE(NESTED);
	ck_pv root = ck_pickle_root(p), v;
	const char *s;
	size_t len;
	int64_t n;

	cr_expect(ck_pq_int(p, root, "a/b/0", &n) && n == 10);
	cr_expect(ck_pq_int(p, root, "a/b/1/1", &n) && n == 30);
	cr_expect(ck_pq(p, root, "", &v) && v == root);
	cr_expect(ck_pq_str(p, root, "s", &s, &len) && len == 4 &&
		  !memcmp(s, "text", 4));
	cr_expect_not(ck_pq(p, root, "a/c", &v));
	cr_expect_not(ck_pq(p, root, "a/b/2", &v));
	cr_expect_not(ck_pq(p, root, "a/b/x", &v));
	cr_expect_not(ck_pq(p, root, "s/0", &v));
	cr_expect_not(ck_pq_int(p, root, "s", &n));
	cr_expect_not(ck_pq(p, 0, "", &v));
	cr_expect_eq(ck_pq_int_or(p, root, "n", 7), -1);
	cr_expect_eq(ck_pq_int_or(p, root, "m", 7), 7);
}

/* [{"p": [1, 2], "q": 5}, {"q": 6}, {"p": (3,), 7: 8}] */
#define GROUPS                                                  \
	"](}(X\1\0\0\0p](K\1K\2eX\1\0\0\0qK\5u}(X\1\0\0\0qK\6u" \
	"}(X\1\0\0\0pK\3\x85K\7K\x8ue."

/* "LEVELS=VALUE ..." of all that @path leads to in @v. */
static const char *each(const struct ck_pickle *p, ck_pv v, const char *path)
{
	static char text[256];
	size_t at = 0;
	int64_t n;

	text[0] = '\0';
	for (struct ck_pq_each e = ck_pq_begin(p, v, path); ck_pq_next(&e);) {
		if (!ck_pv_int(p, e.v, &n))
			n = -1;
		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "%u.%u%.*s=%d ", e.at[0], e.at[1],
				       e.name ? (int)e.len : 0, e.name, (int)n);
	}
	return text;
}

Test(pickle_query, goes_through_lists_and_dicts)
{
	ck_auto_pickle struct ck_pickle *p = PARSE(GROUPS);
	ck_auto_pickle struct ck_pickle *of = PARSE(OBJECT);
	ck_pv root = ck_pickle_root(p);

	cr_expect_str_eq(each(p, root, "[]/p/[]"), "0.0=1 0.1=2 2.0=3 ");
	cr_expect_str_eq(each(p, root, "[]/{}"),
			 "0.0p=-1 0.1q=5 1.0q=6 2.0p=-1 2.1=8 ");
	cr_expect_str_eq(each(p, root, "1/{}"), "0.0q=6 ");
	cr_expect_str_eq(each(p, root, "[]/q"), "0.0=5 1.0=6 ");
	cr_expect_str_eq(each(p, root, "{}"), "");
	cr_expect_str_eq(each(p, root, "[]/x/[]"), "");
	cr_expect_str_eq(each(p, root, "0/x/{}"), "");
	cr_expect_str_eq(each(p, 0, "[]"), "");
	cr_expect_str_eq(each(of, ck_pickle_root(of), "y/{}"), "0.0z=2 ");
}

Test(pickle_query, puts_names_into_a_map)
{
	/* {"a": 1, "b": 2, 5: 6, "a": 3} and ["x", 1, "y"] */
	ck_auto_pickle struct ck_pickle *p =
		PARSE("}(X\1\0\0\0aK\1X\1\0\0\0bK\2K\5K\6X\1\0\0\0aK\3u.");
	ck_auto_pickle struct ck_pickle *list =
		PARSE("](X\1\0\0\0xK\1X\1\0\0\0ye.");
	ck_auto_strmap struct ck_strmap map = { 0 };
	int64_t n;

	cr_assert_eq(ck_pq_index(&map, p, ck_pickle_root(p), "{}", &err), 0);
	cr_expect_eq(map.nr, 2);
	cr_expect_eq(ck_strmap_get(&map, "a", 1), 0);
	cr_expect(ck_pv_int(p, map.v[0].user, &n) && n == 3);
	cr_expect(ck_pv_int(p, map.v[1].user, &n) && n == 2);
	cr_assert_eq(ck_pq_index(&map, list, ck_pickle_root(list), "[]", &err),
		     0);
	cr_expect_eq(map.nr, 4);
	cr_expect(ck_strmap_has(&map, "y", 1));
	cr_expect_not(ck_strmap_has(&map, "z", 1));
}

static uint64_t hash(const char *bytes, size_t len, bool plain)
{
	ck_auto_pickle struct ck_pickle *p = parse(bytes, len);
	uint64_t sum = 1;

	cr_expect_eq(ck_pq_hash(p, ck_pickle_root(p), &sum), plain);
	return sum;
}
#define HASH(literal, plain) hash(literal, sizeof(literal) - 1, plain)

Test(pickle_query, tells_plain_values_apart)
{
	cr_expect_eq(HASH("K\1.", true), HASH("I1\n.", true));
	cr_expect_neq(HASH("K\1.", true), HASH("K\2.", true));
	cr_expect_neq(HASH("K\1.", true), HASH("\x88.", true)); /* True */
	cr_expect_neq(HASH("K\1.", true), HASH("F1\n.", true));
	cr_expect_neq(HASH("N.", true), HASH("K\0.", true));
	cr_expect_eq(HASH("(K\1K\2t.", true), HASH("](K\1K\2e.", true));
	cr_expect_neq(HASH("(K\1K\2t.", true), HASH("(K\2K\1t.", true));
	cr_expect_neq(HASH("X\1\0\0\0a.", true), HASH("X\1\0\0\0b.", true));
	HASH("}.", false);
	HASH("(K\1}t.", false);
}

Test(pickle_query, follows_attributes)
{
	ck_auto_pickle struct ck_pickle *p = PARSE(OBJECT);
	ck_pv root = ck_pickle_root(p);
	int64_t n;

	cr_expect(ck_pq_int(p, root, "x", &n) && n == 1);
	cr_expect(ck_pq_int(p, root, "y/z", &n) && n == 2);
	cr_expect(ck_pq_is(p, root, "module", "Class"));
	cr_expect(ck_pq_is(p, root, "module.sub", NULL));
	cr_expect_not(ck_pq_is(p, root, "mod", "Class"));
	cr_expect_not(ck_pq_is(p, root, "module", "Clas"));
}

Test(pickle_query, gives_fields_of_many)
{
	static const char many[] = "](cm\nC\n)\x81}(X\1\0\0\0xq\0K\1"
				   "X\1\0\0\0yq\1K\2ubcm\nC\n)\x81}(h\0K\3"
				   "X\1\0\0\0wK\4ube.";
	ck_auto_pickle struct ck_pickle *p = PARSE(many);
	struct ck_pq_fields f = { .names = { "y", "x" } };
	ck_pv got[CK_PQ_FIELDS], one;
	int64_t n;

	cr_assert(ck_pv_at(p, ck_pickle_root(p), 0, &one));
	ck_pq_fields(&f, p, one, got);
	cr_expect(ck_pv_int(p, got[0], &n) && n == 2);
	cr_expect(ck_pv_int(p, got[1], &n) && n == 1);
	cr_assert(ck_pv_at(p, ck_pickle_root(p), 1, &one));
	ck_pq_fields(&f, p, one, got);
	cr_expect_eq(got[0], 0);
	cr_expect(ck_pv_int(p, got[1], &n) && n == 3);
}

Test(pickle_query, takes_sizes_only)
{
	uint64_t dims[CK_MAX_RANK];
	unsigned rank;
	static const struct {
		const char *bytes;
		size_t len;
		int rank; /* -1: they are none */
	} t[] = {
#define SIZES(literal, rank) { literal, sizeof(literal) - 1, rank }
		SIZES("(K\2K\3t.", 2),
		SIZES("](K\2e.", 1),
		SIZES(").", 0),
		SIZES("ctorch\nSize\n(K\2K\3t\x85R.", 2),
		SIZES("cother\nSize\n(K\2K\3t\x85R.", -1),
		SIZES("(K\2J\xff\xff\xff\xfft.", -1),
		SIZES("(K\2N.", -1),
		SIZES("K\2.", -1),
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct ck_pickle *p = NULL;

		if (ck_pickle_parse(&p, t[i].bytes, t[i].len, NULL, NULL, &err))
			continue;
		rank = 99;
		cr_expect_eq(ck_pq_dims(p, ck_pickle_root(p), "", dims, &rank),
			     t[i].rank >= 0, "%zu", i);
		if (t[i].rank >= 0)
			cr_expect_eq(rank, (unsigned)t[i].rank, "%zu", i);
		ck_pickle_free(p);
	}
}
