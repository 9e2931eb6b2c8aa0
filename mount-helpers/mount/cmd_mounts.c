/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_mounts.c - what is mounted where, as far as this process sees */
#include "mount-helpers/cmd.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "fs/mount_procs.h"
#include "fs/mounts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern const struct cmd cmd_mounts;

struct list {
	struct ck_str out;
	bool json;
	size_t nr;
};

static bool is_rw(const char *super)
{
	return !strncmp(super, "rw", 2) && (!super[2] || super[2] == ',');
}

static unsigned long user_of(const char *super)
{
	const char *at = strstr(super, "user_id=");

	return at ? strtoul(at + strlen("user_id="), NULL, 10) : 0;
}

static void put_json(struct list *l, const char *path,
		     const struct fs_mount_info *info, const char *state,
		     pid_t pid)
{
	ck_str_puts(&l->out, l->nr ? ",\n  {\"mount\": " : "  {\"mount\": ");
	ck_str_json(&l->out, path, strlen(path));
	ck_str_puts(&l->out, ", \"source\": ");
	ck_str_json(&l->out, info->source, strlen(info->source));
	ck_str_fmt(
		&l->out, ", \"state\": \"%s\", \"mode\": \"%s\", \"user\": %lu",
		state, is_rw(info->super) ? "rw" : "ro", user_of(info->super));
	if (pid)
		ck_str_fmt(&l->out, ", \"pid\": %d", (int)pid);
	ck_str_puts(&l->out, "}");
}

static void put(void *ctx, const char *path, const struct fs_mount_info *info)
{
	struct list *l = ctx;
	struct fs_mount_procs procs;
	const char *state;

	fs_mount_procs_look(&procs, path);
	state = procs.hangs ? "hangs" : procs.pid ? "serves" : "unknown";
	if (l->json) {
		put_json(l, path, info, state, procs.pid);
	} else {
		ck_str_fmt(&l->out, "%s%-7s%s  %s  %7d  ",
			   text_colour(procs.hangs ? TEXT_RED :
				       procs.pid   ? TEXT_GREEN :
						     TEXT_YELLOW),
			   state, text_colour(TEXT_PLAIN),
			   is_rw(info->super) ? "rw" : "ro", (int)procs.pid);
		ck_str_plain(&l->out, path, strlen(path));
		ck_str_puts(&l->out, "  ");
		ck_str_plain(&l->out, info->source, strlen(info->source));
		ck_str_puts(&l->out, "\n");
	}
	fs_mount_procs_free(&procs);
	l->nr++;
}

static int list(const struct ck_opts *opts)
{
	struct list l = { .json = ck_opts_get(opts, "json") };
	int ret;
	bool ok;

	if (l.json)
		ck_str_puts(&l.out, "{\"mounts\": [\n");
	ret = fs_mounts_each(put, &l);
	if (l.json)
		ck_str_puts(&l.out, l.nr ? "\n]}\n" : "]}\n");
	ok = text_flush(&l.out);
	ck_str_free(&l.out);
	if (ret)
		return cmd_fail(&cmd_mounts, CMD_SYSTEM,
				"/proc/self/mountinfo: %s", strerror(-ret));
	return cmd_flush(&cmd_mounts) ?:
		       ok	      ? CMD_OK :
			    cmd_fail(&cmd_mounts, CMD_SYSTEM, "no memory");
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_mounts, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr > 0)
		cmd_fail(&cmd_mounts, ret, "expected no argument, found %d",
			 nr);
	else if (!nr)
		ret = list(&opts);

	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 0, "json", "JSON instead of text for people" },
	{ 0, NULL, NULL },
};

const struct cmd cmd_mounts = {
	.name = "mounts",
	.group = CMD_MOUNT,
	.args = "",
	.summary = "list the mounts that there are",
	.help = "A line each: state, mode, process, mount point, checkpoint.\n",
	.flags = flags,
	.plain = true,
	.run = run,
};
