/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_draft.h - each operation, for a checkpoint that is being written or,
 * as ops.h has it, for anything else
 *
 * By the inode's number alone (drafts.h); and in the root of a directory of
 * checkpoints, names that mean a draft are looked up, made, renamed and
 * removed here.
 */
#ifndef FS_OPS_DRAFT_H
#define FS_OPS_DRAFT_H

#include "core/base/str.h"
#include "core/slices/slices.h"
#include "fs/ops.h"
#include "fs/draft/drafts.h"

#include <pthread.h>

enum {
	FS_DRAFT_STATUS = FS_INO_VIRT, /* step-N/.unshard/status */
	FS_DRAFT_LAYOUT, /* step-N/unshard-layout.json */
	FS_DRAFT_RANKS, /* step-N/ranks */
	FS_DRAFT_TENSORS, /* step-N/tensors */
};

/* What an inode of a draft is; fs_auto_draft_ref ends it. */
struct fs_draft_ref {
	struct fs_drafts *drafts;
	struct fs_draft *s; /* pinned; NULL: none */
	uint64_t ino; /* without the draft's number */
};
/* -ESTALE: it is gone. */
int fs_draft_ref_find(struct fs *fs, uint64_t ino, struct fs_draft_ref *out);
void fs_draft_ref_end(const struct fs_draft_ref *r);
#define fs_auto_draft_ref \
	__attribute__((cleanup(fs_draft_ref_end))) struct fs_draft_ref

/* Whether it is shards/, or below. */
static inline bool fs_draft_is_file(uint64_t ino)
{
	return ino == FS_INO_SHARDS || (ino & FS_INO_SHARD);
}
/* Who made the request. */
struct fs_draft_tree_who fs_draft_who(fuse_req_t req);
/* Attributes of any inode of a draft. */
int fs_draft_ref_attr(const struct fs_draft_ref *r,
		      const struct fs_draft_tree_file *f, struct stat *st);
/*
 * What @name is in folder @r, with a reference of the tree's where it has such;
 * @r is @out, or of the same step.
 */
int fs_draft_ref_lookup(struct fs_draft_ref *r, const char *name,
			struct fs_draft_tree_node *out);
/* The kernel's entry for inode @ino of the draft; counts it. */
void fs_draft_ref_entry(const struct fs_draft_ref *r, uint64_t ino,
			const struct stat *st, struct fuse_entry_param *e);

/* An open file of a draft: fi->fh. */
struct fs_open {
	struct fs_draft_tree_file *f; /* of shards/; or NULL */
	bool slice, writes; /* of ranks/ or tensors/; holds the draft */
	struct ck_slice of;
	pthread_mutex_t
		lock; /* of the next two: requests of one file overlap */
	struct ck_str text; /* of what we make; the layout, while it comes */
	bool changed; /* the layout was, and is not in force yet */
};
/* ops_slices_layout.c.  NULL: no memory. */
struct fs_open *fs_open_new(void);
void fs_open_free(struct fs_open *o);
/* Bytes of its text, as far as there are: how many. */
size_t fs_open_text(struct fs_open *o, void *buf, size_t len, uint64_t off);
#define FS_LAYOUT_MAX (UINT64_C(64) << 20) /* bytes */
/* The layout, of which @sl may be NULL: there is none yet. */
int fs_layout_open(const struct ck_slices *sl, int flags, struct fs_open *o);
int fs_layout_write(struct fs_open *o, const char *buf, size_t len,
		    uint64_t off);

static inline struct fs_open *fs_open_of(const struct fuse_file_info *fi)
{
	return fi ? (struct fs_open *)(uintptr_t)fi->fh : NULL;
}

/* ops_slices.c: what a layout makes of a step; inodes without the draft's. */
bool fs_slices_has(uint64_t ino);
/* 0: no such name there. */
uint64_t fs_slices_lookup(const struct fs_draft_ref *r, const char *name);
/* The same of names that were removed too. */
uint64_t fs_slices_find(const struct fs_draft_ref *r, const char *name);
/* Adds what is in directory @r; to the step's own list what it has more. */
int fs_slices_list(const struct fs_draft_ref *r, struct fs_shard_list *l);
int fs_slices_attr(const struct fs_draft_ref *r, struct stat *st);
/* FUSE_SET_ATTR_MODE, _UID and _GID of @to_set. */
int fs_slices_give(const struct fs_draft_ref *r, const struct stat *attr,
		   int to_set);
/* For how long the kernel may keep attributes, of whatever is in a draft. */
double fs_slices_keep(uint64_t ino);
int fs_slices_open(const struct fs_draft_ref *r, int flags, struct fs_open *o);
/* Under which its other files are kept; false: it is no folder of slices. */
bool fs_slices_key(const struct fs_draft_ref *r, char key[24]);
/* What bytes inode @ino is of; false: of none. */
bool fs_slices_of(const struct fs_draft_ref *r, uint64_t ino,
		  struct ck_slice *of);
/* It was written: its name is there, with the owner and mode of @st. */
int fs_slices_made(const struct fs_draft_ref *r, uint64_t ino,
		   const struct stat *st);
/*
 * Makes a slice again that was removed; @r becomes it.  -ENOENT: none; -EEXIST:
 * it is there.
 */
int fs_slices_create(struct fs_draft_ref *r, const char *name, int flags,
		     struct fs_open *o);
/* As far as the file goes; @mapped: for a page of a map. */
int fs_slices_read(const struct fs_draft_ref *r, const struct fs_open *o,
		   void *buf, size_t len, uint64_t off, bool mapped,
		   size_t *got, struct ck_err *err);
int fs_slices_write(const struct fs_draft_ref *r, struct fs_open *o,
		    const char *buf, size_t len, uint64_t off, bool cached,
		    struct ck_err *err);
/* A layout that has come is put into force. */
int fs_slices_flush(const struct fs_draft_ref *r, struct fs_open *o,
		    struct ck_err *err);
int fs_slices_fallocate(const struct fs_draft_ref *r, const struct fs_open *o,
			int mode, uint64_t off, uint64_t len);
/*
 * Removing one makes it unwritten; it is there for as long as the step is.  So
 * are folders of which nothing is written: -ENOTEMPTY.
 */
int fs_slices_remove(const struct fs_draft_ref *r, const char *name,
		     bool is_dir, const struct fs_draft_tree_who *who);
int fs_slices_resize(const struct fs_draft_ref *r, uint64_t size);

/*
 * ops_slices_siblings.c: files in folders of slices that have names of none,
 * until a rename makes one of them; -ENOENT: there is none.
 */
int fs_siblings_lookup(const struct fs_draft_ref *r, const char *name,
		       struct fs_draft_tree_node *out);
int fs_siblings_list(const struct fs_draft_ref *r, struct fs_shard_list *l);
int fs_siblings_create(const struct fs_draft_ref *r, const char *name,
		       mode_t mode, int flags,
		       const struct fs_draft_tree_who *who,
		       struct fs_draft_tree_node *out,
		       struct fs_draft_tree_file **f);
int fs_siblings_remove(const struct fs_draft_ref *r, const char *name,
		       const struct fs_draft_tree_who *who);
/* @r to @new_name in folder @to of the same step. */
int fs_siblings_rename(const struct fs_draft_ref *r, const char *name,
		       uint64_t to, const char *new_name, unsigned flags,
		       const struct fs_draft_tree_who *who, struct ck_err *err);

/*
 * Operations on inodes of drafts; of names also in the root of a directory of
 * checkpoints, as far as they may mean a draft.
 */
void fs_draft_ops_names(struct fuse_lowlevel_ops *ops); /* ops_draft.c */
void fs_draft_ops_files(struct fuse_lowlevel_ops *ops);
/* Of struct fs_draft_ops. */
int fs_draft_lookup(struct fs *fs, uint64_t parent, const char *name,
		    struct fuse_entry_param *e);
void fs_draft_forget_ino(struct fs *fs, uint64_t ino, uint64_t nr);
int fs_draft_list(struct fs *fs, uint64_t ino, struct fs_shard_list **out);

#endif
