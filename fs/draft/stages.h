/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.h - the checkpoints that are being written below a mount
 *
 * A step that was made by mkdir in the mount, or that another mount of the
 * same SRC has staged, has a number above those of slots (slot.h), and so
 * inodes of its own; nothing here touches a slot.  Once it is published the
 * name means the checkpoint, a slot, and what the kernel still knows of the
 * stage can be read on.
 *
 * When it is published: at the rename of the root index (-o publish=auto),
 * with no file open for writing, or once nothing has changed for
 * -o publish-after= seconds, looked at by one thread; or by another process.
 *
 * Threads: any.
 */
#ifndef FS_STAGES_H
#define FS_STAGES_H

#include "core/base/opts.h"
#include "core/root/root.h"
#include "fs/draft/staged.h"
#include "fs/tree/tree.h"

#define FS_STAGES_FIRST 0xf000u /* slots are below, see FS_MAX_SLOTS */
#define FS_STAGES_MAX 0x1000u

static inline bool fs_ino_is_staged(uint64_t ino)
{
	return fs_ino_slot(ino) >= FS_STAGES_FIRST;
}

struct fs_stages;

struct fs_stage {
	uint32_t nr; /* as a slot's: at least FS_STAGES_FIRST */
	struct fs_staged *files;
	/* private to stages.c, under its lock */
	uint64_t known; /* the kernel's references to all of its inodes */
	unsigned pins;
	bool gone; /* published, renamed, or thrown away */
	bool again; /* the last attempt found somebody writing */
	uint64_t tried; /* fs_staged_seq() at the last attempt */
	uint64_t seq, signature; /* when it was last looked at */
	uint64_t checked; /* fs_staged_seq() when @whole was found out */
	bool whole; /* no byte of its slices is missing */
	_Atomic int64_t copied_s; /* when a file was last renamed to a slice */
	int64_t quiet_s; /* CLOCK_MONOTONIC; since when they are so */
	char why[512]; /* the last attempt failed; "" */
};

/* Borrows both; NULL: no memory. */
struct fs_stages *fs_stages_new(const struct ck_root *root,
				const struct ck_opts *opts);
/* The thread; in the worker's sandbox. */
int fs_stages_start(struct fs_stages *t, struct ck_err *err);
void fs_stages_free(struct fs_stages *t);
const struct ck_root *fs_stages_root(const struct fs_stages *t);

/*
 * Each gives a pinned stage, which fs_stage_unpin() ends.  lookup: -ENOENT.
 * mkdir: -EEXIST, or a line in @err.
 */
int fs_stages_lookup(struct fs_stages *t, const char *name,
		     struct fs_stage **out);
int fs_stages_mkdir(struct fs_stages *t, const char *name, mode_t mode,
		    const struct fs_staged_who *who, struct fs_stage **out,
		    struct ck_err *err);
struct fs_stage *fs_stages_pin(struct fs_stages *t, uint64_t ino);
void fs_stage_unpin(struct fs_stages *t, struct fs_stage *s);
/* What the kernel was told of, and forgot. */
void fs_stage_know(struct fs_stages *t, struct fs_stage *s);
void fs_stage_forget(struct fs_stages *t, struct fs_stage *s, uint64_t nr);

/* An empty one: -ENOTEMPTY, -EBUSY, -ENOENT. */
int fs_stages_rmdir(struct fs_stages *t, const char *name);
/*
 * The whole step gets another name, and is published if it is complete: a
 * trainer that renames its folder at the end means that.
 */
int fs_stages_rename(struct fs_stages *t, const char *from, const char *to,
		     struct ck_err *err);

/* What the rename of @old in shards/ to @name says; stage_index.c. */
enum fs_stage_index {
	FS_STAGE_NO_INDEX,
	FS_STAGE_LAST, /* all is there */
	FS_STAGE_COPIED, /* the step will be a checkpoint; more may follow */
};
enum fs_stage_index fs_stage_index_of(const char *old, bool same_dir,
				      const char *name);
/* Whether @old is what rsync calls @name until it is whole. */
bool fs_stage_is_temp(const char *old, const char *name);
/*
 * A file was renamed to a slice, as tools that copy do: what they still have
 * to do in the step they are given time for, before it is published by itself.
 */
void fs_stage_copied(struct fs_stage *s);
/* -o publish=auto */
bool fs_stages_by_rename(const struct fs_stages *t);
/*
 * Publishes it now, or else as soon as it is complete and nobody writes any
 * more; whichever mount notices.  0 too where it has to wait, which is logged
 * and said by fs_stage_text(); -errno where bytes may be lost.
 */
int fs_stage_trigger(struct fs_stages *t, struct fs_stage *s,
		     struct ck_err *err);
/*
 * It is to hold what @layout says, and with -o publish=auto to be published
 * once all of that was written; see core/slices/slices.h.
 */
int fs_stage_cut(struct fs_stages *t, struct fs_stage *s, const char *layout,
		 size_t len, struct ck_err *err);
/*
 * stage_slices.c: what -o layout= with a "write" makes of a new one; @arm: it
 * is to be published when it is whole.
 */
int fs_stage_cut_as_told(struct ck_staging *stage, const struct ck_root *root,
			 const struct ck_opts *opts, bool arm,
			 struct ck_err *err);
/* stage_slices.c: no byte of its slices is missing, where it has some. */
bool fs_stage_is_whole(struct fs_stage *s);
/* Nothing is in it that somebody wrote; it is seized. */
int fs_stage_is_empty(struct fs_stage *s, bool *yes);
void fs_stage_say_lacks(struct fs_stage *s, struct ck_str *out);
/* What .unshard/status of it says. */
void fs_stage_text(struct fs_stages *t, struct fs_stage *s, struct ck_str *out);

#endif
