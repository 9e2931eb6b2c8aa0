/* SPDX-License-Identifier: Apache-2.0 */
/* The names of files that are being edited outlast a crash and a full disk. */
#include "core/manifest/edited.h"
#include "core/manifest/sealed.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char top[] = "/tmp/ck-edited-XXXXXX";
static struct ck_root root = { .blobs_fd = -1 };

static void setup(void)
{
	cr_assert(mkdtemp(top));
	root.path = top;
	root.fd = open(top, O_RDONLY | O_DIRECTORY);
	cr_assert_geq(root.fd, 0);
}

static void teardown(void)
{
	struct ck_err err;
	int fd = -1;

	ck_edited_remove(&root, &fd, &err);
	close(root.fd);
	rmdir(top);
}

TestSuite(edited, .init = setup, .fini = teardown);

static void holds(const char *want, size_t len)
{
	struct ck_err err = { 0 };
	char *names;
	size_t is;

	cr_assert_eq(ck_edited_read(&root, &names, &is, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(is, len);
	cr_assert_eq(memcmp(names, want, len), 0);
	free(names);
}

static void begin_with(const char *bytes, size_t len)
{
	int fd = openat(root.fd, CK_MANIFEST_EDITED, O_WRONLY | O_CREAT, 0600);

	cr_assert_eq(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

Test(edited, what_a_crash_cut_off_begins_no_name)
{
	struct ck_err err = { 0 };
	int fd = -1;

	begin_with("a\0b\0rank", 8);
	cr_assert_eq(ck_edited_add(&root, &fd, "c", 2, &err), 0, "%s", err.msg);
	cr_assert_eq(ck_edited_add(&root, &fd, "d\0e", 4, &err), 0, "%s",
		     err.msg);
	holds("a\0b\0c\0d\0e", 10);
	close(fd);
}

Test(edited, nothing_but_a_tail)
{
	struct ck_err err = { 0 };
	int fd = -1;

	begin_with("rank", 4);
	cr_assert_eq(ck_edited_add(&root, &fd, "c", 2, &err), 0, "%s", err.msg);
	holds("c", 2);
	close(fd);
}

/* More than a name may have is not ours to cut. */
Test(edited, what_is_not_ours)
{
	struct ck_err err = { 0 };
	char many[10000];
	int fd = -1;

	memset(many, 'x', sizeof(many));
	begin_with(many, sizeof(many));
	cr_assert_neq(ck_edited_add(&root, &fd, "c", 2, &err), 0);
	close(fd);
}

/* Files may not grow: as on a full disk, a part of the name gets there. */
Test(edited, a_short_write_begins_no_name)
{
	struct rlimit was, less;
	struct ck_err err = { 0 };
	int fd = -1;

	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(ck_edited_add(&root, &fd, "first", 6, &err), 0);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
	less = (struct rlimit){ 9, was.rlim_max };
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &less), 0);
	cr_assert_neq(ck_edited_add(&root, &fd, "second", 7, &err), 0);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &was), 0);
	holds("first", 6);
	cr_assert_eq(ck_edited_add(&root, &fd, "third", 6, &err), 0, "%s",
		     err.msg);
	holds("first\0third", 12);
	close(fd);
}
