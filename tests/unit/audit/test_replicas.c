/* SPDX-License-Identifier: Apache-2.0 */
/* What bytes that are alike, or not, tell of parts and of copies. */
#include "core/audit/replicas.h"

#include <criterion/criterion.h>

static struct ck_audit_pieces pieces(const struct ck_audit_piece *v, size_t nr)
{
	struct ck_audit_pieces p = { 0 };

	for (size_t i = 0; i < nr; i++)
		cr_assert(ck_audit_pieces_add(&p, &v[i]));
	return p;
}
#define PIECES(...)                                                     \
	pieces((const struct ck_audit_piece[]){ __VA_ARGS__ },          \
	       sizeof((const struct ck_audit_piece[]){ __VA_ARGS__ }) / \
		       sizeof(struct ck_audit_piece))

static struct ck_audit_piece piece(uint64_t group, uint64_t part, uint64_t like,
				   uint32_t file)
{
	return (struct ck_audit_piece){
		.group = group, .part = part, .like = like, .file = file
	};
}

Test(audit_replicas, parts_differ_or_are_the_same)
{
	ck_auto_audit_pieces struct ck_audit_pieces p =
		PIECES(piece(2, 0, 7, 0), piece(1, 0, 5, 1), piece(2, 0, 7, 2),
		       piece(2, 1, 7, 3), piece(1, 1, 0, 4), piece(1, 2, 5, 5));
	struct ck_audit_parts out = { .differ = false };

	ck_audit_parts(&p, &out);
	cr_assert_not(out.differ);
	cr_assert(out.same == 2 && !out.constant);
	cr_assert(out.a == 0 && out.b == 3, "the first in the order given");
	p.v.v[0].constant = p.v.v[1].constant = p.v.v[2].constant = true;
	out = (struct ck_audit_parts){ .differ = false };
	ck_audit_parts(&p, &out);
	cr_assert(out.same + out.constant == 2 && out.constant);
	p.v.v[5].form = 9;
	ck_audit_parts(&p, &out);
	cr_assert(out.differ, "shapes do");
}

Test(audit_replicas, parts_that_are_all_twice_are_copies)
{
	ck_auto_audit_pieces struct ck_audit_pieces p =
		PIECES(piece(0, 0, 7, 0), piece(0, 1, 8, 1), piece(0, 2, 7, 2),
		       piece(0, 3, 8, 3));
	ck_auto_audit_pieces struct ck_audit_pieces none = { 0 };

	cr_assert(ck_audit_all_twice(&p));
	cr_assert_not(ck_audit_all_twice(&none));
	p.v.v[0].group = 1;
	cr_assert_not(ck_audit_all_twice(&p));
}

Test(audit_replicas, of_three_copies_none_agree)
{
	ck_auto_audit_pieces struct ck_audit_pieces p =
		PIECES(piece(0, 0, 7, 0), piece(0, 0, 8, 1), piece(0, 1, 9, 2));

	cr_assert_not(ck_audit_none_agree(&p), "one may be damaged");
	p.v.v[2].part = 0;
	cr_assert(ck_audit_none_agree(&p));
	p.v.v[2].like = 7;
	cr_assert_not(ck_audit_none_agree(&p));
}

Test(audit_replicas, the_odd_one_of_three)
{
	ck_auto_audit_pieces struct ck_audit_pieces p =
		PIECES(piece(0, 0, 7, 0), piece(0, 0, 8, 1), piece(0, 0, 7, 2),
		       piece(0, 0, 0, 3));
	struct ck_audit_odd odd[4] = { { 0 } };

	ck_audit_count_odd(&p, odd);
	cr_assert(odd[0].compared == 1 && !odd[0].odd);
	cr_assert(odd[1].odd == 1 && !odd[1].lonely);
	cr_assert_eq(odd[3].compared, 0);
	p.v.v[2].like = 9;
	ck_audit_count_odd(&p, odd);
	cr_assert(odd[0].odd == 1 && odd[0].lonely == 1);
	cr_assert(odd[1].compared == 2 && odd[1].odd == 2);
}
