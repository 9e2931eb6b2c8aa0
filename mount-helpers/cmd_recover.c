/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_recover.c - ends what publishes that broke off began */
#include "mount-helpers/staged.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/publish/recover.h"
#include "mount-helpers/text.h"

#include <errno.h>
#include <string.h>

extern const struct cmd cmd_recover;

struct job {
	const struct ck_opts *opts;
	struct ck_str out;
	int code;
};

static void say(struct job *j, const char *name, const char *what)
{
	if (!ck_opts_get(j->opts, "json")) {
		ck_str_plain(&j->out, name, strlen(name));
		ck_str_fmt(&j->out, ": %s\n", what);
		return;
	}
	ck_str_puts(&j->out, j->out.len > 2 ? ",\n{\"name\": " : "{\"name\": ");
	ck_str_json(&j->out, name, strlen(name));
	ck_str_fmt(&j->out, ", \"what\": \"%s\"}", what);
}

static void recover(struct job *j, const struct ck_root *root,
		    const struct ck_staged *s)
{
	struct ck_err err = { 0 };
	int ret;

	if (s->state != CK_STAGED_BEGUN && s->state != CK_STAGED_PUBLISHED)
		return;
	ret = ck_recover(root, s->name, j->opts, &err);
	if (ret == 1)
		say(j, s->name,
		    s->state == CK_STAGED_BEGUN ? "published" : "tidied up");
	else if (ret && ret != -ESTALE)
		j->code = cmd_err(&cmd_recover, &err);
}

static int recover_all(const char *path, char **names, int nr,
		       const struct ck_opts *opts)
{
	struct job j = { .opts = opts };
	struct ck_staged_list all;
	struct staged_place p;
	struct ck_err err = { 0 };
	bool json = ck_opts_get(opts, "json");

	if (staged_dir(&p, path, opts, &err))
		return cmd_err(&cmd_recover, &err);
	ck_recover_sweep(&p.root);
	if (ck_staged_list(&all, &p.root, opts, false, &err)) {
		ck_root_close(&p.root);
		return cmd_err(&cmd_recover, &err);
	}
	ck_str_puts(&j.out, json ? "[\n" : "");
	for (size_t i = 0; i < all.nr; i++)
		if (staged_wanted(names, nr, all.v[i].name))
			recover(&j, &p.root, &all.v[i]);
	ck_str_puts(&j.out, json ? "\n]\n" : "");
	if (!text_flush(&j.out))
		j.code = CMD_SYSTEM;
	ck_str_free(&j.out);
	ck_staged_free(&all);
	ck_root_close(&p.root);
	return j.code ? j.code : cmd_flush(&cmd_recover);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_recover, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr > 0 && staged_names(&cmd_recover, argv + 2, nr - 1))
		ret = recover_all(argv[1], argv + 2, nr - 1, &opts);
	ck_opts_free(&opts);
	return ret;
}

const struct cmd cmd_recover = {
	.name = "recover",
	.args = "DIR [NAME]...",
	.summary = "end what publishes that broke off have begun",
	.help = "",
	.min_words = 1,
	.max_words = 1000,
	.run = run,
};
