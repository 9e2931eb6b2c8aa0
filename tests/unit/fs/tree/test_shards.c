/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/auto.h"
#include "fs/tree/shards.h"
#include "fs/tree/tree.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/shards-test.XXXXXX";
static struct ck_root root;
static struct fs_shards *s;
static struct ck_err err;

static void put(const char *name, const char *text)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_WRONLY, 0640);
	cr_assert(fd >= 0);
	cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void setup(void)
{
	char path[256];

	cr_assert(mkdtemp(dir));
	put("a", "hello");
	snprintf(path, sizeof(path), "%s/sub", dir);
	cr_assert(!mkdir(path, 0755));
	put("sub/b", "there");
	snprintf(path, sizeof(path), "%s/fifo", dir);
	cr_assert(!mkfifo(path, 0644));
	snprintf(path, sizeof(path), "%s/out", dir);
	cr_assert(!symlink("/etc/passwd", path));
	cr_assert(!ck_root_open(&root, dir, NULL, &err), "%s", err.msg);
	s = fs_shards_new(&root);
	cr_assert(s);
}

static void teardown(void)
{
	char cmd[300];

	fs_shards_free(s);
	ck_root_close(&root);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	cr_assert(!system(cmd));
}
TestSuite(shards, .init = setup, .fini = teardown);

static int find(uint64_t in, const char *name, uint64_t *ino)
{
	struct stat st;
	int ret = fs_shards_lookup(s, in, name, ino, &st, &err);

	cr_expect(ret || st.st_ino == *ino);
	return ret;
}

Test(shards, files_and_folders)
{
	uint64_t a, sub, b;
	struct stat st;
	char text[8] = "";
	int fd;

	cr_assert(!find(FS_INO_SHARDS, "a", &a));
	cr_assert(!find(FS_INO_SHARDS, "sub", &sub));
	cr_assert(!find(sub, "b", &b));
	cr_expect(!fs_shards_stat(s, sub, &st, &err));
	cr_expect(S_ISDIR(st.st_mode));
	cr_expect(!fs_shards_stat(s, b, &st, &err));
	cr_expect(S_ISREG(st.st_mode) && st.st_size == 5 && st.st_ino == b);
	cr_assert(!fs_shards_open(s, b, &fd, &st, &err));
	cr_expect(read(fd, text, 8) == 5 && !strcmp(text, "there"));
	close(fd);
}

Test(shards, what_is_no_file_is_not_there)
{
	uint64_t ino;

	cr_expect(find(FS_INO_SHARDS, "none", &ino) == -ENOENT);
	cr_expect(find(FS_INO_SHARDS, "fifo", &ino) == -ENOENT);
	cr_expect(find(FS_INO_SHARDS, "out", &ino) == -ENOENT);
	cr_expect(find(FS_INO_SHARDS, "..", &ino) == -ENOENT);
	cr_expect(find(FS_INO_SHARD | 12345, "a", &ino) == -ESTALE);
}

Test(shards, a_forgotten_name_keeps_its_number)
{
	uint64_t first, again;
	struct stat st;

	cr_assert(!find(FS_INO_SHARDS, "a", &first));
	cr_assert(!find(FS_INO_SHARDS, "a", &again));
	cr_expect_eq(first, again);
	fs_shards_forget(s, first, 1);
	cr_expect(!fs_shards_stat(s, first, &st, &err));
	fs_shards_forget(s, first, 1);
	cr_expect(fs_shards_stat(s, first, &st, &err) == -ESTALE);
	fs_shards_forget(s, first, 7); /* nothing is left: no harm */
	cr_assert(!find(FS_INO_SHARDS, "a", &again));
	cr_expect_eq(first, again);
}

Test(shards, thousands_of_names)
{
	uint64_t ino[3000];
	char name[32];

	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		put(name, "x");
		cr_assert(!find(FS_INO_SHARDS, name, &ino[i]));
	}
	for (int i = 0; i < 3000; i++) {
		struct stat st;

		cr_assert(!fs_shards_stat(s, ino[i], &st, &err));
		if (i % 2)
			fs_shards_forget(s, ino[i], 1);
	}
	for (int i = 0; i < 3000; i++) {
		struct stat st;

		cr_assert(fs_shards_stat(s, ino[i], &st, &err) ==
			  (i % 2 ? -ESTALE : 0));
	}
}

static const struct fs_shard_entry *entry(const struct fs_shard_list *l,
					  const char *name)
{
	for (size_t i = 0; i < l->nr; i++)
		if (!strcmp(l->v[i].name, name))
			return &l->v[i];
	return NULL;
}

Test(shards, listings_agree_with_lookups)
{
	struct fs_shard_list *l;
	uint64_t sub, b;

	cr_assert(!find(FS_INO_SHARDS, "sub", &sub));
	cr_assert(!find(sub, "b", &b));
	cr_assert(!fs_shards_list(s, FS_INO_SHARDS, &l, &err));
	cr_expect_eq(l->nr, 4); /* . .. a sub */
	cr_expect(!strcmp(l->v[0].name, ".") && l->v[0].ino == FS_INO_SHARDS);
	cr_expect(!strcmp(l->v[1].name, "..") && l->v[1].ino == FS_INO_ROOT);
	cr_assert(entry(l, "sub") && entry(l, "a"));
	cr_expect(entry(l, "sub")->ino == sub &&
		  S_ISDIR(entry(l, "sub")->type));
	cr_expect(S_ISREG(entry(l, "a")->type));
	fs_shards_list_free(l);
	cr_assert(!fs_shards_list(s, sub, &l, &err));
	cr_expect_eq(l->nr, 3);
	cr_expect(l->v[0].ino == sub && l->v[1].ino == FS_INO_SHARDS);
	cr_expect(entry(l, "b") && entry(l, "b")->ino == b);
	fs_shards_list_free(l);
}

Test(shards, one_file_alone)
{
	struct fs_shard_list *l;
	char path[256];
	uint64_t ino;

	fs_shards_free(s);
	ck_root_close(&root);
	snprintf(path, sizeof(path), "%s/a", dir);
	cr_assert(!ck_root_open(&root, path, NULL, &err));
	s = fs_shards_new(&root);
	cr_expect(!find(FS_INO_SHARDS, "a", &ino));
	cr_expect(find(FS_INO_SHARDS, "sub", &ino) == -ENOENT);
	cr_assert(!fs_shards_list(s, FS_INO_SHARDS, &l, &err));
	cr_expect(l->nr == 3 && !strcmp(l->v[2].name, "a") &&
		  l->v[2].ino == ino);
	fs_shards_list_free(l);
}
