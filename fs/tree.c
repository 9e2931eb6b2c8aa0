/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/tree.h"

#include "core/base/check.h"
#include "core/catalog/image.h"
#include "fs/virt.h"

#include <string.h>

static const struct fs_entry root_entries[] = {
	{ "tensors", FS_INO_TENSORS, true },
	{ "shards", FS_INO_SHARDS, true },
	{ ".unshard", FS_INO_META, true },
};

struct fs_node fs_tree_node(const struct ck_image *img, uint64_t ino)
{
	struct fs_node node = { FS_NONE, 0 };

	if (ino & FS_INO_SHARD) {
		node.kind = FS_SHARD;
	} else if (ino >= FS_INO_TENSOR) {
		node.nr = (uint32_t)(ino - FS_INO_TENSOR);
		if (ino - FS_INO_TENSOR < img->nr_tensors)
			node.kind = FS_TENSOR;
	} else if (ino >= FS_INO_VIRT && ino < FS_INO_VIRT + FS_VIRT_NR) {
		node.nr = (uint32_t)(ino - FS_INO_VIRT);
		node.kind = FS_VIRT;
	} else if (ino >= FS_INO_ROOT && ino <= FS_INO_META) {
		node.kind = FS_DIR;
	}
	return node;
}

static uint64_t find_root(const char *name)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(root_entries); i++)
		if (!strcmp(name, root_entries[i].name))
			return root_entries[i].ino;
	return 0;
}

static uint64_t find_virt(const char *name)
{
	for (unsigned i = 0; i < FS_VIRT_NR; i++)
		if (!strcmp(name, fs_virt_name(i)))
			return FS_INO_VIRT + i;
	return 0;
}

uint64_t fs_tree_lookup(const struct ck_image *img, uint64_t dir,
			const char *name)
{
	uint32_t t;

	if (dir == FS_INO_ROOT)
		return find_root(name);
	if (dir == FS_INO_META)
		return find_virt(name);
	if (dir != FS_INO_TENSORS)
		return 0;
	t = ck_image_find_file(img, 0, name, strlen(name));
	return t == CK_NONE ? 0 : FS_INO_TENSOR + t;
}

/* The tensors of tree 0 come first, in the order of their file names. */
static bool tensor_entry(const struct ck_image *img, uint64_t i,
			 struct fs_entry *e)
{
	if (i >= img->nr_tensors || img->tensors[i].tree)
		return false;
	e->name = ck_image_str(img, img->tensors[i].file, NULL);
	e->ino = FS_INO_TENSOR + i;
	e->is_dir = false;
	return true;
}

static bool virt_entry(uint64_t i, struct fs_entry *e)
{
	if (i >= FS_VIRT_NR)
		return false;
	e->name = fs_virt_name((unsigned)i);
	e->ino = FS_INO_VIRT + i;
	e->is_dir = false;
	return true;
}

bool fs_tree_entry(const struct ck_image *img, uint64_t dir, uint64_t pos,
		   struct fs_entry *e)
{
	if (pos < 2) {
		*e = (struct fs_entry){ pos ? ".." : ".",
					pos ? FS_INO_ROOT : dir, true };
		return true;
	}
	pos -= 2;
	if (dir == FS_INO_TENSORS)
		return tensor_entry(img, pos, e);
	if (dir == FS_INO_META)
		return virt_entry(pos, e);
	if (dir != FS_INO_ROOT || pos >= CK_ARRAY_LEN(root_entries))
		return false;
	*e = root_entries[pos];
	return true;
}
