/* SPDX-License-Identifier: Apache-2.0 */
/* OneFlow's cuts, against a list of rows that is dealt out one by one. */
#include "core/format/oneflow/sbp.h"
#include "core/format/oneflow/split.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ck_err err;

#define MAX_ROWS 40

/* Rows of one dimension, cut axis by axis. */
struct rows {
	unsigned v[MAX_ROWS], nr;
};

static struct rows naive_part(const struct rows *in, unsigned k, unsigned i)
{
	struct rows out = { 0 };
	unsigned at = 0;

	for (unsigned part = 0; part < k; part++) {
		unsigned more = part < in->nr % k ? 1 : 0;

		for (unsigned n = 0; n < in->nr / k + more; n++, at++)
			if (part == i)
				out.v[out.nr++] = in->v[at];
	}
	return out;
}

static struct rows naive(const struct ck_of_nd *nd, unsigned d, unsigned n,
			 uint32_t id)
{
	struct rows r = { .nr = n };
	uint32_t left = ck_of_nd_nr(nd);

	for (unsigned i = 0; i < n; i++)
		r.v[i] = i;
	for (unsigned a = 0; a < nd->axes; a++) {
		left /= nd->size[a];
		if (nd->sbp[a] == (int32_t)d)
			r = naive_part(&r, nd->size[a],
				       id / left % nd->size[a]);
	}
	return r;
}

static unsigned below(unsigned *seed, unsigned n)
{
	*seed = *seed * 1103515245u + 12345u;
	return (*seed >> 16) % n;
}

static struct ck_of_nd any_nd(unsigned *seed)
{
	struct ck_of_nd nd = { .axes = 1 + below(seed, 3) };

	for (unsigned a = 0; a < nd.axes; a++) {
		nd.size[a] = 1 + below(seed, 4);
		nd.sbp[a] = (int32_t)below(seed, 4) - 1;
	}
	return nd;
}

Test(of_split, ranges_are_those_of_rows_dealt_out)
{
	unsigned seed = 1;

	for (unsigned turn = 0; turn < 3000; turn++) {
		struct ck_of_nd nd = any_nd(&seed);
		unsigned n = below(&seed, MAX_ROWS), d = below(&seed, 3);

		for (uint32_t id = 0; id < ck_of_nd_nr(&nd); id++) {
			struct rows r = naive(&nd, d, n, id);
			uint64_t start, len;

			ck_of_nd_range(&nd, d, n, id, &start, &len);
			cr_assert_eq(len, r.nr);
			if (len)
				cr_assert_eq(start, r.v[0]);
		}
	}
}

Test(of_split, the_full_shape_follows_from_the_parts)
{
	static uint64_t sizes[64][3];
	const uint64_t *local[64];
	unsigned seed = 7;

	for (unsigned turn = 0; turn < 3000; turn++) {
		struct ck_of_nd nd = any_nd(&seed);
		uint32_t nr = ck_of_nd_nr(&nd), id, out;
		uint64_t full[3], got[3], start;
		bool copy = false;

		for (unsigned d = 0; d < 3; d++)
			full[d] = below(&seed, MAX_ROWS);
		for (uint32_t i = 0; i < nr; i++) {
			for (unsigned d = 0; d < 3; d++)
				ck_of_nd_range(&nd, d, full[d], i, &start,
					       &sizes[i][d]);
			local[i] = sizes[i];
		}
		cr_assert_eq(ck_of_nd_shape(&nd, 3, local, got, &id, &err), 0,
			     "%s", err.msg);
		cr_assert_arr_eq(got, full, sizeof(full));

		/* one part less: the same, if another holds its box */
		out = below(&seed, nr);
		local[out] = NULL;
		for (uint32_t i = 0; i < nr; i++)
			copy |= i != out && ck_of_nd_same(&nd, i, out);
		if (copy) {
			cr_assert_eq(
				ck_of_nd_shape(&nd, 3, local, got, &id, &err),
				0);
			cr_assert_arr_eq(got, full, sizeof(full));
		} else {
			cr_assert_eq(
				ck_of_nd_shape(&nd, 3, local, got, &id, &err),
				-EINVAL);
			cr_assert_eq(id, out);
		}
	}
}

Test(of_split, sizes_that_no_split_gives)
{
	const struct ck_of_nd nd = { .axes = 1, .size = { 3 }, .sbp = { 0 } };
	const uint64_t a[] = { 3 }, b[] = { 3 }, c[] = { 4 };
	const uint64_t *late[] = { a, b, c }, *none[] = { a, b, NULL };
	uint64_t shape[1];
	uint32_t id;

	cr_expect_eq(ck_of_nd_shape(&nd, 1, late, shape, &id, &err), -EINVAL);
	cr_expect_str_eq(err.msg, "it has 3 rows of dimension 0, where 4 of "
				  "10 are its share");
	cr_expect_eq(ck_of_nd_shape(&nd, 1, none, shape, &id, &err), -EINVAL);
	cr_expect_eq(id, 2);
}

Test(of_sbp, words)
{
	int32_t sbp;

	cr_expect(ck_of_sbp_word("split(0)", 8, &sbp) && sbp == 0);
	cr_expect(ck_of_sbp_word("S(12)", 5, &sbp) && sbp == 12);
	cr_expect(ck_of_sbp_word("broadcast", 9, &sbp) &&
		  sbp == CK_OF_BROADCAST);
	cr_expect(ck_of_sbp_word("P", 1, &sbp) && sbp == CK_OF_PARTIAL);
	for (const char *const *w =
		     (const char *const[]){ "", "split", "split()", "split(-1)",
					    "split(99)", "split(0", "S(0)x",
					    "s(0)", NULL };
	     *w; w++)
		cr_expect_not(ck_of_sbp_word(*w, strlen(*w), &sbp), "%s", *w);
}

Test(of_sbp, words_as_people_write_them)
{
	static const struct {
		const char *text;
		int32_t sbp;
	} good[] = {
		{ "flow.sbp.split(1)", 1 },
		{ "oneflow.sbp.split(dim=1)", 1 },
		{ "oneflow.sbp.split(axis=1)", 1 },
		{ "sbp.split(dim = 1)", 1 },
		{ "split( 1 )", 1 },
		{ " S(2) ", 2 },
		{ "[split(1)]", 1 },
		{ "(oneflow.sbp.split(dim=0),)", 0 },
		{ "flow.sbp.broadcast", CK_OF_BROADCAST },
		{ "broadcast()", CK_OF_BROADCAST },
		{ "[ flow.sbp.partial_sum( ) ]", CK_OF_PARTIAL },
	};
	static const char *const bad[] = {
		"flow.split(1)",
		"flow.sbp.",
		"split(dim 1)",
		"split(=1)",
		"split(dim=)",
		"split(rows=1)",
		"split(1, 0)",
		"split(dim=-1)",
		"broadcast(0)",
		"[split(0)",
		"[split(0), B]",
		"[]",
		"()",
		"broadcast)",
		"Broadcast",
		"split(0), split(1)",
		"flow.sbp.split[1]",
		"[[B]]",
	};
	int32_t sbp;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		sbp = 99;
		cr_expect(ck_of_sbp_word(good[i].text, strlen(good[i].text),
					 &sbp) &&
				  sbp == good[i].sbp,
			  "%s: %d", good[i].text, sbp);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect_not(ck_of_sbp_word(bad[i], strlen(bad[i]), &sbp),
			      "%s", bad[i]);
}

static int parse(struct ck_of_sbp *s, const char *text)
{
	return ck_of_sbp_parse(s, text, strlen(text), &err);
}

#define RULE(key, ranks, sbp)                                      \
	"{\"key\": \"" key "\", \"placement\": {\"ranks\": " ranks \
	"}, \"sbp\": " sbp "}"
#define FILE_OF(rules) \
	"{\"world_size\": 4, \"path\": \"m/{rank}/x\", \"rules\": [" rules "]}"

Test(of_sbp, rules)
{
	const struct ck_of_rule *r;
	struct ck_of_sbp s;
	char *path;

	cr_assert_eq(parse(&s, FILE_OF(RULE("*.b*", "[3, 1]", "\"B\"") "," RULE(
				       "w", "[[3, 1], [0, 2]]",
				       "[\"S(0)\", \"split(1)\"]"))),
		     0, "%s", err.msg);
	r = ck_of_sbp_rule(&s, "a.b.bias", 8);
	cr_assert_eq(r, &s.rules[0]);
	cr_expect(r->nr == 2 && r->ranks[0] == 1 && r->ranks[1] == 3);
	r = ck_of_sbp_rule(&s, "w", 1);
	cr_assert_eq(r, &s.rules[1]);
	cr_expect(r->nr == 4 && r->ranks[0] == 0 && r->ranks[3] == 3);
	cr_expect(r->nd.axes == 2 && r->nd.sbp[0] == 0 && r->nd.sbp[1] == 1);
	cr_expect_null(ck_of_sbp_rule(&s, "ww", 2));
	path = ck_of_sbp_path(&s, 3);
	cr_expect_str_eq(path, "m/3/x");
	free(path);
	ck_of_sbp_free(&s);
}

Test(of_sbp, what_is_refused)
{
	static const char *const bad[] = {
		"[]",
		"{\"world_size\": 4}",
		"{\"world_size\": 0, \"path\": \"{rank}\", \"rules\": []}",
		FILE_OF(""),
		FILE_OF(RULE("*", "[]", "\"B\"")),
		FILE_OF(RULE("*", "[4]", "\"B\"")),
		FILE_OF(RULE("*", "[0, 0]", "\"B\"")),
		FILE_OF(RULE("*", "[[0, 1], [2]]", "[\"B\", \"B\"]")),
		FILE_OF(RULE("*", "[[0, 1], 2]", "[\"B\", \"B\"]")),
		FILE_OF(RULE("*", "[0, 1]", "[\"B\", \"B\"]")),
		FILE_OF(RULE("*", "[0, 1]", "\"halved\"")),
		"{\"world_size\": 2, \"path\": \"same\", \"rules\": [" RULE(
			"*", "[0]", "\"B\"") "]}",
		"{\"world_size\": 2, \"path\": \"../{rank}\", \"rules\": [" RULE(
			"*", "[0]", "\"B\"") "]}",
	};
	struct ck_of_sbp s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect_eq(parse(&s, bad[i]), -EINVAL, "%s", bad[i]);
}

/* What would mean something is never passed over; texts are notes. */
Test(of_sbp, members_that_nobody_reads)
{
	static const struct {
		const char *text, *key;
	} bad[] = {
		{ "{\"world_size\": 1, \"path\": \"x\", \"ranks\": [0], "
		  "\"rules\": [" RULE("*", "[0]", "\"B\"") "]}",
		  "\"ranks\"" },
		{ FILE_OF("{\"key\": \"*\", \"nd_sbp\": [\"B\"], "
			  "\"placement\": [0], \"sbp\": \"B\"}"),
		  "rule 1, key \"*\": unknown member \"nd_sbp\"" },
		{ FILE_OF("{\"key\": \"*\", \"sbp\": \"B\", \"placement\": "
			  "{\"ranks\": [0, 1], \"hierarchy\": [1, 2]}}"),
		  "\"placement\": unknown member \"hierarchy\"" },
		{ FILE_OF("{\"key\": \"*\", \"sbp\": \"B\", \"placement\": "
			  "{\"ranks\": [0, 1], \"rnaks\": \"2\"}}"),
		  "unknown member \"rnaks\": expected \"ranks\"" },
		{ FILE_OF("{\"key\": \"*\", \"placement\": [0], \"sbp\": "
			  "\"B\", \"SPB\": \"S(0)\"}"),
		  "rule 1, key \"*\": unknown member \"SPB\": expected "
		  "\"sbp\"" },
		{ FILE_OF("{\"key\": \"*\", \"keys\": \"w\", \"placement\": "
			  "[0], \"sbp\": \"B\"}"),
		  "unknown member \"keys\": expected \"key\"" },
	};
	static const char *const mesh[] = {
		"World_Size", "worldsize",   "world-size", "word_size",
		"world_siez", "worlds_size", "Pat",	   "rule",
	};
	static const char cut[] = "{\"worldsize\": 4, \"rules\": [" RULE(
		"*", "[0, 1]", "\"S(0)\"") "]}";
	static const char notes[] =
		"{\"world_size\": 1, \"path\": \"x\", \"made_by\": \"me\", "
		"\"rule_order\": \"first\", \"size\": \"big\", \"\": \"\", "
		"\"rules\": [{\"key\": \"*\", \"as_written\": \"S\", \"sbp\": "
		"\"B\", \"placement\": {\"type\": \"cpu\", \"ranks\": [0]}}]}";
	ck_auto_json json_t *j = NULL;
	struct ck_of_sbp s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		cr_expect_eq(parse(&s, bad[i].text), -EINVAL);
		cr_expect(strstr(err.msg, bad[i].key), "%s", err.msg);
	}
	cr_assert_eq(ck_json_parse(&j, cut, strlen(cut), &err), 0);
	cr_expect_eq(ck_of_sbp_parse_cut(&s, j, &err), -EINVAL);
	cr_expect(strstr(err.msg, "\"worldsize\""), "%s", err.msg);
	for (size_t i = 0; i < sizeof(mesh) / sizeof(*mesh); i++) {
		char text[200];

		snprintf(text, sizeof(text),
			 "{\"%s\": \"4\", \"rules\": [" RULE("*", "[0, 1]",
							     "\"S(0)\"") "]}",
			 mesh[i]);
		json_decref(j);
		cr_assert_eq(ck_json_parse(&j, text, strlen(text), &err), 0);
		cr_expect_eq(ck_of_sbp_parse_cut(&s, j, &err), -EINVAL, "%s",
			     mesh[i]);
	}
	cr_assert_eq(parse(&s, notes), 0, "%s", err.msg);
	ck_of_sbp_free(&s);
}
