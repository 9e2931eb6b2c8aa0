/* SPDX-License-Identifier: Apache-2.0 */
/* MindSpore's strategies as meshes to come, against slices named by hand. */
#include "tests/unit/reshard/meshkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static void setup(void)
{
	mk_init();
	mk_whole("w", 8, 8);
	mk_whole("moments.w", 8, 8);
	mk_whole("global_step", 8, 8);
	kit_image(&mk.kit);
}
TestSuite(strategy, .init = setup, .fini = mk_free);

/* One layout for "w"; -1000: not the file, but the tensor is at fault. */
static int try(const char *name, const char *dev, const char *map,
	       const char *shape, int shards)
{
	ck_auto_str struct ck_str json = { 0 };
	int ret;

	ck_str_fmt(&json,
		   "{\"current_stage\": 0, \"parallel_layout_item\": {\"%s\": "
		   "{\"dev_matrix\": %s, \"tensor_map\": %s, "
		   "\"tensor_shape\": %s, \"field\": 0, "
		   "\"opt_weight_shard_step\": 0, "
		   "\"opt_weight_shard_size\": %d}}, "
		   "\"parallel_strategy_item\": {}}",
		   name, dev, map, shape, shards);
	ret = mk_try_file("s.json", json.v, json.len);
	return ret && !mk.of_spec ? -1000 : ret;
}

Test(strategy, two_of_four)
{
	cr_assert_eq(try("w", "[2]", "[0, -1]", "[8, 8]", 0), 0, "%s",
		     mk.err.msg);
	cr_expect_eq(ck_reshard_ranks(mk.rs), 2);
	mk_holds(0, "w", "[0:4, 0:8]");
	mk_holds(1, "w", "[4:8, 0:8]");
	mk_holds(1, "moments.w", "[0:8, 0:8]");
	mk_holds(0, "global_step", "[0:8, 0:8]");
}

/* Misspelt, often: what it was said of is then whole on every rank. */
Test(strategy, what_fits_no_tensor_is_noted)
{
	ck_auto_str struct ck_str s = { 0 };

	cr_assert_eq(try("W", "[2]", "[0, -1]", "[8, 8]", 0), 0);
	ck_reshard_note(mk.rs, "s", &s);
	cr_assert(s.v);
	cr_expect_str_eq(s.v, "s: fits no tensor: parameter \"W\"");
	cr_expect(ck_reshard_unused_options(mk.rs));
	ck_str_free(&s);
	cr_assert_eq(try("w", "[2]", "[0, -1]", "[8, 8]", 0), 0);
	ck_reshard_note(mk.rs, "s", &s);
	cr_expect_null(s.v);
	cr_expect_not(ck_reshard_unused_options(mk.rs));
}

/* Axes count from the right; the leftmost is the most significant. */
Test(strategy, grids)
{
	cr_assert_eq(try("w", "[4, 2]", "[0, 1]", "[8, 8]", 0), 0, "%s",
		     mk.err.msg);
	mk_holds(1, "w", "[4:8, 0:2]");
	mk_holds(6, "w", "[0:4, 6:8]");
	cr_assert_eq(try("w", "[2, 1, 2]", "[-1, 2]", "[8, 8]", 0), 0, "%s",
		     mk.err.msg);
	mk_holds(1, "w", "[0:8, 0:4]");
	mk_holds(2, "w", "[0:8, 4:8]");
}

Test(strategy, optimizer_shards)
{
	cr_assert_eq(try("w", "[2, 2]", "[-1, 0]", "[8, 8]", -1), 0, "%s",
		     mk.err.msg);
	mk_holds(0, "w", "[0:4, 0:4]");
	mk_holds(1, "w", "[0:4, 4:8]");
	mk_holds(2, "w", "[4:8, 0:4]");
	cr_assert_eq(try("w", "[8]", "[-1, -1]", "[8, 8]", 2), 0, "%s",
		     mk.err.msg);
	mk_holds(4, "w", "[0:4, 0:8]");
	mk_holds(5, "w", "[4:8, 0:8]");
}

/* JSON says a dimension that two axes cut as two dimensions. */
Test(strategy, nested)
{
	cr_assert_eq(try("w", "[2, 2]", "[1, 0, -1]", "[2, 4, 8]", 0), 0, "%s",
		     mk.err.msg);
	mk_holds(1, "w", "[2:4, 0:8]");
	mk_holds(2, "w", "[4:6, 0:8]");
	cr_expect_eq(try("w", "[2, 2]", "[1, 0, -1]", "[2, 3, 8]", 0), -1000);
	cr_expect(strstr(mk.err.msg, "w: "), "%s", mk.err.msg);
}

Test(strategy, stages)
{
	cr_expect_eq(try("1-w", "[2]", "[-1, 0]", "[8, 8]", 0), -EINVAL);
	cr_expect(strstr(mk.err.msg, "and not stage 0"), "%s", mk.err.msg);
	cr_assert_eq(try("0-x\": {\"dev_matrix\": [2], \"tensor_map\": [0]}, "
			 "\"1-w",
			 "[2]", "[-1, 0]", "[8, 8]", 0),
		     0, "%s", mk.err.msg);
	cr_expect_eq(ck_reshard_ranks(mk.rs), 4);
	mk_holds(1, "w", NULL);
	mk_holds(2, "w", "[0:8, 0:4]");
	mk_holds(3, "w", "[0:8, 4:8]");
	mk_holds(0, "moments.w", "[0:8, 0:8]");
}

/* Tied weights: each stage that has them cuts them in its own way. */
Test(strategy, a_parameter_of_several_stages)
{
	static const char *const first =
		"0-w\": {\"dev_matrix\": [2], \"tensor_map\": [0, -1]}, "
		"\"1-x\": {\"dev_matrix\": [2], \"tensor_map\": [0]}, "
		"\"2-w";

	cr_assert_eq(try(first, "[2]", "[-1, 0]", "[8, 8]", 0), 0, "%s",
		     mk.err.msg);
	cr_expect_eq(ck_reshard_ranks(mk.rs), 6);
	mk_holds(0, "w", "[0:4, 0:8]");
	mk_holds(1, "w", "[4:8, 0:8]");
	mk_holds(2, "w", NULL);
	mk_holds(3, "w", NULL);
	mk_holds(4, "w", "[0:8, 0:4]");
	mk_holds(5, "w", "[0:8, 4:8]");
	cr_expect_eq(ck_reshard_first(mk.rs, kit_find(&mk.kit, "w")), 0);
	cr_expect_not(ck_reshard_uncut(mk.rs, kit_find(&mk.kit, "w")));
	/* what the second stage says is looked at as well */
	cr_expect_eq(try("0-w\": {\"dev_matrix\": [2], "
			 "\"tensor_map\": [-1, -1]}, \"1-w",
			 "[2]", "[0, 0]", "[8, 8]", 0),
		     -1000);
	cr_expect(strstr(mk.err.msg, "w: "), "%s", mk.err.msg);
}

Test(strategy, what_does_not_divide_is_named)
{
	cr_expect_eq(try("w", "[16]", "[0, -1]", "[8, 8]", 0), -1000);
	cr_expect(strstr(mk.err.msg, "w: dimension 0: 8"), "%s", mk.err.msg);
	cr_expect_eq(try("w", "[2]", "[1, -1]", "[8, 8]", 0), -EINVAL);
	cr_expect_eq(try("w", "[0]", "[0, -1]", "[8, 8]", 0), -EINVAL);
	cr_expect_eq(try("w", "[65536, 2]", "[0, -1]", "[8, 8]", 0), -EINVAL);
}

/* Of which nothing but the shape says that it is of another model. */
Test(strategy, another_shape_is_refused)
{
	static const struct {
		const char *map, *shape, *found;
	} bad[] = {
		{ "[0, -1]", "[16, 8]", "tensor_shape [16, 8]: it is of an" },
		{ "[0, -1]", "[4, 16]", "tensor_shape [4, 16]: it is of an" },
		{ "[0]", "[64]", "tensor_shape [64]: it is of another model" },
		{ "[0, 1, -1]", "[4, 2, 8]", "[4, 2, 8], which does not make" },
		{ "[0, 1, -1]", "[2, 2, 8]", "[2, 2, 8], which does not make" },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++) {
		cr_expect_eq(try("w", "[2, 2]", bad[i].map, bad[i].shape, 0),
			     -1000, "%s", bad[i].shape);
		cr_expect(strstr(mk.err.msg, "w: its shape is [8, 8]") &&
				  strstr(mk.err.msg, bad[i].found),
			  "%s", mk.err.msg);
	}
	cr_expect_eq(try("w", "[2, 2]", "[0, 1, -1]", "[2, 4, 8]", 0), 0, "%s",
		     mk.err.msg);
	cr_expect_eq(try("w", "[2, 2]", "[0, -1, -1]", "[8, 8, 1]", 0), 0, "%s",
		     mk.err.msg);
}
