/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - from patterns of paths and a mesh to files
 *
 * A path is expanded for every rank; what several ranks share is one file,
 * whose coordinates are those that these ranks agree on.  Wildcards and {key}
 * are looked up in the folder afterwards.
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/suffix.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#define KEY_MARK "\001" /* where {key} was; no file name of a layout has it */
#define MAX_FILES (UINT32_C(1) << 21)

static struct ck_layout_file *file_called(const struct ck_layout_load *ld,
					  const char *path)
{
	uint32_t nr = ck_strmap_get(&ld->paths, path, strlen(path));

	return nr == CK_STRMAP_NONE ? NULL : &ld->files.v[nr];
}

/* A file of that path, else like @like; @at is copied. */
static int add_file(struct ck_layout_load *ld, const char *path,
		    const struct ck_layout_file *like, const uint64_t *at,
		    struct ck_err *err)
{
	struct ck_layout_file f = *like;
	uint32_t nr;

	if (ld->files.nr >= MAX_FILES)
		return ck_fail(err, E2BIG, "%s: more than %u files",
			       ld->doc.name, MAX_FILES);
	nr = ck_strmap_keep(&ld->paths, &ld->mem, path, strlen(path));
	f.at = ck_arena_copy(&ld->mem, at, ld->doc.mesh.nr * sizeof(*at));
	if (!f.at || nr != ld->files.nr || !ck_vec_reserve(&ld->files, 1))
		return ck_no_memory(err);
	f.path = ld->paths.v[nr].s;
	ld->files.v[ld->files.nr++] = f;
	return 0;
}

/* ---- for every rank ---- */

static int add_path(struct ck_layout_load *ld, uint32_t entry, const char *path,
		    const uint64_t *at, uint64_t rank, struct ck_err *err)
{
	const struct ck_layout_file fresh = {
		.entry = entry,
		.kind = ld->doc.files[entry].kind,
		.rank = rank,
	};
	struct ck_layout_file *old = file_called(ld, path);

	if (!old)
		return add_file(ld, path, &fresh, at, err);
	if (old->entry != entry)
		return ck_fail(err, EINVAL,
			       "%s: files[%u].path: names %s, which files[%u] "
			       "names too",
			       ld->doc.name, entry, path, old->entry);
	/* another rank has the same file: what both say is known of it */
	for (unsigned i = 0; i < ld->doc.mesh.nr; i++)
		if (old->at[i] != at[i])
			old->at[i] = CK_LAYOUT_FREE;
	if (old->rank != rank)
		old->rank = CK_LAYOUT_FREE;
	return 0;
}

static int expand_entry(struct ck_layout_load *ld, uint32_t entry,
			struct ck_err *err)
{
	const struct ck_layout_files *f = &ld->doc.files[entry];
	const struct ck_layout_mesh *mesh = &ld->doc.mesh;
	ck_auto_str struct ck_str path = { 0 };
	uint64_t at[CK_LAYOUT_AXES];
	struct ck_layout_vars v = { .mesh = mesh,
				    .at = at,
				    .key = { KEY_MARK, 1 } };
	struct ck_err why;
	int ret = 0;

	for (uint64_t pos = 0; pos < mesh->nr_ranks && !ret; pos++) {
		ck_layout_coords(mesh, pos, at);
		if (!ck_layout_agree(mesh, at, f->at))
			continue;
		v.rank = ck_layout_rank(mesh, pos);
		path.len = 0;
		ret = ck_layout_expand(f->path, &v, &path, NULL, &why);
		if (ret)
			return ck_fail(err, -ret, "%s: files[%u].path: %s",
				       ld->doc.name, entry, why.msg);
		ret = add_path(ld, entry, path.v, at, v.rank, err);
	}
	return ret;
}

/* ---- wildcards and {key} ---- */

struct pattern {
	const char *base; /* after the last slash */
	const char *mark; /* in base; NULL: a wildcard */
};

static bool matches(const struct pattern *p, const char *name,
		    struct ck_layout_slice *key)
{
	size_t before, after, len;

	name = ck_base_name(name);
	if (!p->mark)
		return !fnmatch(p->base, name, FNM_PERIOD);
	before = (size_t)(p->mark - p->base);
	after = strlen(p->mark + 1);
	len = strlen(name);
	if (len <= before + after || memcmp(name, p->base, before) != 0 ||
	    strcmp(name + len - after, p->mark + 1) != 0)
		return false;
	key->s = name + before;
	key->len = len - before - after;
	return true;
}

/* The pattern that @path is; a copy of its folder's name, or NULL. */
static char *split_pattern(struct pattern *p, const struct ck_layout_load *ld,
			   const char *path, uint32_t entry)
{
	p->base = ck_base_name(path);
	p->mark = ld->doc.files[entry].has_key ? strchr(p->base, KEY_MARK[0]) :
						 NULL;
	return strndup(path, p->base > path ? (size_t)(p->base - 1 - path) : 0);
}

static int add_match(struct ck_layout_load *ld,
		     const struct ck_layout_file *like, const char *name,
		     struct ck_layout_slice key, struct ck_err *err)
{
	struct ck_layout_file f = *like;

	f.pattern = false;
	f.key = key;
	if (file_called(ld, name))
		return ck_fail(err, EINVAL,
			       "%s: files[%u].path: %s is named before, or by "
			       "another rank",
			       ld->doc.name, like->entry, name);
	if (key.s)
		f.key.s = ck_arena_copy(&ld->mem, key.s, key.len);
	if (key.s && !f.key.s)
		return ck_no_memory(err);
	return add_file(ld, name, &f, f.at, err);
}

static int look_up(struct ck_layout_load *ld, uint32_t number,
		   struct ck_dir_list *l, char **listed, struct ck_err *err)
{
	const struct ck_layout_file like = ld->files.v[number];
	struct pattern p;
	ck_auto_free char *dir = split_pattern(&p, ld, like.path, like.entry);
	size_t found = 0;
	int ret = 0;

	if (!dir)
		return ck_no_memory(err);
	if (!*listed || strcmp(*listed, dir) != 0) {
		ck_dir_list_free(l);
		free(*listed);
		*listed = ck_steal(dir);
		ret = ck_dir_list(ld->dir, *listed, l, err);
		if (ret && ret != -ENOENT)
			return ret;
	}
	ret = 0;
	for (size_t i = 0; i < l->nr && !ret; i++) {
		struct ck_layout_slice key = { 0 };

		if (l->v[i].is_dir || !matches(&p, l->v[i].name, &key))
			continue;
		found++;
		ret = add_match(ld, &like, l->v[i].name, key, err);
	}
	if (ret || found)
		return ret;
	return ck_builder_report_file(ld->b, CK_ERROR, NULL, err,
				      "files[%u].path: no file is called %s",
				      like.entry, like.path);
}

/* What was a pattern stays in the list, but is no file. */
static int look_up_all(struct ck_layout_load *ld, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_free char *listed = NULL;
	size_t nr = ld->files.nr;
	int ret = 0;

	for (uint32_t i = 0; i < nr && !ret; i++) {
		const struct ck_layout_files *f =
			&ld->doc.files[ld->files.v[i].entry];

		if (!f->glob && !f->has_key)
			continue;
		ld->files.v[i].pattern = true;
		ret = look_up(ld, i, &l, &listed, err);
	}
	return ret;
}

/* ---- boxes ---- */

static int add_box_file(struct ck_layout_load *ld,
			const struct ck_layout_box *b, struct ck_err *err)
{
	const struct ck_layout_file fresh = { .entry = CK_NONE,
					      .kind = b->kind,
					      .rank = CK_LAYOUT_FREE };
	const struct ck_layout_file *old;
	uint64_t at[CK_LAYOUT_AXES];

	if (!b->file)
		return 0;
	old = file_called(ld, b->file);
	if (old && old->kind != b->kind)
		return ck_fail(err, EINVAL,
			       "%s: %s is a raw file in one place, and of "
			       "another kind in another",
			       ld->doc.name, b->file);
	for (unsigned i = 0; i < CK_LAYOUT_AXES; i++)
		at[i] = CK_LAYOUT_FREE;
	return old ? 0 : add_file(ld, b->file, &fresh, at, err);
}

/* ---- files past the mesh ---- */

/*
 * 1: a file that exists, is called as @path says, a pattern or not, and is none
 * of ours; it is @path then.
 */
static int find_unknown(const struct ck_layout_load *ld, uint32_t entry,
			struct ck_str *path, struct ck_err *err)
{
	const struct ck_layout_files *f = &ld->doc.files[entry];
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_free char *dir = NULL;
	struct pattern p;
	int ret;

	if (!f->glob && !f->has_key)
		return ck_dir_name_ok(path->v, path->len) &&
		       !file_called(ld, path->v) &&
		       ck_dir_has(ld->dir, path->v);
	dir = split_pattern(&p, ld, path->v, entry);
	if (!dir)
		return ck_no_memory(err);
	ret = ck_dir_list(ld->dir, dir, &l, err);
	for (size_t i = 0; i < l.nr; i++) {
		struct ck_layout_slice key;

		if (l.v[i].is_dir || !matches(&p, l.v[i].name, &key) ||
		    file_called(ld, l.v[i].name))
			continue;
		path->len = 0;
		ck_str_puts(path, l.v[i].name);
		return path->failed ? ck_no_memory(err) : 1;
	}
	return ret == -ENOMEM ? ret : 0;
}

/* The file that the next place on axis @axis would have, which is not there. */
static int look_past(struct ck_layout_load *ld, uint32_t entry, unsigned axis,
		     bool *found, struct ck_err *err)
{
	const struct ck_layout_files *f = &ld->doc.files[entry];
	const struct ck_layout_mesh *mesh = &ld->doc.mesh;
	ck_auto_str struct ck_str path = { 0 };
	uint64_t at[CK_LAYOUT_AXES];
	const struct ck_layout_vars v = { .mesh = mesh,
					  .at = at,
					  .rank = mesh->nr_ranks,
					  .key = { KEY_MARK, 1 } };
	struct ck_err why;
	int ret;

	for (unsigned i = 0; i < mesh->nr; i++)
		at[i] = f->at[i] == CK_LAYOUT_FREE ? 0 : f->at[i];
	at[axis] = mesh->axis[axis].size;
	ret = ck_layout_expand(f->path, &v, &path, NULL, &why);
	if (ret == -ENOMEM || path.failed)
		return ck_no_memory(err);
	/* else the path speaks of no such place */
	ret = ret ? 0 : find_unknown(ld, entry, &path, err);
	if (ret <= 0)
		return ret;
	*found = true; /* of several axes one is said, for {rank} is of all */
	return ck_builder_report_file(
		ld->b, CK_WARNING, path.v, err,
		"files[%u].path would name it were the mesh larger (%s has "
		"%" PRIu64 "): what is in it is not read",
		entry, mesh->axis[axis].name, mesh->axis[axis].size);
}

int ck_layout_find_files(struct ck_layout_load *ld, struct ck_err *err)
{
	const struct ck_layout_doc *d = &ld->doc;
	int ret = 0;

	for (uint32_t i = 0; i < d->nr_files && !ret; i++)
		ret = expand_entry(ld, i, err);
	if (!ret)
		ret = look_up_all(ld, err);
	for (size_t i = 0; i < d->nr_rules; i++)
		for (size_t k = 0; k < d->rules[i].nr_boxes && !ret; k++)
			ret = add_box_file(ld, &d->rules[i].box[k], err);
	for (uint32_t i = 0; i < d->nr_files; i++) {
		bool found = false;

		for (unsigned a = 0; a < d->mesh.nr && !ret; a++)
			if (!found && d->files[i].at[a] == CK_LAYOUT_FREE)
				ret = look_past(ld, i, a, &found, err);
	}
	return ret;
}
