/* SPDX-License-Identifier: Apache-2.0 */
/* whole.c - calls that are repeated until all bytes went */
#include "core/base/whole.h"

#include <errno.h>
#include <unistd.h>

int ck_write_whole(int fd, const void *buf, uint64_t len)
{
	const char *at = buf;

	while (len) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		len -= (uint64_t)n;
	}
	return 0;
}

int ck_pwrite_whole(int fd, const void *buf, uint64_t len, uint64_t off)
{
	const char *at = buf;

	while (len) {
		ssize_t n = pwrite(fd, at, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		off += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

ssize_t ck_pread_most(int fd, void *buf, uint64_t len, uint64_t off)
{
	uint64_t got = 0;

	while (got < len) {
		ssize_t n = pread(fd, (char *)buf + got, len - got,
				  (off_t)(off + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		got += (uint64_t)n;
	}
	return (ssize_t)got;
}
