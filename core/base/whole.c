/* SPDX-License-Identifier: Apache-2.0 */
/* whole.c - calls that are repeated until all bytes went */
#include "core/base/whole.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * The page cache takes what a call writes into folios as large as that, and large ones
 * are memory that was free for long, which is slow to write to where a host has taken
 * it back: 1 MiB a call took five times as long (docs/performance.md).
 */
#define WRITE_MOST ((uint64_t)128 << 10)

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
		ssize_t n = pwrite(fd, at, CK_MIN(len, WRITE_MOST), (off_t)off);

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

int ck_pread_whole(int fd, void *buf, uint64_t len, uint64_t off)
{
	ssize_t n = ck_pread_most(fd, buf, len, off);

	return n < 0 ? (int)n : (uint64_t)n == len ? 0 : -EIO;
}

int ck_read_file(int fd, uint64_t most, char **bytes, size_t *len)
{
	struct stat st;
	char *v;
	int ret;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > most)
		return S_ISREG(st.st_mode) ? -EFBIG : -EINVAL;
	v = malloc((size_t)st.st_size + 1);
	if (!v)
		return -ENOMEM;
	ret = ck_pread_whole(fd, v, (uint64_t)st.st_size, 0);
	if (ret) {
		free(v);
		return ret;
	}
	v[st.st_size] = '\0';
	*len = (size_t)st.st_size;
	*bytes = v;
	return 0;
}
