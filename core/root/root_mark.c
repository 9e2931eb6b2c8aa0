/* SPDX-License-Identifier: Apache-2.0 */
/* root_mark.c - names of files that are being written, in an attribute */
#include "core/root/root.h"

#include "core/base/auto.h"

#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

int ck_root_open_marked(const struct ck_root *root)
{
	struct stat st;
	int fd;

	if (!root->only)
		return openat(root->fd, ".",
			      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ck_root_open_file(root, root->only, &fd, &st, NULL) ? -1 : fd;
}

size_t ck_root_mark(const struct ck_root *root,
		    char names[CK_ROOT_MARK_MAX + 1])
{
	ck_auto_fd int fd = ck_root_open_marked(root);
	ssize_t len =
		fd < 0 ? -1 :
			 fgetxattr(fd, CK_ROOT_MARK, names, CK_ROOT_MARK_MAX);

	if (len < 0)
		return 0;
	names[len] = '\0';
	return (size_t)len;
}

bool ck_root_mark_has(const char *names, size_t len, const char *name)
{
	if (len == 2 && names[0] == '*')
		return true;
	for (size_t at = 0; at < len; at += strlen(names + at) + 1)
		if (!strcmp(names + at, name))
			return true;
	return false;
}
