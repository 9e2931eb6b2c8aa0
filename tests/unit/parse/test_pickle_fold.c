/* SPDX-License-Identifier: Apache-2.0 */
/* Objects as numbers: where nothing else has to do with them, and only there. */
#include "core/parse/pickle.h"

#include <criterion/criterion.h>
#include <string.h>

static uint64_t nr; /* objects that were folded */

static uint64_t fold(void *ctx, const struct ck_pickle *p, ck_pv object)
{
	ck_pv state;

	(void)ctx;
	cr_expect(ck_pv_state(p, object, &state));
	return nr++;
}

static struct ck_pickle *parse(const char *bytes, size_t len)
{
	const struct ck_pickle_opts opts = { .fold = fold };
	struct ck_pickle *p = NULL;
	struct ck_err err;

	nr = 0;
	cr_assert_eq(ck_pickle_parse(&p, bytes, len, &opts, NULL, &err), 0,
		     "%s", err.msg);
	return p;
}
#define PARSE(literal) parse(literal, sizeof(literal) - 1)

static ck_pv at(const struct ck_pickle *p, ck_pv v, uint64_t i)
{
	ck_pv out = 0;

	cr_assert(ck_pv_at(p, v, i, &out), "no element %d", (int)i);
	return out;
}

static void expect_number(ck_pv v, uint64_t want)
{
	uint64_t is = 99;

	cr_expect(ck_pv_folded(v, &is) && is == want, "%d", (int)is);
}

/* An object of m.C with {"a": n}, memo entries included. */
static void expect_object(const struct ck_pickle *p, ck_pv v, int64_t n)
{
	ck_pv a;
	int64_t is;

	cr_expect(ck_pv_attr(p, v, "a", &a) && ck_pv_int(p, a, &is) && is == n,
		  "kind %d", ck_pv_kind(v));
}

#define NEW "cm\nC\n)\x81\x94}\x94"
#define STATE(n)    \
	"(\x8c\x01" \
	"aK" n "ub"

Test(pickle_fold, an_object_is_a_number)
{
	struct ck_pickle *p =
		PARSE("\x80\x04](" NEW STATE("\1") NEW STATE("\2") "h\x02h\x00"
								   "e.");
	ck_pv list = ck_pickle_root(p);

	cr_expect_eq(nr, 2);
	expect_number(at(p, list, 0), 0);
	expect_number(at(p, list, 1), 1);
	expect_number(at(p, list, 2), 1);
	expect_number(at(p, list, 3), 0);
	ck_pickle_free(p);
}

Test(pickle_fold, what_lies_in_it_and_is_used_later_stays)
{
	struct ck_pickle *p =
		PARSE("\x80\x04](" NEW "(\x8c\x01"
		      "aK\x05K\x06\x86\x94ub" NEW STATE("\3") "h\x02"
							      "e.");
	ck_pv list = ck_pickle_root(p);
	int64_t n = 0;

	cr_expect_eq(nr, 2);
	expect_number(at(p, list, 0), 0);
	expect_number(at(p, list, 1), 1);
	cr_expect(ck_pv_int(p, at(p, at(p, list, 2), 0), &n) && n == 5);
	cr_expect(ck_pv_int(p, at(p, at(p, list, 2), 1), &n) && n == 6);
	ck_pickle_free(p);
}

Test(pickle_fold, one_whose_dict_is_used_later_stays_an_object)
{
	struct ck_pickle *p = PARSE("\x80\x04](" NEW STATE("\1") "h\x01"
								 "e.");
	ck_pv a;

	expect_object(p, at(p, ck_pickle_root(p), 0), 1);
	cr_expect(ck_pv_key(p, at(p, ck_pickle_root(p), 1), "a", &a));
	ck_pickle_free(p);
}

Test(pickle_fold, one_that_gets_another_state_stays_an_object)
{
	struct ck_pickle *p =
		PARSE("\x80\x04" NEW STATE("\1") "}" STATE("\2") ".");

	expect_object(p, ck_pickle_root(p), 2);
	ck_pickle_free(p);
}

Test(pickle_fold, one_that_is_on_the_stack_twice_stays_an_object)
{
	struct ck_pickle *p = PARSE("\x80\x04(cm\nC\n)\x81"
				    "2}" STATE("\1") "t.");

	cr_expect_eq(nr, 0);
	expect_object(p, at(p, ck_pickle_root(p), 0), 1);
	expect_object(p, at(p, ck_pickle_root(p), 1), 1);
	ck_pickle_free(p);
}

Test(pickle_fold, one_that_is_fetched_inside_of_itself_stays_an_object)
{
	struct ck_pickle *p = PARSE("\x80\x04](" NEW "(\x8c\x01"
				    "ah\x00u" STATE("\1") "h\x00"
							  "e.");

	cr_expect_eq(nr, 0);
	expect_object(p, at(p, ck_pickle_root(p), 0), 1);
	expect_object(p, at(p, ck_pickle_root(p), 1), 1);
	ck_pickle_free(p);
}

Test(pickle_fold, one_in_which_a_memo_entry_is_stored_again_stays_an_object)
{
	struct ck_pickle *p = PARSE("\x80\x02](K\x07q\x00"
				    "cm\nC\n)\x81q\x01}"
				    "q\x00(X\x01\0\0\0aK\x01ub"
				    "h\x00"
				    "e.");
	ck_pv a;

	cr_expect_eq(nr, 0);
	expect_object(p, at(p, ck_pickle_root(p), 1), 1);
	cr_expect(ck_pv_key(p, at(p, ck_pickle_root(p), 2), "a", &a));
	ck_pickle_free(p);
}

/* The list of before then has its elements behind the object. */
Test(pickle_fold, one_in_which_something_older_changes_stays_an_object)
{
	struct ck_pickle *p = PARSE("\x80\x04]\x94"
				    "0"
				    "cm\nC\n)\x81}"
				    "h\x00K\x09\x85"
				    "a0" STATE("\1") "h\x00\x86.");
	ck_pv list = at(p, ck_pickle_root(p), 1);
	int64_t n = 0;

	cr_expect_eq(nr, 0);
	expect_object(p, at(p, ck_pickle_root(p), 0), 1);
	cr_expect(ck_pv_int(p, at(p, at(p, list, 0), 0), &n) && n == 9);
	ck_pickle_free(p);
}
