/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept, of what reads, and for how long; and that whatever is wrong with
 * the folder costs speed, and never a byte.
 */
#include "tests/lib/copykit.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIZE CK_COPY_SIZE
#define MIB ((uint64_t)1 << 20)
#define PAGE ((uint64_t)4096)

static struct copykit k;
static struct fs_copy_open o;
static bool right;

static void start(void)
{
	copykit_start(&k);
	copykit_serve(&k, 64 * MIB, false, k.kept_fd);
}

static void stop(void)
{
	copykit_unserve(&k);
	copykit_end(&k);
}

TestSuite(copies, .init = start, .fini = stop);

static uint64_t held(void)
{
	return k.kernel.cache.held;
}

static uint64_t whole(void)
{
	return k.kernel.cache.whole;
}

/* Bytes of the files that a whole read of tensor @t costs. */
static uint64_t cost(unsigned t)
{
	uint64_t before = copykit_source_bytes(&k);

	cr_assert(copykit_keep(&k, t, MIB));
	return copykit_source_bytes(&k) - before;
}

Test(copies, keeps_what_was_read_whole)
{
	cr_assert_eq(cost(0), SIZE);
	cr_assert_eq(whole(), 1);
	cr_assert_eq(held(), SIZE);
	cr_assert_eq(cost(0), 0);
	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert_eq(o.how, FS_COPY_WHOLE);
	copykit_close(&k, &o);
}

/* Where it lies is said of what is there, and of nothing that is not. */
Test(copies, says_where_it_lies)
{
	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert_null(fs_copy_at(o.copy, k.v, PAGE, 0));
	cr_assert(!fs_copy_has(o.copy, PAGE, 0));
	cr_assert(!copykit_read(&k, 0, &o, MIB, MIB, 0, &right) && right);
	cr_assert_not_null(fs_copy_at(o.copy, k.v, MIB, MIB));
	cr_assert_not_null(fs_copy_at(o.copy, k.v, 10, MIB + 4091));
	cr_assert(fs_copy_has(o.copy, MIB, MIB));
	cr_assert_null(fs_copy_at(o.copy, k.v, PAGE, MIB - 1));
	cr_assert_null(fs_copy_at(o.copy, k.v, MIB + 1, MIB));
	cr_assert(!fs_copy_has(o.copy, MIB + 1, MIB));
	cr_assert(!copykit_read_all(&k, 0, &o, MIB, 0, &right) && right);
	cr_assert_not_null(fs_copy_at(o.copy, k.v, SIZE, 0));
	cr_assert(!copykit_read_all(&k, 0, &o, MIB, 0, &right) && right);
	copykit_close(&k, &o);
	cr_assert_null(fs_copy_at(NULL, k.v, PAGE, 0));
}

static void *reads_all(void *arg)
{
	uint64_t step = (uint64_t)(uintptr_t)arg;

	return (void *)(uintptr_t)copykit_keep(&k, 0, step);
}

Test(copies, many_readers_read_each_byte_once)
{
	/* none leaves a piece of a block that is too small to fill it */
	static const uint64_t step[] = { MIB,	  MIB / 2, MIB / 4, 3 * MIB,
					 MIB / 8, MIB,	   65536,   2 * MIB };
	uint64_t before = copykit_source_bytes(&k);
	pthread_t thread[8];
	void *ok;

	for (unsigned i = 0; i < 8; i++)
		cr_assert(!pthread_create(&thread[i], NULL, reads_all,
					  (void *)(uintptr_t)step[i]));
	for (unsigned i = 0; i < 8; i++) {
		cr_assert(!pthread_join(thread[i], &ok));
		cr_expect(ok, "reader %u", i);
	}
	cr_assert_eq(copykit_source_bytes(&k) - before, SIZE);
	cr_assert_eq(held(), SIZE);
	cr_assert_eq(cost(0), 0);
}

/* Eight of 4 KiB in a row say that the others will follow. */
Test(copies, small_reads_in_a_row_fill)
{
	uint64_t before = copykit_source_bytes(&k);

	cr_assert(copykit_keep(&k, 0, PAGE));
	cr_assert_eq(whole(), 1);
	cr_assert_leq(copykit_source_bytes(&k) - before, SIZE * 105 / 100);
	cr_assert_eq(cost(0), 0);
}

static void read_page(uint64_t nr)
{
	uint64_t off = nr * PAGE, len = SIZE - off < PAGE ? SIZE - off : PAGE;

	cr_assert(!copykit_read(&k, 0, &o, len, off, 0, &right) && right);
}

/* Pages, the last before the first, so that none follows another. */
Test(copies, a_second_read_fills)
{
	uint64_t nr = (SIZE - 1) / PAGE + 1, before, once;

	cr_assert(!copykit_open(&k, 0, 0, &o));
	before = copykit_source_bytes(&k);
	for (uint64_t i = 0; i < nr / 2; i++)
		read_page(nr - 1 - 2 * i);
	cr_assert_leq(held(), MIB, "half of it fills no more than the tail");
	once = copykit_source_bytes(&k) - before;
	cr_assert_leq(once, SIZE * 55 / 100);
	for (unsigned pass = 0; pass < 2; pass++)
		for (uint64_t i = 0; i < nr; i++)
			read_page(nr - 1 - i);
	cr_assert_leq(copykit_source_bytes(&k) - before, 2 * SIZE + once);
	copykit_close(&k, &o);
	cr_assert_eq(whole(), 1);
	cr_assert_eq(cost(0), 0);
}

Test(copies, a_few_bytes_cost_a_few)
{
	uint64_t before = copykit_source_bytes(&k);

	cr_assert(!copykit_open(&k, 0, 0, &o));
	for (uint64_t off = 0; off < SIZE; off += MIB / 2)
		cr_assert(!copykit_read(&k, 0, &o, 100, off, 0, &right) &&
			  right);
	copykit_close(&k, &o);
	cr_assert_leq(copykit_source_bytes(&k) - before, 10000);
	cr_assert_eq(held(), 0);
}

/* A map of a direct file drops the pages that others have of it. */
Test(copies, a_second_opener_shares_pages)
{
	struct fs_copy_open other;

	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert_eq(o.how, FS_COPY_PART);
	cr_assert(!o.keep);
	cr_assert(!copykit_open(&k, 0, 0, &other));
	cr_assert_eq(other.how, FS_COPY_PART, "nobody has it mapped");
	copykit_close(&k, &other);
	fs_copy_mapped(o.copy);
	cr_assert(!copykit_open(&k, 0, 0, &other));
	cr_assert_eq(other.how, FS_COPY_PAGES);
	cr_assert(other.keep, "there are none of other bytes");
	copykit_close(&k, &other);
	copykit_close(&k, &o);
	copykit_write(&k, 0, true);
	cr_assert(!copykit_open(&k, 0, 0, &o));
	fs_copy_mapped(o.copy);
	cr_assert(!copykit_open(&k, 0, 0, &other));
	cr_assert_eq(other.how, FS_COPY_PAGES);
	cr_assert(!other.keep, "there may be some from before it was touched");
	copykit_close(&k, &other);
	cr_assert(!copykit_read(&k, 0, &o, MIB, 0, 1, &right) && right);
	cr_assert(!copykit_open(&k, 0, 0, &other));
	cr_assert(other.keep);
	copykit_close(&k, &other);
	copykit_close(&k, &o);
}

/* Of those that nobody has open the one that was opened the longest ago. */
Test(copies, makes_room)
{
	copykit_unserve(&k);
	copykit_serve(&k, 2 * SIZE, false, k.kept_fd);
	cost(0);
	cost(1);
	cr_assert_eq(cost(0), 0);
	cr_assert_eq(cost(2), SIZE); /* in place of 1 */
	cr_assert_eq(held(), 2 * SIZE);
	cr_assert_eq(cost(0), 0);
	cr_assert(
		!copykit_open(&k, 2, 0, &o)); /* it stays, though 0 is newer */
	cr_assert_eq(cost(0), 0);
	cr_assert_eq(cost(1), SIZE); /* in place of 0 */
	cr_assert(!copykit_read_all(&k, 2, &o, MIB, 0, &right) && right);
	copykit_close(&k, &o);
	cr_assert_eq(cost(2), 0);
	cr_assert_eq(cost(0), SIZE);
}

Test(copies, all_that_is_kept_is_open)
{
	struct fs_copy_open other;

	copykit_unserve(&k);
	copykit_serve(&k, SIZE + MIB, false, k.kept_fd);
	cost(0);
	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert(!copykit_open(&k, 1, 0, &other));
	cr_assert(!copykit_read_all(&k, 1, &other, MIB, 0, &right) && right);
	cr_assert_leq(held(), SIZE + MIB);
	copykit_close(&k, &other);
	copykit_close(&k, &o);
	cr_assert_eq(cost(0), 0);
}

Test(copies, too_large)
{
	copykit_unserve(&k);
	copykit_serve(&k, SIZE - 1, false, k.kept_fd);
	cr_assert_eq(cost(0), SIZE);
	cr_assert_eq(held(), 0);
	cr_assert_eq(cost(0), SIZE);
}

/* What was read of it is as it was, what was not cannot be read; never both. */
Test(copies, changed_while_it_is_filled)
{
	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert(!copykit_read(&k, 0, &o, MIB, 0, 0, &right) && right);
	copykit_write(&k, 0, false);
	cr_assert(!copykit_read(&k, 0, &o, MIB, 0, 0, &right) && right);
	cr_assert_eq(copykit_read(&k, 0, &o, MIB, MIB, 0, &right), -ESTALE);
	copykit_close(&k, &o);
	cr_assert_eq(whole(), 0);
	cr_assert(copykit_keep(&k, 1, MIB), "another file of it");
}

Test(copies, changed_while_it_is_open)
{
	struct fs_copy_open other;

	cost(0);
	cr_assert(!copykit_open(&k, 0, 0, &o));
	copykit_write(&k, 0, false);
	cr_assert_eq(copykit_open(&k, 0, 0, &other), -ESTALE);
	cr_assert(!copykit_open(&k, 0, 1, &other));
	cr_assert_eq(other.how, FS_COPY_NONE);
	cr_assert_eq(copykit_read(&k, 0, &other, MIB, 0, 1, &right), -ESTALE);
	copykit_close(&k, &other);
	cr_assert_not_null(fs_copy_at(o.copy, k.v, MIB, 0));
	cr_assert(!copykit_read_all(&k, 0, &o, MIB, 0, &right) && right);
	copykit_close(&k, &o);
	cr_assert_eq(held(), 0);
	cr_assert_eq(cost(1), SIZE, "nothing of 1 has changed");
	cr_assert_eq(cost(1), 0);
}

Test(copies, touched_while_it_is_open)
{
	struct fs_copy_open other;

	cost(0);
	cr_assert(!copykit_open(&k, 0, 0, &o));
	copykit_write(&k, 0, true);
	cr_assert_eq(copykit_open(&k, 0, 0, &other), -ESTALE);
	cr_assert_eq(fs_passed_ino(k.passed, 1000), fs_ino_turn(1000, 1));
	cr_assert(!copykit_open(&k, 0, 1, &other));
	cr_assert(!copykit_read_all(&k, 0, &other, MIB, 1, &right) && right);
	copykit_close(&k, &other);
	cr_assert_eq(whole(), 1, "kept anew, beside the old one");
	cr_assert_null(fs_copy_at(o.copy, k.v, MIB, 0));
	cr_assert(!fs_copy_has(o.copy, MIB, 0));
	cr_assert(!copykit_read_all(&k, 0, &o, MIB, 1, &right) && right);
	copykit_close(&k, &o);
	cr_assert_eq(fs_passed_ino(k.passed, 1000), 1000);
	cr_assert_eq(held(), SIZE);
	cr_assert_eq(cost(0), 0);
}

Test(copies, gone)
{
	char path[128];

	cost(0);
	snprintf(path, sizeof(path), "%s/model-00001-of-00003.safetensors",
		 k.dir);
	cr_assert(!unlink(path));
	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert_eq(o.how, FS_COPY_NONE);
	cr_assert(copykit_read(&k, 0, &o, MIB, 0, 0, &right));
	copykit_close(&k, &o);
	cr_assert_eq(cost(1), SIZE,
		     "the others are looked at by who wants them");
	cr_assert_eq(cost(1), 0);
}

/* ---- folders ---- */

static void serve_in(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	cr_assert_geq(fd, 0, "%s", path);
	copykit_unserve(&k);
	close(k.kept_fd);
	k.kept_fd = fd;
	copykit_serve(&k, 64 * MIB, false, fd);
}

static void costs_speed_alone(void)
{
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(cost(0), SIZE);
	cr_assert_eq(held(), 0);
	cr_assert_eq(whole(), 0);
}

Test(copies, no_room)
{
	struct rlimit most = { .rlim_cur = 2 * MIB, .rlim_max = 2 * MIB };

	signal(SIGXFSZ, SIG_IGN);
	cr_assert(!setrlimit(RLIMIT_FSIZE, &most));
	costs_speed_alone();
}

Test(copies, no_folder_any_more)
{
	cr_assert(!rmdir(k.kept));
	costs_speed_alone();
}

Test(copies, read_only)
{
	serve_in("/proc/self"); /* takes no file, from nobody */
	costs_speed_alone();
}

Test(copies, none_can_be_had)
{
	copykit_unserve(&k);
	copykit_serve(&k, 0, false, -1);
	costs_speed_alone();
}

Test(copies, another_file_system)
{
	struct stat a, b;

	if (access("/dev/shm", W_OK) || stat("/dev/shm", &a) ||
	    stat(k.kept, &b) || a.st_dev == b.st_dev)
		cr_skip_test("/dev/shm is none, or the same");
	serve_in("/dev/shm");
	cr_assert_eq(cost(0), SIZE);
	cr_assert_eq(cost(0), 0);
}

Test(copies, two_mounts_of_one_folder)
{
	struct copykit other;
	uint64_t before;

	copykit_start(&other);
	other.version[0] = 4;
	copykit_write(&other, 0, true); /* 5; touched since it was described */
	copykit_serve(&other, 64 * MIB, false, k.kept_fd);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert(copykit_keep(&k, 0, MIB));
		cr_assert(copykit_keep(&other, 0, MIB));
	}
	before = copykit_source_bytes(&other);
	cr_assert_eq(cost(0), 0);
	cr_assert(copykit_keep(&other, 0, MIB));
	cr_assert_eq(copykit_source_bytes(&other), before);
	copykit_unserve(&other);
	copykit_end(&other);
}

/* Calls @what for each file without a name that this process has open. */
static unsigned each_nameless(int (*what)(int fd))
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *d;
	unsigned nr = 0;
	struct stat st;

	cr_assert(dir);
	while ((d = readdir(dir))) {
		int fd = atoi(d->d_name);

		if (*d->d_name == '.' || fd == dirfd(dir) || fstat(fd, &st) ||
		    !S_ISREG(st.st_mode) || st.st_nlink ||
		    (uint64_t)st.st_size != SIZE)
			continue;
		cr_assert(!what(fd));
		nr++;
	}
	closedir(dir);
	return nr;
}

static int cut(int fd)
{
	return ftruncate(fd, (off_t)MIB + 5);
}

/* Whoever may do that may write to it, too, which nobody can see. */
Test(copies, cut_by_somebody)
{
	cost(0);
	cr_assert_eq(each_nameless(cut), 1);
	for (unsigned i = 0; i < 2; i++)
		cr_assert(copykit_keep(&k, 0, MIB / 2));
}

static int close_it(int fd)
{
	return dup2(STDIN_FILENO, fd) < 0;
}

/* The page that it ends in has zeros behind that, but nothing is said to lie there. */
Test(copies, cut_while_it_is_open)
{
	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert(!copykit_read_all(&k, 0, &o, MIB, 0, &right) && right);
	cr_assert_not_null(fs_copy_at(o.copy, k.v, 10, MIB));
	cr_assert_eq(each_nameless(cut), 1);
	cr_assert_not_null(fs_copy_at(o.copy, k.v, 5, MIB));
	cr_assert_null(fs_copy_at(o.copy, k.v, 6, MIB));
	cr_assert_null(fs_copy_at(o.copy, k.v, MIB, 2 * MIB));
	cr_assert(!copykit_read_all(&k, 0, &o, MIB, 0, &right) && right);
	copykit_close(&k, &o);
}

/* As after an error of the storage. */
Test(copies, cannot_be_read)
{
	cr_assert_geq(dup2(open("/proc/self", O_RDONLY), STDIN_FILENO), 0);
	cost(0);
	cr_assert_eq(each_nameless(close_it), 1);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(cost(0), SIZE);
}

/* In place of libc's, for all of this program. */
static int (*on_sync)(int fd);

int fdatasync(int fd)
{
	return on_sync ? on_sync(fd) : (int)syscall(SYS_fdatasync, fd);
}

static struct fs_copy_open meanwhile;

/* As a kernel does whose storage fails: what was written and not yet read is gone. */
static int lose_pages(int fd)
{
	on_sync = NULL;
	cr_assert(!copykit_open(&k, 0, 0, &meanwhile));
	cr_assert(!ftruncate(fd, 0) && !ftruncate(fd, (off_t)SIZE));
	cr_assert(!copykit_read_all(&k, 0, &meanwhile, MIB, 0, &right) &&
		  right);
	cr_assert_null(fs_copy_at(meanwhile.copy, k.v, MIB, 0));
	errno = EIO;
	return -1;
}

Test(copies, cannot_be_stored)
{
	on_sync = lose_pages;
	cost(0);
	cr_assert_null(on_sync);
	cr_assert(!copykit_read_all(&k, 0, &meanwhile, MIB, 0, &right) &&
		  right);
	copykit_close(&k, &meanwhile);
	cr_assert_eq(whole(), 0);
	cr_assert(copykit_keep(&k, 0, MIB));
}

/* Where the kernel passes nothing, copies in memory would be read twice. */
Test(copies, memory)
{
	copykit_unserve(&k);
	copykit_serve(&k, 64 * MIB, true, -1);
	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert_eq(o.how, FS_COPY_WHOLE);
	cr_assert_null(o.copy);
	cr_assert(!copykit_read_all(&k, 0, &o, MIB, 0, &right) && right);
	copykit_close(&k, &o);
	cr_assert_eq(held(), 0);
	copykit_touch(&k, 0);
	cr_assert(!copykit_open(&k, 0, 0, &o));
	cr_assert_eq(o.how, FS_COPY_NONE);
	copykit_close(&k, &o);
}
