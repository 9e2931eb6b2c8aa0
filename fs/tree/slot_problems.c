/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot_problems.c - what a directory of checkpoints says of its entries
 *
 * Of those that somebody has looked into; parts of one save are few, and are
 * looked into for it.
 */
#include "fs/tree/slot_priv.h"

#include "core/base/auto.h"
#include "core/run/steps_pair.h"
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
static bool is_listed(const struct ck_steps *all, const char *name)
{
	size_t len = strcspn(name, "/");

	for (size_t i = 0; i < all->nr; i++)
		if (!strncmp(all->v[i].name, name, len) && !all->v[i].name[len])
			return true;
	return false;
}

static void failed_problems(struct fs_slots *s, const struct ck_steps *all,
			    bool json, struct ck_str *out)
{
	pthread_mutex_lock(&s->lock);
	for (const struct fs_slot *slot = s->first; slot; slot = slot->next) {
		if (slot->gone || !is_listed(all, slot->name))
			continue;
		if (slot->unfit)
			add_problem(out, json, "error", slot->name,
				    slot->unfit);
		if (slot->failed)
			add_problem(out, json, "error", slot->name,
				    slot->why.msg);
		else if (slot->made_s && !slot->whole && !slot->steps)
			add_problem(out, json, "error", slot->name,
				    "incomplete; its own .unshard/problems "
				    "says what is missing");
		else if (slot->warnings && !slot->steps)
			add_problem(out, json, "warning", slot->name,
				    "it has warnings; its own "
				    ".unshard/problems says which");
	}
	pthread_mutex_unlock(&s->lock);
}

static void marker_problem(const struct ck_steps *all, const char *latest,
			   bool json, struct ck_str *out)
{
	const struct ck_step *step = ck_steps_find(all, latest);
	char why[512];

	if (!all->marker || !step || ck_steps_is_marked(step, all->marker))
		return;
	snprintf(why, sizeof(why), "the framework's own marker says \"%.200s\"",
		 all->marker);
	add_problem(out, json, "warning", latest, why);
}

/* A checkpoint that has the name of our link. */
static void name_problem(const struct ck_steps *all, const char *latest,
			 bool json, struct ck_str *out)
{
	char why[512];

	if (!ck_steps_find(all, "latest"))
		return;
	snprintf(why, sizeof(why),
		 "a checkpoint of this name is shown, not a link to the "
		 "newest (%.200s)",
		 latest);
	add_problem(out, json, "warning", "latest", why);
}

/* The parts of one save are few, and none of them may be damaged. */
static void parse_parts(struct fs_slots *s, const struct ck_steps *all)
{
	for (size_t i = 0; i < all->nr && i < FS_IDLE_SLOTS; i++) {
		struct fs_slot *slot;

		if (fs_slots_entry(s, all->v[i].name, &slot))
			continue;
		fs_slot_need(s, slot);
		fs_slot_unpin(s, slot);
	}
}

/* Whether somebody has looked into that part of the group. */
static bool is_known(const struct fs_slots *s, const char *group,
		     const char *part)
{
	size_t len = strlen(group);

	for (const struct fs_slot *slot = s->first; slot; slot = slot->next)
		if (!slot->gone && slot->made_s &&
		    !strncmp(slot->name, group, len) &&
		    slot->name[len] == '/' &&
		    !strcmp(slot->name + len + 1, part))
			return true;
	return false;
}

/* Of groups whose model and optimizer were both looked into. */
static void compare_groups(struct fs_slots *s, const struct ck_steps *all)
{
	for (size_t i = 0; i < all->nr; i++) {
		const char *group = all->v[i].name;
		struct ck_steps in;
		bool known = true;

		pthread_mutex_lock(&s->lock);
		for (int k = 0; k < CK_PAIR_NR; k++)
			known = known && is_known(s, group, ck_pair_names[k]);
		pthread_mutex_unlock(&s->lock);
		if (!known || ck_steps_list_in(&in, s->root, group, NULL))
			continue;
		if (in.parts)
			fs_slots_fit(s, group);
		ck_steps_free(&in);
	}
}

/* What is known of the entries that cannot be read, and of the marker. */
static void steps_problems(struct fs_slots *s, bool json, struct ck_str *out)
{
	ck_auto_free char *latest = fs_slots_latest(s);
	struct ck_steps all;

	if (ck_steps_list(&all, s->root, NULL))
		return;
	if (ck_steps_are_one(&all))
		parse_parts(s, &all);
	if (all.parts)
		fs_slots_fit(s, "");
	compare_groups(s, &all);
	failed_problems(s, &all, json, out);
	if (latest) {
		marker_problem(&all, latest, json, out);
		name_problem(&all, latest, json, out);
	}
	ck_steps_free(&all);
}

static void stats_of_steps(struct fs_slots *s, struct ck_str *out)
{
	uint64_t files, total = fs_slots_total(s, &files);

	ck_str_fmt(out,
		   "format steps\nparsed %20u\ntensors %19llu\n"
		   "tensor_bytes %14llu\n",
		   fs_slots_made(s), (unsigned long long)files,
		   (unsigned long long)total);
}

void fs_slot_text(void *ctx, unsigned id, struct ck_str *out)
{
	const struct fs_virt_text_in *in = ctx;
	struct fs_slot *slot = in->ctx;
	bool json = id == FS_VIRT_PROBLEMS_JSON;

	if (id == FS_VIRT_STATS) {
		stats_of_steps(in->owner, out);
		return;
	}
	if (json)
		ck_str_puts(out, "[\n");
	if (slot->steps)
		steps_problems(in->owner, json, out);
	else
		add_problem(out, json, "error", slot->name, slot->why.msg);
	if (json)
		ck_str_puts(out, "\n]\n");
}
