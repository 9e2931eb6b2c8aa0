/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/ask/everybody.h"

#include "core/base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACL "system.posix_acl_access"

static bool has_no_list(int fd)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return getxattr(path, ACL, NULL, 0) < 0 &&
	       (errno == ENODATA || errno == EOPNOTSUPP);
}

bool fs_everybody_may(int fd, mode_t bits)
{
	struct stat st;

	bits |= bits << 3 | bits << 6;
	return !fstat(fd, &st) && (st.st_mode & bits) == bits &&
	       has_no_list(fd);
}

bool fs_everybody_goes(int dir, const char *path)
{
	ck_auto_free char *copy = strdup(path);

	for (char *end = copy ? strchr(copy, '/') : NULL; end;
	     end = strchr(end + 1, '/')) {
		ck_auto_fd int fd = -1;

		*end = '\0';
		fd = openat(dir, end == copy ? "/" : copy,
			    O_PATH | O_NOFOLLOW | O_CLOEXEC);
		*end = '/';
		if (fd < 0 || !fs_everybody_may(fd, S_IXOTH))
			return false;
	}
	return copy;
}

bool fs_everybody_sees(const char *path)
{
	ck_auto_fd int fd =
		open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 && has_no_list(fd) && fs_everybody_goes(AT_FDCWD, path);
}
