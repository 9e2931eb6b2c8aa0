/* SPDX-License-Identifier: Apache-2.0 */
/* engine_plain.c - one after the other, by preadv, pwritev, fdatasync */
#include "core/io/engine_priv.h"

#include <errno.h>
#include <unistd.h>

void ck_io_advance(struct ck_io *io, size_t n)
{
	io->off += n;
	io->len -= n;
	while (io->nr_iov && n >= io->iov->iov_len) {
		n -= io->iov->iov_len;
		io->iov++;
		io->nr_iov--;
	}
	if (n) {
		io->iov->iov_base = (char *)io->iov->iov_base + n;
		io->iov->iov_len -= n;
	}
}

static void sync_file(struct ck_io *io)
{
	do
		io->res = ck_io_fault(io, fdatasync(io->fd) ? -errno : 0);
	while (io->res == -EINTR);
}

/* One buffer, as most have, is not worth a vector. */
static ssize_t read_or_write(const struct ck_io *io)
{
	const struct iovec *v = io->iov;
	int batch = ck_io_batch(io);
	off_t off = (off_t)io->off;

	if (io->op == CK_IO_WRITE)
		return batch == 1 ?
			       pwrite(io->fd, v->iov_base, v->iov_len, off) :
			       pwritev(io->fd, v, batch, off);
	return batch == 1 ? pread(io->fd, v->iov_base, v->iov_len, off) :
			    preadv(io->fd, v, batch, off);
}

void ck_io_finish(struct ck_io *io)
{
	if (io->op == CK_IO_SYNC) {
		sync_file(io);
		return;
	}
	while (io->len) {
		ssize_t n = read_or_write(io);

		n = ck_io_fault(io, n < 0 ? -errno : (int)n);
		if (n == -EINTR)
			continue;
		if (n <= 0) {
			io->res = n ? (int)n : -EIO;
			return;
		}
		ck_io_advance(io, (size_t)n);
	}
	io->res = 0;
}

static void run_plain(struct ck_engine *e, struct ck_io *io, unsigned nr)
{
	(void)e;
	for (unsigned i = 0; i < nr; i++)
		ck_io_finish(&io[i]);
}

static struct ck_engine *open_plain(struct ck_err *err)
{
	static struct ck_engine one = { &ck_engine_plain };

	(void)err;
	return &one;
}

static void close_plain(struct ck_engine *e)
{
	(void)e;
}

const struct ck_engine_ops ck_engine_plain = {
	.name = "plain",
	.open = open_plain,
	.run = run_plain,
	.close = close_plain,
};
