/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dentry_trim.c - one thread, asleep until the kernel knows too many
 * checkpoints
 */
#include "fs/dentry_trim.h"

#include "fs/kernel/kernel.h"

#include <fuse_lowlevel.h>
#include <string.h>

static void *run(void *ctx)
{
	struct fs_dentry_trim *t = ctx;
	char name[256];

	while (fs_mounted_table_wait(t->table))
		while (fs_mounted_table_crowded(t->table, name))
			fuse_lowlevel_notify_inval_entry(t->se, FUSE_ROOT_ID,
							 name, strlen(name));
	return NULL;
}

int fs_dentry_trim_start(struct fs_dentry_trim *t,
			 struct fs_mounted_table *table,
			 struct fuse_session *se, struct ck_err *err)
{
	int ret;

	*t = (struct fs_dentry_trim){ .table = table, .se = se };
	ret = pthread_create(&t->thread, NULL, run, t);
	if (ret) {
		t->table = NULL;
		return ck_fail(err, ret, "no thread for a mount: %s",
			       strerror(ret));
	}
	return 0;
}

void fs_dentry_trim_stop(struct fs_dentry_trim *t)
{
	if (!t->table)
		return;
	fs_mounted_table_end_wait(t->table);
	pthread_join(t->thread, NULL);
	t->table = NULL;
}
