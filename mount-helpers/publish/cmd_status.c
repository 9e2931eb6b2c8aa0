/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_status.c - which new checkpoints are not published, and why not */
#include "mount-helpers/publish/draft_args.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/publish/recover.h"
#include "mount-helpers/text.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

extern const struct cmd cmd_status;

static int64_t age_of(const struct ck_draft_info *s)
{
	int64_t age = (int64_t)time(NULL) - s->changed;

	return age > 0 ? age : 0;
}

static bool may_be_complete(const struct ck_draft_info *s)
{
	return s->state != CK_DRAFT_PUBLISHED && s->state != CK_DRAFT_POISONED;
}

static void json_lacks(struct ck_str *out, const struct ck_draft_info *s)
{
	ck_str_puts(out, ", \"ranks\": [");
	for (size_t i = 0; i < s->nr_lacks; i++) {
		const struct ck_slices_missing *l = &s->lacks[i];

		ck_str_fmt(out,
			   "%s{\"rank\": %" PRIu64 ", \"slices\": %" PRIu64
			   ", \"whole\": %" PRIu64 ", \"missing\": %" PRIu64
			   ", \"first\": {\"tensor\": ",
			   i ? ",\n  " : "", l->rank, l->slices, l->whole,
			   l->bytes);
		ck_str_json(out, l->tensor, strlen(l->tensor));
		ck_str_fmt(out,
			   ", \"from\": %" PRIu64 ", \"to\": %" PRIu64 "}}",
			   l->from, l->to);
	}
	ck_str_puts(out, "]");
}

static void text_lacks(struct ck_str *out, const struct ck_draft_info *s)
{
	for (size_t i = 0; i < s->nr_lacks; i++) {
		const struct ck_slices_missing *l = &s->lacks[i];

		ck_str_fmt(out,
			   "  rank %" PRIu64 ": %" PRIu64 " of %" PRIu64
			   " slices are whole, ",
			   l->rank, l->whole, l->slices);
		text_size(out, l->bytes);
		ck_str_puts(out, " missing, the first in ");
		ck_str_plain(out, l->tensor, strlen(l->tensor));
		ck_str_fmt(out, ": bytes %" PRIu64 " to %" PRIu64 "\n", l->from,
			   l->to);
	}
}

static void json_one(struct ck_str *out, const struct ck_draft_info *s)
{
	ck_str_puts(out, out->len > 2 ? ",\n{\"name\": " : "{\"name\": ");
	ck_str_json(out, s->name, strlen(s->name));
	ck_str_fmt(out,
		   ", \"state\": \"%s\", \"files\": %" PRIu64
		   ", \"bytes\": %" PRIu64 ", \"age\": %" PRId64
		   ", \"complete\": %s",
		   ck_draft_words[s->state], s->files, s->bytes, age_of(s),
		   s->complete ? "true" : "false");
	if (*s->why) {
		ck_str_puts(out, ", \"reason\": ");
		ck_str_json(out, s->why, strlen(s->why));
	}
	if (s->nr_lacks)
		json_lacks(out, s);
	ck_str_puts(out, "}");
}

static void text_one(struct ck_str *out, const struct ck_draft_info *s)
{
	ck_str_plain(out, s->name, strlen(s->name));
	ck_str_fmt(out, ": %s, %" PRIu64 " file%s, ", ck_draft_words[s->state],
		   s->files, s->files == 1 ? "" : "s");
	text_size(out, s->bytes);
	ck_str_fmt(out, ", changed %" PRId64 " s ago\n", age_of(s));
	if (may_be_complete(s))
		ck_str_puts(out, s->complete ? "  complete: unshard publish "
					       "shows it" :
					       "  not complete: ");
	else if (*s->why)
		ck_str_puts(out, "  ");
	if (!s->complete && *s->why)
		ck_str_plain(out, s->why, strlen(s->why));
	if (may_be_complete(s) || *s->why)
		ck_str_puts(out, "\n");
	text_lacks(out, s);
}

static int show(const struct ck_draft_list *all, char **names, int nr,
		bool json)
{
	ck_auto_str struct ck_str out = { 0 };

	if (json)
		ck_str_puts(&out, "[\n");
	for (size_t i = 0; i < all->nr; i++)
		if (draft_wanted(names, nr, all->v[i].name)) {
			if (json)
				json_one(&out, &all->v[i]);
			else
				text_one(&out, &all->v[i]);
		}
	if (json)
		ck_str_puts(&out, "\n]\n");
	return text_flush(&out) ? cmd_flush(&cmd_status) : CMD_SYSTEM;
}

static int status(const char *path, char **names, int nr,
		  const struct ck_opts *opts)
{
	struct ck_draft_list all;
	struct draft_place p;
	struct ck_err err = { 0 };
	int ret = draft_dir(&p, path, opts, &err), unknown;

	if (ret)
		return cmd_err(&cmd_status, &err);
	ret = ck_draft_list(&all, &p.root, opts, true, &err);
	unknown =
		ret ? 0 : draft_unknown(&cmd_status, &p.root, &all, names, nr);
	ck_root_close(&p.root);
	if (ret)
		return cmd_err(&cmd_status, &err);
	ret = show(&all, names, nr, ck_opts_get(opts, "json"));
	ck_draft_list_free(&all);
	return ret ? ret : unknown;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_status, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr > 0 && draft_names(&cmd_status, argv + 2, nr - 1))
		ret = status(argv[1], argv + 2, nr - 1, &opts);
	ck_opts_free(&opts);
	return ret;
}

const struct cmd cmd_status = {
	.name = "status",
	.group = CMD_WRITE,
	.args = "DIR [NAME]...",
	.summary = "list new checkpoints that are not published, and why not",
	.help = "",
	.min_words = 1,
	.max_words = 1000,
	.run = run,
};
