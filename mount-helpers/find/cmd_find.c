/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_find.c - every checkpoint below a folder, a line each */
#include "mount-helpers/find/find.h"

#include "mount-helpers/text.h"

#include "core/base/auto.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FORMATS 19 /* letters of the longest name of one */

static const char *const states[] = { "complete", "incomplete", "unreadable" };

static void put_age(struct ck_str *out, int64_t seconds)
{
	static const struct {
		int64_t of;
		const char *letter;
	} units[] = {
		{ 31557600, "y" }, { 86400, "d" }, { 3600, "h" }, { 60, "m" }
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (seconds >= 2 * units[i].of) {
			ck_str_fmt(out, "%" PRId64 "%s", seconds / units[i].of,
				   units[i].letter);
			return;
		}
	ck_str_fmt(out, "%" PRId64 "s", seconds < 0 ? 0 : seconds);
}

static void put_cell(struct ck_str *out, const struct ck_str *cell, int width)
{
	ck_str_fmt(out, "%*s  ", width, cell->len ? cell->v : "-");
}

static void put_bytes(struct ck_str *out, uint64_t bytes)
{
	ck_auto_str struct ck_str s = { 0 };

	if (bytes)
		text_size(&s, bytes);
	put_cell(out, &s, 10);
}

static void put_formats(struct ck_str *out, const struct find_save *s)
{
	ck_auto_str struct ck_str all = { 0 };

	for (size_t i = 0; i < s->nr; i++) {
		const char *name = s->first[i].format;

		if (*name && (!all.v || !strstr(all.v, name)))
			ck_str_fmt(&all, "%s%s", all.len ? "+" : "", name);
	}
	ck_str_fmt(out, "%-*s  ", FORMATS, all.len ? all.v : "-");
}

static void put_why(struct ck_str *out, const struct find_save *s)
{
	const char *sep = "  ";

	if (s->same) {
		ck_str_puts(out, "  same as ");
		ck_str_plain(out, s->same->path, strlen(s->same->path));
	}
	for (size_t i = 0; i < s->nr; i++) {
		const struct find_part *p = &s->first[i];

		if (!p->why)
			continue;
		ck_str_puts(out, sep);
		if (s->nr > 1) {
			const char *name = p->path + strlen(s->path);

			ck_str_plain(out, name + (*name == '/'),
				     strlen(name + (*name == '/')));
			ck_str_puts(out, ": ");
		}
		ck_str_plain(out, p->why, strlen(p->why));
		sep = "; ";
	}
}

static void put_save(struct ck_str *out, const struct find_save *s, int64_t now)
{
	ck_auto_str struct ck_str step = { 0 }, age = { 0 };

	ck_str_fmt(
		out, "%s%-10s%s  ",
		text_colour(s->state == FIND_COMPLETE ? TEXT_GREEN : TEXT_RED),
		states[s->state], text_colour(TEXT_PLAIN));
	put_formats(out, s);
	if (s->has_epoch)
		ck_str_fmt(&step, "%" PRIu64 "_", s->epoch);
	if (s->numbered)
		ck_str_fmt(&step, "%" PRIu64, s->step);
	put_cell(out, &step, 7);
	if (s->mtime)
		put_age(&age, now - s->mtime);
	put_cell(out, &age, 4);
	put_bytes(out, s->model);
	put_bytes(out, s->optimizer);
	ck_str_plain(out, s->path, strlen(s->path));
	put_why(out, s);
	ck_str_puts(out, "\n");
}

static bool put_text(const struct find *f, bool header)
{
	ck_auto_str struct ck_str out = { 0 };
	uint64_t model = 0, optimizer = 0;
	int64_t now = time(NULL);

	if (header)
		ck_str_fmt(&out, "%-10s  %-*s  %7s  %4s  %10s  %10s  %s\n",
			   "STATE", FORMATS, "FORMAT", "STEP", "AGE", "MODEL",
			   "OPTIMIZER", "PATH");
	for (size_t i = 0; i < f->save.nr; i++) {
		put_save(&out, &f->save.v[i], now);
		model += f->save.v[i].model;
		optimizer += f->save.v[i].optimizer;
		if (!text_flush(&out))
			return false;
	}
	ck_str_fmt(&out, "%zu checkpoint%s, ", f->save.nr,
		   f->save.nr == 1 ? "" : "s");
	text_size(&out, model);
	ck_str_puts(&out, " of models, ");
	text_size(&out, optimizer);
	ck_str_puts(&out, " of optimizers\n");
	return text_flush(&out);
}

static void json_text(struct ck_str *out, const char *key, const char *text)
{
	ck_str_fmt(out, ", \"%s\": ", key);
	ck_str_json(out, text, strlen(text));
}

static void json_part(struct ck_str *out, const struct find_part *p)
{
	ck_str_puts(out, "{\"path\": ");
	ck_str_json(out, p->path, strlen(p->path));
	ck_str_fmt(out, ", \"state\": \"%s\"", states[p->state]);
	if (*p->format)
		json_text(out, "format", p->format);
	ck_str_fmt(out,
		   ", \"tensors\": %" PRIu32 ", \"files\": %" PRIu32
		   ", \"model_nbytes\": %" PRIu64
		   ", \"optimizer_nbytes\": %" PRIu64
		   ", \"stored_nbytes\": %" PRIu64,
		   p->tensors, p->files, p->model, p->optimizer, p->stored);
	if (p->why)
		json_text(out, "reason", p->why);
	ck_str_puts(out, "}");
}

static void json_save(struct ck_str *out, const struct find_save *s)
{
	ck_str_puts(out, "  {\"path\": ");
	ck_str_json(out, s->path, strlen(s->path));
	ck_str_fmt(out, ", \"state\": \"%s\"", states[s->state]);
	if (s->has_epoch)
		ck_str_fmt(out, ", \"epoch\": %" PRIu64, s->epoch);
	if (s->numbered)
		ck_str_fmt(out, ", \"step\": %" PRIu64, s->step);
	ck_str_fmt(out,
		   ", \"mtime\": %" PRId64 ", \"tensors\": %" PRIu32
		   ", \"model_nbytes\": %" PRIu64
		   ", \"optimizer_nbytes\": %" PRIu64
		   ", \"stored_nbytes\": %" PRIu64,
		   s->mtime, s->tensors, s->model, s->optimizer, s->stored);
	if (s->same)
		json_text(out, "same_as", s->same->path);
	ck_str_puts(out, ", \"parts\": [");
	for (size_t i = 0; i < s->nr; i++) {
		ck_str_puts(out, i ? ", " : "");
		json_part(out, &s->first[i]);
	}
	ck_str_puts(out, "]}");
}

static bool put_json(const struct find *f)
{
	ck_auto_str struct ck_str out = { 0 };

	ck_str_puts(&out, "{\"checkpoints\": [");
	for (size_t i = 0; i < f->save.nr; i++) {
		ck_str_puts(&out, i ? ",\n" : "\n");
		json_save(&out, &f->save.v[i]);
		if (!text_flush(&out))
			return false;
	}
	ck_str_fmt(&out, "\n], \"folders\": %" PRIu64 "}\n", f->folders);
	return text_flush(&out);
}

static int find(int nr, char **argv, const struct ck_opts *opts)
{
	struct find f = { .opts = opts };
	const char *sort = ck_opts_get(opts, "sort") ?: "path";
	int ret = 0;
	bool ok;

	if (strcmp(sort, "path") && strcmp(sort, "size") && strcmp(sort, "age"))
		return cmd_fail(&cmd_find, CMD_USAGE,
				"--sort: expected path, size or age, found "
				"\"%s\"",
				sort);
	if (!nr)
		ret = find_add_top(&f, ".");
	for (int i = 1; i <= nr && !ret; i++)
		ret = find_add_top(&f, argv[i]);
	if (!ret)
		ret = find_walk(&f);
	if (!ret)
		ret = find_saves(&f, sort);
	if (ret) {
		ret = cmd_err(&cmd_find, &f.err);
	} else {
		ok = ck_opts_get(opts, "json") ? put_json(&f) :
						 put_text(&f, f.save.nr);
		ret = cmd_flush(&cmd_find);
		if (!ret && !ok)
			ret = cmd_fail(&cmd_find, CMD_SYSTEM, "no memory");
	}
	find_free(&f);
	return ret;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_find, argc, argv, &opts);
	int ret = nr < 0 ? CMD_USAGE : find(nr, argv, &opts);

	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 'h', "human", NULL }, /* as du -h is typed; sizes are always so */
	{ 0 },
};

static const struct cmd_valued valued[] = {
	{ "sort", "KEY", "which first: path, size or age" },
	{ 0 },
};

const struct cmd cmd_find = {
	.name = "find",
	.group = CMD_LOOK,
	.args = "[DIR]...",
	.summary = "find every checkpoint below a folder",
	.help = "A line each: state, format, step, age, bytes of model and "
		"optimizer, path.\n",
	.flags = flags,
	.valued = valued,
	.max_words = 1000,
	.run = run,
};
