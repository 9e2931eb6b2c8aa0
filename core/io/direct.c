/* SPDX-License-Identifier: Apache-2.0 */
#include "core/io/direct.h"

#include "core/io/engine_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int ck_direct_open(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

/* @len bytes to where the request goes on. */
static void hand_out(struct ck_io *io, const unsigned char *from, uint64_t len)
{
	while (len) {
		size_t n = CK_MIN(len, (uint64_t)io->iov->iov_len);

		memcpy(io->iov->iov_base, from, n);
		ck_io_advance(io, n);
		from += n;
		len -= n;
	}
}

int ck_direct_blocks(int fd, unsigned char *mem, uint64_t off, uint64_t len)
{
	struct ck_io io = { .op = CK_IO_READ, .fd = fd, .off = off };
	uint64_t got = 0;

	while (got < len) {
		uint64_t at = got / CK_DIRECT_BLOCK * CK_DIRECT_BLOCK;
		uint64_t n =
			CK_DIV_UP(len - at, CK_DIRECT_BLOCK) * CK_DIRECT_BLOCK;
		ssize_t ret = pread(fd, mem + at, n, (off_t)(off + at));

		io.off = off + at;
		io.len = n;
		ret = ck_io_fault(&io, ret < 0 ? -errno : (int)ret);
		if (ret == -EINTR)
			continue;
		if (ret < 0)
			return (int)ret;
		/* It ends, or goes on in the middle of a block. */
		if (at + (uint64_t)ret <= got)
			return -EIO;
		got = at + (uint64_t)ret;
	}
	return 0;
}

int ck_direct_read(int fd, unsigned char *buf, struct ck_io *io)
{
	while (io->len) {
		uint64_t at = io->off / CK_DIRECT_BLOCK * CK_DIRECT_BLOCK;
		uint64_t skip = io->off - at;
		uint64_t want = CK_MIN(skip + io->len, CK_DIRECT_ROOM);
		ssize_t n;

		want = (want + CK_DIRECT_BLOCK - 1) / CK_DIRECT_BLOCK *
		       CK_DIRECT_BLOCK;
		n = pread(fd, buf, want, (off_t)at);
		n = ck_io_fault(io, n < 0 ? -errno : (int)n);
		if (n == -EINTR)
			continue;
		if (n < 0 || (uint64_t)n <= skip)
			return n < 0 ? (int)n : -EIO;
		hand_out(io, buf + skip, CK_MIN((uint64_t)n - skip, io->len));
	}
	return 0;
}
