/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_recover.c - ends what publishes that broke off began */
#include "mount-helpers/staged.h"

#include <errno.h>
#include <string.h>

extern const struct cmd cmd_recover;

static void say(struct staged_walk *w, const char *name, const char *what)
{
	if (ck_opts_get(w->opts, "json")) {
		staged_json(w, name);
		ck_str_fmt(&w->out, ", \"what\": \"%s\"}", what);
		return;
	}
	ck_str_plain(&w->out, name, strlen(name));
	ck_str_fmt(&w->out, ": %s\n", what);
}

static void recover(struct staged_walk *w, const struct ck_root *root,
		    const struct ck_staged *s)
{
	struct ck_err err = { 0 };
	int ret;

	if (s->state != CK_STAGED_BEGUN && s->state != CK_STAGED_PUBLISHED)
		return;
	ret = ck_recover(root, s->name, w->opts, &err);
	if (ret == 1)
		say(w, s->name,
		    s->state == CK_STAGED_BEGUN ? "published" : "tidied up");
	else if (ret && ret != -ESTALE)
		w->code = cmd_err(&cmd_recover, &err);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct staged_walk w = { .cmd = &cmd_recover,
				 .opts = &opts,
				 .each = recover };
	int nr = cmd_parse(&cmd_recover, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr > 0 && staged_names(&cmd_recover, argv + 2, nr - 1))
		ret = staged_walk(&w, argv[1], argv + 2, nr - 1);
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
