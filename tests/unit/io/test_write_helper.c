/* SPDX-License-Identifier: Apache-2.0 */
#include "core/io/write_helper.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILES = 8, PART = 64 << 10, TURNS = 200 };

struct client {
	struct ck_write_helper *write_helper;
	int fd[FILES];
	unsigned char *buf; /* FILES parts */
	uint64_t at; /* where in each file */
	unsigned char first; /* value of the first turn */
	bool good;
};

static void make_files(int *fd)
{
	for (int i = 0; i < FILES; i++) {
		fd[i] = memfd_create("aid", MFD_CLOEXEC);
		cr_assert_geq(fd[i], 0);
	}
}

/* One request: every other row of the buffer to another file. */
static void put(struct client *c, struct ck_io *io)
{
	struct iovec iov[FILES];

	for (int i = 0; i < FILES; i++) {
		iov[i] = (struct iovec){ c->buf + (size_t)i * PART, PART };
		io[i] = (struct ck_io){ .op = CK_IO_WRITE,
					.fd = c->fd[i],
					.off = c->at,
					.len = PART,
					.iov = &iov[i],
					.nr_iov = 1,
					.res = 1 };
	}
	ck_write_helper_run(c->write_helper, &ck_engine_plain, io, FILES);
}

static bool holds(const struct client *c)
{
	unsigned char is[PART];

	for (int i = 0; i < FILES; i++)
		if (pread(c->fd[i], is, PART, (off_t)c->at) != PART ||
		    memcmp(is, c->buf + (size_t)i * PART, PART) != 0)
			return false;
	return true;
}

static void *turns(void *arg)
{
	struct client *c = arg;
	struct ck_io io[FILES];

	c->good = true;
	for (int n = 0; n < TURNS; n++) {
		for (int i = 0; i < FILES; i++)
			memset(c->buf + (size_t)i * PART, c->first + n + i,
			       PART);
		put(c, io);
		for (int i = 0; i < FILES; i++)
			c->good = c->good && !io[i].res;
		c->good = c->good && holds(c);
	}
	return NULL;
}

static void start(struct client *c, struct ck_write_helper *write_helper,
		  uint64_t at)
{
	*c = (struct client){ .write_helper = write_helper,
			      .at = at,
			      .first = (uint8_t)at };
	c->buf = malloc((size_t)FILES * PART);
	cr_assert_not_null(c->buf);
	cr_assert_not_null(write_helper);
}

static void end_files(const struct client *c)
{
	for (int i = 0; i < FILES; i++)
		close(c->fd[i]);
}

Test(write_helper, one_writer_has_all_written_when_it_returns)
{
	struct client c;

	start(&c, ck_write_helper_new(true), 0);
	make_files(c.fd);
	turns(&c);
	cr_assert(c.good);
	end_files(&c);
	ck_write_helper_free(c.write_helper);
	free(c.buf);
}

Test(write_helper, the_writer_may_run_wherever_it_might)
{
	cpu_set_t before, after;
	struct client c;

	cr_assert(!sched_getaffinity(0, sizeof(before), &before));
	start(&c, ck_write_helper_new(true), 0);
	make_files(c.fd);
	turns(&c);
	cr_assert(!sched_getaffinity(0, sizeof(after), &after));
	cr_expect(CPU_EQUAL(&before, &after));
	end_files(&c);
	ck_write_helper_free(c.write_helper);
	free(c.buf);
}

Test(write_helper, who_wants_no_help_has_all_written_too)
{
	struct client c;

	start(&c, ck_write_helper_new(false), 0);
	make_files(c.fd);
	turns(&c);
	cr_assert(c.good);
	end_files(&c);
	ck_write_helper_free(c.write_helper);
	free(c.buf);
}

Test(write_helper, several_writers_do_not_disturb_each_other)
{
	struct ck_write_helper *write_helper = ck_write_helper_new(true);
	struct client c[4];
	pthread_t t[4];

	for (int k = 0; k < 4; k++) {
		start(&c[k], write_helper, (uint64_t)k * PART);
		if (!k)
			make_files(c[0].fd);
		memcpy(c[k].fd, c[0].fd, sizeof(c[0].fd));
	}
	for (int k = 0; k < 4; k++)
		cr_assert_eq(pthread_create(&t[k], NULL, turns, &c[k]), 0);
	for (int k = 0; k < 4; k++)
		pthread_join(t[k], NULL);
	for (int k = 0; k < 4; k++) {
		cr_assert(c[k].good);
		free(c[k].buf);
	}
	end_files(&c[0]);
	ck_write_helper_free(write_helper);
}

Test(write_helper, each_request_has_its_own_failure)
{
	struct client c;
	struct ck_io io[FILES];

	start(&c, ck_write_helper_new(true), 0);
	make_files(c.fd);
	close(c.fd[2]);
	close(c.fd[7]);
	c.fd[2] = c.fd[7] = -1;
	memset(c.buf, 7, (size_t)FILES * PART);
	for (int n = 0; n < TURNS; n++) {
		put(&c, io);
		for (int i = 0; i < FILES; i++)
			cr_assert_eq(io[i].res, i == 2 || i == 7 ? -EBADF : 0);
	}
	end_files(&c);
	ck_write_helper_free(c.write_helper);
	free(c.buf);
}

static unsigned my_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	const struct dirent *e;
	unsigned nr = 0;

	while ((e = readdir(d)))
		nr += e->d_name[0] != '.';
	closedir(d);
	return nr;
}

Test(write_helper, has_no_thread_until_it_is_used)
{
	unsigned before = my_threads();
	struct ck_write_helper *h = ck_write_helper_new(true);

	cr_assert_not_null(h);
	cr_expect_eq(my_threads(), before);
	ck_write_helper_free(h);
	cr_expect_eq(my_threads(), before);
	ck_write_helper_free(NULL);
}
