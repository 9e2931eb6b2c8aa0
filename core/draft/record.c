/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.c - the lines of a draft's "commit"
 *
 *	unshard-commit 1
 *	as step-100
 *	replace 0
 *	ranks 4
 *	files 1234567		(inode)
 *	holes 0
 *	end
 *
 * What outlasts the draft is an attribute of the folder that it became.
 */
#include "core/draft/record.h"

#include "core/base/auto.h"
#include "core/draft/draft.h"
#include "core/root/fault_point.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define NAME "commit"
#define MAX 1024
#define FROM "user.unshard.staged" /* the draft's name */

int ck_commit_record(int draft_fd, struct ck_commit_record *out)
{
	char text[MAX + 1], end[8] = "";
	ck_auto_fd int fd = openat(
		draft_fd, NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	unsigned replace, holes;
	ssize_t n = fd < 0 ? -1 : read(fd, text, MAX);

	if (n <= 0)
		return -ENOENT;
	text[n] = '\0';
	*out = (struct ck_commit_record){ 0 };
	n = sscanf(text,
		   "unshard-commit 1\nas %255[^\n]\nreplace %u\nranks %" SCNu64
		   "\nfiles %" SCNu64 "\nholes %u\n%7s",
		   out->as, &replace, &out->ranks, &out->ino, &holes, end);
	if (n != 6 || strcmp(end, "end") || !ck_draft_name_ok(out->as))
		return -ENOENT;
	out->replace = replace;
	out->holes = holes;
	return 0;
}

int ck_record_write(int draft_fd, const struct ck_commit_record *r,
		    struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	int ret = ck_fault_point("record", err);

	if (ret)
		return ret;
	fd = openat(draft_fd, NAME,
		    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		    0666);
	if (fd < 0 ||
	    dprintf(fd,
		    "unshard-commit 1\nas %s\nreplace %u\nranks %" PRIu64
		    "\nfiles %" PRIu64 "\nholes %u\nend\n",
		    r->as, r->replace, r->ranks, r->ino, r->holes) < 0)
		return ck_fail(err, errno, "the record of the publish: %s",
			       strerror(errno));
	ret = ck_fault_point("fsync of the record", err);
	if (!ret && (fsync(fd) || fsync(draft_fd)))
		ret = ck_fail(err, errno, "fsync of the record: %s",
			      strerror(errno));
	return ret;
}

int ck_record_sync_dir(int fd, struct ck_err *err)
{
	int ret = ck_fault_point("fsync of the directory", err);

	if (!ret && fsync(fd))
		ret = ck_fail(err, errno, "fsync of the directory: %s",
			      strerror(errno));
	return ret;
}

void ck_record_from(int files_fd, const char *name)
{
	fsetxattr(files_fd, FROM, name, strlen(name), 0);
}

int ck_commit_was(const struct ck_root *root, const char *as, const char *name)
{
	ck_auto_fd int fd = openat(
		root->fd, as, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char from[NAME_MAX + 1];
	ssize_t n;

	if (!strcmp(as, name))
		return fd < 0 ? -ENOENT : 0;
	n = fd < 0 ? -1 : fgetxattr(fd, FROM, from, sizeof(from));
	if (n < 0)
		return fd >= 0 && errno == EOPNOTSUPP ? -EOPNOTSUPP : -ENOENT;
	return (size_t)n == strlen(name) && !memcmp(from, name, (size_t)n) ?
		       0 :
		       -ENOENT;
}

/* Whether SRC/NAME is what the record meant. */
static bool was_published(const struct ck_draft *s,
			  const struct ck_commit_record *r)
{
	struct stat st;

	return !fstatat(s->src_fd, r->as, &st, AT_SYMLINK_NOFOLLOW) &&
	       S_ISDIR(st.st_mode) && st.st_ino == r->ino;
}

static int finish(struct ck_draft *s, struct ck_err *err)
{
	struct ck_commit_record r;
	int ret = ck_commit_record(s->fd, &r);

	if (ret)
		return ck_fail(err, ENOENT, "%s: its record is gone", s->name);
	/* an old checkpoint is kept until the new one is seen */
	if (s->files_fd >= 0 && !was_published(s, &r))
		return ck_fail(err, ENOENT,
			       "%s: holds what \"%s\" was before, and what "
			       "replaced it is gone",
			       s->path, r.as);
	ret = ck_record_sync_dir(s->src_fd, err);
	if (!ret)
		ret = ck_draft_remove(s, err);
	if (!ret)
		fsync(s->src_fd);
	return ret;
}

int ck_commit_finish(const struct ck_root *root, const char *name,
		     struct ck_err *err)
{
	struct ck_draft *s;
	int ret = ck_draft_open_published(&s, root, name, err);

	if (ret)
		return ret;
	ret = ck_draft_lock(s, err);
	if (!ret) {
		ret = finish(s, err);
		ck_draft_unlock(s);
	}
	ck_draft_close(s);
	return ret;
}
