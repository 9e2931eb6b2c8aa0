/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lib/target.h"
#include "tests/unit/catalog/kit.h"

#include <errno.h>
#include <string.h>

static uint32_t add_tree(struct kit *k, const char *name)
{
	uint32_t tree = 0;

	cr_assert_eq(ck_builder_tree(k->b, name, strlen(name), &tree, &k->err),
		     0);
	return tree;
}

static void add(struct kit *k, uint32_t src, uint32_t tree, const char *name)
{
	struct ck_part p = kit_part(name, src);

	p.tree = tree;
	kit_add(k, &p);
}

/* Two parts of a checkpoint, as model and optimizer in one folder. */
static const struct ck_catalog *two_trees(struct kit *k)
{
	uint32_t src, a, b;

	*k = kit_new();
	src = kit_file(k, "f", 4096);
	a = add_tree(k, "model");
	b = add_tree(k, "optim");
	add(k, src, 0, "plain");
	add(k, src, 0, "plain[1]");
	add(k, src, a, "w");
	add(k, src, b, "w");
	add(k, src, b, "a name/with, odd%signs");
	cr_assert_eq(ck_builder_object(k->b,
				       &(struct ck_object_in){ .name = "step",
							       .name_len = 4,
							       .tree = b,
							       .src = src,
							       .off = 9,
							       .len = 5 },
				       &k->err),
		     0);
	cr_assert_eq(ck_builder_refuse(k->b, 0, "bad", 3, &k->err, "too odd"),
		     0);
	return kit_image(k);
}

static const char *tree_of(const struct ck_catalog *img, const char *text)
{
	struct ck_err err = { 0 };
	struct ck_target t;

	cr_assert_eq(ck_target_find(img, text, &t, &err), 0, "%s: %s", text,
		     err.msg);
	cr_assert_neq(t.tensor, CK_NONE, "%s", text);
	return ck_catalog_str(img, img->trees[img->tensors[t.tensor].tree],
			      NULL);
}

Test(target, names_of_trees)
{
	struct kit k;
	const struct ck_catalog *img = two_trees(&k);
	struct ck_err err = { 0 };
	struct ck_target t;

	cr_expect_str_eq(tree_of(img, "plain"), "");
	cr_expect_str_eq(tree_of(img, "model/w"), "model");
	cr_expect_str_eq(tree_of(img, "optim/w"), "optim");
	cr_expect_str_eq(tree_of(img, "optim/w[0:1]"), "optim");
	cr_expect_eq(ck_target_find(img, "w", &t, &err), -EINVAL);
	cr_expect(strstr(err.msg, "PART/NAME"), "%s", err.msg);
	cr_expect_eq(ck_target_find(img, "w[0]", &t, &err), -EINVAL);
	cr_expect_eq(ck_target_find(img, "other/w", &t, &err), -ENOENT);
	kit_free(&k);
}

Test(target, true_names_and_file_names)
{
	struct kit k;
	const struct ck_catalog *img = two_trees(&k);

	cr_expect_str_eq(tree_of(img, "a name/with, odd%signs"), "optim");
	cr_expect_str_eq(tree_of(img, "a%20name%2Fwith,%20odd%25signs"),
			 "optim");
	cr_expect_str_eq(tree_of(img, "a name/with, odd%signs[..., 2]"),
			 "optim");
	kit_free(&k);
}

Test(target, the_longest_name_wins)
{
	struct kit k;
	const struct ck_catalog *img = two_trees(&k);
	struct ck_err err = { 0 };
	struct ck_target t;

	cr_assert_eq(ck_target_find(img, "plain[1]", &t, &err), 0);
	cr_expect_not(t.sliced);
	cr_expect_eq(ck_box_volume(&t.slice.box), 32);
	cr_assert_eq(ck_target_find(img, "plain[2]", &t, &err), 0);
	cr_expect(t.sliced);
	cr_expect_eq(ck_box_volume(&t.slice.box), 8);
	cr_assert_eq(ck_target_find(img, "plain[1][3]", &t, &err), 0);
	cr_expect(t.sliced);
	cr_expect_str_eq(ck_catalog_str(img, img->tensors[t.tensor].name, NULL),
			 "plain[1]");
	kit_free(&k);
}

Test(target, objects_and_refused_tensors)
{
	struct kit k;
	const struct ck_catalog *img = two_trees(&k);
	struct ck_err err = { 0 };
	struct ck_target t;

	cr_assert_eq(ck_target_find(img, "step", &t, &err), 0);
	cr_expect_eq(t.tensor, CK_NONE);
	cr_expect_eq(img->objects[t.object].off, 9);
	cr_expect_eq(ck_target_find(img, "optim/step", &t, &err), 0);
	cr_expect_eq(ck_target_find(img, "step[0]", &t, &err), -EINVAL);
	cr_expect_eq(ck_target_find(img, "bad", &t, &err), -EBADMSG);
	cr_expect(strstr(err.msg, "too odd"), "%s", err.msg);
	cr_expect_eq(ck_target_find(img, "bad[0]", &t, &err), -EBADMSG);
	cr_expect_eq(ck_target_find(img, "", &t, &err), -ENOENT);
	cr_expect_eq(ck_target_find(img, "]", &t, &err), -ENOENT);
	cr_expect_eq(ck_target_find(img, "[]", &t, &err), -ENOENT);
	kit_free(&k);
}
