/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_umount.c - ends a mount */
#include "mount-helpers/cmd.h"

#include "fs/session.h"

extern const struct cmd cmd_umount;

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct ck_err err = { 0 };
	int nr = cmd_parse(&cmd_umount, argc, argv, &opts);
	int ret = CMD_OK;

	if (nr < 0)
		ret = CMD_USAGE;
	else if (fs_unmount(argv[1], ck_opts_get(&opts, "lazy"), &err))
		ret = cmd_fail(&cmd_umount, CMD_SYSTEM, "%s", err.msg);
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
	.args = "MNT",
	.summary = "end a mount",
	.help = "",
	.flags = flags,
	.min_words = 1,
	.max_words = 1,
	.plain = true,
	.run = run,
};
