/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests made, read back, and damaged everywhere. */
#include "core/root/root.h"
#include "core/manifest/hash.h"
#include "core/manifest/manifest_priv.h"
#include "tests/lib/manifests.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

TestSuite(manifest, .timeout = 60);

static void make(void **bytes, size_t *len)
{
	static const uint64_t a[] = { 11, 22, 33 }, b[] = { 44 };
	struct ck_digest d = { .hi = 1, .lo = 2 };
	struct ck_manifest_new *n;
	struct ck_err err = { 0 };

	cr_assert_eq(ck_manifest_new(&n, 12, &err), 0);
	cr_assert_eq(ck_manifest_put_file(n, "sub/b", 4096, b, &err), 0);
	cr_assert_eq(ck_manifest_put_file(n, "a", 2 * 4096 + 1, a, &err), 0);
	cr_assert_eq(ck_manifest_put_file(n, "empty", 0, NULL, &err), 0);
	cr_assert_eq(ck_manifest_put_tensor(n, "", 0, "w", 1, 8, &d, &err), 0);
	cr_assert_eq(ck_manifest_put_tensor(n, "", 0, "n\0l", 3, 4, NULL, &err),
		     0);
	cr_assert_eq(ck_manifest_put_tensor(n, "ema", 3, "w", 1, 8, &d, &err),
		     0);
	cr_assert_eq(ck_manifest_bytes(n, bytes, len, &err), 0, "%s", err.msg);
	ck_manifest_drop(n);
}

Test(manifest, round)
{
	struct ck_manifest m;
	struct ck_manifest_file f;
	struct ck_manifest_tensor t;
	struct ck_err err = { 0 };
	char text[CK_DIGEST_TEXT];
	void *bytes;
	size_t len;

	make(&bytes, &len);
	cr_assert_eq(ck_manifest_parse(&m, bytes, len, &err), 0, "%s", err.msg);
	cr_assert_eq(m.nr_files, 3);
	cr_assert_eq(m.nr_tensors, 3);
	cr_assert_eq(m.nr_blocks, 4);
	cr_assert_eq(m.shift, 12);
	ck_manifest_file(&m, 0, &f);
	cr_assert_str_eq(f.name, "a");
	cr_assert_eq(f.nr, 3);
	cr_assert_eq(ck_manifest_block(&m, f.first + 2), 33);
	cr_assert(ck_manifest_find_file(&m, "sub/b", 5, &f));
	cr_assert_eq(f.size, 4096);
	cr_assert_eq(ck_manifest_block(&m, f.first), 44);
	cr_assert(ck_manifest_find_file(&m, "empty", 5, &f));
	cr_assert_eq(f.nr, 0);
	cr_assert(!ck_manifest_find_file(&m, "b", 1, &f));
	cr_assert(ck_manifest_find_tensor(&m, "ema", 3, "w", 1, &t));
	cr_assert(t.known && t.size == 8);
	ck_digest_text(&t.digest, text);
	cr_assert_str_eq(text, "00000000000000010000000000000002");
	cr_assert(ck_manifest_find_tensor(&m, "", 0, "n\0l", 3, &t));
	cr_assert(!t.known);
	cr_assert(!ck_manifest_find_tensor(&m, "", 0, "n", 1, &t));
	ck_manifest_free(&m);
	free(bytes);
}

Test(manifest, empty)
{
	struct ck_manifest_new *n;
	struct ck_manifest m;
	struct ck_err err = { 0 };
	void *bytes;
	size_t len;

	cr_assert_eq(ck_manifest_new(&n, 0, &err), 0);
	cr_assert_eq(ck_manifest_bytes(n, &bytes, &len, &err), 0);
	ck_manifest_drop(n);
	cr_assert_eq(ck_manifest_parse(&m, bytes, len, &err), 0, "%s", err.msg);
	cr_assert_eq(m.nr_files + m.nr_tensors + m.nr_blocks, 0);
	free(bytes);
}

Test(manifest, refuses_what_no_directory_holds)
{
	struct ck_manifest_new *n;
	struct ck_err err = { 0 };
	uint64_t one = 1;
	void *bytes;
	size_t len;

	cr_assert_eq(ck_manifest_new(&n, 31, &err), -EINVAL);
	cr_assert_eq(ck_manifest_new(&n, 0, &err), 0);
	cr_assert_eq(ck_manifest_put_file(n, "../x", 1, &one, &err), -EINVAL);
	cr_assert_eq(ck_manifest_put_file(n, "/x", 1, &one, &err), -EINVAL);
	cr_assert_eq(ck_manifest_put_file(n, "", 1, &one, &err), -EINVAL);
	cr_assert_eq(ck_manifest_put_file(n, "x", UINT64_MAX, &one, &err),
		     -EINVAL);
	cr_assert_eq(ck_manifest_put_file(n, "x", 1, &one, &err), 0);
	cr_assert_eq(ck_manifest_put_file(n, "x", 1, &one, &err), 0);
	cr_assert_eq(ck_manifest_bytes(n, &bytes, &len, &err), -EINVAL);
	cr_assert(strstr(err.msg, "twice"));
	ck_manifest_drop(n);
}

static int parse(const unsigned char *bytes, size_t len)
{
	/* Of exactly its size, for the sanitizer. */
	unsigned char *exact = malloc(len + !len);
	struct ck_manifest m;
	struct ck_err err = { 0 };
	int ret;

	memcpy(exact, bytes, len);
	ret = ck_manifest_parse(&m, exact, len, &err);
	cr_assert(!ret || err.code == -ret);
	free(exact);
	return ret;
}

static void sum(unsigned char *bytes, size_t len)
{
	struct ck_digest d = ck_digest_bytes(bytes, len - CK_MF_SUM);

	ck_mf_digest_put(bytes + len - CK_MF_SUM, &d);
}

Test(manifest, damaged_everywhere)
{
	unsigned char *bytes;
	size_t len;

	make((void **)&bytes, &len);
	for (size_t i = 0; i < len; i++) {
		cr_assert_eq(parse(bytes, i), -EINVAL, "cut at %zu", i);
		bytes[i] ^= 0x10;
		cr_assert_eq(parse(bytes, len), -EINVAL, "byte %zu", i);
		bytes[i] ^= 0x10;
	}
	free(bytes);
}

/* The sum is right, and something else is not. */
Test(manifest, hostile)
{
	static const struct {
		size_t at;
		uint64_t value;
		const char *what;
	} table[] = {
		{ CK_MF_AT_VERSION, 2, "version" },
		{ CK_MF_AT_SHIFT, 63, "shift" },
		{ CK_MF_AT_LEN, 1 << 20, "length" },
		{ CK_MF_AT_FILES, UINT64_MAX / 48 + 4, "files" },
		{ CK_MF_AT_FILES, 4, "one file more" },
		{ CK_MF_AT_TENSORS, UINT64_C(1) << 60, "tensors" },
		{ CK_MF_AT_BLOCKS, UINT64_C(1) << 61, "blocks" },
		{ CK_MF_AT_STRS, UINT64_MAX, "names" },
		{ CK_MF_AT_ZERO, 1, "zero" },
		{ CK_MF_HEAD + CK_MF_FILE_SIZE, UINT64_MAX, "size" },
		{ CK_MF_HEAD + CK_MF_FILE_SIZE, 4096, "fewer blocks" },
		{ CK_MF_HEAD + CK_MF_FILE_FIRST, 1, "first" },
		{ CK_MF_HEAD + CK_MF_FILE_DIGEST, 1, "digest" },
		{ CK_MF_HEAD + CK_MF_FILE_NAME, UINT64_MAX, "name" },
		{ CK_MF_HEAD + CK_MF_FILE_NAME, 0, "empty name" },
		{ CK_MF_HEAD + CK_MF_FILE_ZERO, 1, "file's zero" },
		{ CK_MF_HEAD + 3 * CK_MF_FILE + CK_MF_TENSOR_SIZE, UINT64_MAX,
		  "tensor's size" },
		{ CK_MF_HEAD + 3 * CK_MF_FILE + CK_MF_TENSOR_NAME,
		  UINT64_C(0xffff) << 32, "tensor's name" },
		{ CK_MF_HEAD + 3 * CK_MF_FILE + CK_MF_TENSOR_KNOWN, 2,
		  "known" },
	};
	unsigned char *bytes, was[8];
	size_t len;

	make((void **)&bytes, &len);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		bool small = table[i].at == CK_MF_AT_VERSION ||
			     table[i].at == CK_MF_AT_SHIFT;

		memcpy(was, bytes + table[i].at, 8);
		if (small)
			ck_le32_put(bytes + table[i].at,
				    (uint32_t)table[i].value);
		else
			ck_le64_put(bytes + table[i].at, table[i].value);
		sum(bytes, len);
		cr_assert_eq(parse(bytes, len), -EINVAL, "%s", table[i].what);
		memcpy(bytes + table[i].at, was, 8);
	}
	/* Two files change places. */
	for (size_t i = 0; i < CK_MF_FILE; i++) {
		unsigned char c = bytes[CK_MF_HEAD + i];

		bytes[CK_MF_HEAD + i] = bytes[CK_MF_HEAD + CK_MF_FILE + i];
		bytes[CK_MF_HEAD + CK_MF_FILE + i] = c;
	}
	sum(bytes, len);
	cr_assert_eq(parse(bytes, len), -EINVAL);
	free(bytes);
}

static char top[] = "/tmp/ck-manifest-XXXXXX";

static void enter(void)
{
	cr_assert(mkdtemp(top));
	cr_assert_eq(chdir(top), 0);
}

static int gone(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void leave(void)
{
	cr_assert_eq(chdir("/"), 0);
	nftw(top, gone, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *name, size_t len, unsigned seed)
{
	FILE *f = fopen(name, "w");

	for (size_t i = 0; i < len; i++)
		putc((int)((i * 31 + seed + i / 251) & 255), f);
	fclose(f);
}

static void seal_here(unsigned shift)
{
	struct ck_root root;
	struct ck_manifest_new *n;
	struct ck_err err = { 0 };

	cr_assert_eq(ck_root_open(&root, top, NULL, &err), 0, "%s", err.msg);
	cr_assert_eq(ck_manifest_new(&n, shift, &err), 0);
	cr_assert_eq(ck_hash_manifest(n, &root, NULL, 3, NULL, NULL, &err), 0,
		     "%s", err.msg);
	cr_assert_eq(manifest_save(n, root.fd, CK_MANIFEST_NAME, &err), 0, "%s",
		     err.msg);
	ck_manifest_drop(n);
	ck_root_close(&root);
}

static void compare(const struct ck_manifest *m, const char *name)
{
	struct ck_manifest_file f;
	FILE *in = fopen(name, "r");
	size_t size = (size_t)1 << m->shift;
	char *buf = malloc(size);

	cr_assert(in, "%s", name);
	cr_assert(ck_manifest_find_file(m, name, strlen(name), &f), "%s", name);
	for (uint64_t k = 0; k < f.nr; k++) {
		size_t n = fread(buf, 1, size, in);

		cr_assert_eq(ck_manifest_block(m, f.first + k),
			     XXH3_64bits(buf, n), "%s: block %d", name, (int)k);
	}
	cr_assert_eq(fread(buf, 1, 1, in), 0);
	free(buf);
	fclose(in);
}

Test(manifest, of_a_directory, .init = enter, .fini = leave)
{
	struct ck_root root;
	struct ck_manifest m;
	struct ck_manifest_file f;
	struct ck_err err = { 0 };

	cr_assert_eq(mkdir("sub", 0755) | mkdir("sub/deep", 0755), 0);
	put("a", 3 * 4096 + 17, 1);
	put(".metadata", 100, 2);
	put("sub/deep/b", 40 << 20, 3);
	put("sub/empty", 0, 4);
	put("sub/.unshard-temp-1-2", 5, 5);
	cr_assert_eq(symlink("a", "link") | symlink("/etc/passwd", "out"), 0);
	cr_assert_eq(mkfifo("fifo", 0600), 0);
	seal_here(12);
	seal_here(12); /* over the one before */
	cr_assert_eq(ck_root_open(&root, top, NULL, &err), 0);
	cr_assert_eq(ck_manifest_load(&m, &root, &err), 0, "%s", err.msg);
	cr_assert_eq(m.nr_files, 4);
	compare(&m, "a");
	compare(&m, ".metadata");
	compare(&m, "sub/deep/b");
	cr_assert(ck_manifest_find_file(&m, "sub/empty", 9, &f));
	ck_manifest_free(&m);
	cr_assert_eq(truncate(CK_MANIFEST_NAME, 100), 0);
	cr_assert_eq(ck_manifest_load(&m, &root, &err), -EINVAL);
	cr_assert_eq(unlink(CK_MANIFEST_NAME), 0);
	cr_assert_eq(ck_manifest_load(&m, &root, &err), -ENOENT);
	ck_root_close(&root);
}

/* A file given alone has its own, which says nothing of its neighbours. */
Test(manifest, of_one_file, .init = enter, .fini = leave)
{
	struct ck_root root;
	struct ck_manifest_new *n;
	struct ck_manifest m;
	struct ck_err err = { 0 };
	char path[64], name[256];

	put("a", 5000, 1);
	put("b", 5000, 2);
	snprintf(path, sizeof(path), "%s/a", top);
	cr_assert_eq(ck_root_open(&root, path, NULL, &err), 0, "%s", err.msg);
	cr_assert(ck_root_manifest(&root, name, sizeof(name)));
	cr_assert_str_eq(name, ".unshard-a.manifest");
	cr_assert_eq(ck_manifest_new(&n, 12, &err), 0);
	cr_assert_eq(ck_hash_manifest(n, &root, NULL, 1, NULL, NULL, &err), 0);
	cr_assert_eq(manifest_save(n, root.fd, name, &err), 0, "%s", err.msg);
	ck_manifest_drop(n);
	cr_assert_eq(ck_manifest_load(&m, &root, &err), 0, "%s", err.msg);
	cr_assert_eq(m.nr_files, 1);
	compare(&m, "a");
	ck_manifest_free(&m);
	ck_root_close(&root);
}

/* The directory cannot be written: what was there stays, and nothing else. */
Test(manifest, not_written, .init = enter, .fini = leave)
{
	struct ck_manifest_new *n;
	struct ck_err err = { 0 };
	int dir = open(top, O_RDONLY | O_DIRECTORY);

	cr_assert_eq(mkdir("taken", 0755), 0);
	put("taken/x", 1, 1);
	cr_assert_eq(ck_manifest_new(&n, 0, &err), 0);
	cr_assert(manifest_save(n, dir, "taken", &err) < 0);
	cr_assert_eq(access("taken/x", F_OK), 0);
	ck_manifest_drop(n);
	close(dir);
	cr_assert_eq(unlink("taken/x") | rmdir("taken"), 0);
	cr_assert_eq(rmdir(top), 0, "something was left behind");
}
