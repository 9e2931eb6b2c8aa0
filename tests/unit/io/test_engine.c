/* SPDX-License-Identifier: Apache-2.0 */
/* Engines: any number of requests and iovecs, ends of files, failures. */
#include "core/io/engine_priv.h"
#include "tests/lib/faults.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEN = 1 << 20, NR = 200 };

static const struct ck_engine_ops *const all[] = { &ck_engine_plain,
						   &ck_engine_uring,
						   &ck_engine_ring };
static unsigned char *want;
static int fd;

static void setup(void)
{
	char path[] = "/tmp/ck-engine-XXXXXX";

	fd = mkstemp(path);
	unlink(path);
	want = malloc(LEN);
	for (unsigned i = 0; i < LEN; i++)
		want[i] = (unsigned char)(i * 2654435761u >> 24);
	cr_assert_eq(write(fd, want, LEN), LEN);
	fsync(fd);
}

TestSuite(engine, .init = setup, .timeout = 60);

/* Engine @i, with nothing of the file in memory; NULL: not on this machine. */
static struct ck_engine *cold(unsigned i)
{
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return i < 3 ? all[i]->open(NULL) : NULL;
}

Test(engine, more_requests_than_a_ring_holds)
{
	static struct ck_io io[NR];
	static struct iovec iov[NR];

	for (unsigned i = 0; i < 3; i++) {
		unsigned char *got = calloc(1, LEN);
		struct ck_engine *e = cold(i);

		if (!e)
			continue;
		for (unsigned k = 0; k < NR; k++) {
			uint64_t off = (k * 37 % NR) * 5000;

			iov[k] = (struct iovec){ got + off, 5000 };
			io[k] = (struct ck_io){ .fd = fd,
						.off = off,
						.len = 5000,
						.iov = &iov[k],
						.nr_iov = 1,
						.res = 99 };
		}
		e->ops->run(e, io, NR);
		for (unsigned k = 0; k < NR; k++)
			cr_expect_eq(io[k].res, 0);
		cr_expect_arr_eq(got, want, NR * 5000);
		e->ops->close(e);
		free(got);
	}
}

Test(engine, more_iovecs_than_one_call_takes)
{
	static struct iovec iov[5000];

	for (unsigned i = 0; i < 3; i++) {
		unsigned char *got = calloc(1, LEN);
		struct ck_engine *e = cold(i);
		struct ck_io io = { .fd = fd,
				    .off = 3,
				    .iov = iov,
				    .nr_iov = 5000,
				    .len = 5000 * 100 };

		if (!e)
			continue;
		for (unsigned k = 0; k < 5000; k++)
			iov[k] = (struct iovec){ got + k * 100, 100 };
		e->ops->run(e, &io, 1);
		cr_expect_eq(io.res, 0);
		cr_expect_arr_eq(got, want + 3, 5000 * 100);
		e->ops->close(e);
		free(got);
	}
}

Test(engine, ends_and_bad_descriptors)
{
	for (unsigned i = 0; i < 3; i++) {
		struct ck_engine *e = cold(i);
		unsigned char got[300];
		struct iovec iov[3] = { { got, 100 },
					{ got + 100, 100 },
					{ got + 200, 100 } };
		struct ck_io io[3] = {
			{ .fd = fd,
			  .off = LEN - 50,
			  .len = 100,
			  .iov = &iov[0],
			  .nr_iov = 1 },
			{ .fd = -1, .len = 100, .iov = &iov[1], .nr_iov = 1 },
			{ .fd = fd,
			  .off = 7,
			  .len = 100,
			  .iov = &iov[2],
			  .nr_iov = 1 },
		};

		if (!e)
			continue;
		e->ops->run(e, io, 3);
		cr_expect_eq(io[0].res, -EIO);
		cr_expect_eq(io[1].res, -EBADF);
		cr_expect_eq(io[2].res, 0);
		cr_expect_arr_eq(got + 200, want + 7, 100);
		e->ops->close(e);
	}
}

/* The @nth completion fails, or is short, for each of the first ones. */
Test(engine, failures_and_short_reads)
{
	for (unsigned i = 0; i < 3; i++)
		for (int nth = 1; nth < 12; nth++)
			for (int code = 0; code <= EIO; code += EIO) {
				struct ck_engine *e = cold(i);
				unsigned char got[8][1000];
				struct iovec iov[8];
				struct ck_io io[8];
				unsigned bad = 0;

				if (!e)
					continue;
				for (unsigned k = 0; k < 8; k++) {
					iov[k] = (struct iovec){ got[k], 1000 };
					io[k] = (struct ck_io){ .fd = fd,
								.off = k *
								       100000,
								.len = 1000,
								.iov = &iov[k],
								.nr_iov = 1 };
				}
				fault_set(nth, 1, code);
				e->ops->run(e, io, 8);
				fault_set(0, 0, 0);
				for (unsigned k = 0; k < 8; k++) {
					bad += io[k].res != 0;
					if (!io[k].res)
						cr_assert_arr_eq(
							got[k],
							want + k * 100000,
							1000);
					else
						cr_assert_eq(io[k].res, -EIO);
				}
				cr_expect_leq(bad, code ? 1u : 0u);
				if (code && nth <= 8)
					cr_expect_eq(bad, 1u);
				e->ops->close(e);
			}
}

/* MANY reads of 1000 bytes, every third in two pieces. */
struct many {
	unsigned char got[NR][1000];
	struct iovec iov[NR][2];
	struct ck_io io[NR];
};

static void set_up(struct many *m)
{
	for (unsigned k = 0; k < NR; k++) {
		size_t first = k % 3 ? 1000 : 400;

		m->iov[k][0] = (struct iovec){ m->got[k], first };
		m->iov[k][1] =
			(struct iovec){ m->got[k] + first, 1000 - first };
		m->io[k] = (struct ck_io){ .fd = fd,
					   .off = k * 5000,
					   .len = 1000,
					   .iov = m->iov[k],
					   .nr_iov = k % 3 ? 1 : 2,
					   .res = 99 };
		memset(m->got[k], 0, 1000);
	}
}

static unsigned right_or(const struct many *m, int code)
{
	unsigned bad = 0;

	for (unsigned k = 0; k < NR; k++) {
		bad += m->io[k].res != 0;
		cr_assert(!m->io[k].res || m->io[k].res == code, "%u: %d", k,
			  m->io[k].res);
		if (!m->io[k].res)
			cr_assert_arr_eq(m->got[k], want + k * 5000, 1000);
	}
	return bad;
}

/* What is in memory: all, none, each half of the file. */
Test(engine, many_reads)
{
	static const struct {
		off_t off, len;
	} forgotten[] = {
		{ LEN, 1 }, { 0, 0 }, { 0, LEN / 2 }, { LEN / 2, 0 }
	};
	static struct many m;

	for (unsigned i = 0; i < 3 * 4; i++) {
		struct ck_engine *e = all[i / 4]->open(NULL);

		if (!e)
			continue;
		cr_assert_eq(pread(fd, m.got, NR * 1000, 0), NR * 1000);
		posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
		posix_fadvise(fd, forgotten[i % 4].off, forgotten[i % 4].len,
			      POSIX_FADV_DONTNEED);
		set_up(&m);
		e->ops->run(e, m.io, NR);
		cr_expect_eq(right_or(&m, 0), 0);
		e->ops->close(e);
	}
}

Test(engine, ends_and_bad_descriptors_among_many)
{
	static struct many m;

	for (unsigned i = 0; i < 3; i++) {
		struct ck_engine *e = all[i]->open(NULL);

		if (!e)
			continue;
		set_up(&m);
		m.io[70].off = LEN - 500; /* 500 bytes of it are there */
		m.io[71].off = LEN + 5000;
		m.io[199].fd = -1;
		e->ops->run(e, m.io, NR);
		cr_expect_eq(m.io[70].res, -EIO);
		cr_expect_eq(m.io[71].res, -EIO);
		cr_expect_eq(m.io[199].res, -EBADF);
		m.io[199].res = -EIO;
		cr_expect_eq(right_or(&m, -EIO), 3);
		e->ops->close(e);
	}
}

Test(engine, failures_and_short_reads_among_many)
{
	static const int codes[] = { 0, EIO, EAGAIN, EINTR };
	static struct many m;

	for (unsigned i = 0; i < 3 * 4 * 9; i++) {
		int code = codes[i % 4], nth = 1 + (int)(i / 4 % 9) * 24;
		struct ck_engine *e = all[i / 36]->open(NULL);
		unsigned bad;

		if (!e || (i / 36 == 0 && code == EAGAIN))
			continue;
		set_up(&m);
		fault_set(nth, 1, code);
		e->ops->run(e, m.io, NR);
		fault_set(0, 0, 0);
		bad = right_or(&m, -EIO);
		cr_expect_eq(bad, code == EIO, "%u: %u", i, bad);
		e->ops->close(e);
	}
}

/* The ring that this process has open; -1: none. */
static int find_ring(void)
{
	char name[64], to[64];

	for (int i = 3; i < 64; i++) {
		ssize_t n;

		snprintf(name, sizeof(name), "/proc/self/fd/%d", i);
		n = readlink(name, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = 0;
		if (!strcmp(to, "anon_inode:[io_uring]"))
			return i;
	}
	return -1;
}

/* The result of an operation that does nothing, as another user of the ring. */
static int try_nop(int at)
{
	struct io_uring_params p = { 0 };
	struct io_uring_cqe *cqe;
	struct io_uring ring, other;
	unsigned entries;
	int ret;

	/* where a ring has its parts depends on how many entries there are */
	for (entries = 1; entries <= 4096; entries *= 2) {
		memset(&p, 0, sizeof(p));
		cr_assert(!io_uring_queue_init_params(entries, &other, &p));
		io_uring_queue_exit(&other);
		if (!io_uring_queue_mmap(at, &p, &ring) &&
		    *ring.sq.kring_entries == entries)
			break;
	}
	cr_assert_leq(entries, 4096u);
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	ret = io_uring_submit_and_wait(&ring, 1);
	if (ret >= 0)
		ret = io_uring_wait_cqe(&ring, &cqe);
	return ret < 0 ? ret : cqe->res;
}

/* What the ring is restricted to cannot be seen from outside but by trying. */
Test(engine, the_ring_does_nothing_else)
{
	struct ck_engine *e = all[1]->open(NULL);

	if (!e)
		return;
	cr_expect_eq(try_nop(find_ring()), -EACCES);
	e->ops->close(e);
}

Test(engine, choose)
{
	struct ck_err err = { 0 };

	cr_expect_eq(ck_engine_choose("plain", &err), &ck_engine_plain);
	cr_expect_null(ck_engine_choose("fast", &err));
	cr_expect(strstr(err.msg, "expected auto, plain or uring"));
	cr_expect_not_null(ck_engine_choose("auto", &err));
}

static void *use(void *out)
{
	*(struct ck_engine **)out = ck_engine_mine(&ck_engine_uring);
	return ck_engine_mine(&ck_engine_uring) == *(struct ck_engine **)out ?
		       out :
		       NULL;
}

Test(engine, each_thread_has_its_own)
{
	struct ck_engine *a = ck_engine_mine(&ck_engine_uring), *b;
	pthread_t t;
	void *same;

	cr_assert_eq(pthread_create(&t, NULL, use, &b), 0);
	pthread_join(t, &same);
	cr_expect_not_null(same);
	if (a->ops == &ck_engine_uring)
		cr_expect_neq(a, b);
}

Test(engine, writes_in_pieces_and_syncs)
{
	static struct ck_io io[NR + 1];
	static struct iovec iov[NR];

	for (unsigned i = 0; i < 3; i++) {
		unsigned char *got = malloc(LEN);
		struct ck_engine *e = cold(i);

		if (!e)
			continue;
		for (unsigned k = 0; k < NR; k++) {
			uint64_t off = (k * 37 % NR) * 5000;

			iov[k] =
				(struct iovec){ want + LEN - 5000 - off, 5000 };
			io[k] = (struct ck_io){ .op = CK_IO_WRITE,
						.fd = fd,
						.off = off,
						.len = 5000,
						.iov = &iov[k],
						.nr_iov = 1,
						.res = 99 };
		}
		io[NR] =
			(struct ck_io){ .op = CK_IO_SYNC, .fd = fd, .res = 99 };
		/* short ones are continued */
		fault_set_kind(CK_FAULT_WRITE, 3, 2, 0);
		e->ops->run(e, io, NR + 1);
		fault_set_kind(CK_FAULT_WRITE, 0, 0, 0);
		for (unsigned k = 0; k <= NR; k++)
			cr_expect_eq(io[k].res, 0, "%s %u: %d", all[i]->name, k,
				     io[k].res);
		cr_assert_eq(pread(fd, got, LEN, 0), LEN);
		for (uint64_t off = 0; off < NR * 5000; off += 5000)
			cr_expect_arr_eq(got + off, want + LEN - 5000 - off,
					 5000);
		e->ops->close(e);
		free(got);
	}
}

Test(engine, failed_writes_and_syncs)
{
	struct iovec iov = { want, 100 };

	for (unsigned i = 0; i < 3; i++) {
		struct ck_io io[2] = { { .op = CK_IO_WRITE,
					 .fd = fd,
					 .len = 100,
					 .iov = &iov,
					 .nr_iov = 1 },
				       { .op = CK_IO_SYNC, .fd = fd } };
		struct ck_engine *e = all[i]->open(NULL);

		if (!e)
			continue;
		fault_set_kind(CK_FAULT_WRITE, 1, 1, ENOSPC);
		e->ops->run(e, io, 1);
		cr_expect_eq(io[0].res, -ENOSPC, "%s", all[i]->name);
		fault_set_kind(CK_FAULT_SYNC, 1, 1, EIO);
		e->ops->run(e, io + 1, 1);
		cr_expect_eq(io[1].res, -EIO, "%s", all[i]->name);
		e->ops->close(e);
	}
}
