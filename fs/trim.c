/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trim.c - one thread, asleep until the kernel knows too many checkpoints
 */
#include "fs/trim.h"

#include "fs/kernel/kernel.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <string.h>

static void *run(void *ctx)
{
	struct fs_trim *t = ctx;
	char name[256];

	while (fs_slots_wait(t->slots))
		while (fs_slots_crowded(t->slots, name))
			fuse_lowlevel_notify_inval_entry(t->se, FUSE_ROOT_ID,
							 name, strlen(name));
	return NULL;
}

int fs_trim_start(struct fs_trim *t, struct fs_slots *slots,
		  struct fuse_session *se, struct ck_err *err)
{
	int ret;

	*t = (struct fs_trim){ .slots = slots, .se = se };
	ret = pthread_create(&t->thread, NULL, run, t);
	if (ret) {
		t->slots = NULL;
		return ck_fail(err, ret, "no thread for a mount: %s",
			       strerror(ret));
	}
	return 0;
}

void fs_trim_stop(struct fs_trim *t)
{
	if (!t->slots)
		return;
	fs_slots_end_wait(t->slots);
	pthread_join(t->thread, NULL);
	t->slots = NULL;
}
