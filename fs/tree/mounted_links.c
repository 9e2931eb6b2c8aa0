/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted_links.c - what the links of a directory of checkpoints lead to: the
 * newest that is whole, and the hf/ of the one that has the model
 */
#include "fs/tree/mounted_priv.h"
#include "fs/tree/tree.h"

#include "core/base/auto.h"

#include <stdlib.h>
#include <string.h>

/* *group: it is one. */
static bool is_whole_one(struct fs_mounted_table *s, const char *name,
			 bool *group)
{
	struct fs_mounted *mounted;
	bool whole;

	*group = false;
	if (fs_mounted_table_entry(s, name, &mounted))
		return false;
	if (atomic_load(&mounted->state) == FS_MOUNTED_NEW)
		fs_mounted_need(s, mounted);
	whole = mounted->whole && !mounted->failed;
	*group = mounted->steps;
	fs_mounted_unpin(s, mounted);
	return whole;
}

static bool is_whole_group(struct fs_mounted_table *s, const char *group)
{
	bool whole = true, any = false, nested;
	struct ck_run_dir all;

	if (ck_run_dir_list_in(&all, s->root, group, NULL))
		return false;
	for (size_t i = 0; i < all.nr && whole; i++) {
		ck_auto_str struct ck_str name = { 0 };

		/* the state of a scheduler, and such */
		if (all.v[i].is_file && !all.parts)
			continue;
		any = true;
		ck_str_fmt(&name, "%s/%s", group, all.v[i].name);
		whole = !name.failed && is_whole_one(s, name.v, &nested);
	}
	if (whole && all.parts)
		whole = fs_mounted_table_fit(s, group);
	ck_run_dir_free(&all);
	return whole && any;
}

/* Whether @name is a checkpoint that can be read in full, or all of such. */
static bool is_whole(struct fs_mounted_table *s, const char *name)
{
	bool group;

	return is_whole_one(s, name, &group) ||
	       (group && is_whole_group(s, name));
}

char *fs_mounted_table_latest(struct fs_mounted_table *s)
{
	struct ck_run_dir all;
	char *name = NULL;

	if (ck_run_dir_list(&all, s->root, NULL))
		return NULL;
	for (size_t i = 0; !name && ck_run_dir_newest(&all, i); i++)
		if (is_whole(s, ck_run_dir_newest(&all, i)->name))
			name = strdup(ck_run_dir_newest(&all, i)->name);
	ck_run_dir_free(&all);
	return name;
}

/* *group: it is one. */
static bool has_hf(struct fs_mounted_table *s, const char *name, bool *group)
{
	struct fs_mounted *mounted;
	bool has;

	*group = false;
	if (fs_mounted_table_entry(s, name, &mounted))
		return false;
	has = fs_mounted_need(s, mounted) == FS_MOUNTED_READY;
	*group = has && mounted->steps;
	has = has && !*group && fs_tree_lookup(mounted, FS_INO_ROOT, "hf");
	fs_mounted_unpin(s, mounted);
	return has;
}

/*
 * Checkpoints of steps, of which the newest is meant, and not parts of one.  In a
 * @group a single one is a part.
 */
static bool are_steps(const struct ck_run_dir *all, bool group)
{
	const struct ck_run_dir_entry *newest = ck_run_dir_newest(all, 0);

	return (all->nr > 1 || !group) && newest && newest->numbered;
}

static bool is_optimizer(const char *part)
{
	return !strcmp(part, "optim") || !strncmp(part, "optim_", 6) ||
	       !strncmp(part, "optimizer", 9);
}

/* Of the parts of @group the only one with hf/; to free(). */
static char *part_with_hf(struct fs_mounted_table *s, const char *group)
{
	ck_auto_free char *found = NULL;
	struct ck_run_dir all;
	bool one = true, nested;

	if (ck_run_dir_list_in(&all, s->root, group, NULL))
		return NULL;
	one = !are_steps(&all, *group);
	for (size_t i = 0; i < all.nr && one; i++) {
		ck_auto_str struct ck_str name = { 0 };

		if (is_optimizer(all.v[i].name) ||
		    (all.v[i].is_file && !all.parts))
			continue;
		ck_str_fmt(&name, "%s%s%s", group, *group ? "/" : "",
			   all.v[i].name);
		if (name.failed || !has_hf(s, name.v, &nested))
			continue;
		one = !found;
		free(found);
		found = strdup(all.v[i].name);
	}
	ck_run_dir_free(&all);
	return one ? ck_steal(found) : NULL;
}

/* Whether the entry has hf/, by itself or as the link of a group. */
static bool leads_to_hf(struct fs_mounted_table *s, const char *name)
{
	ck_auto_str struct ck_str own = { 0 };
	ck_auto_free char *part = NULL;
	struct fs_mounted *mounted;
	bool group;

	if (has_hf(s, name, &group))
		return true;
	ck_str_fmt(&own, "%s/hf", name);
	if (!group || own.failed)
		return false;
	if (!fs_mounted_table_entry(s, own.v, &mounted)) {
		fs_mounted_unpin(s, mounted); /* a part is called so */
		return false;
	}
	part = part_with_hf(s, name);
	return part;
}

char *fs_mounted_table_hf(struct fs_mounted_table *s,
			  const struct fs_mounted *in)
{
	ck_auto_free char *at = in->name ? NULL : fs_mounted_table_latest(s);
	ck_auto_str struct ck_str to = { 0 };

	if (at && !leads_to_hf(s, at))
		return NULL;
	if (!at)
		at = part_with_hf(s, in->name ? in->name : "");
	if (at)
		ck_str_fmt(&to, "%s/hf", at);
	return to.failed ? NULL : ck_steal(to.v);
}
