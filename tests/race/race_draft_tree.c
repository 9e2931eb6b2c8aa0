/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_draft_tree.c - threads make, rename, write and remove the same few names
 * of a draft, and ask for them as the kernel is asked for other users, while
 * another gives the draft itself other names, and one reads them
 *
 * Under ThreadSanitizer; a wrong answer aborts.
 */
#include "core/draft/dir_tree.h"
#include "core/draft/draft.h"
#include "fs/ask/ask.h"
#include "fs/draft/draft_tree.h"
#include "fs/tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 1500

static struct fs_draft_tree *files;
static struct ck_draft *draft;

static void want(bool ok, const char *what, int ret)
{
	if (ok)
		return;
	fprintf(stderr, "race_staged: %s: %d\n", what, ret);
	abort();
}

/* What may come of a name that others change too. */
static bool expected(int ret)
{
	return !ret || ret == -ENOENT || ret == -EEXIST || ret == -ESTALE ||
	       ret == -EBUSY || ret == -ENOTEMPTY || ret == -EISDIR ||
	       ret == -ENOTDIR || ret == -EINVAL;
}

static void ask(uint64_t ino)
{
	struct fs_question q = { 0 };
	int ret = fs_draft_tree_ask(files, ino, R_OK, &q);

	want(expected(ret), "ask", ret);
	want(ino != FS_INO_SHARDS || !ret, "ask for what has always a name",
	     ret);
	ck_str_free(&q.text);
}

static void use(const char *name)
{
	const struct fs_draft_tree_who me = { .uid = getuid(),
					      .gid = getgid() };
	struct fs_draft_tree_node node;
	struct fs_draft_tree_file *f;
	struct stat st;
	char buf[8];
	size_t got;
	int ret = fs_draft_tree_create(files, FS_INO_SHARDS, name, 0644, O_RDWR,
				       &me, &node, &f);

	want(expected(ret), "create", ret);
	if (ret)
		return;
	ret = fs_draft_tree_write(files, f, "12345678", 8, 0, false, NULL);
	want(!ret, "write", ret);
	ret = fs_draft_tree_read(f, buf, 8, 0, &got, NULL);
	want(!ret, "read", ret);
	ret = fs_draft_tree_stat(files, node.ino, f, &st);
	want(!ret && st.st_ino == node.ino, "stat of what is open", ret);
	ret = fs_draft_tree_stat(files, node.ino, NULL, &st);
	want(!ret, "stat of what is open, by its inode", ret);
	fs_draft_tree_release(files, f);
	ask(node.ino);
	ask(FS_INO_SHARDS);
	fs_draft_tree_forget(files, node.ino, 1);
}

static void change(unsigned lot, const char *a, const char *b)
{
	const struct fs_draft_tree_who me = { .uid = getuid(),
					      .gid = getgid() };
	struct fs_draft_tree_node node;
	struct fs_shard_list *l;
	int ret;

	switch (lot % 5) {
	case 0:
		ret = fs_draft_tree_rename(files, FS_INO_SHARDS, a,
					   FS_INO_SHARDS, b, 0, NULL);
		break;
	case 1:
		ret = fs_draft_tree_unlink(files, FS_INO_SHARDS, a, lot & 8,
					   NULL);
		break;
	case 2:
		ret = fs_draft_tree_mkdir(files, FS_INO_SHARDS, a, 0755, &me,
					  &node);
		if (!ret)
			fs_draft_tree_forget(files, node.ino, 1);
		break;
	case 3:
		ret = fs_draft_tree_lookup(files, FS_INO_SHARDS, b, &node);
		if (!ret)
			fs_draft_tree_forget(files, node.ino, 1);
		break;
	default:
		ret = fs_draft_tree_list(files, FS_INO_SHARDS, &l);
		if (!ret)
			fs_shards_list_free(l);
	}
	want(expected(ret), "change", ret);
}

static void *run(void *arg)
{
	unsigned lot = 77 + (unsigned)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		char a[8], b[8];

		lot = lot * 1103515245 + 12345;
		snprintf(a, sizeof(a), "n%u", lot >> 16 & 3);
		snprintf(b, sizeof(b), "n%u", lot >> 20 & 3);
		use(a);
		change(lot >> 24, a, b);
	}
	return NULL;
}

static atomic_bool over;

/* What a rename of the step does. */
static void *renamer(void *arg)
{
	const char *const names[] = { "step-2", "another-name-for-it" };
	unsigned nr = 0;

	(void)arg;
	while (!atomic_load(&over) || !nr) {
		int ret = ck_draft_lock(draft, NULL);

		want(!ret || ret == -EBUSY, "seize", ret);
		if (!ret) {
			ret = ck_draft_rename(draft, names[nr++ % 2], NULL);
			want(!ret, "rename of the draft", ret);
			ck_draft_unlock(draft);
		}
	}
	return NULL;
}

static void *reader(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		char path[PATH_MAX];
		const char *name = CK_DRAFT_NAME(draft);

		want(!strcmp(name, "step-1") || !strcmp(name, "step-2") ||
			     !strcmp(name, "another-name-for-it"),
		     name, 0);
		want(!ck_draft_path(draft, path) && *path == '/', path, 0);
		want(ck_draft_is_current(draft), "it is current", 0);
	}
	return NULL;
}

int main(void)
{
	char top[] = "/tmp/ck-race-XXXXXX";
	struct ck_err err = { 0 };
	pthread_t thread[THREADS + 2];
	struct ck_root root;

	want(mkdtemp(top), "mkdtemp", errno);
	want(!ck_root_open(&root, top, NULL, &err), err.msg, 0);
	want(!ck_draft_make(&draft, &root, "step-1", &err), err.msg, 0);
	files = fs_draft_tree_new(draft);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, run, (void *)i);
	pthread_create(&thread[THREADS], NULL, renamer, NULL);
	pthread_create(&thread[THREADS + 1], NULL, reader, NULL);
	for (int i = 0; i < THREADS + 2; i++) {
		pthread_join(thread[i], NULL);
		atomic_store(&over, i >= THREADS - 1);
	}
	want(!ck_draft_lock(draft, &err), err.msg, 0);
	want(!ck_draft_remove(draft, &err), err.msg, 0);
	ck_draft_unlock(draft);
	fs_draft_tree_free(files);
	ck_root_close(&root);
	rmdir(top);
	return 0;
}
