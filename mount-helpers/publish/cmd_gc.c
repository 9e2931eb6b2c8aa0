/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_gc.c - throws away new checkpoints that nobody will finish */
#include "mount-helpers/publish/draft_args.h"

#include "mount-helpers/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WEEK (INT64_C(7) * 24 * 3600)

extern const struct cmd cmd_gc;

static void say(struct draft_walk *w, const struct ck_draft_info *s, bool kept,
		const char *why)
{
	struct ck_str *out = &w->out;

	if (ck_opts_get(w->opts, "json")) {
		draft_json(w, s->name);
		ck_str_fmt(out, ", \"removed\": %s, \"bytes\": %" PRIu64,
			   kept ? "false" : "true", s->bytes);
		if (kept) {
			ck_str_puts(out, ", \"reason\": ");
			ck_str_json(out, why, strlen(why));
		}
		ck_str_puts(out, "}");
		return;
	}
	if (kept) {
		ck_str_puts(out, "kept: ");
		ck_str_plain(out, why, strlen(why));
	} else {
		ck_str_puts(out, "removed: ");
		ck_str_plain(out, s->name, strlen(s->name));
		ck_str_puts(out, ", ");
		text_size(out, s->bytes);
	}
	ck_str_puts(out, "\n");
}

static void collect(struct draft_walk *w, const struct ck_root *root,
		    const struct ck_draft_info *s)
{
	struct ck_err err = { 0 };
	int ret = ck_recover_gc(root, s->name, w->age, &err);

	if (!ret || ret == -EBUSY || ret == -EAGAIN)
		say(w, s, ret, err.msg);
	else if (ret != -ENOENT)
		w->code = cmd_err(&cmd_gc, &err);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct draft_walk w = { .cmd = &cmd_gc,
				.opts = &opts,
				.each = collect };
	int nr = cmd_parse(&cmd_gc, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr > 0 && draft_names(&cmd_gc, argv + 2, nr - 1) &&
	    draft_number(&cmd_gc, &opts, "age", WEEK, &w.age))
		ret = draft_walk(&w, argv[1], argv + 2, nr - 1);
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_valued valued[] = {
	{ "age", "SECONDS", "only what did not change for so long (a week)" },
	{ NULL, NULL, NULL },
};

const struct cmd cmd_gc = {
	.name = "gc",
	.group = CMD_WRITE,
	.args = "DIR [NAME]...",
	.summary = "throw away new checkpoints that nobody will finish",
	.help = "",
	.valued = valued,
	.min_words = 1,
	.max_words = 1000,
	.run = run,
};
