/* SPDX-License-Identifier: Apache-2.0 */
/* Votes of files that lie together, and how the odd ones are worded. */
#include "core/audit/audit.h"
#include "tests/lib/memsource.h"

#include <criterion/criterion.h>
#include <string.h>

#define NONE CK_AUDIT_NONE

/* Fact 0 is the step, fact 1 the number of ranks. */
static struct ck_audit_file file(const char *name, uint64_t rank, int64_t step,
				 int64_t world)
{
	return (struct ck_audit_file){ .name = name,
				       .counts = true,
				       .rank = rank,
				       .fact = { step, world } };
}

static struct ck_audit audit(struct ck_audit_file *v, size_t nr)
{
	return (struct ck_audit){ .v = v, .nr = nr, .facts = 2, .world = 1 };
}

Test(audit, alike)
{
	struct ck_audit_file v[] = { file("a", 0, 7, 2), file("b", 1, 7, 2) };
	const struct ck_audit a = audit(v, 2);
	struct ck_audit_vote vote;

	ck_audit_vote(&a, &vote);
	cr_assert(vote.first == 0 && vote.other == NONE && vote.named == NONE);
	cr_assert(vote.whole == 0 && vote.most == 0);
	v[0].counts = v[1].counts = false;
	ck_audit_vote(&a, &vote);
	cr_assert(vote.first == NONE && vote.whole == NONE &&
		  vote.most == NONE);
}

Test(audit, a_whole_set_beside_others)
{
	struct ck_audit_file v[] = { file("a", 0, 7, 2), file("b", 1, 7, 2),
				     file("c", 2, 8, 9), file("d", 3, 8, 9),
				     file("e", 4, 8, 9) };
	const struct ck_audit a = audit(v, 5);
	struct ck_audit_vote vote;

	ck_audit_vote(&a, &vote);
	cr_assert(vote.other == 2 && vote.whole == 0);
	/* three of five say it, and that they are of nine */
	cr_assert(vote.most == NONE);
	cr_assert(ck_audit_is_other(&a, 2, 0) && !ck_audit_is_other(&a, 1, 0));
	v[1].rank = 2;
	cr_assert(ck_audit_is_other(&a, 1, 0),
		  "of two ranks none is the third");
	ck_audit_vote(&a, &vote);
	cr_assert_eq(vote.whole, NONE);
}

Test(audit, two_whole_sets_are_none)
{
	struct ck_audit_file v[] = { file("a", 0, 7, 1), file("b", 0, 8, 1) };
	const struct ck_audit a = audit(v, 2);
	struct ck_audit_vote vote;

	ck_audit_vote(&a, &vote);
	cr_assert(vote.other == 1 && vote.whole == NONE && vote.most == NONE);
}

Test(audit, named_and_most)
{
	struct ck_audit_file v[] = { file("a", 0, 7, 0), file("b", 1, 8, 0),
				     file("c", 2, 8, 0) };
	struct ck_audit a = { .v = v, .nr = 3, .facts = 1, .world = -1 };
	const int64_t seven = 7;
	struct ck_audit_vote vote;

	a.named = &seven;
	ck_audit_vote(&a, &vote);
	cr_assert(vote.named == 0 && vote.most == 1 && vote.whole == NONE);
	a.all = 4;
	ck_audit_vote(&a, &vote);
	cr_assert_eq(vote.most, NONE, "two of four are not most");
}

Test(audit, words)
{
	struct ck_audit_file v[] = { file("a", 0, 7, 2), file("b", 1, 8, 2),
				     file("c", 5, 7, 2) };
	const struct ck_audit a = audit(v, 3);
	const struct ck_audit_words w = { .fact = { "steps {mine} and {meant}",
						    "{mine} ranks" } };
	ck_auto_str struct ck_str s = { 0 };

	ck_audit_text(&s, "of {file}: {difference} {x}", &a, 1, 0, &w);
	cr_assert_str_eq(s.v, "of a: steps 8 and 7 {x}");
	s.len = 0;
	ck_audit_text(&s, "{difference}", &a, 2, 0, &w);
	cr_assert_str_eq(s.v, "2 ranks");
	s.len = 0;
	ck_audit_text(&s, "{mine}{meant}", &a, 1, NONE, &w);
	cr_assert_str_eq(s.v, "8{meant}");
}

Test(audit, weights_are_the_master_copy_rounded)
{
	const float full[] = { 1.00390625f, 0x1.01p0f, __builtin_nanf(""), 3 };
	uint16_t bf16[] = { 0x3f80, 0x3f80, 0x1234, 0x4040 };
	ck_auto_source struct ck_source *a =
		memsource(full, sizeof(full), "full");
	ck_auto_source struct ck_source *b =
		memsource(bf16, sizeof(bf16), "bf16");
	const struct ck_audit_run master = { .s = a, .dtype = CK_DT_F32 };
	struct ck_audit_run weights = { .s = b, .dtype = CK_DT_BF16 };
	struct ck_audit_budget budget = { .each = 4, .left = 9 };

	cr_assert_eq(ck_audit_rounded(&master, &weights, 4, &budget), 0);
	cr_assert_eq(budget.left, 5);
	bf16[3] = 0x4041;
	cr_assert_eq(ck_audit_rounded(&master, &weights, 4, &budget), 1);
	cr_assert_eq(ck_audit_rounded(&master, &weights, 4, &budget), 0,
		     "one element is left, and it is the same");
	weights.dtype = CK_DT_I16;
	cr_assert_not(ck_audit_can_round(&master, &weights));
	cr_assert_eq(ck_audit_rounded(&master, &weights, 4, &budget), 0);
}
