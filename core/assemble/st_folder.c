/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_folder.c - one folder may hold several things that end in .safetensors
 *
 *   model-00001-of-00002.safetensors ...   with NAME.safetensors.index.json
 *   model-00001-of-00002.safetensors ...   without: all of 1..N must be there
 *   shard-00001-model-00001-of-00001...    DCP, one a rank, no index
 *                                          others beside them are left aside
 *   sharded/shard-...                      the same, below consolidated files
 *   any others                             together, if no name is in two
 */
#include "core/assemble/st_folder.h"

#include "core/assemble/pattern.h"
#include "core/base/suffix.h"
#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/assemble/index_map.h"
#include "core/assemble/numbered.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_SUFFIX ".safetensors.index.json"
#define PLAIN_INDEX "model.safetensors.index.json"
#define MODEL_INDEX "model.safetensors.index"
#define STATES_INDEX "optimizer.safetensors.index"
#define SHARDED_DIR "sharded"

/* Of ColossalAI's, model....index.PREFIX.json; its optimizers are no models. */
static bool is_index(const char *name)
{
	size_t len = strlen(name), suffix = strlen(INDEX_SUFFIX);

	if (ck_index_is(name, STATES_INDEX))
		return false;
	return ck_index_is(name, MODEL_INDEX) ||
	       (len > suffix && !strcmp(name + len - suffix, INDEX_SUFFIX));
}

static int add_name(const char ***v, size_t *nr, size_t *room, const char *name)
{
	if (!ck_vec_reserve_((void **)v, *nr, room, 1, sizeof(**v)))
		return -ENOMEM;
	(*v)[(*nr)++] = name;
	return 0;
}

static int use(struct ck_st_folder *f, const char *name)
{
	return add_name(&f->name, &f->nr, &f->room, name);
}

static int leave(struct ck_st_folder *f, const char *name)
{
	return add_name(&f->aside, &f->nr_aside, &f->room_aside, name);
}

static bool has_shards(const struct ck_dir_list *l)
{
	for (size_t i = 0; i < l->nr; i++)
		if (ck_st_is_shard(l->v[i].name, NULL))
			return true;
	return false;
}

/* Directories are kept: a folder in a shard's place is an error to report. */
static enum ck_st_folder_mode mode_of_root(const struct ck_st_folder *f)
{
	size_t nr = 0, shards = 0;
	struct ck_numbered n = { 0 };

	for (size_t i = 0; i < f->root.nr; i++) {
		const char *name = f->root.v[i].name;

		if (!ck_has_suffix(name, ".safetensors"))
			continue;
		nr++;
		shards += ck_st_is_shard(name, NULL);
		if (nr == 1)
			ck_numbered_is(name, &n);
	}
	if (shards)
		return CK_ST_SHARDED;
	if (nr == 1 && n.of <= 1)
		return CK_ST_ONE;
	return nr ? CK_ST_UNION : CK_ST_NONE;
}

int ck_st_folder_list(struct ck_st_folder *f, const struct ck_dir *dir,
		      struct ck_err *err)
{
	int ret;

	*f = (struct ck_st_folder){ 0 };
	ret = ck_dir_list(dir, "", &f->root, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < f->root.nr; i++) {
		const struct ck_dir_entry *e = &f->root.v[i];

		if (is_index(e->name) && !dir->only)
			f->mode = CK_ST_INDEXED;
		if (!e->is_dir || strcmp(e->name, SHARDED_DIR))
			continue;
		ret = ck_dir_list(dir, SHARDED_DIR, &f->below, err);
		if (ret)
			return ret;
	}
	if (f->mode == CK_ST_NONE)
		f->mode = mode_of_root(f);
	f->beside_sharded = has_shards(&f->below);
	if (f->mode == CK_ST_NONE && f->beside_sharded) {
		f->mode = CK_ST_SHARDED;
		f->beside_sharded = false;
	}
	return 0;
}

static int choose_index(struct ck_st_folder *f, const struct ck_dir *dir,
			struct ck_err *err)
{
	const char *want = ck_opts_get(dir->opts, "file");

	for (size_t i = 0; i < f->root.nr; i++) {
		const char *name = f->root.v[i].name;

		if (!is_index(name))
			continue;
		if (want && !strcmp(want, name)) {
			ck_opts_use(dir->opts, "file");
			f->index = name;
			return 0;
		}
		if (!f->index || !strcmp(name, PLAIN_INDEX)) {
			f->index = name;
		} else if (strcmp(f->index, PLAIN_INDEX)) {
			return ck_fail(
				err, EINVAL,
				"%s: two indexes, %s and %s, and no " PLAIN_INDEX
				": -o file= says which is "
				"read",
				dir->path, f->index, name);
		}
	}
	return 0;
}

static int read_index(struct ck_st_folder *f, const struct ck_dir *dir,
		      struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret = ck_dir_slurp(dir, f->index, CK_MAX_HEADER, &bytes, &len, err);

	if (ret)
		return ret;
	ret = ck_json_parse(&f->json, bytes, len, err);
	if (ret)
		return ck_wrap(err, ret, "%s", f->index);
	f->weight_map = json_object_get(f->json, "weight_map");
	if (!json_is_object(f->weight_map))
		return ck_fail(err, EINVAL,
			       "%s: expected an object with "
			       "\"weight_map\", an object",
			       f->index);
	return 0;
}

/* The files that the index names, each once, and which others there are. */
static int take_indexed(struct ck_st_folder *f, struct ck_err *err)
{
	ck_auto_strmap struct ck_strmap seen = { 0 };
	const char *tensor;
	json_t *file;
	int ret = 0;

	json_object_foreach((json_t *)f->weight_map, tensor, file)
	{
		const char *name = json_string_value(file);
		size_t before = seen.nr;

		if (!name || !*name || strlen(name) != json_string_length(file))
			return ck_fail(err, EINVAL,
				       "%s: weight_map: %s: "
				       "expected a file's name",
				       f->index, tensor);
		if (ck_strmap_put(&seen, name, strlen(name)) == CK_STRMAP_NONE)
			return ck_no_memory(err);
		if (seen.nr > before && !ret)
			ret = use(f, name);
	}
	for (size_t i = 0; i < f->root.nr && !ret; i++) {
		const char *name = f->root.v[i].name;

		if (ck_has_suffix(name, ".safetensors") &&
		    !f->root.v[i].is_dir &&
		    ck_strmap_get(&seen, name, strlen(name)) == CK_STRMAP_NONE)
			ret = leave(f, name);
	}
	return ret ? ck_no_memory(err) : 0;
}

static int take_listed(struct ck_st_folder *f, const struct ck_dir_list *from,
		       struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < from->nr && !ret; i++) {
		const char *name = from->v[i].name;

		if (!ck_has_suffix(name, ".safetensors"))
			continue;
		if (f->mode == CK_ST_SHARDED && !ck_st_is_shard(name, NULL))
			ret = leave(f, name);
		else
			ret = use(f, name);
	}
	if (ret)
		return ck_no_memory(err);
	for (size_t i = 0; i < f->nr && !ret && f->mode == CK_ST_UNION; i++)
		if (!i || !ck_numbered_next(f->name[i - 1], f->name[i]))
			ret = ck_numbered_check(f->name, f->nr, i, INDEX_SUFFIX,
						err);
	return ret;
}

int ck_st_folder_choose(struct ck_st_folder *f, const struct ck_dir *dir,
			struct ck_err *err)
{
	int ret;

	if (f->mode == CK_ST_INDEXED) {
		ret = choose_index(f, dir, err);
		ret = ret ? ret : read_index(f, dir, err);
		return ret ? ret : take_indexed(f, err);
	}
	if (f->mode == CK_ST_SHARDED && mode_of_root(f) == CK_ST_NONE)
		return take_listed(f, &f->below, err);
	return take_listed(f, &f->root, err);
}

void ck_st_folder_free(struct ck_st_folder *f)
{
	json_decref(f->json);
	free(f->name);
	free(f->aside);
	ck_dir_list_free(&f->root);
	ck_dir_list_free(&f->below);
	*f = (struct ck_st_folder){ 0 };
}

bool ck_st_is_shard(const char *name, struct ck_st_shard *out)
{
	static const struct ck_pattern p = { "shard-#-model-#-of-#.safetensors",
					     0 };
	struct ck_pattern_found f;

	if (!ck_pattern_find(&p, 1, ck_base_name(name), &f))
		return false;
	/* five digits or more, of what somebody may count to */
	for (unsigned i = 0; i < f.nr; i++)
		if (f.to[i] - f.from[i] < 5 || f.to[i] - f.from[i] > 9)
			return false;
	if (out)
		*out = (struct ck_st_shard){ .rank = (unsigned)f.n[0],
					     .file = (unsigned)f.n[1],
					     .of = (unsigned)f.n[2] };
	return true;
}
