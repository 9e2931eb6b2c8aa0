/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.h - a checkpoint while it is written: hidden beside the others
 *
 *	SRC/.staging-NAME/
 *	  files/	what becomes SRC/NAME by one rename
 *	  lock		empty; who has the draft, and who writes to it
 *	  commit	a publish that was begun; see commit.h
 *	  doomed	why it may never be published: one line
 *	  doomed-why	the same, where the disk was full: what a link says
 *	  refused	why it was not begun as its layout says: one line
 *	  bad		its files were read and are damaged: their signature,
 *			then one line
 *	  armed		empty: it is to be published once it is complete
 *	  copied	empty: the same, once nothing is written for a while
 *
 * The name follows from NAME, so that every mount of SRC, on any node, meets
 * in one draft.  Nothing else is shared.  Byte 0 of the lock is held (shared)
 * by whoever has the draft open, so that gc leaves it; byte 1 is held (shared)
 * while something is being written, and by a publisher alone.  Locks of open
 * file descriptions: they end with the process, and work over NFS.  Where a
 * file system knows no locks, publishing is for its user to time.
 *
 * Threads: any, on one draft.
 */
#ifndef CK_DRAFT_H
#define CK_DRAFT_H

#include "core/base/err.h"
#include "core/root/root.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define CK_DRAFT_PREFIX ".staging-"
#define CK_DRAFT_FILES "files"
/* What is being removed; no draft, for its name would begin with a dot. */
#define CK_DRAFT_GONE CK_DRAFT_PREFIX ".gone-"

struct ck_draft {
	char name[NAME_MAX + 1]; /* of the checkpoint that it will be */
	char *path; /* of files/, absolute, for messages and opening */
	int src_fd, fd, files_fd; /* directories: SRC, the draft, files/ */
	struct stat st, files_st; /* identity of the last two */
	/* private */
	int lock_fd;
	pthread_mutex_t lock;
	unsigned writers; /* of this process */
	bool seized, over;
	bool locks; /* the file system knows them */
	char poisoned[512]; /* why, if this process did it */
};

/* Whether a checkpoint may be called so: "step-1", but neither ".a" nor "a/b". */
bool ck_draft_name_ok(const char *name);
/*
 * Starts the checkpoint @name in @root: -EEXIST where it exists, a draft or
 * published; -EINVAL for its name; -EROFS where several roots are joined.
 */
int ck_draft_make(struct ck_draft **out, const struct ck_root *root,
		  const char *name, struct ck_err *err);
/* -ENOENT: no such draft.  One that is published meanwhile is one no more. */
int ck_draft_open(struct ck_draft **out, const struct ck_root *root,
		  const char *name, struct ck_err *err);
/*
 * One whose files were published, but which is still there, because whoever
 * did it died; files_fd is -1 or an old checkpoint's, to be thrown away.
 * -ENOENT: there is none.
 */
int ck_draft_open_published(struct ck_draft **out, const struct ck_root *root,
			    const char *name, struct ck_err *err);
void ck_draft_close(struct ck_draft *s);
/* Whether its name still means it, and it was not published. */
bool ck_draft_is_current(const struct ck_draft *s);

/*
 * Around whatever changes files/: -EBUSY while it is being published, -ESTALE
 * once it was, or was thrown away.  Nests; ck_draft_end() for each 0.
 */
int ck_draft_begin(struct ck_draft *s, struct ck_err *err);
void ck_draft_end(struct ck_draft *s);
/* Whether this process is in between. */
bool ck_draft_busy(struct ck_draft *s);

/* Alone: -EBUSY while anybody writes, -ESTALE as above. */
int ck_draft_lock(struct ck_draft *s, struct ck_err *err);
void ck_draft_unlock(struct ck_draft *s);

/*
 * Bytes that were acknowledged may be lost: it can only be thrown away.  Said
 * on the disk too, as far as that still takes anything.
 */
void ck_draft_poison(struct ck_draft *s, const char *why);
/* The line why; false: it is not. */
bool ck_draft_is_poisoned(struct ck_draft *s, char *why, size_t room);

/* The layout of slices that was given last was refused; NULL: it was not. */
void ck_draft_reject_layout(struct ck_draft *s, const char *why);
bool ck_draft_is_layout_rejected(const struct ck_draft *s, char *why,
				 size_t room);

/* Files of that signature (dir_tree.h) are damaged, as a publish found out. */
void ck_draft_bad(struct ck_draft *s, uint64_t signature, const char *why);
bool ck_draft_is_bad(const struct ck_draft *s, uint64_t signature, char *why,
		     size_t room);

/*
 * Its index was renamed, so that whoever completes it, on any node, may publish
 * it without being asked; stays said until it is published.
 */
void ck_draft_publish_when_complete(struct ck_draft *s);
bool ck_draft_is_publish_when_complete(const struct ck_draft *s);
/* Its index came, and files may come behind it. */
void ck_draft_publish_when_quiet(struct ck_draft *s);
bool ck_draft_is_publish_when_quiet(const struct ck_draft *s);

/* What others do with it, seen from outside. */
struct ck_draft_use {
	bool open, writing; /* by another process or node */
};
void ck_draft_used(const struct ck_draft *s, struct ck_draft_use *use);
/* Takes the whole draft away from everybody: -EBUSY while somebody has it. */
int ck_draft_only_ours(struct ck_draft *s, struct ck_err *err);

/* Another name, before it is published; seized.  -EEXIST. */
int ck_draft_rename(struct ck_draft *s, const char *name, struct ck_err *err);
/* Seized: removes all of it, files too. */
int ck_draft_remove(struct ck_draft *s, struct ck_err *err);

#endif
