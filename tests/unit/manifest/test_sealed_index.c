/* SPDX-License-Identifier: Apache-2.0 */
/* What a parser reads of a sealed checkpoint is compared, block by block. */
#include "core/manifest/sealed_index.h"

#include "core/manifest/hash.h"
#include "tests/lib/manifests.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHIFT 12
#define BLOCK (1 << SHIFT)
#define SIZE (3 * BLOCK + 100)

static char path[64];
static struct ck_root root;
static struct ck_dir dir;
static struct ck_sealed_index *x;
static struct ck_err err;

static void put(const char *name, const void *bytes, size_t len, off_t off)
{
	char at[128];
	int fd;

	snprintf(at, sizeof(at), "%s/%s", path, name);
	fd = open(at, O_RDWR | O_CREAT, 0600);
	cr_assert(fd >= 0 && pwrite(fd, bytes, len, off) == (ssize_t)len);
	close(fd);
}

static void seal(void)
{
	struct ck_manifest_new *n;

	cr_assert(!ck_manifest_new(&n, SHIFT, &err));
	cr_assert(!ck_hash_manifest(n, &root, NULL, 1, NULL, NULL, &err), "%s",
		  err.msg);
	cr_assert(!manifest_save(n, root.fd, CK_MANIFEST_NAME, &err), "%s",
		  err.msg);
	ck_manifest_drop(n);
}

static void begin(void)
{
	unsigned char bytes[SIZE];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256);
	strcpy(path, "/tmp/ck-index-XXXXXX");
	cr_assert(mkdtemp(path));
	cr_assert(!ck_root_open(&root, path, NULL, &err), "%s", err.msg);
	put("a", bytes, SIZE, 0);
	put("b", bytes, 10, 0);
	seal();
	cr_assert(!ck_sealed_index_open(&x, &root, &err), "%s", err.msg);
	ck_dir_root_init(&dir, &root, NULL);
	dir.wrap = ck_sealed_index_wrap(x);
}

static void end(void)
{
	char command[128];

	ck_sealed_index_free(x);
	ck_root_close(&root);
	snprintf(command, sizeof(command), "rm -rf %s", path);
	cr_expect(!system(command));
}

TestSuite(sealed_index, .init = begin, .fini = end, .timeout = 60);

static int get(const char *name, uint64_t off, size_t len)
{
	unsigned char buf[SIZE];
	struct ck_source *s;
	int ret = ck_dir_open(&dir, name, &s, &err);

	cr_assert(!ret, "%s", err.msg);
	ret = ck_source_read(s, buf, len, off, &err);
	ck_source_close(s);
	return ret;
}

Test(sealed_index, reads_what_was_sealed)
{
	cr_expect(!get("a", 0, SIZE), "%s", err.msg);
	cr_expect(!get("b", 3, 7), "%s", err.msg);
	cr_expect(!ck_sealed_index_end(x, NULL, false, &err));
	cr_expect(get("a", SIZE - 1, 2) == -EIO);
	cr_expect(strstr(err.msg, "before the end"), "%s", err.msg);
	cr_expect(!ck_sealed_index_end(x, NULL, false, &err),
		  "the reader's to tell");
}

Test(sealed_index, one_bad_block_is_refused_and_remembered)
{
	put("a", "damage", 6, BLOCK + 5);
	cr_expect(!get("a", 0, BLOCK), "%s", err.msg);
	cr_expect(get("a", BLOCK - 1, 2) == -EIO);
	cr_expect(strstr(err.msg, "a: block 1, bytes 4096 to 8192: not what"),
		  "%s", err.msg);
	cr_expect(get("a", 2 * BLOCK - 1, 1) == -EIO, "away from the damage");
	cr_expect(!get("a", 2 * BLOCK, BLOCK + 100), "%s", err.msg);
	cr_expect(!get("b", 0, 10), "%s", err.msg);
	err.msg[0] = '\0';
	cr_expect(ck_sealed_index_end(x, NULL, false, &err) == -EIO);
	cr_expect(strstr(err.msg, "block 1, "), "%s", err.msg);
}

Test(sealed_index, what_changes_after_it_was_good_is_compared_again)
{
	cr_expect(!get("a", 0, SIZE), "%s", err.msg);
	put("a", "damage", 6, SIZE - 10);
	cr_expect(!get("a", 0, 10), "%s", err.msg);
	cr_expect(!get("a", SIZE - 1, 1), "what it means is seen at the end");
	cr_expect(ck_sealed_index_end(x, NULL, false, &err) == -EIO);
	cr_expect(strstr(err.msg, "block 3, bytes 12288 to 12388"), "%s",
		  err.msg);
}

Test(sealed_index, another_size_is_refused)
{
	put("b", "more", 4, 10);
	cr_expect(get("b", 0, 1) == -EIO);
	cr_expect(strstr(err.msg, "which was 10 bytes long"), "%s", err.msg);
	cr_expect(ck_sealed_index_end(x, NULL, false, &err) == -EIO);
}

Test(sealed_index, files_that_came_since_are_read)
{
	put("c", "new", 3, 0);
	cr_expect(!get("c", 0, 3), "%s", err.msg);
	cr_expect(!ck_sealed_index_end(x, NULL, false, &err));
}

/* One with bytes of tensors may be, of which none is given out then. */
Test(sealed_index, an_end_may_be_bad_where_files_are_apart)
{
	struct ck_chunk chunk = { .src = 1 };
	struct ck_src src[2] = { { .kind = CK_SRC_FILE, .name = 0 },
				 { .kind = CK_SRC_FILE, .name = 6 } };
	struct ck_catalog img = { .chunks = &chunk,
				  .nr_chunks = 1,
				  .srcs = src,
				  .nr_srcs = 2,
				  .strs = "\1\0\0\0a\0\1\0\0\0b",
				  .strs_len = 12 };

	put("b", "D", 1, 9);
	cr_expect(!get("b", 0, 10), "%s", err.msg);
	cr_expect(!ck_sealed_index_end(x, &img, true, &err), "%s", err.msg);
	cr_expect(ck_sealed_index_end(x, &img, false, &err) == -EIO);
	chunk.src = 0;
	cr_expect(ck_sealed_index_end(x, &img, true, &err) == -EIO);
	cr_expect(strstr(err.msg, "b: block 0"), "%s", err.msg);
}

/* As a mount for writing leaves it after an fsync. */
Test(sealed_index, a_later_manifest_counts)
{
	put("a", "edited", 6, BLOCK);
	put(".unshard-edited", "a", 2, 0);
	cr_expect(get("a", BLOCK, 1) == -EIO);
	cr_expect(strstr(err.msg, "is being edited"), "%s", err.msg);
	seal();
	cr_expect(!get("a", BLOCK, 1), "%s", err.msg);
}

Test(sealed_index, there_may_be_none)
{
	struct ck_sealed_index *other;
	char at[128];

	snprintf(at, sizeof(at), "%s/%s", path, CK_MANIFEST_NAME);
	cr_assert(!unlink(at));
	cr_expect(ck_sealed_index_open(&other, &root, &err) == -ENOENT);
}
