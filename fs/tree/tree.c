/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/tree/tree.h"

#include "fs/tree/nested.h"
#include "fs/tree/mounted.h"
#include "fs/tree/virt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct fs_node view_node(const struct fs_mounted *mounted, uint64_t nr,
				enum fs_kind kind, uint32_t file)
{
	struct fs_node node = { FS_NONE, file, NULL };

	node.view = nr < FS_MAX_VIEWS ? mounted->view[nr] :
					fs_nested_view(mounted->nested, nr);
	if (!node.view)
		return node;
	if (kind == FS_FILE ? file < node.view->ops->nr(node.view) :
			      node.view->ops->is_dir)
		node.kind = kind;
	return node;
}

static struct fs_node folder_node(const struct fs_mounted *mounted,
				  uint64_t ino)
{
	uint32_t v = (uint32_t)(ino - FS_INO_FOLDER) >> CK_VIEW_FOLDER_SHIFT;
	uint32_t d = (uint32_t)ino & ((1u << CK_VIEW_FOLDER_SHIFT) - 1);
	struct fs_node node = view_node(mounted, v, FS_DIR, d + 1);

	if (node.kind != FS_NONE &&
	    (!node.view->ops->folders ||
	     d >= node.view->ops->folders->nr(node.view)))
		node.kind = FS_NONE;
	return node;
}

static uint64_t folder_ino(uint64_t view, uint64_t d)
{
	return FS_INO_FOLDER + (view << CK_VIEW_FOLDER_SHIFT) + d;
}

/* The number of the view that FS_DIR @dir is or is in. */
static uint64_t view_of(uint64_t dir)
{
	return dir >= FS_INO_FOLDER ?
		       (dir - FS_INO_FOLDER) >> CK_VIEW_FOLDER_SHIFT :
		       dir - FS_INO_VIEW;
}

struct fs_node fs_tree_node(const struct fs_mounted *mounted, uint64_t ino)
{
	struct fs_node node = { FS_NONE, 0, NULL };

	if (ino & FS_INO_SHARD)
		node.kind = FS_SHARD;
	else if (ino >= FS_INO_FILE)
		return view_node(mounted, (ino >> 32) - 1, FS_FILE,
				 (uint32_t)ino);
	else if (ino >= FS_INO_FOLDER)
		return folder_node(mounted, ino);
	else if (ino >= FS_INO_VIEW)
		return view_node(mounted, ino - FS_INO_VIEW, FS_DIR, 0);
	else if (ino >= FS_INO_VIRT && ino < FS_INO_VIRT + FS_VIRT_NR)
		node = (struct fs_node){ FS_VIRT, (uint32_t)(ino - FS_INO_VIRT),
					 NULL };
	else if (ino == FS_INO_ROOT)
		node.kind = mounted->steps ? FS_STEPS : FS_DIR;
	else if (ino == FS_INO_META)
		node.kind = FS_DIR;
	else if (ino == FS_INO_SHARDS)
		node.kind = FS_SHARD;
	else if (mounted->steps &&
		 (ino == FS_INO_HF || (ino == FS_INO_LATEST && !mounted->name)))
		node.kind = FS_LINK;
	return node;
}

static bool has_file(const struct ck_view *v)
{
	struct ck_vfile file;

	return v->ops->file(v, 0, &file);
}

static enum fs_at beside_entry(const struct fs_mounted *mounted, uint64_t i,
			       struct fs_entry *e)
{
	if (i >= mounted->beside.nr)
		return FS_AT_END;
	snprintf(e->name, sizeof(e->name), "%s", mounted->beside.v[i].name);
	e->ino = fs_ino(1, FS_INO_ROOT); /* said by the look-up */
	e->type = S_IFDIR;
	e->beside = true;
	return FS_AT_ENTRY;
}

/*
 * Entry number @i of a root: the views, then shards and .unshard, then what is
 * a mounted checkpoint of its own.
 */
static enum fs_at root_entry(const struct fs_mounted *mounted, uint64_t i,
			     struct fs_entry *e)
{
	const struct ck_view *v;

	if (i >= FS_MAX_VIEWS + 2)
		return beside_entry(mounted, i - FS_MAX_VIEWS - 2, e);
	if (i >= FS_MAX_VIEWS) {
		bool shards = i == FS_MAX_VIEWS;

		e->ino = shards ? FS_INO_SHARDS : FS_INO_META;
		e->type = S_IFDIR;
		strcpy(e->name, shards ? "shards" : ".unshard");
		return FS_AT_ENTRY;
	}
	v = mounted->view[i];
	if (!v || (!v->ops->is_dir && !has_file(v)))
		return FS_AT_NOTHING;
	e->type = v->ops->is_dir ? S_IFDIR : S_IFREG;
	e->ino = v->ops->is_dir ? FS_INO_VIEW + i : (i + 1) * FS_INO_FILE;
	snprintf(e->name, sizeof(e->name), "%s", v->ops->name);
	return FS_AT_ENTRY;
}

static uint64_t find_root(const struct fs_mounted *mounted, const char *name)
{
	struct fs_entry e;
	enum fs_at at;

	/* a file is made for who asks for it, not for its neighbours */
	for (uint64_t i = 0; i < FS_MAX_VIEWS + 2; i++) {
		if (i < FS_MAX_VIEWS &&
		    (!mounted->view[i] ||
		     strcmp(mounted->view[i]->ops->name, name)))
			continue;
		at = root_entry(mounted, i, &e);
		if (at == FS_AT_ENTRY && !strcmp(e.name, name))
			return e.ino;
	}
	return 0;
}

static uint64_t find_virt(const struct fs_mounted *mounted, const char *name)
{
	for (unsigned i = 0; i < FS_VIRT_NR; i++)
		if (fs_virt_has(mounted->virt, i) &&
		    !strcmp(name, fs_virt_name(i)))
			return FS_INO_VIRT + i;
	return 0;
}

static int find_folder(const struct ck_view *v, uint64_t view, const char *name,
		       uint64_t *ino, struct ck_err *err)
{
	uint32_t d;
	int ret = v->ops->folders->find(v, name, &d, err);

	if (!ret)
		*ino = folder_ino(view, d);
	return ret == -ENOENT ? 0 : ret;
}

/* A view of what folder @d of a view shows; 0: there is none of that name. */
static uint64_t find_nested(const struct fs_mounted *mounted, uint32_t d,
			    const char *name)
{
	uint64_t nr = fs_nested_find(mounted->nested, d, name);
	const struct ck_view *v =
		nr ? fs_nested_view(mounted->nested, nr) : NULL;

	if (!v || (!v->ops->is_dir && !has_file(v)))
		return 0;
	return v->ops->is_dir ? FS_INO_VIEW + nr : (nr + 1) * FS_INO_FILE;
}

int fs_tree_find(const struct fs_mounted *mounted, uint64_t dir,
		 const char *name, uint64_t *ino, struct ck_err *err)
{
	struct fs_node node = fs_tree_node(mounted, dir);
	const struct ck_view *v = node.view;
	uint32_t i;

	*ino = 0;
	if (dir == FS_INO_ROOT)
		*ino = find_root(mounted, name);
	else if (dir == FS_INO_META)
		*ino = find_virt(mounted, name);
	if (node.kind != FS_DIR || !v)
		return 0;
	if (v->ops->folders && !node.nr)
		return find_folder(v, view_of(dir), name, ino, err);
	i = node.nr ? v->ops->folders->find_file(v, node.nr - 1, name,
						 strlen(name)) :
		      v->ops->find(v, name, strlen(name));
	if (i != CK_NONE)
		*ino = (view_of(dir) + 1) * FS_INO_FILE + i;
	else if (node.nr && v->ops->nests)
		*ino = find_nested(mounted, node.nr - 1, name);
	return 0;
}

uint64_t fs_tree_lookup(const struct fs_mounted *mounted, uint64_t dir,
			const char *name)
{
	uint64_t ino;

	return fs_tree_find(mounted, dir, name, &ino, NULL) ? 0 : ino;
}

static enum fs_at folder_entry(const struct ck_view *v, uint64_t dir,
			       uint64_t i, struct fs_entry *e)
{
	if (i >= v->ops->folders->nr_listed(v))
		return FS_AT_END;
	if (!v->ops->folders->name(v, (uint32_t)i, e->name))
		return FS_AT_NOTHING;
	e->ino = folder_ino(view_of(dir), i);
	e->type = S_IFDIR;
	return FS_AT_ENTRY;
}

static enum fs_at view_entry(const struct fs_node *node, uint64_t dir,
			     uint64_t i, struct fs_entry *e)
{
	const struct ck_view *v = node->view;
	struct ck_vfile file;

	if (v->ops->folders && !node->nr)
		return folder_entry(v, dir, i, e);
	if (i >= (node->nr ? v->ops->folders->nr_files(v, node->nr - 1) :
			     v->ops->nr(v)))
		return FS_AT_END;
	if (node->nr)
		i += (uint64_t)(node->nr - 1) << CK_VIEW_FOLDER_SHIFT;
	if (!v->ops->file(v, (uint32_t)i, &file))
		return FS_AT_NOTHING;
	v->ops->label(v, (uint32_t)i, e->name);
	e->ino = (view_of(dir) + 1) * FS_INO_FILE + i;
	return FS_AT_ENTRY;
}

static enum fs_at virt_entry(const struct fs_mounted *mounted, uint64_t i,
			     struct fs_entry *e)
{
	if (i >= FS_VIRT_NR)
		return FS_AT_END;
	if (!fs_virt_has(mounted->virt, (unsigned)i))
		return FS_AT_NOTHING;
	snprintf(e->name, sizeof(e->name), "%s", fs_virt_name((unsigned)i));
	e->ino = FS_INO_VIRT + i;
	return FS_AT_ENTRY;
}

/* The folder of a nested view is one of the view that nests. */
static uint64_t parent_of(const struct fs_mounted *mounted, uint64_t dir,
			  const struct fs_node *node)
{
	uint64_t nr = node->view ? view_of(dir) : 0, v = 0;

	if (node->view && node->nr)
		return FS_INO_VIEW + nr;
	if (nr < FS_MAX_VIEWS)
		return FS_INO_ROOT;
	while (!mounted->view[v] || !mounted->view[v]->ops->nests)
		v++;
	return folder_ino(v, nr / FS_MAX_VIEWS - 1);
}

enum fs_at fs_tree_entry(const struct fs_mounted *mounted, uint64_t dir,
			 uint64_t pos, struct fs_entry *e)
{
	struct fs_node node = fs_tree_node(mounted, dir);

	e->type = S_IFREG;
	e->beside = false;
	if (pos < 2) {
		strcpy(e->name, pos ? ".." : ".");
		e->ino = pos ? parent_of(mounted, dir, &node) : dir;
		e->type = S_IFDIR;
		return FS_AT_ENTRY;
	}
	pos -= 2;
	if (dir == FS_INO_ROOT)
		return root_entry(mounted, pos, e);
	if (dir == FS_INO_META)
		return virt_entry(mounted, pos, e);
	if (node.kind == FS_DIR)
		return view_entry(&node, dir, pos, e);
	return FS_AT_END;
}
