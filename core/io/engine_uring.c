/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_uring.c - what is not in memory goes to an io_uring, all at once
 *
 * Pages that are there are taken by preadv2(RWF_NOWAIT), which is cheaper than
 * a trip through a ring; if there are many requests, as there are for columns,
 * one trip for MANY and more of them is cheaper than that many calls.  What is
 * left of all requests is submitted together,
 * so that the waits for the storage overlap.  One request left has nothing to
 * overlap with and is read by preadv, and so is what goes on where the file
 * was read last: there the kernel's read-ahead hides the wait, and the ring
 * only costs (docs/performance.md, "Engine").
 *
 * A write into the page cache waits for nothing that could overlap, and the
 * ring would hand it to another thread: pwritev takes it.  Syncs do wait.
 *
 * One thread a ring.  A filter of system calls does not see what a ring does,
 * so the ring itself is restricted to the four operations of this project
 * where the kernel can (Linux 5.10).
 */
#include "core/io/engine_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES 64
#define MANY 16 /* requests: of 1 MiB each is 64 KiB at most */
#define FOLLOWED 1024 /* descriptors whose last place is remembered */
#define NEAR (UINT64_C(4) << 20) /* threads overtake each other */
#define UNDER_WAY 1 /* no result of a request */
#define MAX_NAPS 10000 /* milliseconds */

/* Where each file was read last, by any thread; wrong costs only time. */
static _Atomic uint64_t last_end[FOLLOWED];

struct uring {
	struct ck_engine base;
	struct io_uring ring;
	bool broken; /* closed; preadv from now on */
	struct ck_io *left[ENTRIES];
};

/* liburing 2.3 declares calls for the two uses, but does not export them. */
static int ring_register(struct io_uring *ring, unsigned op, void *arg,
			 unsigned nr)
{
	return syscall(SYS_io_uring_register, ring->ring_fd, op, arg, nr) < 0 ?
		       -errno :
		       0;
}

/* Kernels that lack it refuse; the ring then works unrestricted. */
static void restrict_ops(struct io_uring *ring)
{
	static const uint8_t ops[] = { IORING_OP_READ, IORING_OP_READV,
				       IORING_OP_WRITEV, IORING_OP_FSYNC };
	struct io_uring_restriction res[CK_ARRAY_LEN(ops)];

	memset(res, 0, sizeof(res));
	for (size_t i = 0; i < CK_ARRAY_LEN(ops); i++) {
		res[i].opcode = IORING_RESTRICTION_SQE_OP;
		res[i].sqe_op = ops[i];
	}
	ring_register(ring, IORING_REGISTER_RESTRICTIONS, res,
		      CK_ARRAY_LEN(res));
}

static int make_ring(struct io_uring *ring)
{
	/* What newer kernels make cheaper first. */
	static const unsigned tries[] = {
		IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER |
			IORING_SETUP_DEFER_TASKRUN,
		IORING_SETUP_R_DISABLED,
		0,
	};
	int ret = -ENOSYS;

	for (size_t i = 0; i < CK_ARRAY_LEN(tries); i++) {
		ret = io_uring_queue_init(ENTRIES, ring, tries[i]);
		if (ret == -EINVAL)
			continue;
		if (ret || !(tries[i] & IORING_SETUP_R_DISABLED))
			return ret;
		restrict_ops(ring);
		ret = ring_register(ring, IORING_REGISTER_ENABLE_RINGS, NULL,
				    0);
		if (ret)
			io_uring_queue_exit(ring);
		return ret;
	}
	return ret;
}

static struct ck_engine *open_as(const struct ck_engine_ops *ops,
				 struct ck_err *err)
{
	struct uring *u = calloc(1, sizeof(*u));
	int ret;

	if (!u) {
		ck_no_memory(err);
		return NULL;
	}
	u->base.ops = ops;
	ret = make_ring(&u->ring);
	if (ret) {
		ck_fail(err, -ret, "io_uring: %s", strerror(-ret));
		free(u);
		return NULL;
	}
	return &u->base;
}

static struct ck_engine *open_uring(struct ck_err *err)
{
	return open_as(&ck_engine_uring, err);
}

static struct ck_engine *open_ring(struct ck_err *err)
{
	return open_as(&ck_engine_ring, err);
}

static void close_uring(struct ck_engine *e)
{
	struct uring *u = (struct uring *)e;

	if (!u->broken)
		io_uring_queue_exit(&u->ring);
	free(u);
}

/* Whether @io goes on where its file was read last; that is now its end. */
static bool goes_on(const struct ck_io *io)
{
	_Atomic uint64_t *last = &last_end[(unsigned)io->fd % FOLLOWED];
	uint64_t was = atomic_load_explicit(last, memory_order_relaxed);

	atomic_store_explicit(last, io->off + io->len, memory_order_relaxed);
	return io->off + NEAR >= was && io->off <= was + NEAR && was;
}

/* Takes what is in memory; true when @io is done, well or not. */
static bool take_warm(struct ck_io *io)
{
	while (io->len) {
		int batch = ck_io_batch(io);
		size_t want = 0;
		ssize_t n;

		for (int i = 0; i < batch; i++)
			want += io->iov[i].iov_len;
		n = preadv2(io->fd, io->iov, batch, (off_t)io->off, RWF_NOWAIT);
		n = ck_io_fault(io, n < 0 ? -errno : (int)n);
		if (n == -EAGAIN || n == -EOPNOTSUPP || n == -EINTR)
			return false;
		if (n < 0) {
			io->res = (int)n;
			return true;
		}
		ck_io_advance(io, (size_t)n);
		if ((size_t)n < want)
			return !io->len;
	}
	return true;
}

/* The ring may be refused what preadv is not. */
static bool is_refusal(int res)
{
	return res == -EAGAIN || res == -EINVAL || res == -EOPNOTSUPP ||
	       res == -EACCES || res == -EPERM || res == -ECANCELED;
}

/* One completion; true when there is more of the request to be done. */
static bool complete(struct ck_io *io, int res, bool warm)
{
	res = ck_io_fault(io, res);
	if (io->op == CK_IO_SYNC && !res) {
		io->res = 0;
		return false;
	}
	if (res > 0) {
		ck_io_advance(io, (size_t)res);
		return io->len != 0;
	}
	if (res == -EINTR || (warm && is_refusal(res)))
		return true;
	if (is_refusal(res))
		ck_io_finish(io);
	else
		io->res = res ? res : -EIO;
	return false;
}

/*
 * One completion, or NULL: the kernel does not let us wait, and none came for a
 * while.
 */
static struct io_uring_cqe *wait_for_one(struct uring *u)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	struct io_uring_cqe *cqe;
	unsigned naps = 0;

	for (;;) {
		int ret = io_uring_wait_cqe(&u->ring, &cqe);

		if (!ret)
			return cqe;
		if (ret == -EINTR || ret == -EAGAIN)
			continue;
		if (!io_uring_peek_cqe(&u->ring, &cqe))
			return cqe;
		if (naps++ == MAX_NAPS)
			return NULL;
		nanosleep(&nap, NULL);
	}
}

/*
 * Waits for @nr completions; puts what needs another turn into u->left.  *lost:
 * how many did not come.
 */
static unsigned reap(struct uring *u, unsigned nr, bool warm, unsigned *lost)
{
	unsigned again = 0;

	while (nr) {
		struct io_uring_cqe *cqe = wait_for_one(u);
		struct ck_io *io;
		int ret;

		if (!cqe) {
			*lost = nr;
			break;
		}
		io = io_uring_cqe_get_data(cqe);
		io->res = 0;
		ret = cqe->res;
		io_uring_cqe_seen(&u->ring, cqe);
		nr--;
		if (complete(io, ret, warm))
			u->left[again++] = io;
	}
	return again;
}

static void prepare(struct io_uring_sqe *sqe, struct ck_io *io, bool warm)
{
	unsigned batch = (unsigned)ck_io_batch(io);

	if (io->op == CK_IO_SYNC)
		io_uring_prep_fsync(sqe, io->fd, IORING_FSYNC_DATASYNC);
	else if (io->op == CK_IO_WRITE)
		io_uring_prep_writev(sqe, io->fd, io->iov, batch, io->off);
	else if (batch == 1 && io->iov->iov_len <= INT_MAX)
		io_uring_prep_read(sqe, io->fd, io->iov->iov_base,
				   (unsigned)io->iov->iov_len, io->off);
	else
		io_uring_prep_readv(sqe, io->fd, io->iov, batch, io->off);
	if (warm)
		sqe->rw_flags = RWF_NOWAIT;
	io_uring_sqe_set_data(sqe, io);
}

/*
 * The ring is no longer used.  Of the requests @all, @nr, the first @sent are
 * with the kernel, or were; @again of them, u->left, are not any more.
 */
static void give_up(struct uring *u, struct ck_io *const *all, unsigned nr,
		    unsigned sent, unsigned again)
{
	io_uring_queue_exit(&u->ring); /* cancels */
	u->broken = true;
	for (unsigned i = 0; i < sent; i++)
		if (all[i]->res == UNDER_WAY)
			all[i]->res = -EIO;
	for (unsigned i = sent; i < nr; i++)
		ck_io_finish(all[i]);
	for (unsigned i = 0; i < again; i++)
		ck_io_finish(u->left[i]);
}

/* Submits u->left[0, nr); returns how many need another turn. */
static unsigned turn(struct uring *u, unsigned nr, bool warm)
{
	unsigned sent = 0, again, lost = 0;
	struct ck_io *all[ENTRIES];

	for (unsigned i = 0; i < nr; i++) {
		struct ck_io *io = all[i] = u->left[i];
		struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

		io->res = UNDER_WAY;
		prepare(sqe, io, warm);
	}
	while (sent < nr) {
		int ret = io_uring_submit(&u->ring);

		if (ret == -EINTR)
			continue;
		if (ret <= 0)
			break;
		sent += (unsigned)ret;
	}
	/* Entries are taken in order: the others never reached the kernel. */
	again = reap(u, sent, warm, &lost);
	if (sent == nr && !lost)
		return again;
	give_up(u, all, nr, sent, again);
	return 0;
}

static void run_left(struct uring *u, unsigned nr)
{
	if (nr == 1 && u->base.ops == &ck_engine_uring) {
		ck_io_finish(u->left[0]);
		return;
	}
	while (nr && !u->broken)
		nr = turn(u, nr, false);
}

/* Many reads: what is in memory, by few calls; not tried where little is. */
static void take_many(struct uring *u, struct ck_io *io, unsigned nr)
{
	for (unsigned i = 0; i < nr && !u->broken; i += ENTRIES) {
		unsigned n = CK_MIN(nr - i, (unsigned)ENTRIES);

		for (unsigned k = 0; k < n; k++)
			u->left[k] = &io[i + k];
		if (turn(u, n, true) > n / 2)
			return;
	}
}

/* What is left of @io, or puts it into u->left: true. */
static bool run_one(struct uring *u, struct ck_io *io)
{
	bool hybrid = u->base.ops == &ck_engine_uring;
	bool read = io->op == CK_IO_READ, write = io->op == CK_IO_WRITE;
	bool ahead = hybrid && read && goes_on(io);

	if (hybrid && read && !ahead && take_warm(io))
		return false;
	if (!u->broken && !ahead && !(hybrid && write))
		return true;
	ck_io_finish(io);
	return false;
}

static bool are_reads(const struct ck_io *io, unsigned nr)
{
	while (nr && io[nr - 1].op == CK_IO_READ && io[nr - 1].len)
		nr--;
	return !nr;
}

static void run_uring(struct ck_engine *e, struct ck_io *io, unsigned nr)
{
	struct uring *u = (struct uring *)e;
	unsigned nr_left = 0;

	for (unsigned i = 0; i < nr; i++)
		io[i].res = 0;
	if (nr >= MANY && u->base.ops == &ck_engine_uring && are_reads(io, nr))
		take_many(u, io, nr);
	for (unsigned i = 0; i < nr; i++) {
		bool done = io[i].op != CK_IO_SYNC && !io[i].len;

		if (done || io[i].res || !run_one(u, &io[i]))
			continue;
		u->left[nr_left++] = &io[i];
		if (nr_left == ENTRIES) {
			run_left(u, nr_left);
			nr_left = 0;
		}
	}
	run_left(u, nr_left);
}

const struct ck_engine_ops ck_engine_uring = {
	.name = "uring",
	.open = open_uring,
	.run = run_uring,
	.close = close_uring,
};

const struct ck_engine_ops ck_engine_ring = {
	.name = "ring",
	.open = open_ring,
	.run = run_uring,
	.close = close_uring,
};
