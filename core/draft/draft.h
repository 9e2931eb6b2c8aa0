/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.h - a checkpoint while it is written: hidden beside the others
 *
 *	SRC/.staging-NAME/
 *	  files/	what becomes SRC/NAME by one rename
 *	  lock		empty; who has the draft, and who writes to it
 *	  journal	what was said of it: struct ck_draft_said
 *	  doomed	why it may never be published: a link that says so
 *
 * The name follows from NAME, so that every mount of SRC, on any node, meets
 * in one draft.  Nothing else is shared.  Byte 0 of the lock is held (shared)
 * by whoever has the draft open, so that gc leaves it; byte 1 is held (shared)
 * while something is being written, and by a publisher alone; byte 2 by who
 * appends to the journal.  Locks of open file descriptions: they end with the
 * process, and work over NFS.  Where a file system knows no locks, publishing is
 * for its user to time.
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
	/*
	 * Of the checkpoint that it will be; and of files/, absolute.  A rename
	 * changes them: to be read by who keeps it away, being between begin
	 * and end, or having seized it; else by the calls below.
	 */
	char name[NAME_MAX + 1], *path;
	int src_fd, fd, files_fd; /* directories: SRC, the draft, files/ */
	struct stat st, files_st; /* identity of the last two */
	/* private */
	int lock_fd;
	pthread_mutex_t lock, journal_lock;
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
bool ck_draft_is_current(struct ck_draft *s);
/* What it is called now: @out.  The same for the time of a block. */
const char *ck_draft_name(struct ck_draft *s, char out[NAME_MAX + 1]);
#define CK_DRAFT_NAME(s) ck_draft_name(s, (char[NAME_MAX + 1]){ 0 })
/* Where files/ is now; -ENAMETOOLONG. */
int ck_draft_path(struct ck_draft *s, char out[PATH_MAX]);

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

/* A publish that was begun. */
struct ck_draft_commit {
	char as[NAME_MAX + 1];
	bool replace, holes;
	uint64_t ranks;
	uint64_t ino; /* of files/, which keeps it as SRC/AS */
};

/* What was said of it, by whomever, the last time. */
struct ck_draft_said {
	/* it can only be thrown away, and why */
	bool doomed;
	char doomed_why[512];
	/*
	 * Its index was renamed, so that whoever completes it, on any node, may
	 * publish it without being asked; or it came, and files may come behind
	 * it.
	 */
	bool when_complete, when_quiet;
	char refused[CK_ERR_MAX]; /* the layout that was given last, if there
				     are no slices */
	/* files of that signature (dir_tree.h) are damaged; "": none are */
	uint64_t bad_signature;
	char bad[CK_ERR_MAX];
	bool begun; /* a publish was: @commit */
	struct ck_draft_commit commit;
};
/* Where that cannot be read, it is doomed, with the line. */
void ck_draft_look(struct ck_draft *s, struct ck_draft_said *out);
/* The journal alone; or -errno. */
int ck_draft_read(const struct ck_draft *s, struct ck_draft_said *out,
		  struct ck_err *err);

/* Bytes that were acknowledged may be lost; as far as the disk takes that. */
void ck_draft_poison(struct ck_draft *s, const char *why);
void ck_draft_reject_layout(struct ck_draft *s, const char *why);
void ck_draft_bad(struct ck_draft *s, uint64_t signature, const char *why);
void ck_draft_publish_when_complete(struct ck_draft *s);
void ck_draft_publish_when_quiet(struct ck_draft *s);
/* Durable. */
int ck_draft_commit(struct ck_draft *s, const struct ck_draft_commit *r,
		    struct ck_err *err);

/*
 * Whether @root's checkpoint @as was published from the draft @name: 0;
 * -ENOENT: not; -EOPNOTSUPP: its file system cannot say.
 */
int ck_commit_was(const struct ck_root *root, const char *as, const char *name);
/* Said of the files themselves, for ck_commit_was(); as well as it goes. */
void ck_record_from(int files_fd, const char *name);
/* fsync of a directory; a step, see root/fault_point.h. */
int ck_record_sync_dir(int fd, struct ck_err *err);
/*
 * After a crash: what is left of a draft whose files were published.  0: they
 * were, and it is gone now; -ENOENT: they were not.
 */
int ck_commit_finish(const struct ck_root *root, const char *name,
		     struct ck_err *err);

/* draft.c, for draft_state.c: who appends to the journal is alone. */
void ck_draft_journal_lock(struct ck_draft *s, bool take);
/* draft_state.c, for draft.c: makes the journal. */
void ck_draft_journal_begin(struct ck_draft *s);

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
