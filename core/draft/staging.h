/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.h - a checkpoint while it is written: hidden beside the others
 *
 *	SRC/.staging-NAME/
 *	  files/	what becomes SRC/NAME by one rename
 *	  lock		empty; who has the stage, and who writes to it
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
 * in one stage.  Nothing else is shared.  Byte 0 of the lock is held (shared)
 * by whoever has the stage open, so that gc leaves it; byte 1 is held (shared)
 * while something is being written, and by a publisher alone.  Locks of open
 * file descriptions: they end with the process, and work over NFS.  Where a
 * file system knows no locks, publishing is for its user to time.
 *
 * Threads: any, on one stage.
 */
#ifndef CK_STAGING_H
#define CK_STAGING_H

#include "core/base/err.h"
#include "core/root/root.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define CK_STAGING_PREFIX ".staging-"
#define CK_STAGING_FILES "files"
/* What is being removed; no stage, for its name would begin with a dot. */
#define CK_STAGING_GONE CK_STAGING_PREFIX ".gone-"

struct ck_staging {
	char name[NAME_MAX + 1]; /* of the checkpoint that it will be */
	char *path; /* of files/, absolute, for messages and opening */
	int src_fd, fd, files_fd; /* directories: SRC, the stage, files/ */
	struct stat st, files_st; /* identity of the last two */
	/* private */
	int lock_fd;
	pthread_mutex_t lock;
	unsigned writers; /* of this process */
	bool seized, over;
	bool locks; /* the file system knows them */
	char doomed[512]; /* why, if this process did it */
};

/* Whether a checkpoint may be called so: "step-1", but neither ".a" nor "a/b". */
bool ck_staging_name_ok(const char *name);
/*
 * Starts the checkpoint @name in @root: -EEXIST where it exists, staged or
 * published; -EINVAL for its name; -EROFS where several roots are joined.
 */
int ck_staging_make(struct ck_staging **out, const struct ck_root *root,
		    const char *name, struct ck_err *err);
/* -ENOENT: no such stage.  One that is published meanwhile is one no more. */
int ck_staging_open(struct ck_staging **out, const struct ck_root *root,
		    const char *name, struct ck_err *err);
/*
 * One whose files were published, but which is still there, because whoever
 * did it died; files_fd is -1 or an old checkpoint's, to be thrown away.
 * -ENOENT: there is none.
 */
int ck_staging_open_over(struct ck_staging **out, const struct ck_root *root,
			 const char *name, struct ck_err *err);
void ck_staging_close(struct ck_staging *s);
/* Whether its name still means it, and it was not published. */
bool ck_staging_is_current(const struct ck_staging *s);
/* Whether there seems to be one, without opening it; then *st is files/. */
bool ck_staging_look(const struct ck_root *root, const char *name,
		     struct stat *st);

/*
 * Around whatever changes files/: -EBUSY while it is being published, -ESTALE
 * once it was, or was thrown away.  Nests; ck_staging_end() for each 0.
 */
int ck_staging_begin(struct ck_staging *s, struct ck_err *err);
void ck_staging_end(struct ck_staging *s);
/* Whether this process is in between. */
bool ck_staging_busy(struct ck_staging *s);

/* Alone: -EBUSY while anybody writes, -ESTALE as above. */
int ck_staging_seize(struct ck_staging *s, struct ck_err *err);
void ck_staging_unseize(struct ck_staging *s);

/*
 * Bytes that were acknowledged may be lost: it can only be thrown away.  Said
 * on the disk too, as far as that still takes anything.
 */
void ck_staging_doom(struct ck_staging *s, const char *why);
/* The line why; false: it is not. */
bool ck_staging_is_doomed(struct ck_staging *s, char *why, size_t room);

/* The layout of slices that was given last was refused; NULL: it was not. */
void ck_staging_refuse(struct ck_staging *s, const char *why);
bool ck_staging_is_refused(const struct ck_staging *s, char *why, size_t room);

/* Files of that signature (below.h) are damaged, as a publish found out. */
void ck_staging_bad(struct ck_staging *s, uint64_t signature, const char *why);
bool ck_staging_is_bad(const struct ck_staging *s, uint64_t signature,
		       char *why, size_t room);

/*
 * Its index was renamed, so that whoever completes it, on any node, may publish
 * it without being asked; stays said until it is published.
 */
void ck_staging_arm(struct ck_staging *s);
bool ck_staging_is_armed(const struct ck_staging *s);
/* Its index came, and files may come behind it. */
void ck_staging_copied(struct ck_staging *s);
bool ck_staging_is_copied(const struct ck_staging *s);

/* What others do with it, seen from outside. */
struct ck_staging_use {
	bool open, writing; /* by another process or node */
};
void ck_staging_used(const struct ck_staging *s, struct ck_staging_use *use);
/* Takes the whole stage away from everybody: -EBUSY while somebody has it. */
int ck_staging_only_ours(struct ck_staging *s, struct ck_err *err);

/* Another name, before it is published; seized.  -EEXIST. */
int ck_staging_rename(struct ck_staging *s, const char *name,
		      struct ck_err *err);
/* Seized: removes all of it, files too. */
int ck_staging_remove(struct ck_staging *s, struct ck_err *err);

#endif
