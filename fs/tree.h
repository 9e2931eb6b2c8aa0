/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - inode numbers <-> logical files; names only
 *
 *	/			1
 *	  tensors/		2	NAME	TENSOR + its number in the image
 *	  shards/		3	...	SHARD | what shards.c makes of it
 *	  .unshard/		4	NAME	VIRT + enum fs_virt_id
 *
 * Nothing is kept per tensor: numbers are computed both ways.
 */
#ifndef FS_TREE_H
#define FS_TREE_H

#include "core/geom/image.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	FS_INO_ROOT = 1,
	FS_INO_TENSORS,
	FS_INO_SHARDS,
	FS_INO_META,
	FS_INO_VIRT = 16,
};
#define FS_INO_TENSOR (UINT64_C(1) << 32)
#define FS_INO_SHARD (UINT64_C(1) << 62)

enum fs_kind {
	FS_NONE,
	FS_DIR, /* one of the four, by its inode number */
	FS_TENSOR, /* nr: of the tensor */
	FS_VIRT, /* nr: enum fs_virt_id */
	FS_SHARD, /* below shards/, file or directory */
};

struct fs_node {
	enum fs_kind kind;
	uint32_t nr;
};

struct fs_node fs_tree_node(const struct ck_image *img, uint64_t ino);
/* The inode of @name in FS_DIR @dir other than shards/; 0: no such file. */
uint64_t fs_tree_lookup(const struct ck_image *img, uint64_t dir,
			const char *name);

struct fs_entry {
	const char *name;
	uint64_t ino;
	bool is_dir;
};

/*
 * Entry number @pos of FS_DIR @dir, "." and ".." first; false past the end.
 * shards/ has only those two here.
 */
bool fs_tree_entry(const struct ck_image *img, uint64_t dir, uint64_t pos,
		   struct fs_entry *e);

#endif
