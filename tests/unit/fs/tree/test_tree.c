/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/tree/mounted.h"
#include "fs/tree/tree.h"
#include "fs/tree/virt.h"
#include "tests/unit/catalog/kit.h"

#include <criterion/criterion.h>
#include <string.h>

static struct kit kit;
static struct ck_catalog img;
static struct fs_mounted slot; /* with tensors/ and npy/ as its views 0 and 1 */
static struct ck_view views[2];

extern const struct ck_view_ops ck_view_tensors, ck_view_npy;
#define INO_TENSORS (FS_INO_VIEW + 0)
#define INO_NPY (FS_INO_VIEW + 1)

static const char *const names[] = { "b",	  ".hidden", "a/b", "layer.0.w",
				     "layer.1.w", "\xff",    "",    "b.c" };
#define NR (sizeof(names) / sizeof(names[0]))

static void setup(void)
{
	uint32_t src;

	kit = kit_new();
	src = kit_file(&kit, "f", 4096);
	for (size_t i = 0; i < NR; i++) {
		struct ck_part p = kit_part(names[i], src);

		kit_add(&kit, &p);
	}
	img = *kit_image(&kit);
	cr_assert_eq(img.nr_tensors, NR);
	slot = (struct fs_mounted){ .img = &img };
	for (unsigned i = 0; i < 2; i++) {
		views[i] = (struct ck_view){ .img = &img, .nr = NR };
		slot.view[i] = &views[i];
	}
	views[0].ops = &ck_view_tensors;
	views[1].ops = &ck_view_npy;
	slot.virt = fs_virt_new(&(struct fs_virt_in){ .generation = 1 });
	cr_assert(slot.virt);
}

static void teardown(void)
{
	fs_virt_free(slot.virt);
	kit_free(&kit);
}
TestSuite(tree, .init = setup, .fini = teardown);

/* Entries of @dir, each looked up again by its name. */
static unsigned walk(uint64_t dir)
{
	struct fs_entry e;
	enum fs_at at = FS_AT_NOTHING;
	unsigned nr = 0;

	for (uint64_t pos = 0; at != FS_AT_END; pos++) {
		struct fs_node node;

		at = fs_tree_entry(&slot, dir, pos, &e);
		if (at != FS_AT_ENTRY)
			continue;
		nr++;
		node = fs_tree_node(&slot, e.ino);
		cr_expect((node.kind == FS_DIR || node.kind == FS_SHARD) ==
				  S_ISDIR(e.type),
			  "%s", e.name);
		if (pos < 2)
			cr_expect_str_eq(e.name, pos ? ".." : ".");
		else
			cr_expect_eq(fs_tree_lookup(&slot, dir, e.name), e.ino,
				     "%s", e.name);
	}
	return nr;
}

Test(tree, every_entry_is_found_by_its_name)
{
	cr_expect_eq(walk(FS_INO_ROOT), 2 + 4);
	cr_expect_eq(walk(INO_TENSORS), 2 + NR);
	cr_expect_eq(walk(INO_NPY), 2 + NR);
	/* without a checkpoint behind it there are no catalog and no map */
	cr_expect_eq(walk(FS_INO_META), 2 + FS_VIRT_NR - 2);
	cr_expect_eq(walk(FS_INO_SHARDS), 2);
}

Test(tree, names_that_are_not_there)
{
	cr_expect_eq(fs_tree_lookup(&slot, INO_TENSORS, "a"), 0);
	cr_expect_eq(fs_tree_lookup(&slot, INO_TENSORS, "layer.0.w2"), 0);
	cr_expect_eq(fs_tree_lookup(&slot, INO_TENSORS, ".hidden"), 0);
	cr_expect_eq(fs_tree_lookup(&slot, FS_INO_ROOT, "tensor"), 0);
	cr_expect_eq(fs_tree_lookup(&slot, INO_NPY, "b"), 0);
	cr_expect_eq(fs_tree_lookup(&slot, INO_NPY, ".npy"), 0);
	cr_expect_neq(fs_tree_lookup(&slot, INO_NPY, "b.npy"), 0);
	cr_expect_eq(fs_tree_lookup(&slot, FS_INO_META, ""), 0);
	cr_expect_eq(fs_tree_lookup(&slot, 99, "tensors"), 0);
}

Test(tree, file_names_are_escaped)
{
	uint64_t ino = fs_tree_lookup(&slot, INO_TENSORS, "a%2Fb");

	cr_assert(ino);
	cr_expect_str_eq(
		ck_catalog_str(&img, img.tensors[ino - FS_INO_FILE].name, NULL),
		"a/b");
	cr_expect(fs_tree_lookup(&slot, INO_TENSORS, "%2Ehidden"));
	cr_expect(fs_tree_lookup(&slot, INO_TENSORS, "%FF"));
	cr_expect(fs_tree_lookup(&slot, INO_TENSORS, "%00"));
}

Test(tree, numbers_that_are_no_inodes)
{
	static const uint64_t none[] = {
		0,
		5,
		FS_INO_VIRT - 1,
		FS_INO_VIRT + FS_VIRT_NR,
		FS_INO_FILE - 1,
		FS_INO_FILE + NR,
		FS_INO_FILE << 8,
	};

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		cr_expect_eq(fs_tree_node(&slot, none[i]).kind, FS_NONE);
	cr_expect_eq(fs_tree_node(&slot, FS_INO_SHARD | 7).kind, FS_SHARD);
	cr_expect_eq(fs_tree_node(&slot, FS_INO_FILE + NR - 1).nr, NR - 1);
}
