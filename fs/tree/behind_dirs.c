/* SPDX-License-Identifier: Apache-2.0 */
/* behind_dirs.c - folders that have to allow it */
#include "fs/tree/behind_priv.h"

#include "core/base/auto.h"

#include <errno.h>

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
