/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_layout.c - does a layout fit a checkpoint, and what is a checkpoint's
 */
#include "mount-helpers/health.h"
#include "mount-helpers/inspect/inspect.h"
#include "mount-helpers/text.h"

#include "core/options/options.h"

#include "core/base/auto.h"
#include "core/catalog/dump.h"

#include <inttypes.h>
#include <string.h>

extern const struct cmd cmd_layout;

struct found {
	uint64_t problems, left_out, unhealthy;
};

static void count(const struct ck_catalog *img, struct found *f)
{
	for (uint32_t i = 0; i < img->nr_problems; i++)
		f->problems += img->problems[i].severity != CK_NOTE;
	f->left_out = health_left_out(img);
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		f->unhealthy += !health_tensor(img, &img->tensors[i]);
}

/* All problems but notes, a line each. */
static bool print_lines(const struct ck_catalog *img)
{
	ck_auto_str struct ck_str out = { 0 };
	bool ok = true;

	for (uint32_t i = 0; i < img->nr_problems && ok; i++) {
		struct ck_dump_pos pos = { .item = i };

		if (img->problems[i].severity == CK_NOTE)
			continue;
		ck_dump_next(img, CK_DUMP_PROBLEMS_TEXT, 1, &pos, &out);
		ok = text_flush(&out);
	}
	return ok;
}

static bool print_json(const struct ck_catalog *img)
{
	ck_auto_str struct ck_str out = { 0 };
	struct ck_dump_pos pos = { 0 };
	bool ok = true;

	while (ok && ck_dump_next(img, CK_DUMP_PROBLEMS, 1, &pos, &out))
		ok = text_flush(&out);
	return ok;
}

/* As if -o layout=FILE had been given. */
static int read_layout(const char *file, struct ck_opts *opts)
{
	ck_auto_str struct ck_str text = { 0 };
	struct ck_err err;
	size_t len, n = 0;

	ck_str_fmt(&text, "layout=%s", file);
	if (text.failed)
		return cmd_fail(&cmd_layout, CMD_SYSTEM, "no memory");
	if (ck_options_parse(opts, CK_OPTIONS_OPEN, text.v, &err))
		return cmd_err(&cmd_layout, &err);
	while (ck_opts_nth(opts, "layout", n + 1))
		n++;
	if (!ck_opts_bytes(opts, "layout", n, &len))
		return cmd_fail(&cmd_layout, CMD_BAD_CKPT, "%s: no such file",
				file);
	return CMD_OK;
}

static void add_count(struct ck_str *s, uint64_t n, const char *what)
{
	if (n)
		ck_str_fmt(s, "%s%" PRIu64 " %s%s", s->len ? ", " : "", n, what,
			   n == 1 ? "" : "s");
}

static int misfit(const char *file, const char *path, const struct found *f)
{
	ck_auto_str struct ck_str s = { 0 };

	add_count(&s, f->problems, "problem");
	add_count(&s, f->left_out, "left out tensor");
	add_count(&s, f->unhealthy, "incomplete tensor");
	return cmd_fail(&cmd_layout, CMD_BAD_CKPT, "%s: does not fit %s: %s",
			file, path, s.v ? s.v : "");
}

static int check(const char *file, const char *path, struct ck_opts *opts)
{
	const struct ck_catalog *img;
	struct ck_ckpt *ck;
	struct found f = { 0 };
	struct ck_err err;
	bool ok, json = ck_opts_get(opts, "json");
	int ret = read_layout(file, opts);

	if (ret)
		return ret;
	if (cmd_open_itself(&ck, path, opts, &err))
		return cmd_err(&cmd_layout, &err);
	img = ck_ckpt_catalog(ck);
	count(img, &f);
	ok = json ? print_json(img) : print_lines(img);
	if (ok && !json && !f.problems && !f.unhealthy)
		printf("%s fits: %" PRIu32 " tensors in %" PRIu32 " files\n",
		       file, img->nr_tensors, img->nr_srcs);
	ck_ckpt_close(ck);
	if (cmd_written(&cmd_layout, ok))
		return CMD_SYSTEM;
	if (!f.problems && !f.unhealthy)
		return CMD_OK;
	return misfit(file, path, &f);
}

static int show(const char *path, const struct ck_opts *opts)
{
	struct layout_show s = { 0 };
	struct ck_ckpt *ck;
	struct ck_err err;
	uint64_t refused;
	bool ok;

	if (cmd_open_itself(&ck, path, opts, &err))
		return cmd_err(&cmd_layout, &err);
	s.img = ck_ckpt_catalog(ck);
	refused = health_left_out(s.img);
	s.resolved = ck_ckpt_resolved(ck);
	/* A failure shows as a piece that is left out. */
	for (uint32_t i = 0; i < s.img->nr_tensors; i++)
		ck_ckpt_resolve(ck, i, &err);
	ok = layout_show(&s);
	ck_ckpt_close(ck);
	if (cmd_written(&cmd_layout, ok))
		return CMD_SYSTEM;
	s.left_out += refused;
	if (!s.left_out)
		return CMD_OK;
	return cmd_fail(&cmd_layout, CMD_BAD_CKPT,
			"%s: left out %" PRIu64 " tensors or pieces: bad, or "
			"in no file, or their names are no UTF-8",
			path, s.left_out);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_layout, argc, argv, &opts);
	int ret = CMD_USAGE;

	if (nr == 3 && !strcmp(argv[1], "check"))
		ret = check(argv[2], argv[3], &opts);
	else if (nr == 2 && !strcmp(argv[1], "show"))
		ret = show(argv[2], &opts);
	else if (nr >= 0)
		ret = cmd_fail(&cmd_layout, CMD_USAGE,
			       "expected check FILE CKPT, or show CKPT");
	ck_opts_free(&opts);
	return ret;
}

const struct cmd cmd_layout = {
	.name = "layout",
	.group = CMD_WRITE,
	.args = "check FILE CKPT | show CKPT",
	.summary = "check, or write, a description of how shards were cut",
	.help = "check: every place where FILE, an unshard-layout.json, and the "
		"files differ.\n"
		"show: such a description of CKPT, whatever its format.\n",
	.min_words = 2,
	.max_words = 3,
	.run = run,
};
