/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_publish.c - a new checkpoint is shown to everybody, if it is complete */
#include "mount-helpers/publish/draft_args.h"

#include "core/base/str.h"
#include "core/draft/draft.h"
#include "mount-helpers/text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

extern const struct cmd cmd_publish;

static int say(const struct ck_opts *opts, const char *name, bool before)
{
	struct ck_str out = { 0 };
	bool ok;

	if (ck_opts_get(opts, "json")) {
		ck_str_puts(&out, "{\"name\": ");
		ck_str_json(&out, name, strlen(name));
		ck_str_fmt(&out, ", \"published\": true, \"before\": %s}\n",
			   before ? "true" : "false");
	} else {
		ck_str_plain(&out, name, strlen(name));
		ck_str_puts(&out, before ? ": was published before\n" :
					   ": published\n");
	}
	ok = text_flush(&out);
	ck_str_free(&out);
	return ok ? cmd_flush(&cmd_publish) : CMD_SYSTEM;
}

static int exit_code(const struct ck_err *err)
{
	return err->code == EEXIST || err->code == EIO ? CMD_BAD_CKPT : 0;
}

static int publish_path(const char *path, const struct ck_opts *opts,
			int64_t ranks)
{
	const struct ck_commit_in in = {
		.opts = opts,
		.ranks = (uint64_t)ranks,
		.as = ck_opts_get(opts, "as"),
		.replace = ck_opts_get(opts, "replace"),
		.holes = ck_opts_get(opts, "allow-holes"),
	};
	struct draft_place p;
	struct ck_err err = { 0 };
	int ret;

	if (in.as && !ck_draft_name_ok(in.as))
		return cmd_fail(&cmd_publish, CMD_USAGE,
				"--as: %s: not the name of a checkpoint",
				in.as);
	ret = draft_step(&p, path, opts, &err);
	if (ret)
		return cmd_err(&cmd_publish, &err);
	ret = ck_publish_step(&p.root, p.name, &in, &err);
	ck_root_close(&p.root);
	if (ret < 0)
		return exit_code(&err) ? cmd_fail(&cmd_publish, exit_code(&err),
						  "%s", err.msg) :
					 cmd_err(&cmd_publish, &err);
	return say(opts, in.as ? in.as : p.name, ret);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_publish, argc, argv, &opts);
	int64_t ranks;
	int ret = CMD_USAGE;

	if (nr > 0 && draft_number(&cmd_publish, &opts, "ranks", 0, &ranks))
		ret = !ranks && ck_opts_get(&opts, "ranks") ?
			      cmd_fail(&cmd_publish, CMD_USAGE,
				       "--ranks: expected 1 or more, found 0") :
			      publish_path(argv[1], &opts, ranks);
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 0, "replace", "throw away the checkpoint that has the name" },
	{ 0, "allow-holes", "zeros that are in no block of a file are meant" },
	{ 0, NULL, NULL },
};

static const struct cmd_valued valued[] = {
	{ "ranks", "N", "N ranks wrote it, where no file says so" },
	{ "as", "NAME", "publish it under this name" },
	{ NULL, NULL, NULL },
};

const struct cmd cmd_publish = {
	.name = "publish",
	.group = CMD_WRITE,
	.args = "STEP",
	.summary = "show a new checkpoint to everybody, if it is complete",
	.help = "",
	.flags = flags,
	.valued = valued,
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
