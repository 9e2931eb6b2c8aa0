/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted_problems.c - what a directory of checkpoints says of its entries
 *
 * Of those that somebody has looked into; parts of one save are few, and are
 * looked into for it.  A parser's words may hold some of a file: other users are
 * told of what they could look at themselves.
 */
#include "fs/tree/mounted_priv.h"

#include "core/base/auto.h"
#include "core/base/vec.h"
#include "core/run/run_dir_pair.h"
#include "fs/tree/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_problem(struct ck_str *out, bool json, const char *severity,
			const char *file, const char *reason)
{
	if (!json) {
		ck_str_fmt(out, "%s: ", severity);
		ck_str_plain(out, file, strlen(file));
		ck_str_fmt(out, ": %s\n", reason);
		return;
	}
	ck_str_fmt(out, "%s{\"severity\": \"%s\", \"file\": ",
		   out->len > 2 ? ",\n" : "", severity);
	ck_str_json(out, file, strlen(file));
	ck_str_puts(out, ", \"reason\": ");
	ck_str_json(out, reason, strlen(reason));
	ck_str_puts(out, "}");
}

/* Itself, or the group that it is in. */
static bool is_listed(const struct ck_run_dir *all, const char *name)
{
	size_t len = strcspn(name, "/");

	for (size_t i = 0; i < all->nr; i++)
		if (!strncmp(all->v[i].name, name, len) && !all->v[i].name[len])
			return true;
	return false;
}

/* What is said of an entry. */
struct line {
	const char *severity;
	char *name, *reason;
	struct stat seen;
	bool of_files; /* it may say what is in some of them */
};
struct lines {
	struct line *v;
	size_t nr, room;
	bool failed; /* no memory */
};

static void free_lines(const struct lines *all)
{
	for (size_t i = 0; i < all->nr; i++) {
		free(all->v[i].name);
		free(all->v[i].reason);
	}
	free(all->v);
}
#define auto_lines __attribute__((cleanup(free_lines)))

static void add_line(struct lines *all, const struct fs_mounted *mounted,
		     const char *severity, const char *reason, bool of_files)
{
	struct line *l = ck_vec_push(all);

	if (!l) {
		all->failed = true;
		return;
	}
	*l = (struct line){ .severity = severity,
			    .name = strdup(mounted->name),
			    .reason = strdup(reason),
			    .seen = mounted->seen,
			    .of_files = of_files };
	all->failed |= !l->name || !l->reason;
}

/* Under the lock, in which nobody is asked. */
static void add_lines(struct lines *to, const struct fs_mounted *mounted)
{
	if (mounted->unfit)
		add_line(to, mounted, "error", mounted->unfit, true);
	if (mounted->failed)
		add_line(to, mounted, "error", mounted->why.msg, true);
	else if (mounted->made_s && !mounted->whole && !mounted->steps)
		add_line(to, mounted, "error",
			 "incomplete; its own .unshard/problems says what is "
			 "missing",
			 false);
	else if (mounted->warnings && !mounted->steps)
		add_line(to, mounted, "warning",
			 "it has warnings; its own .unshard/problems says "
			 "which",
			 false);
}

/* What he may know of it: @l's reason, less, or NULL. */
static const char *reason_for(struct fs_mounted_table *s,
			      const struct fs_virt_reader *by,
			      const struct line *l)
{
	if (!by)
		return l->reason;
	if (!by->may(by->ctx, s, l->name, &l->seen, false))
		return NULL;
	if (l->of_files && !by->may(by->ctx, s, l->name, &l->seen, true))
		return "cannot be read; why is for who may read all of its "
		       "files";
	return l->reason;
}

static void failed_problems(struct fs_mounted_table *s,
			    const struct ck_run_dir *all,
			    const struct fs_virt_reader *by, bool json,
			    struct ck_str *out)
{
	auto_lines struct lines found = { 0 };

	pthread_mutex_lock(&s->lock);
	for (const struct fs_mounted *mounted = s->first; mounted;
	     mounted = mounted->next)
		if (!mounted->gone && is_listed(all, mounted->name))
			add_lines(&found, mounted);
	pthread_mutex_unlock(&s->lock);
	out->failed |= found.failed;
	for (size_t i = 0; i < found.nr && !out->failed; i++) {
		const struct line *l = &found.v[i];
		const char *reason = reason_for(s, by, l);

		if (reason)
			add_problem(out, json, l->severity, l->name, reason);
	}
}

static void marker_problem(const struct ck_run_dir *all, const char *latest,
			   bool json, struct ck_str *out)
{
	const struct ck_run_dir_entry *step = ck_run_dir_find(all, latest);
	char why[512];

	if (!all->marker || !step || ck_run_dir_is_marked(step, all->marker))
		return;
	snprintf(why, sizeof(why), "the framework's own marker says \"%.200s\"",
		 all->marker);
	add_problem(out, json, "warning", latest, why);
}

/* A checkpoint that has the name of our link. */
static void name_problem(const struct ck_run_dir *all, const char *latest,
			 bool json, struct ck_str *out)
{
	char why[512];

	if (!ck_run_dir_find(all, "latest"))
		return;
	snprintf(why, sizeof(why),
		 "a checkpoint of this name is shown, not a link to the "
		 "newest (%.200s)",
		 latest);
	add_problem(out, json, "warning", "latest", why);
}

/* The parts of one save are few, and none of them may be damaged. */
static void parse_parts(struct fs_mounted_table *s,
			const struct ck_run_dir *all)
{
	for (size_t i = 0; i < all->nr && i < FS_IDLE_MOUNTED; i++) {
		struct fs_mounted *mounted;

		if (fs_mounted_table_entry(s, all->v[i].name, &mounted))
			continue;
		fs_mounted_need(s, mounted);
		fs_mounted_unpin(s, mounted);
	}
}

/* Whether somebody has looked into that part of the group. */
static bool is_known(const struct fs_mounted_table *s, const char *group,
		     const char *part)
{
	size_t len = strlen(group);

	for (const struct fs_mounted *mounted = s->first; mounted;
	     mounted = mounted->next)
		if (!mounted->gone && mounted->made_s &&
		    !strncmp(mounted->name, group, len) &&
		    mounted->name[len] == '/' &&
		    !strcmp(mounted->name + len + 1, part))
			return true;
	return false;
}

/* Of groups whose model and optimizer were both looked into. */
static void compare_groups(struct fs_mounted_table *s,
			   const struct ck_run_dir *all)
{
	for (size_t i = 0; i < all->nr; i++) {
		const char *group = all->v[i].name;
		struct ck_run_dir in;
		bool known = true;

		pthread_mutex_lock(&s->lock);
		for (int k = 0; k < CK_PAIR_NR; k++)
			known = known && is_known(s, group, ck_pair_names[k]);
		pthread_mutex_unlock(&s->lock);
		if (!known || ck_run_dir_list_in(&in, s->root, group, NULL))
			continue;
		if (in.parts)
			fs_mounted_table_fit(s, group);
		ck_run_dir_free(&in);
	}
}

/* What is known of the entries that cannot be read, and of the marker. */
static void steps_problems(struct fs_mounted_table *s,
			   const struct fs_virt_reader *by, bool json,
			   struct ck_str *out)
{
	ck_auto_free char *latest = fs_mounted_table_latest(s);
	struct ck_run_dir all;

	if (ck_run_dir_list(&all, s->root, NULL))
		return;
	if (ck_run_dir_are_one(&all))
		parse_parts(s, &all);
	if (all.parts)
		fs_mounted_table_fit(s, "");
	compare_groups(s, &all);
	failed_problems(s, &all, by, json, out);
	if (latest) {
		marker_problem(&all, latest, json, out);
		name_problem(&all, latest, json, out);
	}
	ck_run_dir_free(&all);
}

static void stats_of_steps(struct fs_mounted_table *s, struct ck_str *out)
{
	uint64_t files, total = fs_mounted_table_total(s, &files);

	ck_str_fmt(out,
		   "format steps\nparsed %20u\ntensors %19llu\n"
		   "tensor_bytes %14llu\n",
		   fs_mounted_table_made(s), (unsigned long long)files,
		   (unsigned long long)total);
}

/*
 * ---- counters of all that a mount shows, by step ----
 *
 * Of those that somebody has looked into; one that sleeps keeps its counts.
 */

static struct fs_metrics_of metrics_of(const struct fs_mounted *m)
{
	struct fs_metrics_of of = {
		.step = m->name,
		.counts = m->past,
		.whole = m->whole,
		.tensors = m->files,
		.bytes = m->total,
		.errors = m->errors + m->failed,
		.warnings = m->warnings,
	};

	/* Under the table's lock it is not put to sleep meanwhile. */
	if (atomic_load(&m->state) == FS_MOUNTED_READY && m->ck) {
		fs_counts_add(&of.counts, ck_ckpt_stats(m->ck));
		of.errors += ck_ckpt_runtime_errors(m->ck);
	}
	return of;
}

/* Of the mount all; of a group what is in it; of one, itself. */
static bool is_shown(const struct fs_mounted *of, const struct fs_mounted *m)
{
	size_t len = of->name ? strlen(of->name) : 0;

	if (m->steps || m->gone || (!m->made_s && m != of))
		return false;
	return m == of || !of->nr ||
	       (of->steps && !strncmp(m->name, of->name, len) &&
		m->name[len] == '/');
}

static int by_step(const void *a, const void *b)
{
	const struct fs_metrics_of *x = a, *y = b;

	return strcmp(x->step ? x->step : "", y->step ? y->step : "");
}

static void metrics(struct fs_mounted_table *s, const struct fs_mounted *of,
		    struct ck_str *out)
{
	CK_VEC(struct fs_metrics_of) all = { 0 };
	struct fs_metrics_of *m;

	if (is_shown(of, of)) {
		m = ck_vec_push(&all);
		out->failed |= !m;
		if (m)
			*m = metrics_of(of);
	}
	pthread_mutex_lock(&s->lock);
	for (const struct fs_mounted *i = s->first; i; i = i->next) {
		if (i == of || !is_shown(of, i))
			continue;
		m = ck_vec_push(&all);
		out->failed |= !m;
		if (m)
			*m = metrics_of(i);
	}
	if (all.nr)
		qsort(all.v, all.nr, sizeof(*all.v), by_step);
	/* here, for names end with their entries */
	fs_metrics_text(s->in.mnt ? s->in.mnt : "", all.v, all.nr, out);
	pthread_mutex_unlock(&s->lock);
	free(all.v);
}

void fs_mounted_text(struct fs_mounted_table *s, struct fs_mounted *mounted,
		     const struct fs_virt_reader *by, unsigned id,
		     struct ck_str *out)
{
	bool json = id == FS_VIRT_PROBLEMS_JSON;

	if (id == FS_VIRT_METRICS) {
		metrics(s, mounted, out);
		return;
	}
	if (id == FS_VIRT_STATS) {
		stats_of_steps(s, out);
		return;
	}
	if (json)
		ck_str_puts(out, "[\n");
	if (mounted->steps)
		steps_problems(s, by, json, out);
	else
		add_problem(out, json, "error", mounted->name,
			    mounted->why.msg);
	if (json)
		ck_str_puts(out, "\n]\n");
}
