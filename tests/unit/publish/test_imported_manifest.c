/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests that were copied into a draft, with blocks of any size. */
#include "core/publish/imported_manifest.h"

#include "core/manifest/hash.h"
#include "tests/lib/slicekit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(imported_manifest, .init = slicekit_setup, .fini = slicekit_teardown,
	  .timeout = 60);

static struct ck_draft *s;
static struct ck_root root;

static void put(const char *name, char c, size_t len)
{
	char *v = malloc(len);
	int fd = openat(s->files_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0666);

	memset(v, c, len);
	cr_assert_eq(write(fd, v, len), (ssize_t)len);
	cr_assert_eq(close(fd), 0);
	free(v);
}

static void begin(void)
{
	struct ck_err err;

	cr_assert_eq(ck_draft_make(&s, &slicekit_root, "step", &err), 0, "%s",
		     err.msg);
	cr_assert_eq(ck_root_open(&root, s->path, &slicekit_opts, &err), 0,
		     "%s", err.msg);
	put("a", 'a', 10000);
	put("b", 'b', 5);
}

static void end(void)
{
	ck_root_close(&root);
	ck_draft_close(s);
}

static void manifest(unsigned shift, void **bytes, size_t *len)
{
	struct ck_manifest_new *n;
	struct ck_err err;

	cr_assert_eq(ck_manifest_new(&n, shift, &err), 0);
	cr_assert_eq(ck_hash_manifest(n, &root, NULL, 1, NULL, NULL, &err), 0,
		     "%s", err.msg);
	cr_assert_eq(ck_manifest_bytes(n, bytes, len, &err), 0);
	ck_manifest_drop(n);
}

/* The manifest of what is there now is imported. */
static void bring(unsigned shift, bool ours)
{
	struct ck_err err;
	void *bytes;
	size_t len;

	manifest(shift, &bytes, &len);
	if (ours)
		cr_assert_eq(ck_imported_manifest_ours(s, bytes, len, &err), 0);
	cr_assert_eq(ck_manifest_store(s->files_fd, CK_MANIFEST_NAME, bytes,
				       len, &err),
		     0);
	free(bytes);
}

/* @why NULL: it agrees. */
static void check(const char *why)
{
	struct ck_err err = { 0 };
	void *bytes;
	size_t len;
	int ret;

	manifest(0, &bytes, &len);
	ret = ck_imported_manifest_check(s, &root, bytes, len, &err);
	cr_expect_eq(ret, why ? -EBADMSG : 0, "%d: %s", ret, err.msg);
	cr_expect(!why || strstr(err.msg, why), "%s", err.msg);
	free(bytes);
}

static void with_blocks_of(unsigned shift, const char *where)
{
	begin();
	check(NULL);
	bring(shift, false);
	check(NULL);
	put("c", 'c', 7);
	check(NULL);
	put("a", 'x', 10000);
	check(where);
	put("a", 'a', 9999);
	check("a: has 9999 bytes, and had 10000 when it was sealed");
	unlinkat(s->files_fd, "a", 0);
	check("a: is missing");
	put("a", 'a', 10000);
	check(NULL);
	end();
}

Test(imported_manifest, blocks_as_ours)
{
	with_blocks_of(0, "a: block 0 (bytes 0 to 10000) is not");
}

Test(imported_manifest, blocks_of_another_size)
{
	with_blocks_of(12, "a: block 0 (bytes 0 to 10000) is not");
}

Test(imported_manifest, the_block_is_named)
{
	int fd;

	begin();
	bring(12, false);
	fd = openat(s->files_fd, "a", O_WRONLY);
	cr_assert_eq(pwrite(fd, "x", 1, 5000), 1);
	close(fd);
	check("a: block 1 (bytes 4096 to 8192) is not");
	end();
}

Test(imported_manifest, an_earlier_publish_says_nothing_new)
{
	begin();
	bring(0, true);
	put("a", 'x', 10000);
	check(NULL);
	bring(0, false);
	put("a", 'y', 10000);
	check("a: block 0");
	end();
}
