/* SPDX-License-Identifier: Apache-2.0 */
#include "core/manifest/edited.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/manifest/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define MOST ((off_t)64 << 20)
#define MAX_TAIL 8192 /* longer than a name */

static int fail(struct ck_err *err)
{
	return ck_fail(err, errno, "%s: %s", CK_MANIFEST_EDITED,
		       strerror(errno));
}

int ck_edited_read(const struct ck_root *root, char **names, size_t *len,
		   struct ck_err *err)
{
	ck_auto_fd int fd =
		openat(root->fd, CK_MANIFEST_EDITED,
		       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ck_auto_free char *text = NULL;
	struct stat st;
	ssize_t n;

	if (root->only) /* its manifest is one that no mount follows */
		return ck_fail(err, ENOENT, "%s: of no single file",
			       CK_MANIFEST_EDITED);
	if (fd < 0 || fstat(fd, &st))
		return fail(err);
	if (!S_ISREG(st.st_mode) || st.st_size > MOST)
		return ck_fail(err, EINVAL, "%s: not ours", CK_MANIFEST_EDITED);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return ck_no_memory(err);
	n = pread(fd, text, (size_t)st.st_size, 0);
	if (n < 0)
		return fail(err);
	while (n && text[n - 1])
		n--;
	*len = (size_t)n;
	*names = ck_steal(text);
	return 0;
}

static int open_first(const struct ck_root *root, struct ck_err *err)
{
	ck_auto_fd int fd = openat(
		root->fd, CK_MANIFEST_EDITED,
		O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0 || ck_fds_sync_dir(root->fd))
		return fail(err);
	return ck_steal_fd(fd);
}

/*
 * What a crash or a full disk left without its NUL would become the beginning
 * of the next name.
 */
static int cut_tail(int fd)
{
	char end[MAX_TAIL];
	struct stat st;
	off_t from;
	ssize_t n;

	if (fstat(fd, &st))
		return -1;
	from = CK_MAX(st.st_size, MAX_TAIL) - MAX_TAIL;
	n = pread(fd, end, sizeof(end), from);
	if (n < 0 || !n || !end[n - 1])
		return n < 0 ? -1 : 0;
	while (n && end[n - 1])
		n--;
	if (n || !from)
		return ftruncate(fd, from + n);
	errno = EINVAL;
	return -1;
}

int ck_edited_add(const struct ck_root *root, int *fd, const char *names,
		  size_t len, struct ck_err *err)
{
	ssize_t n;

	if (*fd < 0)
		*fd = open_first(root, err);
	if (*fd < 0)
		return *fd = -1, -err->code;
	n = cut_tail(*fd) ? -1 : write(*fd, names, len);
	if (n >= 0 && (size_t)n < len) {
		errno = ENOSPC;
		n = -1;
	}
	return n < 0 || fdatasync(*fd) ? fail(err) : 0;
}

int ck_edited_remove(const struct ck_root *root, int *fd, struct ck_err *err)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	if (unlinkat(root->fd, CK_MANIFEST_EDITED, 0) && errno != ENOENT)
		return fail(err);
	return 0;
}
