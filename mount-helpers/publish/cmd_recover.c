/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_recover.c - ends what publishes and replacements that broke off began
 *
 *	this process   looks who needs it
 *	  └─fork──> opens one checkpoint for writing, in a sandbox
 */
#include "mount-helpers/subprocess.h"
#include "mount-helpers/publish/draft_args.h"

#include "core/base/auto.h"
#include "core/root/writer_lock.h"
#include "core/redo/redo.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

extern const struct cmd cmd_recover;

static void say(struct draft_walk *w, const char *name, const char *what)
{
	if (ck_opts_get(w->opts, "json")) {
		draft_json(w, name);
		ck_str_fmt(&w->out, ", \"what\": \"%s\"}", what);
		return;
	}
	ck_str_plain(&w->out, name, strlen(name));
	ck_str_fmt(&w->out, ": %s\n", what);
}

static void recover(struct draft_walk *w, const struct ck_root *root,
		    const struct ck_draft_info *s)
{
	struct ck_err err = { 0 };
	int ret;

	if (s->state != CK_DRAFT_BEGUN && s->state != CK_DRAFT_PUBLISHED)
		return;
	ret = ck_recover(root, s->name, w->opts, &err);
	if (ret == 1)
		say(w, s->name,
		    s->state == CK_DRAFT_BEGUN ? "published" : "tidied up");
	else if (ret && ret != -ESTALE)
		w->code = cmd_err(&cmd_recover, &err);
}

/* ---- replacements: whoever opens a checkpoint to write ends them ---- */

struct job {
	const char *path;
	struct ck_opts *opts;
};

static int child(void *ctx)
{
	const struct job *job = ctx;
	struct ck_err err = { 0 };
	struct ck_ckpt *ck;

	if (ck_opts_add(job->opts, "rw", ""))
		return cmd_fail(&cmd_recover, CMD_SYSTEM, "no memory");
	if (cmd_open(&ck, job->path, job->opts, &err))
		return cmd_err(&cmd_recover, &err);
	ck_ckpt_close(ck);
	return CMD_OK;
}

static int run_child(const char *path, struct ck_opts *opts)
{
	struct job job = { path, opts };
	char what[PATH_MAX + 32];

	snprintf(what, sizeof(what), "%s: what wrote to it", path);
	return cmd_subprocess(&cmd_recover, what, child, &job);
}

/* @name of what is said; the checkpoint at @path. */
static void redo(struct draft_walk *w, const char *path, const char *name,
		 struct ck_opts *opts)
{
	char left[NAME_MAX + 1];
	struct ck_root root;
	bool swept;
	int ret;

	if (ck_root_open(&root, path, NULL, NULL))
		return;
	ret = ck_redo_is_left(&root, left) ? run_child(path, opts) : -1;
	/* what is in use is locked, and stays */
	swept = ck_redo_sweep(&root);
	swept |= ck_writer_lock_sweep(&root);
	ck_root_close(&root);
	if (swept && ret < 0)
		say(w, name, "what a mount left that died was removed");
	if (!ret)
		say(w, name, "replacement written to its end");
	else if (ret > 0)
		w->code = ret;
}

static void redo_all(struct draft_walk *w, const char *path, char **words,
		     int nr, struct ck_opts *opts)
{
	ck_auto_dir DIR *d = opendir(path);
	const struct dirent *e;

	if (!nr)
		redo(w, path, path, opts);
	while (d && (e = readdir(d))) {
		char at[PATH_MAX];

		if (*e->d_name == '.' || !draft_wanted(words, nr, e->d_name))
			continue;
		if (snprintf(at, sizeof(at), "%s/%s", path, e->d_name) <
		    (int)sizeof(at))
			redo(w, at, e->d_name, opts);
	}
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct draft_walk w = { .cmd = &cmd_recover,
				.opts = &opts,
				.each = recover };
	int nr = cmd_parse(&cmd_recover, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr > 0 && draft_names(&cmd_recover, argv + 2, nr - 1)) {
		redo_all(&w, argv[1], argv + 2, nr - 1, &opts);
		ret = draft_walk(&w, argv[1], argv + 2, nr - 1);
	}
	ck_opts_free(&opts);
	return ret;
}

const struct cmd cmd_recover = {
	.name = "recover",
	.group = CMD_WRITE,
	.args = "DIR [NAME]...",
	.summary = "end publishes and replacements that broke off",
	.help = "",
	.min_words = 1,
	.max_words = 1000,
	.run = run,
};
