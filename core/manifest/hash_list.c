/* SPDX-License-Identifier: Apache-2.0 */
/* hash_list.c - which files a checkpoint consists of */
#include "core/base/auto.h"
#include "core/root/dir.h"
#include "core/manifest/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool ours(const char *name)
{
	const char *slash = strrchr(name, '/');

	return !strncmp(slash ? slash + 1 : name, CK_MANIFEST_OURS,
			sizeof(CK_MANIFEST_OURS) - 1);
}

static int add(struct ck_hash_list *l, const char *name, const struct stat *st)
{
	struct ck_hash_file *f;

	if (l->nr == l->room) {
		size_t room = l->room ? 2 * l->room : 32;

		f = reallocarray(l->v, room, sizeof(*l->v));
		if (!f)
			return -ENOMEM;
		l->v = f;
		l->room = room;
	}
	f = &l->v[l->nr];
	*f = (struct ck_hash_file){ .name = strdup(name),
				    .size = (uint64_t)st->st_size,
				    .id = ck_id_of(st) };
	l->nr += f->name != NULL;
	return f->name ? 0 : -ENOMEM;
}

/* What is no file, gone again, or a link elsewhere is no file of it. */
static int look(struct ck_hash_list *l, const struct ck_root *root,
		const char *name, struct ck_err *err)
{
	struct stat st;
	int fd, ret = ck_root_open_file(root, name, &fd, &st, err);

	if (ret == -ENOENT || ret == -ELOOP || ret == -EXDEV ||
	    ret == -EINVAL || ret == -EISDIR)
		return 0;
	if (ret)
		return ret;
	close(fd);
	ret = add(l, name, &st);
	return ret ? ck_fail(err, -ret, "%s: no memory", name) : 0;
}

/* Entries of @from are files, or directories to be put on @todo. */
static int sort_out(struct ck_hash_list *l, const struct ck_root *root,
		    const struct ck_dir_list *from, struct ck_dir_list *todo,
		    struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < from->nr; i++) {
		const struct ck_dir_entry *e = &from->v[i];

		if (ours(e->name))
			continue;
		if (!e->is_dir)
			ret = look(l, root, e->name, err);
		else if (ck_dir_list_add(todo, "", e->name, true, 0))
			ret = ck_no_memory(err);
	}
	return ret;
}

static int list_all(struct ck_hash_list *l, const struct ck_root *root,
		    struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list todo = { 0 };
	struct ck_dir d;
	int ret;

	ck_dir_root_init(&d, root, NULL);
	if (ck_dir_list_add(&todo, "", "", true, 0))
		return ck_no_memory(err);
	for (size_t at = 0; at < todo.nr; at++) {
		ck_auto_dir_list struct ck_dir_list here = { 0 };

		ret = ck_dir_list(&d, todo.v[at].name, &here, err);
		if (!ret)
			ret = sort_out(l, root, &here, &todo, err);
		if (ret)
			return ret;
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ck_hash_file *)a)->name,
		      ((const struct ck_hash_file *)b)->name);
}

int ck_hash_list(struct ck_hash_list *out, const struct ck_root *root,
		 struct ck_err *err)
{
	int ret;

	*out = (struct ck_hash_list){ 0 };
	ret = list_all(out, root, err);
	if (!ret && out->nr)
		qsort(out->v, out->nr, sizeof(*out->v), by_name);
	return ret;
}

void ck_hash_list_free(struct ck_hash_list *l)
{
	for (size_t i = 0; i < l->nr; i++)
		free(l->v[i].name);
	free(l->v);
	*l = (struct ck_hash_list){ 0 };
}
