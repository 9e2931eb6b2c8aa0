/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_list.c - a directory of checkpoints, a line each
 *
 * Each is described by a short-lived process of its own, and forgotten before
 * the next.
 */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/health.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/run/run_dir.h"
#include "core/run/run_dir_pair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMED 3

#define MAX_HELD 8 /* that a line names */

enum state { COMPLETE, INCOMPLETE, UNREADABLE };

static const char *const state_text[] = { "complete", "incomplete",
					  "unreadable" };

struct line {
	enum state state;
	uint32_t tensors;
	uint64_t bytes, warnings;
	uint32_t unused; /* see ck_run_dir_unused() */
	bool read; /* @unused is known */
	size_t steps; /* of a group, if its folders are no parts of one */
	char *why; /* not complete, or what a group holds */
};

/* A model and its optimizer, kept until both were looked at. */
struct pair {
	struct ck_catalog v[CK_PAIR_NR];
	const struct ck_catalog *img[CK_PAIR_NR]; /* NULL: not there */
	struct ck_str why[CK_PAIR_NR];
};

struct listing {
	const struct ck_root *root;
	const struct ck_opts *opts;
	struct ck_run_dir steps;
	struct line *v; /* one a step */
	const struct ck_run_dir_entry *latest;
};

static void count(struct line *l, const struct ck_catalog *img)
{
	l->unused = ck_run_dir_unused(img);
	l->read = true;
	l->tensors = img->nr_tensors;
	l->state = ck_run_dir_whole(img) ? COMPLETE : INCOMPLETE;
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		l->bytes += img->tensors[i].size;
	for (uint32_t i = 0; i < img->nr_problems; i++)
		l->warnings += img->problems[i].severity == CK_WARNING;
	if (l->state == INCOMPLETE)
		l->why = health_counts(img);
}

static int describe(const struct listing *l, const char *name, int *catalog,
		    struct ck_err *err)
{
	struct ck_root root;
	int ret = ck_run_dir_open(&root, l->root, name, l->opts, err);

	if (ret)
		return ret;
	ret = ck_ckpt_describe(&root, l->opts, catalog, err);
	ck_root_close(&root);
	return ret;
}

/* Takes @img. */
static void keep(struct pair *pair, const char *base, struct ck_catalog *img)
{
	int part = pair ? ck_pair_of(base) : -1;

	if (part < 0 || pair->img[part]) {
		ck_catalog_unmap(img);
		return;
	}
	pair->v[part] = *img;
	pair->img[part] = &pair->v[part];
}

static void pair_check(struct pair *pair)
{
	ck_pair_check(pair->img, pair->why);
	for (int i = 0; i < CK_PAIR_NR; i++)
		if (pair->img[i])
			ck_catalog_unmap(&pair->v[i]);
}

static void pair_free(struct pair *pair)
{
	for (int i = 0; i < CK_PAIR_NR; i++)
		ck_str_free(&pair->why[i]);
}

/* @pair may be NULL: it is none of a model and its optimizer. */
static int look(const struct listing *l, const char *name, struct line *out,
		struct pair *pair)
{
	const char *slash = strrchr(name, '/');
	ck_auto_fd int catalog = -1;
	struct ck_catalog img;
	struct ck_err err;
	int ret = describe(l, name, &catalog, &err);

	if (!ret)
		ret = ck_catalog_map(&img, catalog, &err);
	if (!ret) {
		count(out, &img);
		keep(pair, slash ? slash + 1 : name, &img);
	} else {
		out->state = UNREADABLE;
		out->why = strdup(err.msg);
	}
	return ret;
}

static void add_line(struct line *out, const struct ck_run_dir *all,
		     const struct ck_run_dir_entry *step, bool files,
		     struct line *part, struct ck_str *names)
{
	out->tensors += part->tensors;
	out->bytes += part->bytes;
	out->warnings += part->warnings;
	if (part->read)
		out->unused =
			out->read ? out->unused & part->unused : part->unused;
	out->read |= part->read;
	if ((files || ck_run_dir_is_part(all, step)) &&
	    part->state > out->state)
		out->state = part->state;
	if (step - all->v < MAX_HELD)
		ck_str_fmt(names, "%s%s", names->len ? ", " : "holds ",
			   step->name);
	else if (step == &all->v[all->nr - 1])
		ck_str_fmt(names, " and %zu more", all->nr - MAX_HELD);
	free(part->why);
}

/* A part of a save that does not fit the other. */
static void blame(struct line *line, const struct ck_str *why)
{
	char *old = line->why;

	line->state = CK_MAX(line->state, INCOMPLETE);
	if (asprintf(&line->why, "%s%s%s", old ? old : "", old ? "; " : "",
		     why->v) < 0)
		line->why = NULL;
	free(old);
}

static void add_pair(struct line *out, const struct pair *pair,
		     struct ck_str *names)
{
	for (int i = 0; i < CK_PAIR_NR; i++) {
		if (!pair->why[i].len)
			continue;
		out->state = CK_MAX(out->state, INCOMPLETE);
		ck_str_fmt(names, "; %s: %s", ck_pair_names[i], pair->why[i].v);
	}
}

static size_t steps_in(const struct ck_run_dir *all)
{
	const struct ck_run_dir_entry *s;
	size_t nr = 0;

	while ((s = ck_run_dir_newest(all, nr)) && s->numbered)
		nr++;
	return nr;
}

/* A group is as good as the worst folder in it; of files alone, the worst file. */
static void look_in(const struct listing *l, const char *group,
		    struct line *out)
{
	ck_auto_str struct ck_str names = { 0 };
	struct pair pair = { 0 };
	struct ck_run_dir all;
	bool any = false, files = true;

	if (strchr(group, '/') ||
	    ck_run_dir_list_in(&all, l->root, group, NULL) || !all.nr)
		return;
	for (size_t i = 0; i < all.nr; i++)
		files &= !ck_run_dir_is_part(&all, &all.v[i]);
	free(out->why);
	*out = (struct line){ .steps = steps_in(&all) };
	for (size_t i = 0; i < all.nr; i++) {
		ck_auto_str struct ck_str name = { 0 };
		struct line part = { 0 };

		ck_str_fmt(&name, "%s/%s", group, all.v[i].name);
		if (!name.failed)
			any |= !look(l, name.v, &part,
				     all.parts ? &pair : NULL);
		add_line(out, &all, &all.v[i], files, &part, &names);
	}
	pair_check(&pair);
	add_pair(out, &pair, &names);
	pair_free(&pair);
	if (!any) {
		out->state = UNREADABLE;
		ck_str_puts(&names, ", none of which is a checkpoint");
	}
	out->why = names.failed ? NULL : strdup(names.v);
	ck_run_dir_free(&all);
}

static const struct ck_run_dir_entry *latest_of(const struct listing *l)
{
	const struct ck_run_dir_entry *s;

	for (size_t i = 0; (s = ck_run_dir_newest(&l->steps, i)); i++)
		if (l->v[s - l->steps.v].state == COMPLETE)
			return s;
	return NULL;
}

static void put_line(const struct listing *l, size_t i, struct ck_str *out)
{
	const struct ck_run_dir_entry *s = &l->steps.v[i];
	const struct line *line = &l->v[i];
	ck_auto_str struct ck_str bytes = { 0 };

	if (ck_opts_get(l->opts, "human"))
		text_size(&bytes, line->bytes);
	else
		ck_str_u64(&bytes, line->bytes);
	ck_str_fmt(out, "%s%-10s%s  %7" PRIu32 "  %15s  ",
		   text_colour(line->state == COMPLETE ? TEXT_GREEN : TEXT_RED),
		   state_text[line->state], text_colour(TEXT_PLAIN),
		   line->tensors, bytes.v ? bytes.v : "");
	ck_str_plain(out, s->name, strlen(s->name));
	if (s == l->latest)
		ck_str_puts(out, "  (latest)");
	if (line->why) {
		ck_str_puts(out, "  ");
		ck_str_plain(out, line->why, strlen(line->why));
	}
	ck_str_puts(out, "\n");
}

static void put_json(const struct listing *l, size_t i, struct ck_str *out)
{
	const struct ck_run_dir_entry *s = &l->steps.v[i];
	const struct line *line = &l->v[i];

	ck_str_puts(out, i ? ",\n  {\"name\": " : "  {\"name\": ");
	ck_str_json(out, s->name, strlen(s->name));
	ck_str_fmt(out,
		   ", \"state\": \"%s\", \"latest\": %s, \"tensors\": %" PRIu32
		   ", \"nbytes\": %" PRIu64,
		   state_text[line->state], s == l->latest ? "true" : "false",
		   line->tensors, line->bytes);
	if (line->warnings)
		ck_str_fmt(out, ", \"warnings\": %" PRIu64, line->warnings);
	if (line->why) {
		ck_str_puts(out, ", \"reason\": ");
		ck_str_json(out, line->why, strlen(line->why));
	}
	ck_str_puts(out, "}");
}

static bool put_all(const struct listing *l)
{
	ck_auto_str struct ck_str out = { 0 };
	bool json = ck_opts_get(l->opts, "json");

	if (json)
		ck_str_puts(&out, "{\"steps\": [\n");
	for (size_t i = 0; i < l->steps.nr; i++)
		if (json)
			put_json(l, i, &out);
		else
			put_line(l, i, &out);
	if (json)
		ck_str_puts(&out, "\n]}\n");
	return text_flush(&out);
}

/*
 * As of one checkpoint: what is not whole is a line and a 1, though it may
 * still be being written.
 */
static int judge(const struct cmd *c, const char *path, const struct listing *l)
{
	bool any = false, parts = ck_run_dir_are_one(&l->steps);
	size_t bad = 0, nr = 0;

	for (size_t i = 0; i < l->steps.nr; i++)
		any |= ck_run_dir_is_part(&l->steps, &l->steps.v[i]);
	parts &= any; /* files alone: each is what there is */
	for (size_t i = 0; i < l->steps.nr; i++) {
		if (parts && !ck_run_dir_is_part(&l->steps, &l->steps.v[i]))
			continue;
		bad += l->v[i].state != COMPLETE;
		nr++;
	}
	if (bad && nr == 1)
		return cmd_fail(c, CMD_BAD_CKPT, "%s: incomplete: its only %s",
				path, parts ? "part" : "checkpoint");
	return !bad ? CMD_OK :
		      cmd_fail(c, CMD_BAD_CKPT,
			       "%s: incomplete: %zu of its %zu %s", path, bad,
			       nr, parts ? "parts" : "checkpoints");
}

/* What warns of itself is named, three of them. */
static void warn_of_members(const struct cmd *c, const char *path,
			    const struct listing *l)
{
	ck_auto_str struct ck_str text = { 0 };
	uint64_t warnings = 0;
	size_t nr = 0;

	for (size_t i = 0; i < l->steps.nr; i++) {
		const char *name = l->steps.v[i].name;

		if (!l->v[i].warnings)
			continue;
		warnings += l->v[i].warnings;
		if (nr++ >= MAX_NAMED)
			continue;
		ck_str_puts(&text, nr > 1 ? ", " : "");
		ck_str_plain(&text, name, strlen(name));
	}
	if (nr > MAX_NAMED)
		ck_str_fmt(&text, " and %zu more", nr - MAX_NAMED);
	if (nr && !text.failed)
		cmd_fail(c, CMD_OK,
			 "%s: warning: %" PRIu64
			 " %s in %s (unshard ls of it says more)",
			 path, warnings, warnings > 1 ? "warnings" : "warning",
			 text.v);
}

/* What one of them has no use for, another may have. */
static void warn_of_unused(const struct cmd *c, const char *path,
			   const struct listing *l)
{
	ck_auto_str struct ck_str text = { 0 };
	uint32_t unused = UINT32_MAX;
	bool any = false;

	for (size_t i = 0; i < l->steps.nr; i++) {
		any |= l->v[i].read;
		unused &= l->v[i].read ? l->v[i].unused : UINT32_MAX;
	}
	ck_run_dir_unused_names(any ? unused : 0, &text);
	if (text.len && !text.failed)
		cmd_fail(c, CMD_OK,
			 "%s: warning: %s: none of its checkpoints makes use "
			 "of it",
			 path, text.v);
}

/* As the mount's problems do: trainers resume from what the marker names. */
static void warn_of_marker(const struct cmd *c, const char *path,
			   const struct listing *l)
{
	ck_auto_str struct ck_str text = { 0 };
	const char *marker = l->steps.marker;

	if (!marker || !l->latest || ck_run_dir_is_marked(l->latest, marker))
		return;
	ck_str_puts(&text, "warning: the framework's own marker says \"");
	ck_str_plain(&text, marker, strnlen(marker, 200));
	ck_str_puts(&text, "\", the latest is ");
	ck_str_plain(&text, l->latest->name, strlen(l->latest->name));
	if (!text.failed)
		cmd_fail(c, CMD_OK, "%s: %s", path, text.v);
}

/* Of several runs each is one line here. */
static void hint_at_runs(const struct cmd *c, const char *path,
			 const struct listing *l)
{
	size_t runs = 0;

	/* but checkpoint-100 and pytorch_model_fsdp_0 in it are one */
	for (size_t i = 0; i < l->steps.nr; i++)
		runs += l->v[i].steps > (l->steps.v[i].numbered ? 1 : 0);
	if (runs > 1)
		cmd_fail(c, CMD_OK,
			 "%s: %zu runs (unshard find lists the checkpoints of "
			 "each)",
			 path, runs);
}

static void look_at_all(struct listing *l)
{
	struct pair pair = { 0 };

	for (size_t i = 0; i < l->steps.nr; i++)
		if (look(l, l->steps.v[i].name, &l->v[i],
			 l->steps.parts ? &pair : NULL) == -ENODATA)
			look_in(l, l->steps.v[i].name, &l->v[i]);
	pair_check(&pair);
	for (size_t i = 0; i < l->steps.nr; i++) {
		int part = ck_pair_of(l->steps.v[i].name);

		if (part >= 0 && pair.why[part].len)
			blame(&l->v[i], &pair.why[part]);
	}
	pair_free(&pair);
}

static int list(const struct cmd *c, const char *path, struct listing *l)
{
	int ret = CMD_OK;
	bool ok;

	l->v = calloc(l->steps.nr, sizeof(*l->v));
	if (l->v)
		look_at_all(l);
	if (l->v)
		l->latest = latest_of(l);
	ok = l->v && put_all(l);
	if (ok) {
		warn_of_members(c, path, l);
		warn_of_unused(c, path, l);
		warn_of_marker(c, path, l);
		hint_at_runs(c, path, l);
		ret = judge(c, path, l);
	}
	for (size_t i = 0; l->v && i < l->steps.nr; i++)
		free(l->v[i].why);
	free(l->v);
	return cmd_flush(c) ?: ok ? ret : cmd_fail(c, CMD_SYSTEM, "no memory");
}

/* The directory of checkpoints at @path, or the one that a run has in it. */
static int open_many(struct ck_root *root, const char *path,
		     const struct ck_opts *opts)
{
	ck_auto_free char *below = NULL;
	int ret = ck_root_open(root, path, opts, NULL);

	below = ret ? NULL : ck_run_dir_of_run(root);
	if (!below)
		return ret;
	ck_root_close(root);
	return ck_root_open(root, below, opts, NULL);
}

int run_dir_list(const struct cmd *c, const char *path,
		 const struct ck_opts *opts, const struct ck_err *why)
{
	struct listing l = { .opts = opts };
	struct ck_root root;
	int ret = -1;

	if (why->code != ENODATA || open_many(&root, path, opts))
		return cmd_err(c, why);
	l.root = &root;
	if (!root.only && !ck_run_dir_list(&l.steps, &root, NULL)) {
		if (l.steps.nr)
			ret = list(c, path, &l);
		ck_run_dir_free(&l.steps);
	}
	ck_root_close(&root);
	return ret < 0 ? cmd_err(c, why) : ret;
}
