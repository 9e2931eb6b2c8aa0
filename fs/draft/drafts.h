/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drafts.h - the checkpoints that are being written below a mount
 *
 * A step that was made by mkdir in the mount, or that another mount of the same
 * SRC has begun, has a number above those of mounted checkpoints (mounted.h),
 * and so inodes of its own; nothing here touches a mounted checkpoint.  Once it
 * is published the name means the mounted checkpoint, and what the kernel still
 * knows of the draft can be read on.
 *
 * When it is published: at the rename of the root index (-o publish=auto),
 * with no file open for writing, or once nothing has changed for
 * -o publish-after= seconds, looked at by one thread; or by another process.
 *
 * Threads: any.
 */
#ifndef FS_DRAFTS_H
#define FS_DRAFTS_H

#include "core/base/opts.h"
#include "core/root/root.h"
#include "fs/draft/draft_tree.h"
#include "fs/tree/tree.h"

#define FS_DRAFTS_FIRST \
	0xf000u /* mounted checkpoints are below, see FS_MAX_MOUNTED */
#define FS_DRAFTS_MAX 0x1000u
#define FS_LAYOUT_NAME "unshard-layout.json"

static inline bool fs_ino_is_draft(uint64_t ino)
{
	return fs_ino_mounted(ino) >= FS_DRAFTS_FIRST;
}

struct fs_drafts;

struct fs_draft {
	uint32_t nr; /* as a mounted checkpoint's: at least FS_DRAFTS_FIRST */
	struct fs_draft_tree *files;
	/* private to drafts.c, under its lock */
	uint64_t known; /* the kernel's references to all of its inodes */
	unsigned pins;
	bool gone; /* published, renamed, or thrown away */
	bool again; /* the last attempt found somebody writing */
	uint64_t tried; /* fs_draft_tree_seq() at the last attempt */
	uint64_t seq, signature; /* when it was last looked at */
	uint64_t checked; /* fs_draft_tree_seq() when @whole was found out */
	bool whole; /* no byte of its slices is missing */
	/*
	 * When a file was last renamed to a slice, as tools that copy do: what they
	 * still have to do in the step they are given time for, before it is
	 * published by itself.
	 */
	_Atomic int64_t copied_s;
	int64_t quiet_s; /* CLOCK_MONOTONIC; since when they are so */
	char why[512]; /* the last attempt failed; "" */
};

/* Borrows both; NULL: no memory. */
struct fs_drafts *fs_drafts_new(const struct ck_root *root,
				const struct ck_opts *opts);
/* The thread; in the worker's sandbox. */
int fs_drafts_start(struct fs_drafts *t, struct ck_err *err);
void fs_drafts_free(struct fs_drafts *t);

/*
 * Each gives a pinned draft, which fs_draft_unpin() ends.  lookup: -ENOENT.
 * mkdir: -EEXIST, or a line in @err.
 */
int fs_drafts_lookup(struct fs_drafts *t, const char *name,
		     struct fs_draft **out);
int fs_drafts_mkdir(struct fs_drafts *t, const char *name, mode_t mode,
		    const struct fs_draft_tree_who *who, struct fs_draft **out,
		    struct ck_err *err);
struct fs_draft *fs_drafts_pin(struct fs_drafts *t, uint64_t ino);
void fs_draft_unpin(struct fs_drafts *t, struct fs_draft *s);
/* What the kernel was told of, and forgot. */
void fs_draft_know(struct fs_drafts *t, struct fs_draft *s);
void fs_draft_forget(struct fs_drafts *t, struct fs_draft *s, uint64_t nr);

/* An empty one: -ENOTEMPTY, -EBUSY, -ENOENT. */
int fs_drafts_rmdir(struct fs_drafts *t, const char *name);
/*
 * The whole step gets another name, and is published if it is complete: a
 * trainer that renames its folder at the end means that.
 */
int fs_drafts_rename(struct fs_drafts *t, const char *from, const char *to,
		     struct ck_err *err);

/* What the rename of @old in shards/ to @name says; draft_index.c. */
enum fs_draft_index {
	FS_DRAFT_NO_INDEX,
	FS_DRAFT_LAST, /* all is there */
	FS_DRAFT_COPIED, /* the step will be a checkpoint; more may follow */
};
enum fs_draft_index fs_draft_index_of(const char *old, bool same_dir,
				      const char *name);
/* Whether @old is what rsync calls @name until it is whole. */
bool fs_draft_is_temp(const char *old, const char *name);
/* -o publish=auto */
bool fs_drafts_by_rename(const struct fs_drafts *t);
/*
 * Publishes it now, or else as soon as it is complete and nobody writes any
 * more; whichever mount notices.  0 too where it has to wait, which is logged
 * and said by fs_draft_text(); -errno where bytes may be lost.
 */
int fs_draft_trigger(struct fs_drafts *t, struct fs_draft *s,
		     struct ck_err *err);
/*
 * It is to hold what @layout says, and with -o publish=auto to be published
 * once all of that was written; see core/slices/slices.h.
 */
int fs_draft_cut(struct fs_drafts *t, struct fs_draft *s, const char *layout,
		 size_t len, struct ck_err *err);
/* draft_slices.c: no byte of its slices is missing, where it has some. */
bool fs_draft_is_whole(struct fs_draft *s);
/* Nothing is in it that somebody wrote; it is seized. */
int fs_draft_is_empty(struct fs_draft *s, bool *yes);
void fs_draft_report_missing(struct fs_draft *s, struct ck_str *out);
/* What .unshard/status of it says. */
void fs_draft_text(struct fs_drafts *t, struct fs_draft *s, struct ck_str *out);

#endif
