/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot_beside.c - what has slots of its own beside the views of a checkpoint
 *
 * Listed once, when the checkpoint is parsed; each is looked up as an entry of
 * a directory of checkpoints is.
 */
#include "fs/tree/slot_priv.h"
#include "fs/tree/tree.h"

#include <string.h>

/*
 * A save for writing is of one tree: what an overlay keeps of several could
 * not be told apart.
 */
static bool shows_beside(const struct fs_slots *s, const struct fs_slot *slot)
{
	const struct ck_opts *o = s->in.opts;
	const char *format = ck_opts_get(o, "format");
	const struct ck_root *root;

	if (!s->root || !slot->ck || ck_opts_get(o, "rw") ||
	    ck_opts_get(o, "overlay") || (format && strcmp(format, "auto")))
		return false;
	root = ck_ckpt_root(slot->ck);
	return !root->only && !root->save &&
	       !(slot->name && strchr(slot->name, '/'));
}

/* What a view is called is the view. */
static void drop_views(struct fs_slot *slot)
{
	size_t kept = 0;

	for (size_t i = 0; i < slot->beside.nr; i++)
		if (fs_tree_lookup(slot, FS_INO_ROOT, slot->beside.v[i].name))
			ck_step_free(&slot->beside.v[i]);
		else
			slot->beside.v[kept++] = slot->beside.v[i];
	slot->beside.nr = kept;
}

int fs_slot_list_beside(struct fs_slots *s, struct fs_slot *slot,
			struct ck_err *err)
{
	int ret;

	if (!shows_beside(s, slot))
		return 0;
	ret = ck_steps_list_beside(&slot->beside, s->root,
				   slot->name ? slot->name : "", slot->img,
				   err);
	if (!ret)
		drop_views(slot);
	return ret;
}

bool fs_slot_has_beside(const struct fs_slot *slot, const char *name)
{
	return ck_steps_find(&slot->beside, name);
}
