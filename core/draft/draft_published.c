/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_published.c - after a crash: whether a draft was published, and the rest
 *
 * What outlasts the draft is an attribute of the folder that it became.
 */
#include "core/draft/draft.h"

#include "core/base/auto.h"
#include "core/base/match.h"
#include "core/root/fault_point.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define FROM "user.unshard.staged" /* the draft's name */

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
	return ck_text_is(from, (size_t)n, name) ? 0 : -ENOENT;
}

/* Whether SRC/NAME is what the record meant. */
static bool was_published(const struct ck_draft *s,
			  const struct ck_draft_commit *r)
{
	struct stat st;

	return !fstatat(s->src_fd, r->as, &st, AT_SYMLINK_NOFOLLOW) &&
	       S_ISDIR(st.st_mode) && st.st_ino == r->ino;
}

static int finish(struct ck_draft *s, struct ck_err *err)
{
	struct ck_draft_said said;
	int ret = ck_draft_read(s, &said, err);

	if (ret)
		return ret;
	if (!said.begun)
		return ck_fail(err, ENOENT, "%s: its record is gone", s->name);
	/* an old checkpoint is kept until the new one is seen */
	if (s->files_fd >= 0 && !was_published(s, &said.commit))
		return ck_fail(err, ENOENT,
			       "%s: holds what \"%s\" was before, and what "
			       "replaced it is gone",
			       s->path, said.commit.as);
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
