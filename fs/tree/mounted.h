/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted.h - one checkpoint that a mount shows
 *
 * A mount of one checkpoint has that as number 0.  A mount of a directory of
 * checkpoints has the directory itself as number 0.  Either has one more for
 * each entry that somebody has looked at, for each group of them, and for what
 * lies beside the model in a checkpoint's own folder.
 *
 *	  NEW --need--> READY or FAILED --too many--> ASLEEP
 *	                     ^-----------need------------+
 *
 * An entry is parsed when somebody looks into it.  Of those that nobody is in,
 * FS_IDLE_MOUNTED stay parsed; the others are put to sleep, and parsed again
 * when they are asked for, if the entry is still the same: of the same files,
 * and with the same tensors.  An entry that is replaced is mounted anew; the old
 * one is gone: who has a file of it open reads on, everybody else hears ESTALE
 * once it sleeps.
 *
 * Who owns what: a pointer to one is a pin (@users): fs_mounted_table_pin() and
 * fs_mounted_table_entry() give one, fs_mounted_unpin() ends it.  Operations
 * hold one while they last, open files until they are closed.  The kernel owns
 * one count (@known) for each look-up of any inode in it.  While either is not
 * 0 it keeps its number; while it has a pin it does not sleep.
 *
 * Threads: any.  What one was made of does not change while it is pinned.
 */
#ifndef FS_MOUNTED_H
#define FS_MOUNTED_H

#include "core/ckpt/ckpt.h"
#include "core/run/run_dir.h"
#include "core/view/view.h"
#include "fs/tree/nested.h"
#include "fs/tree/shards.h"
#include "fs/tree/stats.h"
#include "fs/tree/virt.h"

#include <stdatomic.h>
#include <sys/stat.h>

#define FS_MAX_VIEWS 16
#define FS_MAX_MOUNTED 0xf000 /* numbers above are drafts; see drafts.h */
#define FS_IDLE_MOUNTED 32 /* parsed ones kept for who comes next */
#define FS_KNOWN_MOUNTED 1024 /* more, and the kernel is asked to forget */

/* What a folder holds: sums over names, sizes, times and inode numbers. */
struct fs_print {
	uint64_t files; /* of those that are not ours */
	uint64_t ours; /* the manifest, which follows what is written */
};

/* What a checkpoint is known by while it sleeps: digests of its catalog. */
struct fs_identity {
	uint64_t tensors; /* what the numbers of inodes mean */
	uint64_t files; /* which files those were: core/geom/file_id.h */
};

struct fs_mounted {
	uint32_t nr;
	_Atomic bool steps; /* the directory of all, or a group: run_dir.h */
	char *name; /* of the entry; NULL: the mount is this checkpoint */
	struct stat seen; /* the entry, last found to be what it was made of */
	_Atomic int state; /* enum fs_mounted_state */

	/* under the table's lock; number 0 is not counted, it stays */
	struct fs_mounted *next; /* of all but number 0 */
	uint64_t known; /* look-ups that the kernel has not given back */
	uint64_t users; /* pins */
	uint64_t used; /* the larger, the later it was pinned */
	bool gone; /* replaced, or not there any more */
	bool told; /* the kernel was asked to forget it */
	uint32_t pair; /* the other part that it was compared with; 0: none */
	char *unfit; /* of a part that does not fit that one: why */
	struct fs_counts past; /* what was counted before it slept */

	/* facts, valid once it was made; ASLEEP, too */
	struct stat dir; /* owner, mode and time of its directories */
	uint64_t total; /* bytes of all tensors */
	uint32_t files; /* number of them */
	uint32_t warnings; /* number of problems that are one */
	uint32_t errors; /* the same */
	struct ck_err why; /* FAILED: the line that says so */
	bool failed; /* it was made, and that is what it became */
	bool whole; /* every tensor is there, and nothing was refused */
	_Atomic bool doubted; /* bytes of it could not be read since */
	bool asked; /* it slept, and had folders that were made for who asked */
	int64_t made_s; /* CLOCK_MONOTONIC, when it was made first */
	struct fs_print print; /* of the folder when it was made */
	uint64_t below; /* the same of all files below it; see mounted_same.c */
	struct fs_identity is; /* where it was READY and is no group */
	bool rewritten; /* by us: is.files is then of what it left there */
	int64_t looked_s; /* CLOCK_MONOTONIC, when that was compared last */
	struct fs_shards *shards; /* with what the kernel knows of them */
	struct ck_run_dir beside; /* entries in it, a mounted checkpoint each */

	/* READY or FAILED only */
	uint64_t serial; /* no other mounted checkpoint's, ever */
	struct ck_ckpt *ck; /* NULL where FAILED */
	const struct ck_catalog *img;
	struct ck_view
		*view[FS_MAX_VIEWS]; /* NULL: it has none; see ck_views */
	struct fs_nested *nested; /* NULL: no view nests, or it is written */
	struct fs_virt *virt;
	_Atomic int64_t open_until_ms; /* fs_access_keep() */
	_Atomic int64_t closed_until_ms;
	_Atomic(struct fs_behind *) behind; /* behind.h; NULL: not made yet */
	struct ck_root root; /* of a FAILED one; else the ckpt's */
};

enum fs_mounted_state {
	FS_MOUNTED_NEW,
	FS_MOUNTED_READY,
	FS_MOUNTED_FAILED,
	FS_MOUNTED_ASLEEP,
};

struct fs_mounted_table;

struct fs_mounted_table_in {
	/* The checkpoint that is mounted, or a directory of them; borrowed. */
	struct ck_ckpt *ck;
	const struct ck_root *steps;
	const struct fs_kernel *kernel; /* borrowed, as the next */
	const struct ck_opts *opts;
	unsigned sandbox; /* CK_SANDBOX_* in force */
	const char *mnt; /* where it is mounted, for .unshard/metrics */
	/* Options by which others read the checkpoint as it is shown; or NULL. */
	const char *map;
	struct ck_ckpt_touched touched; /* of each checkpoint */
};

int fs_mounted_table_new(struct fs_mounted_table **out,
			 const struct fs_mounted_table_in *in,
			 struct ck_err *err);
void fs_mounted_table_free(struct fs_mounted_table *s);

/* By number, pinned; NULL: there is none. */
struct fs_mounted *fs_mounted_table_pin(struct fs_mounted_table *s,
					uint32_t nr);
/*
 * The entry @name as it is now, pinned; does not parse it.  -ENOENT: no such
 * entry, -ENOMEM, -ENFILE: the kernel knows as many as there are numbers.
 */
int fs_mounted_table_entry(struct fs_mounted_table *s, const char *name,
			   struct fs_mounted **out);
/* One pin more of what is pinned. */
void fs_mounted_pin(struct fs_mounted_table *s, struct fs_mounted *mounted);
/* May free it, or put others to sleep. */
void fs_mounted_unpin(struct fs_mounted_table *s, struct fs_mounted *mounted);
/* The kernel was told of an inode in it, or has forgotten @nr; pinned. */
void fs_mounted_know(struct fs_mounted_table *s, struct fs_mounted *mounted);
void fs_mounted_forget(struct fs_mounted_table *s, struct fs_mounted *mounted,
		       uint64_t nr);
/*
 * Parses the pinned entry if it has to be; its state then: ASLEEP where it is
 * not what it was.
 */
enum fs_mounted_state fs_mounted_need(struct fs_mounted_table *s,
				      struct fs_mounted *mounted);
/* Whether the entry is gone, or another than it was; false of a whole mount. */
bool fs_mounted_is_past(struct fs_mounted_table *s, struct fs_mounted *mounted);
/*
 * A file that the pinned entry was made of is found to be another: the next
 * look-up of its name makes it anew.  Of a whole mount nothing happens.
 */
void fs_mounted_outdate(struct fs_mounted_table *s, struct fs_mounted *mounted);
/*
 * Bytes of the pinned entry could not be read, and perhaps for somebody wrote a
 * shorter file in place, or another index: from now on a look-up compares its
 * files as those of an entry that is not whole.
 */
void fs_mounted_doubt(struct fs_mounted *mounted);
/*
 * A file's time is when a write to it began, and it looks the same until that write
 * has ended.  So what is read within this many seconds is not kept for later opens;
 * tests say otherwise with UNSHARD_SETTLE="SECONDS".
 */
extern double fs_settle;
/* Whether none of the files of @ck was written just before the entry was made. */
bool fs_mounted_was_settled(const struct fs_mounted *mounted,
			    const struct ck_ckpt *ck);

/* What @in holds, one with @steps; to free with ck_run_dir_free(). */
int fs_mounted_table_list(struct fs_mounted_table *s,
			  const struct fs_mounted *in, struct ck_run_dir *out,
			  struct ck_err *err);
/*
 * Whether the model and the optimizer of @group ("": the directory), parts of
 * one save, fit each other, as far as either can be read: run_dir_pair.h.
 * Parses both, once.
 */
bool fs_mounted_table_fit(struct fs_mounted_table *s, const char *group);
/*
 * The name of the newest whole checkpoint, to free(); NULL: none is.  Parses
 * entries until it finds one.
 */
char *fs_mounted_table_latest(struct fs_mounted_table *s);
/*
 * Where in @in, one with @steps, the only hf/ of a model is: of the latest, or
 * of parts of one save; to free().  NULL: there is none, or there are several.
 */
char *fs_mounted_table_hf(struct fs_mounted_table *s,
			  const struct fs_mounted *in);
/*
 * Whether more than FS_KNOWN_MOUNTED are known: @name is then the one used the
 * longest ago, which the kernel may forget unless a program is in it; each is
 * named once until it is looked up again.  fs_mounted_table_wait() waits for
 * there being too many; false: fs_mounted_table_end_wait() was called.
 */
bool fs_mounted_table_crowded(struct fs_mounted_table *s, char name[256]);
bool fs_mounted_table_wait(struct fs_mounted_table *s);
void fs_mounted_table_end_wait(struct fs_mounted_table *s);
/* How many are parsed. */
uint32_t fs_mounted_table_made(struct fs_mounted_table *s);
/* Bytes of all tensors that are known. */
uint64_t fs_mounted_table_total(struct fs_mounted_table *s, uint64_t *files);

#endif
