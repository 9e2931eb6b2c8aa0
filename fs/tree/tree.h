/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - inode numbers <-> logical files; names only
 *
 * The upper 16 bits of a number say which mounted checkpoint (mounted.h), the
 * rest what in it:
 *
 *	/			1
 *	  tensors/ npy/ ...	VIEW + v	NAME	(v+1) << 32 | its number
 *	  reshard/		VIEW + v	FOLDER/	FOLDER + v << 16 | d
 *	  views/NAME/...	the same, numbers v as nested.h says
 *	  model.safetensors	1 << 32 | 0	(a view of one file)
 *	  shards/		3		...	SHARD | hash, see shards.c
 *	  .unshard/		4		NAME	VIRT + enum fs_virt_id
 *	  latest		5		(a directory of checkpoints only)
 *	  hf			6		(the same, and a group: a link)
 *	  NAME/			1 of another mounted checkpoint	(beside the views)
 *
 * Nothing is kept per tensor: numbers are computed both ways.  FS_INO_TURN is
 * in none of a file.
 */
#ifndef FS_TREE_H
#define FS_TREE_H

#include "core/view/view.h"
#include "fs/kernel/passthrough.h"

#include <stdbool.h>
#include <stdint.h>

struct fs_mounted;

enum {
	FS_INO_ROOT = 1,
	FS_INO_SHARDS = 3,
	FS_INO_META,
	FS_INO_LATEST,
	FS_INO_HF,
	FS_INO_VIRT = 16,
	FS_INO_VIEW = 64,
	FS_INO_FOLDER = 1 << 24,
};
#define FS_INO_FILE (UINT64_C(1) << 32)
#define FS_INO_SHARD (UINT64_C(1) << 47)
#define FS_INO_MOUNTED_SHIFT 48
#define FS_INO_MASK ((UINT64_C(1) << FS_INO_MOUNTED_SHIFT) - 1)

static inline uint32_t fs_ino_mounted(uint64_t ino)
{
	return (uint32_t)(ino >> FS_INO_MOUNTED_SHIFT);
}

/* Of a file whatever the kernel knows of it; see FS_INO_TURN. */
static inline uint64_t fs_ino_inner(uint64_t ino)
{
	ino &= FS_INO_MASK;
	return ino < FS_INO_FILE ? ino : fs_ino_turn(ino, 0);
}

static inline uint64_t fs_ino(uint32_t mounted, uint64_t inner)
{
	return (uint64_t)mounted << FS_INO_MOUNTED_SHIFT | inner;
}

enum fs_kind {
	FS_NONE,
	FS_DIR, /* the root, .unshard or a view's: nothing below moves */
	FS_FILE, /* of a view */
	FS_VIRT, /* nr: enum fs_virt_id */
	FS_SHARD, /* shards/ and what is below it */
	FS_STEPS, /* the root of a directory of checkpoints, or of a group */
	FS_LINK, /* FS_INO_LATEST, or FS_INO_HF */
};

struct fs_node {
	enum fs_kind kind;
	/*
	 * Of the file in its view, or of the document.  FS_DIR of a view: its
	 * folder's number and 1; 0: the view's own directory.
	 */
	uint32_t nr;
	const struct ck_view *view; /* FS_FILE, and FS_DIR of a view */
};

/* All numbers here are without the mounted checkpoint's. */
struct fs_node fs_tree_node(const struct fs_mounted *mounted, uint64_t ino);
/*
 * The inode of @name in FS_DIR @dir, which may be made by asking: 0, or -errno
 * with @err set where the name means something that cannot be.  *ino 0: no
 * such file.
 */
int fs_tree_find(const struct fs_mounted *mounted, uint64_t dir,
		 const char *name, uint64_t *ino, struct ck_err *err);
/* The same where that makes no difference. */
uint64_t fs_tree_lookup(const struct fs_mounted *mounted, uint64_t dir,
			const char *name);

struct fs_entry {
	char name[256]; /* as CK_VIEW_NAME */
	uint64_t ino;
	mode_t type; /* S_IFDIR, S_IFLNK or S_IFREG */
	bool beside; /* is a mounted checkpoint of its own, which a look-up finds */
};

/* What fs_tree_entry() found at a position. */
enum fs_at { FS_AT_END, FS_AT_NOTHING, FS_AT_ENTRY };

/*
 * Position @pos of FS_DIR @dir, "." and ".." first.  NOTHING: no entry there,
 * but there may be some behind it.
 */
enum fs_at fs_tree_entry(const struct fs_mounted *mounted, uint64_t dir,
			 uint64_t pos, struct fs_entry *e);

#endif
