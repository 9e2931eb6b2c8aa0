/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - what the operations share: one mount's state, constant once served
 */
#ifndef FS_OPS_H
#define FS_OPS_H

#include "core/ckpt/ckpt.h"
#include "core/view/replace.h"
#include "fs/ask/ask.h"
#include "fs/kernel/kernel.h"
#include "fs/cache/ahead.h"
#include "fs/cache/inval.h"
#include "fs/handover.h"
#include "fs/tree/mounted.h"
#include "fs/tree/tree.h"

#include <sys/stat.h>

struct fs {
	struct fs_kernel kernel; /* first: see fs_kernel_hook() */
	char *map; /* see session.c; or NULL */
	struct fs_handover *handover; /* NULL: no descriptors are handed over */
	struct fs_mounted_table *table;
	struct fs_ahead *ahead; /* NULL: nothing is read ahead */
	struct fs_copies *copies; /* NULL: no -o cache */
	struct fs_passed *passed; /* likewise */
	bool pass_stored; /* stored files, too: nobody has to check their bytes */
	bool rw, replace; /* -o rw, replace */
	struct fs_inval *inval; /* NULL where not rw */
	struct fs_drafts *drafts; /* NULL: none can be made here */
	const struct ck_root *steps; /* the directory of checkpoints; or NULL */
	struct fs_asker *asker; /* NULL: not for other users */
	double keep; /* how long the kernel may keep what the catalog says */
	void (*ready)(void *ctx);
	void *ready_ctx;
};

/* What an inode number of the kernel's stands for; fs_auto_ref ends it. */
struct fs_ref {
	struct fs_mounted_table *table;
	struct fs_mounted *mounted; /* pinned; NULL: none */
	uint64_t ino; /* without the mounted checkpoint's number */
	struct fs_node node;
};

/*
 * What serves checkpoints that are being written, where a directory of
 * checkpoints is mounted for writing: fs/draft has it.
 */
struct fs_draft_ops {
	/*
	 * Operations on inodes become those that know drafts too; what drafts alone
	 * do, as names that come and go, is refused for all else.
	 */
	void (*add)(struct fuse_lowlevel_ops *ops);
	/* Whether that is an inode of one. */
	bool (*has)(uint64_t ino);
	/*
	 * As fs_lookup(), in one; of the mount's root: the one of that name.
	 */
	int (*lookup)(struct fs *fs, uint64_t parent, const char *name,
		      struct fuse_entry_param *e);
	/* As fs_forget(). */
	void (*forget)(struct fs *fs, uint64_t ino, uint64_t nr);
	/* What directory @ino of one holds. */
	int (*list)(struct fs *fs, uint64_t ino, struct fs_shard_list **out);
	/* Adds to @q what has to allow @mask for @ino, which is.  -ESTALE. */
	int (*ask)(struct fs *fs, uint64_t ino, int mask,
		   struct fs_question *q);
	/* Borrows both; NULL: no memory. */
	struct fs_drafts *(*new)(const struct ck_root *root,
				 const struct ck_opts *opts);
	/* Its thread; in the worker's sandbox. */
	int (*start)(struct fs_drafts *t, struct ck_err *err);
	void (*free)(struct fs_drafts *t);
};
extern const struct fs_draft_ops fs_draft_ops;

static inline bool fs_is_draft(const struct fs *fs, uint64_t ino)
{
	return fs->drafts && fs_draft_ops.has(ino);
}

/* How long the kernel may keep what it was told, in seconds. */
#define FS_KEEP_FIXED 3600.0 /* comes from the catalog; see fs->keep */
#define FS_KEEP_NONE 0.0 /* changes by itself */
/* Comes from SRC: a second; tests say otherwise with UNSHARD_KEEP="SECONDS". */
extern double fs_keep_src;

/* What Megatron leaves beside checkpoints, which is shown there. */
#define FS_MARKER "latest_checkpointed_iteration.txt"

static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* A view's file that is open. */
struct fs_file {
	struct fs_stream *stream; /* NULL: nothing is read ahead for it */
	struct fs_copy_open kept; /* what it is read from, with -o cache */
	struct ck_edit *edit; /* NULL: opened for reading */
	struct fs_shown *shown; /* on a mount for writing */
	/* Opened for writing and not written yet, by whom; see ops_write.c. */
	struct fs_file *older, **fresh_at; /* at NULL: it is not */
	uint64_t ino;
	pid_t thread;
	/* Made by a truncation to 0, which is what O_TRUNC becomes. */
	_Atomic(struct ck_replace *) replace;
	bool direct, mappable;
	bool flushed; /* closed, but for copies of the descriptor, and maps */
};

static inline struct fs_file *fs_file_of(const struct fuse_file_info *fi)
{
	return (struct fs_file *)(uintptr_t)fi->fh;
}

/* Whether a program asks for it, and not the page cache. */
static inline bool fs_is_past_cache(const struct fuse_file_info *fi)
{
	return fi->lock_owner && !fi->writepage;
}

/* What a shards/ file that is open is reading. */
struct fs_shard_file {
	int fd;
	int id; /* of passed.h */
	uint64_t size; /* when it was opened */
};

/* Each file of operations, ops_NAME.c, adds its own to those of libfuse. */
void fs_ops_meta(struct fuse_lowlevel_ops *ops);
void fs_ops_dir(struct fuse_lowlevel_ops *ops);
void fs_ops_read(struct fuse_lowlevel_ops *ops);
void fs_ops_write(struct fuse_lowlevel_ops *ops);
void fs_ops_xattr(struct fuse_lowlevel_ops *ops);

/* It may be truncated by who opens it as @ino; and that is over. */
void fs_file_is_fresh(struct fs_file *f, uint64_t ino, pid_t thread);
void fs_file_is_written(struct fs_file *f);

/*
 * Where the link hf in @in leads, to free(); NULL: there is none.  In a directory
 * to which checkpoints may be written none is, for one may be called so.
 */
char *fs_hf_target(struct fs *fs, const struct fs_mounted *in);
/*
 * What @ino is; an entry of a directory of checkpoints is parsed if it has not
 * been, unless @ino is its root and only @shallow is asked.  -ESTALE.
 */
int fs_find(struct fs *fs, uint64_t ino, bool shallow, struct fs_ref *out,
	    struct ck_err *err);

static inline void fs_ref_end(struct fs_ref *r)
{
	if (r->mounted)
		fs_mounted_unpin(r->table, r->mounted);
	r->mounted = NULL;
}
#define fs_auto_ref __attribute__((cleanup(fs_ref_end))) struct fs_ref

/* ops_meta.c */
/* The number by which the kernel is to know the file @ino; see passed.h. */
uint64_t fs_ino_known(const struct fs *fs, uint64_t ino);
/* The attributes of @ino; *keep: how long they hold. */
int fs_attr(struct fs *fs, uint64_t ino, struct stat *st, double *keep,
	    struct ck_err *err);
/*
 * -errno, or 0 with @e; e->ino is 0 where there is no such name.  The look-up
 * is counted.
 */
int fs_lookup(struct fs *fs, uint64_t parent, const char *name,
	      struct fuse_entry_param *e, struct ck_err *err);
/* Answers a look-up with what fs_lookup() said. */
void fs_reply_lookup(fuse_req_t req, int ret, const struct fuse_entry_param *e,
		     const struct ck_err *err);
/* Gives back what a look-up of @ino counted. */
void fs_forget(struct fs *fs, uint64_t ino, uint64_t nr);

/*
 * access.c: other users.  Each operation for which a plain file or folder would
 * be asked becomes one that asks first, by the asker, for the files behind it.
 */
void fs_access_add(struct fuse_lowlevel_ops *ops);
/* Waits for those that are still being asked. */
void fs_access_end(void);
/*
 * How long the kernel may keep what a look-up in @dir has found: it lets in everybody
 * whom the modes let in that are shown, and a folder above says more, or a list.
 */
double fs_access_keep(struct fs *fs, uint64_t dir, double keep);
/* Asks who made the request, unless it is @ret that something was wrong; ends @q. */
int fs_access_ask(fuse_req_t req, struct fs_question *q, int ret);
/*
 * The same of @ino where something else was asked for and it turned out to be
 * meant: may it be opened with @flags?
 */
int fs_access_ino(fuse_req_t req, uint64_t ino, int flags);
/* The same of a file of shards/ that is open: 0, -EACCES, -ESTALE. */
int fs_access_open(fuse_req_t req, const struct fs_ref *r, int fd);
/* struct fs_virt_reader's may(), of a request. */
bool fs_access_entry(void *req, struct fs_mounted_table *t, const char *name,
		     const struct stat *seen, bool read);

#endif
