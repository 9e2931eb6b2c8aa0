/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_staged.c - threads make, rename, write and remove the same few names of
 * a stage, while another asks whether it can be published
 *
 * Under ThreadSanitizer; a wrong answer aborts.
 */
#include "core/draft/below.h"
#include "core/draft/staging.h"
#include "fs/draft/staged.h"
#include "fs/tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 1500

static struct fs_staged *files;
static struct ck_staging *stage;

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

static void use(const char *name)
{
	const struct fs_staged_who me = { getuid(), getgid() };
	struct fs_staged_node node;
	struct fs_staged_file *f;
	struct stat st;
	char buf[8];
	size_t got;
	int ret = fs_staged_create(files, FS_INO_SHARDS, name, 0644, O_RDWR,
				   &me, &node, &f);

	want(expected(ret), "create", ret);
	if (ret)
		return;
	ret = fs_staged_write(files, f, "12345678", 8, 0, false, NULL);
	want(!ret, "write", ret);
	ret = fs_staged_read(f, buf, 8, 0, &got, NULL);
	want(!ret, "read", ret);
	ret = fs_staged_stat(files, node.ino, f, &st);
	want(!ret && st.st_ino == node.ino, "stat of what is open", ret);
	ret = fs_staged_stat(files, node.ino, NULL, &st);
	want(!ret, "stat of what is open, by its inode", ret);
	fs_staged_release(files, f);
	fs_staged_forget(files, node.ino, 1);
}

static void change(unsigned lot, const char *a, const char *b)
{
	const struct fs_staged_who me = { getuid(), getgid() };
	struct fs_staged_node node;
	struct fs_shard_list *l;
	int ret;

	switch (lot % 5) {
	case 0:
		ret = fs_staged_rename(files, FS_INO_SHARDS, a, FS_INO_SHARDS,
				       b, 0);
		break;
	case 1:
		ret = fs_staged_unlink(files, FS_INO_SHARDS, a, lot & 8);
		break;
	case 2:
		ret = fs_staged_mkdir(files, FS_INO_SHARDS, a, 0755, &me,
				      &node);
		if (!ret)
			fs_staged_forget(files, node.ino, 1);
		break;
	case 3:
		ret = fs_staged_lookup(files, FS_INO_SHARDS, b, &node);
		if (!ret)
			fs_staged_forget(files, node.ino, 1);
		break;
	default:
		ret = fs_staged_list(files, FS_INO_SHARDS, &l);
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

static void *publisher(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		int ret = ck_staging_seize(stage, NULL);

		want(!ret || ret == -EBUSY, "seize", ret);
		if (!ret)
			ck_staging_unseize(stage);
	}
	return NULL;
}

int main(void)
{
	char top[] = "/tmp/ck-race-XXXXXX";
	struct ck_err err = { 0 };
	pthread_t thread[THREADS + 1];
	struct ck_root root;

	want(mkdtemp(top), "mkdtemp", errno);
	want(!ck_root_open(&root, top, NULL, &err), err.msg, 0);
	want(!ck_staging_make(&stage, &root, "step-1", &err), err.msg, 0);
	files = fs_staged_new(stage);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, run, (void *)i);
	pthread_create(&thread[THREADS], NULL, publisher, NULL);
	for (int i = 0; i <= THREADS; i++)
		pthread_join(thread[i], NULL);
	want(!ck_staging_seize(stage, &err), err.msg, 0);
	want(!ck_staging_remove(stage, &err), err.msg, 0);
	ck_staging_unseize(stage);
	fs_staged_free(files);
	ck_root_close(&root);
	rmdir(top);
	return 0;
}
