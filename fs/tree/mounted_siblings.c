/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted_siblings.c - what is a mounted checkpoint of its own beside the views
 * of a checkpoint
 *
 * Listed once, when the checkpoint is parsed; each is looked up as an entry of
 * a directory of checkpoints is.
 */
#include "fs/tree/mounted_priv.h"
#include "fs/tree/tree.h"

#include <string.h>

/*
 * A save for writing is of one tree: what an overlay keeps of several could
 * not be told apart.
 */
static bool shows_beside(const struct fs_mounted_table *s,
			 const struct fs_mounted *mounted)
{
	const struct ck_opts *o = s->in.opts;
	const char *format = ck_opts_get(o, "format");
	const struct ck_root *root;

	if (!s->root || !mounted->ck || ck_opts_get(o, "rw") ||
	    ck_opts_get(o, "overlay") || (format && strcmp(format, "auto")))
		return false;
	root = ck_ckpt_root(mounted->ck);
	return !root->only && !root->save &&
	       !(mounted->name && strchr(mounted->name, '/'));
}

/* What a view is called is the view. */
static void drop_views(struct fs_mounted *mounted)
{
	size_t kept = 0;

	for (size_t i = 0; i < mounted->beside.nr; i++)
		if (fs_tree_lookup(mounted, FS_INO_ROOT,
				   mounted->beside.v[i].name))
			ck_run_dir_entry_free(&mounted->beside.v[i]);
		else
			mounted->beside.v[kept++] = mounted->beside.v[i];
	mounted->beside.nr = kept;
}

int fs_mounted_list_siblings(struct fs_mounted_table *s,
			     struct fs_mounted *mounted, struct ck_err *err)
{
	int ret;

	if (!shows_beside(s, mounted))
		return 0;
	ret = ck_run_dir_list_siblings(&mounted->beside, s->root,
				       mounted->name ? mounted->name : "",
				       mounted->img, err);
	if (!ret)
		drop_views(mounted);
	return ret;
}

bool fs_mounted_has_siblings(const struct fs_mounted *mounted, const char *name)
{
	return ck_run_dir_find(&mounted->beside, name);
}
