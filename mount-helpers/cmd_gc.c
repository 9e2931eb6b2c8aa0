/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_gc.c - throws away new checkpoints that nobody will finish */
#include "mount-helpers/staged.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/publish/recover.h"
#include "mount-helpers/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WEEK (INT64_C(7) * 24 * 3600)

extern const struct cmd cmd_gc;

struct job {
	const struct ck_opts *opts;
	int64_t age;
	struct ck_str out;
	int code;
};

static void say(struct job *j, const struct ck_staged *s, bool kept,
		const char *why)
{
	if (ck_opts_get(j->opts, "json")) {
		ck_str_puts(&j->out,
			    j->out.len > 2 ? ",\n{\"name\": " : "{\"name\": ");
		ck_str_json(&j->out, s->name, strlen(s->name));
		ck_str_fmt(&j->out, ", \"removed\": %s, \"bytes\": %" PRIu64,
			   kept ? "false" : "true", s->bytes);
		if (kept) {
			ck_str_puts(&j->out, ", \"reason\": ");
			ck_str_json(&j->out, why, strlen(why));
		}
		ck_str_puts(&j->out, "}");
		return;
	}
	if (kept) {
		ck_str_puts(&j->out, "kept: ");
		ck_str_plain(&j->out, why, strlen(why));
	} else {
		ck_str_puts(&j->out, "removed: ");
		ck_str_plain(&j->out, s->name, strlen(s->name));
		ck_str_puts(&j->out, ", ");
		text_size(&j->out, s->bytes);
	}
	ck_str_puts(&j->out, "\n");
}

static void collect(struct job *j, const struct ck_root *root,
		    const struct ck_staged *s)
{
	struct ck_err err = { 0 };
	int ret = ck_recover_gc(root, s->name, j->age, &err);

	if (!ret || ret == -EBUSY || ret == -EAGAIN)
		say(j, s, ret, err.msg);
	else if (ret != -ENOENT)
		j->code = cmd_err(&cmd_gc, &err);
}

static int collect_all(const char *path, char **names, int nr, int64_t age,
		       const struct ck_opts *opts)
{
	struct job j = { .opts = opts, .age = age };
	struct ck_staged_list all;
	struct staged_place p;
	struct ck_err err = { 0 };
	bool json = ck_opts_get(opts, "json");

	if (staged_dir(&p, path, opts, &err))
		return cmd_err(&cmd_gc, &err);
	ck_recover_sweep(&p.root);
	if (ck_staged_list(&all, &p.root, opts, false, &err)) {
		ck_root_close(&p.root);
		return cmd_err(&cmd_gc, &err);
	}
	ck_str_puts(&j.out, json ? "[\n" : "");
	for (size_t i = 0; i < all.nr; i++)
		if (staged_wanted(names, nr, all.v[i].name))
			collect(&j, &p.root, &all.v[i]);
	ck_str_puts(&j.out, json ? "\n]\n" : "");
	if (!text_flush(&j.out))
		j.code = CMD_SYSTEM;
	ck_str_free(&j.out);
	ck_staged_free(&all);
	ck_root_close(&p.root);
	return j.code ? j.code : cmd_flush(&cmd_gc);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_gc, argc, argv, &opts);
	int64_t age;
	int ret = CMD_USAGE;

	if (nr > 0 && staged_names(&cmd_gc, argv + 2, nr - 1) &&
	    staged_number(&cmd_gc, &opts, "age", WEEK, &age))
		ret = collect_all(argv[1], argv + 2, nr - 1, age, &opts);
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_valued valued[] = {
	{ "age", "SECONDS", "only what did not change for so long (a week)" },
	{ NULL, NULL, NULL },
};

const struct cmd cmd_gc = {
	.name = "gc",
	.args = "DIR [NAME]...",
	.summary = "throw away new checkpoints that nobody will finish",
	.help = "",
	.valued = valued,
	.min_words = 1,
	.max_words = 1000,
	.run = run,
};
