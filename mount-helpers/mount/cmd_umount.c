/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_umount.c - ends a mount */
#include "mount-helpers/cmd.h"

#include "fs/session.h"

#include <errno.h>

#define FLUSH_SECONDS 60

extern const struct cmd cmd_umount;

static int end(const char *mnt, bool lazy)
{
	struct ck_err err = { 0 };
	int ret = lazy ? fs_unmount(mnt, true, &err) :
			 fs_unmount_wait(mnt, FLUSH_SECONDS, &err);

	if (!ret)
		return CMD_OK;
	return cmd_fail(&cmd_umount, ret == -ETIMEDOUT ? CMD_OK : CMD_SYSTEM,
			"%s", err.msg);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_umount, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr >= 0)
		ret = end(argv[1], ck_opts_get(&opts, "lazy"));
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 'l', "lazy",
	  "a busy mount too; it ends when its last file is "
	  "closed" },
	{ 0, NULL, NULL },
};

const struct cmd cmd_umount = {
	.name = "umount",
	.group = CMD_MOUNT,
	.args = "MNT",
	.summary = "end a mount",
	.help = "",
	.flags = flags,
	.min_words = 1,
	.max_words = 1,
	.plain = true,
	.run = run,
};
