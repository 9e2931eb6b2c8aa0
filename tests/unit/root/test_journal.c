/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals: what was appended is read again; cut off anywhere, damaged
 * anywhere, on the same boot and on another; a disk that takes no more.
 */
#include "core/root/journal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIND 7
#define ID 0x1122334455667788u
#define HEAD 64u /* bytes */
#define BOOT 24u /* where it is */
#define RECORDS 20

static char top[] = "/tmp/ck-journal-XXXXXX";
static int dir;

static void setup(void)
{
	cr_assert(mkdtemp(top));
	dir = open(top, O_RDONLY | O_DIRECTORY);
	cr_assert(dir >= 0);
}

static void teardown(void)
{
	unlinkat(dir, "j", 0);
	close(dir);
	rmdir(top);
}

TestSuite(journal, .init = setup, .fini = teardown, .timeout = 60);

/* What a replay found: record i has i bytes of value i. */
struct seen {
	unsigned nr;
	bool bad;
};

static int see(void *ctx, const struct ck_journal_record *r, struct ck_err *err)
{
	struct seen *s = ctx;
	const unsigned char *v = r->body;

	(void)err;
	s->nr++;
	s->bad |=
		r->number != s->nr || r->type != 100 + s->nr || r->len != s->nr;
	for (uint32_t i = 0; i < r->len; i++)
		s->bad |= v[i] != s->nr;
	return 0;
}

static int append(struct ck_journal *j, unsigned i, struct ck_err *err)
{
	char v[256];

	memset(v, (int)i, sizeof(v));
	return ck_journal_append(j, 100 + i, v, i, err);
}

/* Where each record ends; [0]: the head. */
static void fill(off_t end[RECORDS + 1], unsigned synced)
{
	struct ck_journal j;
	struct ck_err err = { 0 };
	struct stat st;

	unlinkat(dir, "j", 0);
	cr_assert_eq(ck_journal_make(&j, dir, "j", KIND, ID, "step: ", &err), 0,
		     "%s", err.msg);
	end[0] = HEAD;
	for (unsigned i = 1; i <= RECORDS; i++) {
		cr_assert_eq(append(&j, i, &err), 0, "%s", err.msg);
		cr_assert_eq(fstat(j.fd, &st), 0);
		end[i] = st.st_size;
		if (i == synced)
			cr_assert_eq(ck_journal_sync(&j, &err), 0);
	}
	ck_journal_close(&j);
}

static int open_it(struct ck_journal *j, struct ck_err *err)
{
	return ck_journal_open(j, dir, "j", true, KIND, ID, "step: ", err);
}

static int replay(struct seen *s, struct ck_err *err)
{
	struct ck_journal j;
	int ret = open_it(&j, err);

	*s = (struct seen){ 0 };
	if (ret)
		return ret;
	ret = ck_journal_replay(&j, see, s, err);
	ck_journal_close(&j);
	cr_expect(!s->bad, "a record is not what was appended");
	return ret;
}

static void flip(off_t at, unsigned char with)
{
	int fd = openat(dir, "j", O_RDWR);
	unsigned char c;

	cr_assert_eq(pread(fd, &c, 1, at), 1);
	c ^= with;
	cr_assert_eq(pwrite(fd, &c, 1, at), 1);
	close(fd);
}

static void another_boot(void)
{
	int fd = openat(dir, "j", O_WRONLY);

	cr_assert_eq(pwrite(fd, "another boot", 13, BOOT), 13);
	close(fd);
}

Test(journal, what_was_appended_is_read)
{
	struct ck_journal a, b;
	struct ck_err err = { 0 };
	struct seen s = { 0 };

	cr_assert_eq(ck_journal_make(&a, dir, "j", KIND, ID, "", &err), 0);
	cr_expect_eq(ck_journal_make(&b, dir, "j", KIND, ID, "", &err),
		     -EEXIST);
	cr_assert_eq(open_it(&b, &err), 0, "%s", err.msg);
	cr_expect(b.same_boot);
	for (unsigned i = 1; i <= RECORDS; i++) {
		cr_assert_eq(append(&a, i, &err), 0);
		/* only what is new */
		cr_assert_eq(ck_journal_replay(&b, see, &s, &err), 0);
		cr_expect_eq(s.nr, i);
	}
	cr_expect(!s.bad);
	/* who has seen all may go on */
	cr_assert_eq(append(&b, RECORDS + 1, &err), 0);
	ck_journal_close(&a);
	ck_journal_close(&b);
	cr_assert_eq(replay(&s, &err), 0, "%s", err.msg);
	cr_expect_eq(s.nr, RECORDS + 1);
}

Test(journal, is_of_its_kind)
{
	struct ck_journal j;
	struct ck_err err = { 0 };
	off_t end[RECORDS + 1];

	cr_expect_eq(open_it(&j, &err), -ENOENT);
	close(openat(dir, "j", O_CREAT | O_WRONLY, 0600));
	cr_expect_eq(open_it(&j, &err), -ENOENT);
	fill(end, 0);
	cr_expect_eq(
		ck_journal_open(&j, dir, "j", false, KIND + 1, ID, "a: ", &err),
		-EINVAL);
	cr_expect(strstr(err.msg, "a: j: byte 0"), "%s", err.msg);
	cr_expect_eq(
		ck_journal_open(&j, dir, "j", false, KIND, ID + 1, "", &err),
		-EINVAL);
	flip(8, 2); /* its version */
	cr_expect_eq(open_it(&j, &err), -EINVAL);
	unlinkat(dir, "j", 0);
	mkdirat(dir, "j", 0700);
	cr_expect(open_it(&j, &err) < 0);
	unlinkat(dir, "j", AT_REMOVEDIR);
}

static void cut_everywhere(bool other_boot)
{
	off_t end[RECORDS + 1];

	fill(end, RECORDS / 2);
	for (off_t len = end[RECORDS]; len >= (off_t)HEAD; len--) {
		struct ck_journal j;
		struct ck_err err = { 0 };
		struct seen s = { 0 };
		unsigned whole = 0;
		int fd = openat(dir, "j", O_WRONLY);

		while (whole < RECORDS && end[whole + 1] <= len)
			whole++;
		cr_assert_eq(ftruncate(fd, len), 0);
		close(fd);
		if (other_boot)
			another_boot();
		cr_assert_eq(open_it(&j, &err), 0, "%s", err.msg);
		cr_assert_eq(ck_journal_replay(&j, see, &s, &err), 0, "%s",
			     err.msg);
		cr_assert_eq(s.nr, whole, "%u of %u at %lld", s.nr, whole,
			     (long long)len);
		/* the next one comes in the place of what was torn */
		cr_assert_eq(append(&j, whole + 1, &err), 0);
		ck_journal_close(&j);
		cr_assert_eq(replay(&s, &err), 0, "%s", err.msg);
		cr_assert_eq(s.nr, whole + 1);
	}
}

Test(journal, the_last_record_was_cut_short)
{
	cut_everywhere(false);
	cut_everywhere(true);
}

/* Every bit's byte of every record but the last: said, with file and byte. */
Test(journal, damage_is_said)
{
	off_t end[RECORDS + 1];
	struct ck_err err = { 0 };
	char want[64];
	struct seen s;

	fill(end, 0);
	for (unsigned i = 1; i < RECORDS; i++)
		for (off_t at = end[i - 1]; at < end[i - 1] + 40 + (off_t)i;
		     at++) {
			flip(at, 0x10);
			cr_assert_eq(replay(&s, &err), -EIO, "byte %lld: %u",
				     (long long)at, s.nr);
			snprintf(want, sizeof(want),
				 "step: j: byte %lld: ", (long long)end[i - 1]);
			cr_assert(strstr(err.msg, want), "%s", err.msg);
			cr_assert_eq(s.nr, i - 1);
			flip(at, 0x10);
		}
	cr_assert_eq(replay(&s, &err), 0);
	cr_assert_eq(s.nr, RECORDS);
}

/* What was durable cannot be lost with the power; what was not can. */
Test(journal, another_boot_misses_what_was_not_durable)
{
	const unsigned synced = RECORDS / 2;
	off_t end[RECORDS + 1];
	struct ck_err err = { 0 };
	struct seen s;

	fill(end, synced);
	another_boot();
	for (unsigned i = 1; i <= RECORDS; i++) {
		flip(end[i - 1] + 40, 1);
		if (i <= synced) {
			cr_expect_eq(replay(&s, &err), -EIO, "record %u", i);
		} else {
			cr_expect_eq(replay(&s, &err), 0, "%s", err.msg);
		}
		cr_expect_eq(s.nr, i - 1);
		flip(end[i - 1] + 40, 1);
	}
}

Test(journal, a_record_that_occurs_twice_is_damage)
{
	off_t end[RECORDS + 1];
	struct ck_err err = { 0 };
	char v[512];
	struct seen s;
	int fd;

	fill(end, 0);
	fd = openat(dir, "j", O_RDWR);
	cr_assert_eq(pread(fd, v, (size_t)(end[5] - end[4]), end[4]),
		     end[5] - end[4]);
	cr_assert_eq(pwrite(fd, v, (size_t)(end[5] - end[4]), end[RECORDS]),
		     end[5] - end[4]);
	close(fd);
	cr_expect_eq(replay(&s, &err), -EIO);
	cr_expect_eq(s.nr, RECORDS);
}

Test(journal, a_disk_that_takes_no_more)
{
	struct rlimit was, little = { 0 };
	struct ck_journal j;
	struct ck_err err = { 0 };
	struct seen s = { 0 };
	unsigned i = 1;

	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
	little = was;
	little.rlim_cur = 1000;
	cr_assert_eq(ck_journal_make(&j, dir, "j", KIND, ID, "", &err), 0);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
	while (!append(&j, i, &err))
		i++;
	cr_expect_eq(err.code, EFBIG);
	cr_expect_gt(i, 3);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &was), 0);
	cr_assert_eq(append(&j, i, &err), 0, "%s", err.msg);
	cr_expect_eq(ck_journal_append(&j, 1, top, CK_JOURNAL_BODY + 1, &err),
		     -EMSGSIZE);
	ck_journal_close(&j);
	cr_assert_eq(replay(&s, &err), 0, "%s", err.msg);
	cr_expect_eq(s.nr, i);
}

/* Room that was promised is enough for the largest record. */
Test(journal, reserve)
{
	const uint32_t head = 40; /* so each end is tried */
	struct ck_journal j;
	struct ck_err err = { 0 };
	int ret = ck_journal_make(&j, dir, "j", KIND, ID, "", &err);

	for (unsigned i = 0; !ret && i < 1700; i++) {
		ret = ck_journal_reserve(&j, &err);
		cr_assert(j.room >= j.end + head + CK_JOURNAL_BODY,
			  "at byte %llu", (unsigned long long)j.end);
		if (!ret)
			ret = ck_journal_append(&j, 1, NULL, 0, &err);
	}
	cr_expect_eq(ret, 0, "%s", err.msg);
	ck_journal_close(&j);
}

/* Ended by who is called: no record is cut off that he has not seen. */
static int see_three(void *ctx, const struct ck_journal_record *r,
		     struct ck_err *err)
{
	int ret = see(ctx, r, err);

	return r->number == 3 ? ck_fail(err, EBUSY, "the third") : ret;
}

Test(journal, ended)
{
	struct ck_err err = { 0 };
	struct seen s = { 0 };
	struct ck_journal j;
	off_t end[RECORDS + 1];

	fill(end, 0);
	cr_assert_eq(open_it(&j, &err), 0);
	cr_expect_eq(ck_journal_replay(&j, see_three, &s, &err), -EBUSY);
	cr_expect_eq(append(&j, RECORDS + 1, &err), -ESTALE);
	cr_expect_eq(ck_journal_replay(&j, see, &s, &err), 0, "%s", err.msg);
	cr_expect_eq(s.nr, RECORDS);
	cr_expect_eq(append(&j, RECORDS + 1, &err), 0, "%s", err.msg);
	ck_journal_close(&j);
	cr_expect_eq(replay(&s, &err), 0, "%s", err.msg);
	cr_expect_eq(s.nr, RECORDS + 1);
	cr_expect(!s.bad);
}
