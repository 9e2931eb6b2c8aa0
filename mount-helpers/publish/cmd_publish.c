/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_publish.c - a new checkpoint is shown to everybody, if it is complete */
#include "mount-helpers/publish/draft_args.h"

#include "core/base/str.h"
#include "core/publish/commit.h"
#include "core/publish/recover.h"
#include "mount-helpers/text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#define BUSY_TRIES 40 /* two seconds */

extern const struct cmd cmd_publish;

/*
 * 1 where step @name was published as @as, as the manifest of that tells; a
 * folder without one was made by somebody else, perhaps for want of a mount.
 * @tree: that there was a draft of it is known.
 */
static int published(const struct draft_place *p, const char *as, bool tree,
		     int ret, struct ck_err *err)
{
	char path[NAME_MAX + sizeof("/" CK_MANIFEST_NAME)];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/%s", as, CK_MANIFEST_NAME);
	int was;

	if (fstatat(p->root.fd, as, &st, AT_SYMLINK_NOFOLLOW))
		return ret;
	if (n >= (int)sizeof(path) ||
	    fstatat(p->root.fd, path, &st, AT_SYMLINK_NOFOLLOW))
		return ck_fail(err, EEXIST,
			       "%s: is there, but not as something that was "
			       "published: it has no %s",
			       as, CK_MANIFEST_NAME);
	was = ck_commit_was(&p->root, as, p->name);
	if (!was || (tree && was == -EOPNOTSUPP))
		return 1;
	return ck_fail(err, ENOENT,
		       was == -ENOENT ?
			       "%s: there is no draft of that name, and %s "
			       "was not published from it" :
			       "%s: there is no draft of that name, and on "
			       "this file system nothing says what %s was "
			       "published from",
		       p->name, as);
}

/* The kernel tells a mount of a close only after close() has returned. */
static int commit(struct ck_draft *s, const struct ck_commit_in *in,
		  struct ck_err *err)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	int ret = ck_commit(s, in, err);

	for (int n = 0; n < BUSY_TRIES && ret == -EBUSY; n++) {
		nanosleep(&pause, NULL);
		ret = ck_commit(s, in, err);
	}
	return ret;
}

/* 0: now; 1: it was before. */
static int publish(const struct draft_place *p, const struct ck_commit_in *in,
		   struct ck_err *err)
{
	const char *as = in->as ? in->as : p->name;
	struct ck_draft *s;
	bool tree;
	int ret = ck_draft_open(&s, &p->root, p->name, err);

	if (ret == -ENOENT) {
		/* what a publisher that was killed left is tidied up */
		tree = !ck_commit_finish(&p->root, p->name, NULL);
		return published(p, as, tree, ret, err);
	}
	if (ret)
		return ret;
	ret = commit(s, in, err);
	ck_draft_close(s);
	return ret == -ESTALE ? published(p, as, true, ret, err) : ret;
}

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
	int ret = draft_step(&p, path, opts, &err);

	if (ret)
		return cmd_err(&cmd_publish, &err);
	ret = publish(&p, &in, &err);
	/* some can be removed once nothing of it is open (sshfs, bindfs) */
	ck_recover_sweep(&p.root);
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
