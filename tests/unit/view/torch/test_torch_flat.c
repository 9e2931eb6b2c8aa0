/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers that were saved flattened: groups, order, what stays as it is. */
#include "core/view/torch/torch_flat.h"

#include "core/view/torch/torch_tree.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEAVES 64

static struct viewkit k;
static struct ck_str values;
static struct ck_tree_leaves leaves;
static struct ck_torch_flat flat;
static struct ck_str got; /* "path value" lines of what was nested */
static struct ck_err err;
static uint32_t nr_saved; /* keys so far */

/* Objects, by name as a catalog has them, each an opcode as its value. */
static struct {
	char name[128], opcode;
} object[MAX_LEAVES];
static unsigned nr_objects;

static void setup(void)
{
	vk_init(&k);
	nr_objects = nr_saved = 0;
}

static void teardown(void)
{
	ck_torch_flat_free(&flat);
	free(leaves.v);
	ck_str_free(&values);
	ck_str_free(&got);
	vk_free(&k);
}
TestSuite(torch_flat, .init = setup, .fini = teardown);

static void order(const char *name)
{
	cr_assert_eq(ck_builder_order(k.kit.b, 0, name, strlen(name),
				      ++nr_saved, &err),
		     0);
}

/* Saved under one key of a dict "o", as DCP joins names. */
static void put(const char *key, char opcode)
{
	struct ck_object_in o = { .enc = CK_ENC_RAW, .src = k.src };
	struct ck_path_part part[2] = {
		{ .key = "o", .key_len = 1, .index = -1 },
		{ .key = key, .key_len = strlen(key), .index = -1 },
	};
	char name[128];

	snprintf(name, sizeof(name), "o.%s", key);
	o.name = name;
	o.name_len = strlen(name);
	cr_assert_eq(ck_builder_object(k.kit.b, &o, &err), 0, "%s", err.msg);
	cr_assert_eq(
		ck_builder_path(k.kit.b, 0, name, strlen(name), part, 2, &err),
		0, "%s", err.msg);
	order(name);
	strcpy(object[nr_objects].name, name);
	object[nr_objects++].opcode = opcode;
}

/* A tensor likewise, of @nr bytes. */
static void put_tensor(const char *key, uint64_t nr)
{
	char path[128], name[128];

	snprintf(path, sizeof(path), "o/%s", key);
	snprintf(name, sizeof(name), "o.%s", key);
	vk_nested_of(&k, path, CK_DT_U8, 1, &nr);
	order(name);
}

static void put_state(const char *key)
{
	put_tensor(key, 2);
}

static char opcode_of(const char *name)
{
	for (unsigned i = 0; i < nr_objects; i++)
		if (!strcmp(object[i].name, name))
			return object[i].opcode;
	cr_assert_fail("no object %s", name);
	return 0;
}

/* All tensors are of zeros but for those whose name has "other" in it. */
static bool read_tensor(void *ctx, uint32_t tensor, void *buf, uint64_t len)
{
	const struct ck_catalog *img = ctx;
	const char *name = ck_catalog_str(img, img->tensors[tensor].name, NULL);

	memset(buf, strstr(name, "other") != NULL, len);
	return !strstr(name, "lost");
}

static void report_leaf(const struct ck_catalog *img,
			const struct ck_tree_leaf *l)
{
	for (unsigned i = 0; i < ck_leaf_depth(img, l); i++) {
		struct ck_nest_part p = ck_leaf_part(img, l, i);

		if (p.key)
			ck_str_fmt(&got, "/%.*s", (int)p.len, p.key);
		else
			ck_str_fmt(&got, "/#%d", (int)p.index);
	}
	if (l->len == 4)
		ck_str_fmt(&got, " %c", values.v[l->at + 2]);
	/* a list: what is text in it, without lengths and opcodes */
	for (size_t i = 0; l->len > 4 && i < l->len; i++)
		if (values.v[l->at + i] == 'X')
			ck_str_fmt(&got, " %.*s", values.v[l->at + i + 1],
				   values.v + l->at + i + 5);
	ck_str_puts(&got, "\n");
}

static void add_leaf(const struct ck_catalog *img, uint32_t ref)
{
	struct ck_tree_leaf l = { .ref = ref, .at = values.len };
	const struct ck_object *o;

	if (ref >= img->nr_tensors) {
		o = &img->objects[ref - img->nr_tensors];
		ck_str_fmt(&values, "\x80\x02%c.",
			   opcode_of(ck_catalog_str(img, o->name, NULL)));
		l.len = 4;
	}
	*ck_vec_push(&leaves) = l;
}

/* What comes of it, each leaf a line. */
static const char *nest(void)
{
	const struct ck_catalog *img = vk_image(&k);

	for (uint32_t i = 0; i < img->nr_tensors + img->nr_objects; i++)
		add_leaf(img, i);
	ck_leaves_sort(img, &leaves);
	flat = (struct ck_torch_flat){ .img = img,
				       .leaves = &leaves,
				       .values = &values,
				       .read = read_tensor,
				       .ctx = (void *)img };
	cr_assert_eq(ck_torch_flat_nest(&flat, &err), 0, "%s", err.msg);
	for (size_t i = 0; i < leaves.nr; i++)
		report_leaf(img, &leaves.v[i]);
	return got.v;
}

static void stays_flat(const char *why)
{
	const char *lines = nest();

	cr_expect_eq(flat.nr, 0);
	cr_assert(flat.why && strstr(flat.why, why), "%s", flat.why);
	cr_expect(strstr(lines, "/o/param_groups."), "%s", lines);
	cr_expect(!strstr(lines, "/#"), "%s", lines);
	cr_expect(!strstr(lines, "/state/"), "%s", lines);
}

Test(torch_flat, groups_are_runs_of_equal_values)
{
	put_state("state.b.w.exp_avg");
	put_state("state.b.exp_avg");
	put_state("state.a.exp_avg");
	put("param_groups.b.w.lr", 'N');
	put("param_groups.b.w.eps", 'N');
	put("param_groups.b.lr", 'N');
	put("param_groups.b.eps", 'N');
	put("param_groups.a.lr", 'N');
	put("param_groups.a.eps", '\x88');
	put("param_groups.c.lr", 'N');
	put("param_groups.c.eps", 'N');
	cr_expect_str_eq(nest(), "/o/param_groups/#0/eps N\n"
				 "/o/param_groups/#0/lr N\n"
				 "/o/param_groups/#0/params b.w b\n"
				 "/o/param_groups/#1/eps \x88\n"
				 "/o/param_groups/#1/lr N\n"
				 "/o/param_groups/#1/params a\n"
				 "/o/param_groups/#2/eps N\n"
				 "/o/param_groups/#2/lr N\n"
				 "/o/param_groups/#2/params c\n"
				 "/o/state/a/exp_avg\n"
				 "/o/state/b/exp_avg\n"
				 "/o/state/b.w/exp_avg\n");
	cr_expect_eq(flat.nr, 1);
	cr_expect_eq(flat.nr_groups, 3);
	cr_expect_null(flat.why);
}

/* A group that has a value more is another one. */
Test(torch_flat, other_keys_are_another_group)
{
	put("param_groups.a.lr", 'N');
	put("param_groups.b.eps", 'N');
	put("param_groups.b.lr", 'N');
	nest();
	cr_expect_eq(flat.nr_groups, 2);
}

Test(torch_flat, states_may_be_dicts)
{
	put_state("state.a.b.shampoo.0.l");
	put_state("state.a.b.step");
	put("param_groups.a.b.lr", 'N');
	put("param_groups.a.lr", 'N');
	cr_expect_str_eq(nest(), "/o/param_groups/#0/lr N\n"
				 "/o/param_groups/#0/params a.b a\n"
				 "/o/state/a.b/shampoo/0/l\n"
				 "/o/state/a.b/step\n");
}

Test(torch_flat, rates_may_be_tensors)
{
	put_tensor("param_groups.a.lr", 4);
	put("param_groups.a.eps", 'N');
	put_tensor("param_groups.b.lr", 4);
	put("param_groups.b.eps", 'N');
	put_tensor("param_groups.other.lr", 4);
	put("param_groups.other.eps", 'N');
	cr_expect_str_eq(nest(), "/o/param_groups/#0/eps N\n"
				 "/o/param_groups/#0/lr\n"
				 "/o/param_groups/#0/params a b\n"
				 "/o/param_groups/#1/eps N\n"
				 "/o/param_groups/#1/lr\n"
				 "/o/param_groups/#1/params other\n");
}

Test(torch_flat, rates_that_cannot_be_read)
{
	put_tensor("param_groups.a.lr", 4);
	put_tensor("param_groups.lost.lr", 4);
	stays_flat("cannot be read");
}

Test(torch_flat, large_rates)
{
	put_tensor("param_groups.a.lr", 65);
	put_tensor("param_groups.b.lr", 65);
	stays_flat("large");
}

/* The one before the last rank's keys come after all of the last one's. */
Test(torch_flat, parts_of_several_ranks)
{
	put_state("state.c.exp_avg");
	put("param_groups.c.lr", 'N');
	put_state("state.a.exp_avg");
	put("param_groups.a.lr", 'N');
	stays_flat("several ranks");
}

Test(torch_flat, keys_of_two_parameters_mixed)
{
	put("param_groups.a.lr", 'N');
	put("param_groups.b.lr", 'N');
	put("param_groups.a.eps", 'N');
	put("param_groups.b.eps", 'N');
	stays_flat("several ranks");
}

Test(torch_flat, no_order)
{
	static const char name[] = "param_groups.a.lr";
	struct ck_object_in o = { .enc = CK_ENC_RAW,
				  .src = k.src,
				  .name = name,
				  .name_len = strlen(name) };

	cr_assert_eq(ck_builder_object(k.kit.b, &o, &err), 0);
	strcpy(object[nr_objects].name, name);
	object[nr_objects++].opcode = 'N';
	nest();
	cr_expect_eq(flat.nr, 0);
	cr_expect(strstr(flat.why, "no order"), "%s", flat.why);
}

Test(torch_flat, states_of_nobody)
{
	put_state("state.a.exp_avg");
	put_state("state.z.exp_avg");
	put("param_groups.a.lr", 'N');
	stays_flat("of no parameter");
}

Test(torch_flat, a_state_that_is_a_dict_too)
{
	put_state("state.a.m");
	put_state("state.a.m.x");
	put("param_groups.a.lr", 'N');
	stays_flat("a value and a dict");
}

Test(torch_flat, half_flattened)
{
	put_state("state.a.m");
	put("param_groups.a.lr", 'N');
	put("state", 'N');
	stays_flat("not flattened");
}

Test(torch_flat, lists_of_parameters)
{
	put("param_groups.a.params", 'N');
	stays_flat("lists of parameters");
}

Test(torch_flat, keys_without_names)
{
	put("param_groups.lr", 'N');
	stays_flat("NAME.VALUE");
}

Test(torch_flat, too_deep)
{
	char key[100] = "state.a";

	for (unsigned i = 0; i < CK_TREE_DEPTH - 2; i++)
		strcat(key, ".");
	put_state(key);
	put("param_groups.a.lr", 'N');
	stays_flat("too deeply");
}

/* Others beside it, deeper ones and neighbours, are left alone. */
Test(torch_flat, what_else_there_is)
{
	vk_nested(&k, "o/x/param_groups.a.lr/y");
	vk_nested(&k, "model/state.a.w");
	put("epoch", 'N');
	put("param_groups.a.lr", 'N');
	cr_expect_str_eq(nest(), "/model/state.a.w\n"
				 "/o/epoch N\n"
				 "/o/param_groups/#0/lr N\n"
				 "/o/param_groups/#0/params a\n"
				 "/o/x/param_groups.a.lr/y\n");
}
