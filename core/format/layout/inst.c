/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inst.c - from patterns of paths and a mesh to files
 *
 * A path is expanded for every rank; what several ranks share is one file,
 * whose coordinates are those that these ranks agree on.  Wildcards and {key}
 * are looked up in the folder afterwards.
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEY_MARK "\001" /* where {key} was; no file name of a layout has it */
#define MAX_FILES (UINT32_C(1) << 21)

static int new_inst(struct ck_lay_load *ld, const char *path, size_t len,
		    const struct ck_lay_inst *like, struct ck_err *err)
{
	uint32_t kept = ck_lay_keep(ld, path, len), number;
	struct ck_lay_inst *room;

	if (ld->insts.nr >= MAX_FILES)
		return ck_fail(err, E2BIG, "%s: more than %u files",
			       ld->doc.name, MAX_FILES);
	room = kept == CK_NONE ? NULL : ck_vec_push(&ld->insts);
	if (!room)
		return ck_lay_no_mem(ld, err);
	*room = *like;
	room->path = ld->kept.v[kept];
	number = ck_strmap_put(&ld->paths, room->path, len);
	return number == ld->insts.nr - 1 ? 0 : ck_lay_no_mem(ld, err);
}

/* Another rank has the same file: only what both say is known of it. */
static void merge(struct ck_lay_load *ld, struct ck_lay_inst *old,
		  const uint64_t *at, uint64_t rank)
{
	uint64_t *was = ld->dims.v + old->at;

	for (unsigned i = 0; i < ld->doc.mesh.nr; i++)
		if (was[i] != at[i])
			was[i] = CK_LAY_FREE;
	if (old->rank != rank)
		old->rank = CK_LAY_FREE;
}

static int add_path(struct ck_lay_load *ld, uint32_t entry,
		    const struct ck_str *path, const uint64_t *at,
		    uint64_t rank, struct ck_err *err)
{
	uint32_t old = ck_strmap_get(&ld->paths, path->v, path->len);
	struct ck_lay_inst fresh = {
		.entry = entry,
		.kind = ld->doc.files.v[entry].kind,
		.rank = rank,
	};

	if (old != CK_STRMAP_NONE && ld->insts.v[old].entry != entry)
		return ck_fail(err, EINVAL,
			       "%s: files[%u].path: names %s, which files[%u] "
			       "names too",
			       ld->doc.name, entry, path->v,
			       ld->insts.v[old].entry);
	if (old != CK_STRMAP_NONE) {
		merge(ld, &ld->insts.v[old], at, rank);
		return 0;
	}
	fresh.at = ck_lay_put_dims(ld, at, ld->doc.mesh.nr);
	if (fresh.at == SIZE_MAX)
		return ck_lay_no_mem(ld, err);
	return new_inst(ld, path->v, path->len, &fresh, err);
}

static bool agrees(const uint64_t *a, const uint64_t *b, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		if (a[i] != CK_LAY_FREE && b[i] != CK_LAY_FREE && a[i] != b[i])
			return false;
	return true;
}

static int expand_entry(struct ck_lay_load *ld, uint32_t entry,
			struct ck_err *err)
{
	const struct ck_lay_files *f = &ld->doc.files.v[entry];
	const struct ck_lay_mesh *mesh = &ld->doc.mesh;
	ck_auto_str struct ck_str path = { 0 };
	uint64_t at[CK_LAY_AXES];
	struct ck_lay_vars v = { .mesh = mesh,
				 .at = at,
				 .key = { KEY_MARK, 1 } };
	struct ck_err why;
	int ret = 0;

	for (uint64_t pos = 0; pos < mesh->nr_ranks && !ret; pos++) {
		ck_lay_coords(mesh, pos, at);
		if (!agrees(at, f->at, mesh->nr))
			continue;
		v.rank = mesh->rank ? mesh->rank[pos] : pos;
		path.len = 0;
		ret = ck_lay_expand(f->path, &v, &path, NULL, &why);
		if (ret)
			return ck_fail(err, -ret, "%s: files[%u].path: %s",
				       ld->doc.name, entry, why.msg);
		ret = add_path(ld, entry, &path, at, v.rank, err);
	}
	return ret;
}

/* ---- wildcards and {key} ---- */

struct pattern {
	const char *base; /* after the last slash */
	const char *mark; /* in base; NULL: a wildcard */
};

static bool matches(const struct pattern *p, const char *name,
		    struct ck_lay_slice *key)
{
	const char *slash = strrchr(name, '/');
	size_t before, after, len;

	name = slash ? slash + 1 : name;
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

static int add_match(struct ck_lay_load *ld, const struct ck_lay_inst *like,
		     const char *name, const struct ck_lay_slice *key,
		     struct ck_err *err)
{
	struct ck_lay_inst inst = *like;
	uint32_t kept;

	inst.pattern = false;
	if (ck_strmap_get(&ld->paths, name, strlen(name)) != CK_STRMAP_NONE)
		return ck_fail(err, EINVAL,
			       "%s: files[%u].path: %s is named before, or by "
			       "another rank",
			       ld->doc.name, like->entry, name);
	if (key->s) {
		kept = ck_lay_keep(ld, key->s, key->len);
		if (kept == CK_NONE)
			return ck_lay_no_mem(ld, err);
		inst.key.s = ld->kept.v[kept];
		inst.key.len = key->len;
	}
	return new_inst(ld, name, strlen(name), &inst, err);
}

/* The pattern that @path is; returns how long its folder's name is. */
static size_t take_pattern(struct pattern *p, const struct ck_lay_load *ld,
			   const char *path, uint32_t entry)
{
	const char *slash = strrchr(path, '/');

	p->base = slash ? slash + 1 : path;
	p->mark = ld->doc.files.v[entry].has_key ?
			  strchr(p->base, KEY_MARK[0]) :
			  NULL;
	return slash ? (size_t)(slash - path) : 0;
}

static int look_up(struct ck_lay_load *ld, uint32_t number,
		   struct ck_dir_list *l, char **listed, struct ck_err *err)
{
	const struct ck_lay_inst like = ld->insts.v[number];
	struct pattern p;
	ck_auto_free char *dir =
		strndup(like.path, take_pattern(&p, ld, like.path, like.entry));
	size_t found = 0;
	int ret = 0;

	if (!dir)
		return ck_lay_no_mem(ld, err);
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
		struct ck_lay_slice key = { 0 };

		if (l->v[i].is_dir || !matches(&p, l->v[i].name, &key))
			continue;
		found++;
		ret = add_match(ld, &like, l->v[i].name, &key, err);
	}
	if (ret || found)
		return ret;
	return ck_lay_say(ld, NULL, err, "files[%u].path: no file is called %s",
			  like.entry, like.path);
}

/* What was a pattern stays in the list, but is no file. */
static int look_up_all(struct ck_lay_load *ld, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_free char *listed = NULL;
	size_t nr = ld->insts.nr;
	int ret = 0;

	for (uint32_t i = 0; i < nr && !ret; i++) {
		const struct ck_lay_files *f =
			&ld->doc.files.v[ld->insts.v[i].entry];

		if (!f->glob && !f->has_key)
			continue;
		ld->insts.v[i].pattern = true;
		ret = look_up(ld, i, &l, &listed, err);
	}
	return ret;
}

/* ---- boxes ---- */

static int add_box_file(struct ck_lay_load *ld, const struct ck_lay_box *b,
			struct ck_err *err)
{
	uint64_t free_at[CK_LAY_AXES];
	struct ck_lay_inst fresh = { .entry = CK_NONE,
				     .kind = b->kind,
				     .rank = CK_LAY_FREE };
	uint32_t old = ck_strmap_get(&ld->paths, b->file, strlen(b->file));

	if (old != CK_STRMAP_NONE && ld->insts.v[old].kind != b->kind)
		return ck_fail(err, EINVAL,
			       "%s: %s is a raw file in one place, and of "
			       "another kind in another",
			       ld->doc.name, b->file);
	if (old != CK_STRMAP_NONE)
		return 0;
	for (unsigned i = 0; i < CK_LAY_AXES; i++)
		free_at[i] = CK_LAY_FREE;
	fresh.at = ck_lay_put_dims(ld, free_at, ld->doc.mesh.nr);
	if (fresh.at == SIZE_MAX)
		return ck_lay_no_mem(ld, err);
	return new_inst(ld, b->file, strlen(b->file), &fresh, err);
}

/* ---- files past the mesh ---- */

/*
 * 1: a file that exists, is called as @path says, a pattern or not, and is none
 * of ours; it is @path then.
 */
static int find_unknown(const struct ck_lay_load *ld, uint32_t entry,
			struct ck_str *path, struct ck_err *err)
{
	const struct ck_lay_files *f = &ld->doc.files.v[entry];
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_free char *dir = NULL;
	struct pattern p;
	int ret;

	if (!f->glob && !f->has_key)
		return ck_dir_name_ok(path->v, path->len) &&
		       ck_strmap_get(&ld->paths, path->v, path->len) ==
			       CK_STRMAP_NONE &&
		       ck_dir_has(ld->dir, path->v);
	dir = strndup(path->v, take_pattern(&p, ld, path->v, entry));
	if (!dir)
		return ck_lay_no_mem(ld, err);
	ret = ck_dir_list(ld->dir, dir, &l, err);
	for (size_t i = 0; i < l.nr; i++) {
		const char *name = l.v[i].name;
		struct ck_lay_slice key;

		if (l.v[i].is_dir || !matches(&p, name, &key) ||
		    ck_strmap_get(&ld->paths, name, strlen(name)) !=
			    CK_STRMAP_NONE)
			continue;
		path->len = 0;
		ck_str_puts(path, name);
		return path->failed ? ck_lay_no_mem(ld, err) : 1;
	}
	return ret == -ENOMEM ? ret : 0;
}

/* The file that the next place on axis @axis would have, which is not there. */
static int look_past(struct ck_lay_load *ld, uint32_t entry, unsigned axis,
		     bool *found, struct ck_err *err)
{
	const struct ck_lay_files *f = &ld->doc.files.v[entry];
	const struct ck_lay_mesh *mesh = &ld->doc.mesh;
	ck_auto_str struct ck_str path = { 0 };
	struct ck_problem_in what = { .severity = CK_WARNING };
	uint64_t at[CK_LAY_AXES];
	struct ck_lay_vars v = { .mesh = mesh,
				 .at = at,
				 .rank = mesh->nr_ranks,
				 .key = { KEY_MARK, 1 } };
	struct ck_err why;
	int ret;

	for (unsigned i = 0; i < mesh->nr; i++)
		at[i] = f->at[i] == CK_LAY_FREE ? 0 : f->at[i];
	at[axis] = mesh->axis[axis].size;
	ret = ck_lay_expand(f->path, &v, &path, NULL, &why);
	if (ret == -ENOMEM || path.failed)
		return ck_lay_no_mem(ld, err);
	if (!ret)
		ret = find_unknown(ld, entry, &path, err);
	else
		ret = 0; /* the path speaks of no such place */
	if (ret <= 0)
		return ret;
	*found = true; /* of several axes one is said, for {rank} is of all */
	what.file = path.v;
	return ck_builder_problem(
		ld->b, &what, err,
		"files[%u].path would name it were the mesh larger (%s has "
		"%" PRIu64 "): what is in it is not read",
		entry, mesh->axis[axis].name, mesh->axis[axis].size);
}

static int look_past_all(struct ck_lay_load *ld, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < ld->doc.files.nr; i++) {
		const struct ck_lay_files *f = &ld->doc.files.v[i];
		bool found = false;

		for (unsigned a = 0; a < ld->doc.mesh.nr && !ret; a++)
			if (!found && f->at[a] == CK_LAY_FREE)
				ret = look_past(ld, i, a, &found, err);
	}
	return ret;
}

int ck_lay_find_files(struct ck_lay_load *ld, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < ld->doc.files.nr && !ret; i++)
		ret = expand_entry(ld, i, err);
	if (!ret)
		ret = look_up_all(ld, err);
	for (size_t i = 0; i < ld->doc.boxes.nr && !ret; i++)
		if (ld->doc.boxes.v[i].file)
			ret = add_box_file(ld, &ld->doc.boxes.v[i], err);
	return ret ? ret : look_past_all(ld, err);
}
