/* SPDX-License-Identifier: Apache-2.0 */
/* What joined directories must agree on. */
#include "core/root/root.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char top[] = "/tmp/ck-join-XXXXXX";

static char *at(const char *rel)
{
	static char path[4][512];
	static unsigned turn;
	char *out = path[turn++ % 4];

	snprintf(out, 512, "%s/%s", top, rel);
	return out;
}

static void setup(void)
{
	cr_assert(mkdtemp(top));
	cr_assert_eq(mkdir(at("j1"), 0755), 0);
	cr_assert_eq(mkdir(at("j2"), 0755), 0);
}

static int gone(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void teardown(void)
{
	nftw(top, gone, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(root_same_file, .init = setup, .fini = teardown);

/* The answer for @name of j1:j2, whose line must be @want, or NULL for none. */
static void expect_joined(const char *name, const char *want)
{
	struct ck_root root;
	struct ck_err err = { 0 };
	struct stat st;
	char both[1024];
	int fd = -1;

	snprintf(both, sizeof(both), "%s:%s", at("j1"), at("j2"));
	cr_assert_eq(ck_root_open(&root, both, NULL, &err), 0, "%s", err.msg);
	cr_expect_eq(ck_root_open_file(&root, name, &fd, &st, &err),
		     want ? -EINVAL : 0, "%s: %s", name, err.msg);
	if (want) {
		char line[2048];

		snprintf(line, sizeof(line), want, at("j1"), name, at("j2"),
			 name);
		cr_expect_str_eq(err.msg, line);
	} else {
		close(fd);
	}
	ck_root_close(&root);
}

static void put_joined(const char *name, const void *a, const void *b,
		       size_t len, off_t end)
{
	const char *dir[] = { "j1", "j2" };
	const void *bytes[] = { a, b };

	for (int i = 0; i < 2; i++) {
		char rel[64];
		FILE *f;

		snprintf(rel, sizeof(rel), "%s/%s", dir[i], name);
		f = fopen(at(rel), "w");
		cr_assert(f);
		cr_assert_eq(fwrite(bytes[i], 1, len, f), len);
		fclose(f);
		cr_assert_eq(truncate(at(rel), end), 0);
	}
}

Test(root_same_file, joined_files_agree)
{
	static const char x[] = "\4\0\0\0\0\0\0\0{  }data";
	static const char y[] = "\4\0\0\0\0\0\0\0{ \n}data";
	static const char z[] = "\4\0\0\0\0\0\0\0{  }dAta";
	static const char odd[] = "%s/%s has 0x20 at byte 10, "
				  "%s/%s has 0x0a: joined sources must agree";
	static const char data[] = "%s/%s has 0x61 at byte 13, "
				   "%s/%s has 0x41: joined sources must agree";
	const off_t big = 3 << 20;

	put_joined("s.safetensors", x, y, 16, 16);
	expect_joined("s.safetensors", odd);
	put_joined("s.safetensors", x, y, 16, big);
	expect_joined("s.safetensors", odd);
	put_joined("s.safetensors", x, z, 16, 16);
	expect_joined("s.safetensors", NULL); /* verify's */
	put_joined(".metadata", x, z, 16, 16);
	expect_joined(".metadata", data);
	put_joined(".metadata", x, z, 16, big);
	expect_joined(".metadata", data);
	put_joined("x.index.json", x, z, 16, big);
	expect_joined("x.index.json", data);
	put_joined("x.pt", x, z, 16, 1 << 20);
	expect_joined("x.pt", data);
	put_joined("x.pt", x, z, 16, (1 << 20) + 1);
	expect_joined("x.pt", NULL); /* verify's */
	put_joined("x.json", x, x, 16, big);
	expect_joined("x.json", NULL);
}

Test(root_same_file, joined_with_nothing)
{
	static const char *const given[] = { "j1:", ":j1" };

	cr_assert_eq(chdir(top), 0);
	for (int i = 0; i < 2; i++) {
		struct ck_root root;
		struct ck_err err = { 0 };

		cr_expect_eq(ck_root_open(&root, given[i], NULL, &err),
			     -ENOENT);
		cr_expect(strstr(err.msg, given[i]), "%s", err.msg);
		cr_expect(strstr(err.msg, "both sides of a colon"), "%s",
			  err.msg);
	}
}
