/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.h - what another user may do with files, as the kernel says
 *
 * A worker that serves other users (-o allow-other) reads with rights of its
 * own.  So a second process, the asker, takes on the caller's user, group and
 * supplementary groups, goes to each file by its path from /, and has the
 * kernel say whether he may: search bits of folders, access lists and whatever
 * else the file system knows are looked at by who knows them.  It has the
 * rights to change its ids and no others, and opens nothing but /proc/PID.  Names
 * in a checkpoint that is being written it changes itself where they would be
 * somebody else's by the time that the worker came to it: who has made a link
 * cannot give it away by a descriptor, and in a sticky folder whose a name is
 * decides who may remove it.
 *
 * The groups are those of /proc/PID/status; of a thread that works for a ring of
 * io_uring, those that its process has still.  Where they cannot be known, the
 * answer is no: the caller is in a pid namespace that is not below ours, it has
 * ended, or it acts with ids that are neither its own nor, as access(2) of a
 * set-user-ID program does, its real ones (another file system that uses its own
 * owner's).  Who has the right to
 * pass over modes, in our user namespace, may do all.
 *
 * An asker of an ordinary user cannot become others.  It answers for that user
 * as above, and to others what everybody may: read where owner, group and others
 * may, all the way, and no access list says otherwise.
 */
#ifndef FS_ASK_H
#define FS_ASK_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/*
 * A question: directories, and files below them that all have to allow what is
 * asked.  A file is looked for in each of the directories before it, down to
 * the last fs_question_anew().  Ended by ck_str_free(&q->text).
 */
struct fs_question {
	struct ck_str text;
	bool changes; /* something is made: no answer of before will do */
};
/* @path: absolute.  It has to be the directory @st; NULL: any. */
void fs_question_dir(struct fs_question *q, const char *path,
		     const struct stat *st);
/*
 * @name below the directories, "" these themselves: R_OK, W_OK, X_OK in @mask.
 * @dev, @ino: which file it has to be; @ino 0: any.
 */
void fs_question_file(struct fs_question *q, const char *name, int mask,
		      dev_t dev, ino_t ino);
/* Forgets the directories. */
void fs_question_anew(struct fs_question *q);
/* What is in a question: the calls above, and what is to be done with a name. */
enum fs_ask_kind {
	FS_ASK_DIR,
	FS_ASK_FILE,
	FS_ASK_ANEW,
	FS_ASK_LINK, /* it becomes a link to @other */
	FS_ASK_REMOVE, /* @flags: AT_REMOVEDIR */
	FS_ASK_RENAME, /* to @other; @flags of renameat2() */
	FS_ASK_OWNER,
	FS_ASK_WAY,
};
/*
 * The caller is to do it in the last of the directories; @name of a rename is in
 * the one before.  The answer is that of the call.  @other: NULL where it has none.
 */
void fs_question_change(struct fs_question *q, enum fs_ask_kind what,
			const char *name, const char *other, int flags);

/*
 * Of a file that is @uid's and @gid's he is to have the rights: -EPERM.  Nothing is
 * looked at but who he is.
 */
enum {
	FS_OWNS = 1, /* its owner's, or such as of all files */
	FS_GIVES = 2, /* to give away what is anybody's */
	FS_IN_GROUP = 4, /* one of its group, or as one of each */
};
void fs_question_owner(struct fs_question *q, uid_t uid, gid_t gid, int rights);

/*
 * Whether everybody may go to the folder @path, and who may do what there stands in
 * its mode: -EACCES.
 */
void fs_question_way(struct fs_question *q, const char *path);

/* Who asks, as FUSE says. */
struct fs_caller {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	bool (*stopped)(
		void *ctx); /* whether he waits no more; NULL: he does */
	void *ctx;
};

/* ---- in the worker ---- */

struct fs_asker;
/*
 * Takes @fd, of fs_askers_open(), and has a first asker started.  Answers about
 * many files may be @keep seconds old: to ask for a thousand takes a millisecond.
 * -EPERM with a line where /proc does not show a process, or the kernel cannot be
 * asked (before Linux 5.8).
 */
int fs_asker_new(struct fs_asker **out, int fd, double keep,
		 struct ck_err *err);
void fs_asker_free(struct fs_asker *a);
/*
 * 0, -EACCES, -EROFS, or what the call says; -ESTALE: there is another file
 * than the one that was meant; -EINTR: he waits no more; -EIO with a line in the
 * log: no asker said anything within FS_ASK_SECONDS, and some more for a long
 * question, or one that was to do something ended before it said whether it did.
 * One that does not answer, or is gone, is replaced.  A question that
 * takes long leaves others an asker of their own, and no user has more than half
 * of them.  Any thread.
 */
int fs_asker_ask(struct fs_asker *a, const struct fs_caller *who,
		 struct fs_question *q);
/* Tests say otherwise with UNSHARD_ASK="SECONDS". */
#define FS_ASK_SECONDS 10

/* ---- in the process that started the worker, and may become others ---- */

#define FS_ASKERS_MAX 16 /* those included that have not ended yet */
struct fs_askers {
	int fd; /* -1: none; to be polled for reading */
	bool sandbox;
	char *names; /* folder below which they may change names; NULL: nowhere */
	pid_t pids[FS_ASKERS_MAX];
	unsigned nr;
};
/*
 * *worker is the worker's end, and the caller's to close.  @names: a folder below
 * which names may be changed; NULL.
 */
int fs_askers_open(struct fs_askers *s, int *worker, const char *names,
		   bool sandbox, struct ck_err *err);
/* Does what the worker wants, which never takes long; false: it is gone. */
bool fs_askers_serve(struct fs_askers *s);
/* One of them ended, and how; false: none.  An asker ends after its worker. */
bool fs_askers_reap(struct fs_askers *s, pid_t *pid, int *status);
/* Kills them. */
void fs_askers_end(struct fs_askers *s);

#endif
