/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/tree.h"

#include "core/base/check.h"
#include "fs/slot.h"
#include "fs/virt.h"

#include <stdio.h>
#include <string.h>

static struct fs_node view_node(const struct fs_slot *slot, uint64_t nr,
				enum fs_kind kind, uint32_t file)
{
	struct fs_node node = { FS_NONE, file, NULL };

	if (nr >= FS_MAX_VIEWS || !slot->view[nr])
		return node;
	node.view = slot->view[nr];
	if (kind == FS_FILE ? file < node.view->ops->nr(node.view) :
			      node.view->ops->is_dir)
		node.kind = kind;
	return node;
}

struct fs_node fs_tree_node(const struct fs_slot *slot, uint64_t ino)
{
	struct fs_node node = { FS_NONE, 0, NULL };

	if (ino & FS_INO_SHARD)
		node.kind = FS_SHARD;
	else if (ino >= FS_INO_FILE)
		return view_node(slot, (ino >> 32) - 1, FS_FILE, (uint32_t)ino);
	else if (ino >= FS_INO_VIEW)
		return view_node(slot, ino - FS_INO_VIEW, FS_DIR, 0);
	else if (ino >= FS_INO_VIRT && ino < FS_INO_VIRT + FS_VIRT_NR)
		node = (struct fs_node){ FS_VIRT, (uint32_t)(ino - FS_INO_VIRT),
					 NULL };
	else if (ino == FS_INO_ROOT)
		node.kind = slot->steps ? FS_STEPS : FS_DIR;
	else if (ino == FS_INO_META)
		node.kind = FS_DIR;
	else if (ino == FS_INO_SHARDS)
		node.kind = FS_SHARD;
	else if (ino == FS_INO_LATEST && slot->steps && !slot->name)
		node.kind = FS_LATEST;
	return node;
}

static bool has_file(const struct ck_view *v)
{
	struct ck_vfile file;

	return v->ops->file(v, 0, &file);
}

/* Entry number @i of a root: the views, then shards and .unshard. */
static enum fs_at root_entry(const struct fs_slot *slot, uint64_t i,
			     struct fs_entry *e)
{
	const struct ck_view *v;

	if (i >= FS_MAX_VIEWS + 2)
		return FS_AT_END;
	if (i >= FS_MAX_VIEWS) {
		bool shards = i == FS_MAX_VIEWS;

		e->ino = shards ? FS_INO_SHARDS : FS_INO_META;
		e->is_dir = true;
		strcpy(e->name, shards ? "shards" : ".unshard");
		return FS_AT_ENTRY;
	}
	v = slot->view[i];
	if (!v || (!v->ops->is_dir && !has_file(v)))
		return FS_AT_NOTHING;
	e->is_dir = v->ops->is_dir;
	e->ino = e->is_dir ? FS_INO_VIEW + i : (i + 1) * FS_INO_FILE;
	snprintf(e->name, sizeof(e->name), "%s", v->ops->name);
	return FS_AT_ENTRY;
}

static uint64_t find_root(const struct fs_slot *slot, const char *name)
{
	struct fs_entry e;
	enum fs_at at;

	/* a file is made for who asks for it, not for its neighbours */
	for (uint64_t i = 0; i < FS_MAX_VIEWS + 2; i++) {
		if (i < FS_MAX_VIEWS &&
		    (!slot->view[i] || strcmp(slot->view[i]->ops->name, name)))
			continue;
		at = root_entry(slot, i, &e);
		if (at == FS_AT_ENTRY && !strcmp(e.name, name))
			return e.ino;
	}
	return 0;
}

static uint64_t find_virt(const struct fs_slot *slot, const char *name)
{
	for (unsigned i = 0; i < FS_VIRT_NR; i++)
		if (fs_virt_has(slot->virt, i) &&
		    !strcmp(name, fs_virt_name(i)))
			return FS_INO_VIRT + i;
	return 0;
}

uint64_t fs_tree_lookup(const struct fs_slot *slot, uint64_t dir,
			const char *name)
{
	struct fs_node node = fs_tree_node(slot, dir);
	uint32_t i;

	if (dir == FS_INO_ROOT)
		return find_root(slot, name);
	if (dir == FS_INO_META)
		return find_virt(slot, name);
	if (node.kind != FS_DIR)
		return 0;
	i = node.view->ops->find(node.view, name, strlen(name));
	return i == CK_NONE ? 0 : (dir - FS_INO_VIEW + 1) * FS_INO_FILE + i;
}

static enum fs_at view_entry(const struct ck_view *v, uint64_t dir, uint64_t i,
			     struct fs_entry *e)
{
	struct ck_vfile file;

	if (i >= v->ops->nr(v))
		return FS_AT_END;
	if (!v->ops->file(v, (uint32_t)i, &file))
		return FS_AT_NOTHING;
	memcpy(e->name, file.name, sizeof(e->name));
	e->ino = (dir - FS_INO_VIEW + 1) * FS_INO_FILE + i;
	return FS_AT_ENTRY;
}

static enum fs_at virt_entry(const struct fs_slot *slot, uint64_t i,
			     struct fs_entry *e)
{
	if (i >= FS_VIRT_NR)
		return FS_AT_END;
	if (!fs_virt_has(slot->virt, (unsigned)i))
		return FS_AT_NOTHING;
	snprintf(e->name, sizeof(e->name), "%s", fs_virt_name((unsigned)i));
	e->ino = FS_INO_VIRT + i;
	return FS_AT_ENTRY;
}

enum fs_at fs_tree_entry(const struct fs_slot *slot, uint64_t dir, uint64_t pos,
			 struct fs_entry *e)
{
	struct fs_node node = fs_tree_node(slot, dir);

	e->is_dir = e->is_link = false;
	if (pos < 2) {
		strcpy(e->name, pos ? ".." : ".");
		e->ino = pos ? FS_INO_ROOT : dir;
		e->is_dir = true;
		return FS_AT_ENTRY;
	}
	pos -= 2;
	if (dir == FS_INO_ROOT)
		return root_entry(slot, pos, e);
	if (dir == FS_INO_META)
		return virt_entry(slot, pos, e);
	if (node.kind == FS_DIR)
		return view_entry(node.view, dir, pos, e);
	return FS_AT_END;
}
