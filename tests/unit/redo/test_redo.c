/* SPDX-License-Identifier: Apache-2.0 */
/* A redo file is found whole, or not at all, and never while it is made. */
#include "core/redo/redo.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/unshard-redo.XXXXXX";
static struct ck_root root;
static struct ck_err err;

static void setup(void)
{
	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(ck_root_open(&root, dir, NULL, &err), 0, "%s", err.msg);
}

static void teardown(void)
{
	char cmd[64];

	ck_root_close(&root);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(redo, .init = setup, .fini = teardown, .timeout = 30);

static const struct ck_redo_part parts[] = {
	{ 0, 8, 4, 12, "", "a", 0, 1 },
	{ 4, 0, 6, 6, "tree", "b.weight", 4, 8 },
};

static struct ck_redo *make(void)
{
	struct ck_redo *r;

	cr_assert_eq(ck_redo_new(&r, &root, &err), 0, "%s", err.msg);
	cr_assert_eq(pwrite(ck_redo_fd(r), "0123456789", 10, 0), 10);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(ck_redo_add(r, &parts[i], &err), 0);
	return r;
}

static bool is_left(void)
{
	char name[NAME_MAX + 1];

	return ck_redo_is_left(&root, name);
}

static int nr_files(void)
{
	char cmd[128], text[16] = "";
	FILE *f;

	snprintf(cmd, sizeof(cmd), "ls -A %s | wc -l", dir);
	f = popen(cmd, "r");
	cr_assert(f && fgets(text, sizeof(text), f));
	pclose(f);
	return atoi(text);
}

static unsigned seen;

static int look(void *ctx, struct ck_redo_left *left, struct ck_err *why)
{
	const int *ret = ctx;
	struct ck_redo_part p;
	char bytes[4];

	(void)why;
	cr_expect_eq(left->len, 10u);
	cr_expect_eq(left->nr, 2u);
	cr_expect(left->also);
	for (int i = 0; i < 2; i++) {
		cr_assert(ck_redo_part(left, &p));
		cr_expect_eq(p.at, parts[i].at);
		cr_expect_eq(p.off, parts[i].off);
		cr_expect_eq(p.len, parts[i].len);
		cr_expect_eq(p.size, parts[i].size);
		cr_expect_str_eq(p.tree, parts[i].tree);
		cr_expect_str_eq(p.name, parts[i].name);
	}
	cr_expect_not(ck_redo_part(left, &p));
	cr_expect_eq(pread(left->fd, bytes, 4, 4), 4);
	cr_expect_arr_eq(bytes, "4567", 4);
	seen++;
	return *ret;
}

static int each(int ret)
{
	return ck_redo_each(&root, true, look, &ret, &err);
}

/* As when the process that was at it has died: it is whole and not locked. */
static void leave(void)
{
	struct ck_redo *r = make();

	cr_assert_eq(ck_redo_commit(r, 10, true, &err), 0, "%s", err.msg);
	ck_redo_free(r);
}

Test(redo, nothing_is_left_of_what_was_not_committed)
{
	struct ck_redo *r = make();

	cr_expect_eq(nr_files(), 1);
	cr_expect_not(is_left());
	cr_expect_eq(each(0), 0);
	ck_redo_free(r);
	cr_expect_eq(nr_files(), 0);
	cr_expect_eq(seen, 0u);
}

Test(redo, what_was_committed_is_done_once)
{
	leave();
	cr_expect(is_left());
	cr_expect_eq(each(0), 0, "%s", err.msg);
	cr_expect_eq(seen, 1u);
	cr_expect_not(is_left());
	cr_expect_eq(nr_files(), 0);
}

Test(redo, what_cannot_be_done_stays)
{
	leave();
	cr_expect_eq(each(-EIO), -EIO);
	cr_expect(is_left());
	cr_expect_eq(each(0), 0);
	cr_expect_eq(seen, 2u);
}

Test(redo, who_is_at_it_is_not_disturbed)
{
	struct ck_redo *r = make();

	cr_assert_eq(ck_redo_commit(r, 10, true, &err), 0);
	cr_expect_not(is_left());
	cr_expect_eq(each(0), 0);
	cr_expect_eq(seen, 0u);
	cr_expect_eq(ck_redo_end(r, &err), 0);
	ck_redo_free(r);
	cr_expect_eq(nr_files(), 0);
}

Test(redo, what_was_never_whole_is_swept)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s1", dir, CK_REDO_NEW);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	cr_expect_eq(nr_files(), 1);
	cr_expect_eq(each(0), 0);
	cr_expect_eq(nr_files(), 0);
}

Test(redo, what_is_damaged_is_not_done)
{
	char path[300], name[NAME_MAX + 1];

	for (int at = 1; at <= 100; at += 3) {
		unsigned char b;
		off_t end;
		int fd;

		leave();
		cr_assert(ck_redo_is_left(&root, name));
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		fd = open(path, O_RDWR);
		end = lseek(fd, 0, SEEK_END);
		cr_assert_eq(pread(fd, &b, 1, end - at), 1);
		b ^= 0x40;
		cr_assert_eq(pwrite(fd, &b, 1, end - at), 1);
		close(fd);
		cr_expect_eq(each(0), -EINVAL, "byte %d from the end", at);
		cr_expect(strstr(err.msg, name), "%s", err.msg);
		unlink(path);
	}
	cr_expect_eq(seen, 0u);
}

Test(redo, one_file_is_no_place)
{
	struct ck_redo *r;
	char only[] = "model.pt";

	root.only = only;
	cr_expect_eq(ck_redo_new(&r, &root, &err), -EOPNOTSUPP);
	root.only = NULL;
	cr_expect_eq(nr_files(), 0);
}

Test(redo, parts_lie_inside)
{
	struct ck_redo_left left;
	struct ck_str tail = { 0 };
	struct ck_redo_part p = parts[1];

	p.at = 5; /* of 10 bytes, 6 long */
	ck_redo_put_part(&tail, &p);
	ck_redo_put_end(&tail, 10, 1, false);
	cr_expect_eq(ck_redo_parse(&left, (unsigned char *)tail.v, tail.len,
				   tail.len + 10, &err),
		     -EINVAL);
	tail.len = 0;
	p.at = 4;
	p.off = 1; /* of a tensor of 6 bytes */
	ck_redo_put_part(&tail, &p);
	ck_redo_put_end(&tail, 10, 1, false);
	cr_expect_eq(ck_redo_parse(&left, (unsigned char *)tail.v, tail.len,
				   tail.len + 10, &err),
		     -EINVAL);
	ck_str_free(&tail);
}
