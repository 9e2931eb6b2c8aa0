/* SPDX-License-Identifier: Apache-2.0 */
/* behind_dirs.c - folders that have to allow it, and all that is in them */
#include "fs/tree/behind_priv.h"

#include "core/base/auto.h"
#include "core/draft/dir_tree.h"
#include "core/run/run_dir.h"
#include "fs/tree/behind.h"
#include "fs/tree/mounted_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void ask_dir(const struct ck_root *root, struct fs_question *q)
{
	struct stat st;

	if (!fstat(root->fd, &st))
		fs_question_dir(q, root->real, &st);
}

void fs_behind_ask_dirs(const struct ck_root *root, struct fs_question *q)
{
	for (; root; root = root->next)
		ask_dir(root, q);
}

/*
 * What one file by itself is shown as, who reads it may list; and what several
 * folders are, who may in each of them.
 */
void fs_behind_ask_root(const struct ck_root *root, int mask,
			struct fs_question *q)
{
	ask_dir(root, q);
	if (root->only)
		fs_question_file(q, root->only,
				 mask & W_OK ? W_OK | R_OK : R_OK, 0, 0);
	else
		fs_question_file(q, "", mask, 0, 0);
	for (root = root->next; root; root = root->next) {
		fs_question_anew(q);
		ask_dir(root, q);
		fs_question_file(q, "", mask, 0, 0);
	}
}

/* Below shards/: each of the folders that are shown as @path. */
int fs_behind_ask_folders(const struct ck_root *root, const char *path,
			  int mask, struct fs_question *q, struct ck_err *err)
{
	bool any = false;

	for (; root; root = root->next) {
		ck_auto_fd int fd = -1;
		struct stat st;

		if (ck_root_open_dir(root, path, &fd, NULL) || fstat(fd, &st))
			continue;
		if (any)
			fs_question_anew(q);
		ask_dir(root, q);
		fs_question_file(q, path, mask, st.st_dev, st.st_ino);
		any = true;
	}
	return any ? 0 : ck_fail(err, ESTALE, "shards: %s is gone", path);
}

/* What is in the folder @root, and in folders in it. */
static int ask_below(const struct ck_root *root, struct fs_question *q,
		     struct ck_err *err)
{
	ck_auto_dir_tree struct ck_dir_tree all = { 0 };
	ck_auto_fd int fd = -1;
	int ret = ck_root_open_dir(root, "", &fd, err);

	if (!ret)
		ret = ck_dir_tree_list(&all, fd, err);
	if (ret)
		return ret;
	fs_question_anew(q);
	ask_dir(root, q);
	for (size_t i = 0; i < all.nr; i++) {
		const struct ck_dir_tree_file *f = &all.v[i];
		struct stat to;

		if (!ck_run_dir_shows(root, f->path))
			continue;
		if (S_ISDIR(f->st.st_mode))
			fs_question_file(q, f->path, R_OK | X_OK, f->st.st_dev,
					 f->st.st_ino);
		else if (S_ISREG(f->st.st_mode) ||
			 !ck_root_stat_file(root, f->path, &to, NULL))
			fs_question_file(q, f->path, R_OK, 0, 0);
	}
	return 0;
}

/* Why it cannot be read may say what is in any of its files. */
int fs_behind_ask_unread(const struct ck_root *root, struct fs_question *q,
			 struct ck_err *err)
{
	int ret = 0;

	for (; root && !root->only && !ret; root = root->next)
		ret = ask_below(root, q, err);
	return ret;
}

static int ask_entry(const struct ck_root *root, const struct stat *seen,
		     bool read, struct fs_question *q, struct ck_err *err)
{
	struct stat st;

	if (S_ISDIR(seen->st_mode) && !root->only &&
	    (fstat(root->fd, &st) || st.st_ino != seen->st_ino))
		return ck_fail(err, ESTALE, "%s: is another", root->path);
	fs_behind_ask_root(root, R_OK | X_OK, q);
	return read ? fs_behind_ask_unread(root, q, err) : 0;
}

int fs_behind_ask_entry(const struct fs_mounted_table *s, const char *name,
			const struct stat *seen, bool read,
			struct fs_question *q, struct ck_err *err)
{
	ck_auto_free char *group = strdup(name);
	char *slash = group ? strrchr(group, '/') : NULL;
	struct ck_root root;
	int ret = group ? 0 : ck_no_memory(err);

	if (slash) {
		*slash = '\0';
		ret = fs_behind_ask_folders(s->root, group, R_OK | X_OK, q,
					    err);
		fs_question_anew(q);
	}
	if (!ret)
		ret = ck_run_dir_open(&root, s->root, name, s->in.opts, err);
	if (ret)
		return ret;
	ret = ask_entry(&root, seen, read, q, err);
	ck_root_close(&root);
	return ret;
}
