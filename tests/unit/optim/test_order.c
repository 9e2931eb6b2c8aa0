/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensor a numbered entry of an optimizer belongs to. */
#include "core/optim/order.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NONE CK_OPTIM_NONE

static const uint64_t four[] = { 4 }, six[] = { 6 }, wide[] = { 4, 6 };
static struct ck_optim_tensor t[16];
static struct ck_optim_id id[16];
static size_t nr, nr_ids;
static struct ck_err err;

static void tensor(const char *name, const uint64_t *shape)
{
	t[nr++] = (struct ck_optim_tensor){ .name = name,
					    .name_len = strlen(name),
					    .shape = shape,
					    .rank = shape == wide ? 2 : 1 };
}

static void entry(const uint64_t *shape)
{
	id[nr_ids++] = (struct ck_optim_id){ .shape = shape,
					     .rank = shape == wide ? 2 : 1 };
}

static void order(bool gaps)
{
	cr_assert_eq(ck_optim_order(t, nr, id, nr_ids, gaps, &err), 0, "%s",
		     err.msg);
}

Test(optim_order, one_for_each)
{
	tensor("a", six);
	tensor("b", six);
	entry(six);
	entry(six);
	order(true);
	cr_expect_eq(id[0].tensor, 0);
	cr_expect_eq(id[1].tensor, 1);
	cr_expect(!id[0].convention);
}

Test(optim_order, shapes_find_the_buffer)
{
	tensor("mean", four);
	tensor("first.weight", six);
	tensor("first.bias", four);
	entry(six);
	entry(four);
	order(false);
	cr_expect_eq(id[0].tensor, 1);
	cr_expect_eq(id[1].tensor, 2);
	cr_expect(!id[1].convention);
}

/* gain is one, or shift would have to be a buffer before a parameter. */
Test(optim_order, parameters_come_before_buffers_in_a_module)
{
	tensor("block.gain", six);
	tensor("block.shift", six);
	entry(six);
	order(false);
	cr_expect_eq(id[0].tensor, 0);
	cr_expect(!id[0].convention);
}

Test(optim_order, two_modules_are_told_apart_by_convention_only)
{
	tensor("block.gain", six);
	tensor("block.shift", six);
	tensor("block.norm.weight", six);
	tensor("block.norm.bias", six);
	entry(six);
	entry(six);
	entry(six);
	order(true);
	cr_expect_eq(id[0].tensor, 0);
	cr_expect(!id[0].convention);
	cr_expect_eq(id[1].tensor, 2);
	cr_expect(id[1].convention);
	cr_expect_eq(id[2].tensor, 3);
	cr_expect(id[2].convention);
}

Test(optim_order, what_no_rule_tells)
{
	tensor("a.x", six);
	tensor("b.y", six);
	entry(six);
	order(false);
	cr_expect_eq(id[0].tensor, NONE);
}

/* never used and never saved: a number without states, and no tensor. */
Test(optim_order, a_gap_among_the_tensors)
{
	tensor("a", wide);
	tensor("b", four);
	entry(NULL);
	entry(wide);
	entry(four);
	order(true);
	cr_expect_eq(id[1].tensor, 0);
	cr_expect_eq(id[2].tensor, 1);
	order(false); /* an ordinary module saves all that it has */
	cr_expect_eq(id[1].tensor, NONE);
}

Test(optim_order, tied_names_and_whole_numbers_are_passed)
{
	tensor("emb", wide);
	tensor("order", six);
	t[1].buffer = true;
	tensor("head", wide);
	t[2].tied = true;
	tensor("tail", wide);
	entry(wide);
	entry(wide);
	order(true);
	cr_expect_eq(id[0].tensor, 0);
	cr_expect_eq(id[1].tensor, 3);
}

Test(optim_order, one_that_does_not_fit_spoils_all)
{
	tensor("a", wide);
	tensor("b", four);
	entry(wide);
	entry(six);
	order(true);
	cr_expect_eq(id[0].tensor, NONE);
	cr_expect_eq(id[1].tensor, NONE);
}

static void given(const char *text, int want)
{
	cr_expect_eq(ck_optim_order_given(t, nr, id, nr_ids, text, strlen(text),
					  &err),
		     want, "%s", text);
}

Test(optim_order, the_users_list)
{
	tensor("a", six);
	tensor("b", six);
	tensor("c", wide);
	entry(six);
	entry(NULL);
	given("b\nnever\n", 0);
	cr_expect_eq(id[0].tensor, 1);
	cr_expect_eq(id[1].tensor, NONE);
	given("b\r\na", 0);
	cr_expect_eq(id[1].tensor, 0);
	given("c\na\n", -EINVAL);
	cr_expect(strstr(err.msg, "line 1"), "%s", err.msg);
	given("x\na\n", -EINVAL);
	given("b\n", -EINVAL);
	given("b\na\nc\n", -EINVAL);
}

/* Over the limit of cells nothing is told, and nothing runs for minutes. */
Test(optim_order, too_many_to_try)
{
	static struct ck_optim_tensor many[9001];
	static struct ck_optim_id ids[9000];
	static char name[9001][12];

	for (size_t i = 0; i < 9001; i++) {
		snprintf(name[i], sizeof(name[i]), "m%zu.x", i);
		many[i] = (struct ck_optim_tensor){ .name = name[i],
						    .name_len = strlen(name[i]),
						    .shape = six,
						    .rank = 1 };
	}
	for (size_t i = 0; i < 9000; i++)
		ids[i] = (struct ck_optim_id){ .shape = six, .rank = 1 };
	cr_assert_eq(ck_optim_order(many, 9001, ids, 9000, true, &err), 0);
	cr_expect_eq(ids[0].tensor, NONE);
}
