/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_overlay.c - what edits an overlay holds, and what becomes of them */
#include "mount-helpers/overlay/overlay.h"

#include "core/write/overlay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern const struct cmd cmd_overlay;

int overlay_open(struct overlay *o, const char *write_dir)
{
	if (ck_opts_add(o->opts, "overlay", o->dir))
		return cmd_fail(o->cmd, CMD_SYSTEM, "no memory");
	if (cmd_open_several(&o->ck, &o->path, 1, write_dir, o->opts, &o->err))
		return cmd_err(o->cmd, &o->err);
	o->img = ck_ckpt_catalog(o->ck);
	return CMD_OK;
}

static int opened(struct overlay *o, int (*fn)(struct overlay *o))
{
	int ret = overlay_open(o, NULL);

	if (ret)
		return ret;
	ret = fn(o);
	ck_ckpt_close(o->ck);
	return ret;
}

static int discard(const char *dir, struct ck_opts *opts)
{
	struct ck_err err;

	if (ck_overlay_discard(dir, &err))
		return cmd_err(&cmd_overlay, &err);
	rmdir(dir); /* if nothing else is in it */
	if (ck_opts_get(opts, "json"))
		puts("{\"discarded\": true}");
	return cmd_flush(&cmd_overlay);
}

static int dispatch(int nr, char **argv, struct ck_opts *opts)
{
	struct overlay o = { .cmd = &cmd_overlay, .opts = opts };

	if (!strcmp(argv[1], "discard") && nr == 2)
		return discard(argv[2], opts);
	if (nr >= 3) {
		o.path = argv[2];
		o.dir = argv[3];
	}
	if (!strcmp(argv[1], "status") && nr == 3)
		return opened(&o, overlay_status);
	if (!strcmp(argv[1], "diff") && nr == 3)
		return opened(&o, overlay_diff);
	if (!strcmp(argv[1], "apply") && nr == 4)
		return overlay_apply(&o, argv[4]);
	return cmd_fail(&cmd_overlay, CMD_USAGE,
			"expected status CKPT DIR, diff CKPT DIR, apply CKPT "
			"DIR NEW or discard DIR");
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_overlay, argc, argv, &opts);
	int ret = nr < 0 ? CMD_USAGE : dispatch(nr, argv, &opts);

	ck_opts_free(&opts);
	return ret;
}

const struct cmd cmd_overlay = {
	.name = "overlay",
	.group = CMD_WRITE,
	.args = "status|diff|apply|discard ...",
	.summary = "look at, publish or drop the edits of mount -o overlay=DIR",
	.help = "  status CKPT DIR      how much of which file is edited\n"
		"  diff CKPT DIR        which elements of which tensors\n"
		"  apply CKPT DIR NEW   a new checkpoint with the edits\n"
		"  discard DIR          forget them\n",
	.min_words = 2,
	.max_words = 4,
	.run = run,
};
