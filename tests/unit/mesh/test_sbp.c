/* SPDX-License-Identifier: Apache-2.0 */
/* OneFlow's SBP in words, and its rules. */
#include "core/mesh/sbp.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ck_err err;

Test(sbp, words)
{
	int32_t sbp;

	cr_expect(ck_sbp_word("split(0)", 8, &sbp) && sbp == 0);
	cr_expect(ck_sbp_word("S(12)", 5, &sbp) && sbp == 12);
	cr_expect(ck_sbp_word("broadcast", 9, &sbp) && sbp == CK_SBP_BROADCAST);
	cr_expect(ck_sbp_word("P", 1, &sbp) && sbp == CK_SBP_PARTIAL);
	for (const char *const *w =
		     (const char *const[]){ "", "split", "split()", "split(-1)",
					    "split(99)", "split(0", "S(0)x",
					    "s(0)", NULL };
	     *w; w++)
		cr_expect_not(ck_sbp_word(*w, strlen(*w), &sbp), "%s", *w);
}

Test(sbp, words_as_people_write_them)
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
		{ "flow.sbp.broadcast", CK_SBP_BROADCAST },
		{ "broadcast()", CK_SBP_BROADCAST },
		{ "[ flow.sbp.partial_sum( ) ]", CK_SBP_PARTIAL },
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
		cr_expect(
			ck_sbp_word(good[i].text, strlen(good[i].text), &sbp) &&
				sbp == good[i].sbp,
			"%s: %d", good[i].text, sbp);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect_not(ck_sbp_word(bad[i], strlen(bad[i]), &sbp), "%s",
			      bad[i]);
}

static int parse(struct ck_sbp *s, const char *text, bool saved)
{
	ck_auto_json json_t *j = NULL;
	int ret = ck_json_parse(&j, text, strlen(text), &err);

	*s = (struct ck_sbp){ 0 };
	if (!ret)
		ret = ck_sbp_head(s, j, saved, &err);
	return ret ? ret : ck_sbp_rules(s, j, &err);
}

#define RULE(key, ranks, sbp)                                      \
	"{\"key\": \"" key "\", \"placement\": {\"ranks\": " ranks \
	"}, \"sbp\": " sbp "}"
#define FILE_OF(rules) \
	"{\"world_size\": 4, \"path\": \"m/{rank}/x\", \"rules\": [" rules "]}"

Test(sbp, rules)
{
	const struct ck_sbp_rule *r;
	struct ck_sbp s;

	cr_assert_eq(parse(&s,
			   FILE_OF(RULE("*.b*", "[3, 1]", "\"B\"") "," RULE(
				   "w", "[[3, 1], [0, 2]]",
				   "[\"S(0)\", \"split(1)\"]")),
			   true),
		     0, "%s", err.msg);
	r = ck_sbp_rule(&s, "a.b.bias", 8);
	cr_assert_eq(r, &s.rules[0]);
	cr_expect(r->nr == 2 && r->place[0].rank == 1 && r->place[1].rank == 3);
	r = ck_sbp_rule(&s, "w", 1);
	cr_assert_eq(r, &s.rules[1]);
	cr_expect(r->nr == 4 && r->place[0].rank == 0 && r->place[3].rank == 3);
	cr_expect(r->axes == 2 && r->sbp[0] == 0 && r->sbp[1] == 1);
	cr_expect_null(ck_sbp_rule(&s, "ww", 2));
	ck_sbp_free(&s);
}

Test(sbp, what_is_refused)
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
	};
	struct ck_sbp s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect_eq(parse(&s, bad[i], true), -EINVAL, "%s", bad[i]);
}

/* What would mean something is never passed over; texts are notes. */
Test(sbp, members_that_nobody_reads)
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
	struct ck_sbp s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		cr_expect_eq(parse(&s, bad[i].text, true), -EINVAL);
		cr_expect(strstr(err.msg, bad[i].key), "%s", err.msg);
	}
	cr_expect_eq(parse(&s, cut, false), -EINVAL);
	cr_expect(strstr(err.msg, "\"worldsize\""), "%s", err.msg);
	for (size_t i = 0; i < sizeof(mesh) / sizeof(*mesh); i++) {
		char text[200];

		snprintf(text, sizeof(text),
			 "{\"%s\": \"4\", \"rules\": [" RULE("*", "[0, 1]",
							     "\"S(0)\"") "]}",
			 mesh[i]);
		cr_expect_eq(parse(&s, text, false), -EINVAL, "%s", mesh[i]);
	}
	cr_assert_eq(parse(&s, notes, true), 0, "%s", err.msg);
	ck_sbp_free(&s);
}

/* The second axis cuts what the first has left; sums are of all but one. */
Test(sbp, as_a_placement)
{
	const uint64_t shape[] = { 7, 3 };
	struct ck_placement p = { 0 };
	struct ck_shard out;
	struct ck_sbp s;
	bool zeros;

	cr_assert_eq(parse(&s,
			   FILE_OF(RULE("w", "[[[5, 1], [0, 2]]]",
					"[\"P\", \"S(0)\", \"S(0)\"]")),
			   false),
		     -EINVAL);
	cr_assert_eq(
		parse(&s,
		      "{\"rules\": [" RULE("w", "[[[5, 1], [0, 2]]]",
					   "[\"P\", \"S(0)\", \"S(0)\"]") "]}",
		      false),
		0, "%s", err.msg);
	cr_expect_eq(s.world, 6);
	ck_sbp_placement(s.rules, &p);
	cr_expect_eq(p.partial, 1);
	cr_expect_eq(p.mesh.ranks, 4);
	for (uint32_t at = 0; at < 4; at++) {
		static const uint64_t start[] = { 0, 2, 4, 6 };
		static const uint32_t rank[] = { 0, 1, 2, 5 };

		cr_expect_eq(ck_mesh_rank_at(&p.mesh, at), rank[at]);
		cr_assert_eq(
			ck_placement_at(&p, at, shape, 2, &out, &zeros, &err),
			0);
		cr_expect_eq(out.box.start[0], start[at]);
		cr_expect_eq(out.box.len[0], at < 3 ? 2 : 1);
	}
	ck_sbp_free(&s);
}
