/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root.h - where a checkpoint lies, and the only way to open files of it
 *
 * A root is a directory, or one file (then only that file is there).  Opening
 * never leaves it: no "..", no absolute names, no links but those into the
 * blobs/ folder of the same Hugging Face hub repository and into directories
 * given by -o follow=; no filesystem mounted inside of it; no device, FIFO or
 * socket, and none of them is waited for.  The path given by the user may
 * itself be a link.
 *
 * Several directories, A:B:C, are one checkpoint whose files lie on several
 * nodes' disks: a name is looked for in each, and a file that two of them hold
 * must have the same size and the same index (root_same_file.c).  A path that
 * exists as given is one directory, and "\\:" is a colon in a name.
 *
 * Threads: any, once it is open.
 */
#ifndef CK_ROOT_H
#define CK_ROOT_H

#include "core/base/err.h"
#include "core/base/opts.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define CK_MANIFEST_NAME ".unshard-manifest"
/*
 * Names that begin so, in any directory of the checkpoint, are ours: no part
 * of it, and in no manifest (manifest/manifest.h).
 */
#define CK_MANIFEST_OURS ".unshard-"
#define CK_MANIFEST_ALONE ".manifest" /* of a file by itself, behind its name */
#define CK_WRITER_LOCK_NAME CK_MANIFEST_OURS "writer" /* root/writer_lock.h */
#define CK_WRITER_LOCK_TEMP CK_MANIFEST_OURS "temp-" /* then PID-TIME */

struct ck_root {
	int fd; /* O_PATH | O_DIRECTORY of the directory */
	char *path; /* as given, for messages */
	char *real; /* absolute path of the directory, no links in it */
	char *only; /* one file: its name in that directory; else NULL */
	char *save; /* of several saves in it (run_dir.h), one; else NULL */
	/* Readers see no files of which this is true; or NULL. */
	bool (*hides)(const char *save, const char *name);
	bool entry; /* one of several checkpoints in a folder */
	bool served; /* shards/ of a mount: inode numbers are that mount's */
	/* Takes a file of it, opened for reading, and gives what is read; or NULL. */
	int (*own)(int fd);
	int blobs_fd; /* hub cache: the repository's blobs/; else -1 */
	unsigned blobs_up; /* steps from the directory to that repository */
	int *follow_fd; /* -o follow= directories, O_PATH */
	char **follow_path; /* their absolute paths, no links in them */
	char **follow_given; /* absolute, links as the user wrote them */
	unsigned nr_follow;
	struct ck_root *next; /* the directory joined to this one; else NULL */
};

int ck_root_open(struct ck_root *root, const char *path,
		 const struct ck_opts *opts, struct ck_err *err);
/*
 * Whether ck_root_open() takes @path for one directory, called @name, also where
 * that is not there yet, and not for A:B:C, of which the first is there.
 */
bool ck_root_is_one(const char *path, char name[PATH_MAX]);
void ck_root_close(struct ck_root *root);
/*
 * Links in @root, a part of what the user gave, may lead to other parts of it:
 * to all of @whole.
 */
int ck_root_allow(struct ck_root *root, const struct ck_root *whole,
		  struct ck_err *err);

/*
 * Opens the regular file @name for reading and fills @st.  -ENOENT where it
 * does not exist; -EXDEV, -ELOOP, -EINVAL with a line that names it where it
 * is outside, a link or no file.  *fd is the caller's to close.
 */
int ck_root_open_file(const struct ck_root *root, const char *name, int *fd,
		      struct stat *st, struct ck_err *err);
/* The same of who wants to know @st alone; it may be one that cannot be read. */
int ck_root_stat_file(const struct ck_root *root, const char *name,
		      struct stat *st, struct ck_err *err);
/*
 * The same for reading and writing.  -EROFS with a line where more than the
 * checkpoint would change, or less: a file with several hard links, one in a
 * hub cache's blobs/, one that two joined directories hold.
 */
int ck_root_open_write(const struct ck_root *root, const char *name, int *fd,
		       struct stat *st, struct ck_err *err);
/* The same for a directory; "" is the root itself. */
int ck_root_open_dir(const struct ck_root *root, const char *name, int *fd,
		     struct ck_err *err);
/* The same, to be listed; *@out is NULL or the caller's to close. */
int ck_root_list(const struct ck_root *root, const char *name, DIR **out,
		 struct ck_err *err);
/*
 * The same, in the first root of the chain that has it; ck_root_open_dir() is
 * of @root alone, and who lists a directory does so in each that has it.
 */
int ck_root_find_dir(const struct ck_root *root, const char *name, int *fd,
		     struct ck_err *err);
/* Whether the directory @fd is that of @root alone. */
bool ck_root_is_at(const struct ck_root *root, int fd);
/*
 * Whether the link @base in the directory @at, which is @name in @root, leads
 * to an entry of that directory, by its text alone: a second name of that.
 */
bool ck_root_is_second_name(const struct ck_root *root, int at,
			    const char *base, const char *name);
/*
 * Whether it is a link to a folder or a file elsewhere that may be followed:
 * ranks and steps that lie on several disks are put together so.  @st is that
 * folder's, or that file's.
 */
bool ck_root_stat_link(const struct ck_root *root, int at, const char *base,
		       const char *name, struct stat *st);
/*
 * The file in the directory of @root alone that its manifest is, or would be:
 * a file given alone has one for itself.  False: its name would be too long.
 */
bool ck_root_manifest(const struct ck_root *root, char *out, size_t room);
/*
 * The attribute of the directory of @root, or of the file given alone, that
 * names the files of which sums may be wrong (core/write/sums.h): names,
 * each with its NUL; "*" if there are many.
 */
#define CK_ROOT_MARK "user.unshard.writing"
#define CK_ROOT_MARK_MAX 2000
int ck_root_open_marked(const struct ck_root *root); /* -1: cannot be */
/* Its length; 0: there is none. */
size_t ck_root_mark(const struct ck_root *root,
		    char names[CK_ROOT_MARK_MAX + 1]);
bool ck_root_mark_has(const char *names, size_t len, const char *name);

/*
 * All descriptors of the chain, for who closes the others: returns how many,
 * at most @max of which are written to @fds; -1 stands for none.
 */
unsigned ck_root_fds(const struct ck_root *root, int *fds, unsigned max);

#endif
