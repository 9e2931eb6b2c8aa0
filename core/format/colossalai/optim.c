/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c - optimizer states, in files of either kind, and their groups
 */
#include "core/format/slice.h"
#include "core/format/colossalai/colossalai.h"

#include "core/base/match.h"
#include "core/base/suffix.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/optim/groups.h"
#include "core/container/st_file.h"
#include "core/container/torch_file.h"
#include "core/container/torch_tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GROUPS CK_OPTIM_GROUPS
#define STATE CK_OPTIM_STATE

const char *const ck_colossalai_optim_indexes[] = {
	"pytorch_optim.bin.index", "optimizer.safetensors.index", NULL
};

struct optim {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_index_map *index; /* NULL: all is in one file */
	struct ck_torch_load ld;
	uint32_t file; /* of the index: the one at hand */
	bool groups; /* the file at hand is the groups' */
	struct ck_str name; /* of a leaf of them */
	uint64_t nr_lost, nr_params;
	char lost[32]; /* the first parameter without states */
	struct colossalai_joined joined;
};

static bool is_key(const struct ck_torch_leaf *leaf, const char *key)
{
	return leaf->path[0].index < 0 &&
	       ck_text_is(leaf->path[0].key, leaf->path[0].key_len, key);
}

/* Files of a set have what one file has below @key. */
static int put_below(struct ck_torch_leaf *leaf, const char *key,
		     struct ck_err *err)
{
	if (leaf->depth == CK_ARRAY_LEN(leaf->path))
		return ck_fail(err, E2BIG, "%.*s: nested too deeply",
			       (int)CK_MIN(leaf->name_len, 200), leaf->name);
	memmove(leaf->path + 1, leaf->path, leaf->depth * sizeof(*leaf->path));
	leaf->path[0] = (struct ck_path_part){ key, strlen(key), -1 };
	leaf->depth++;
	return 0;
}

/* The numbers that a group lists, against those that have states. */
static void count_params(struct optim *o, const struct ck_pickle *p, ck_pv list)
{
	struct ck_piter it;
	char text[32];
	ck_pv item;
	int64_t n;

	ck_piter_init(&it, p, list);
	while (ck_piter_next(&it, &item)) {
		if (!ck_pv_int(p, item, &n))
			continue;
		snprintf(text, sizeof(text), "%" PRId64, n);
		o->nr_params++;
		if (ck_strmap_get(&o->index->keys, text, strlen(text)) ==
			    CK_STRMAP_NONE &&
		    !o->nr_lost++)
			memcpy(o->lost, text, sizeof(text));
	}
}

/* [{"lr": ..}, ..] is shown below param_groups, as in one file. */
static int pick_group(struct optim *o, const struct ck_pickle *p,
		      struct ck_torch_leaf *leaf, bool *take,
		      struct ck_err *err)
{
	*take = leaf->depth && leaf->path[0].index >= 0;
	if (!*take)
		return 0; /* no list: a file of something else */
	if (leaf->depth == 2 && leaf->path[1].index < 0 &&
	    ck_text_is(leaf->path[1].key, leaf->path[1].key_len, "params"))
		count_params(o, p, leaf->value);
	o->name.len = 0;
	ck_str_puts(&o->name, leaf->name_len ? GROUPS "." : GROUPS);
	ck_str_add(&o->name, leaf->name, leaf->name_len);
	if (o->name.failed)
		return ck_no_memory(err);
	leaf->name = o->name.v;
	leaf->name_len = o->name.len;
	return put_below(leaf, GROUPS, err);
}

static int see(struct optim *o, const struct ck_pickle *p,
	       const struct ck_torch_leaf *leaf, struct ck_err *err)
{
	struct ck_torch_tensor t;

	if (!ck_torch_is_rebuild(p, leaf->value) ||
	    ck_torch_tensor_read(p, leaf->value, &t, NULL))
		return 0; /* its reader says why */
	return ck_colossalai_joined_see(&o->joined, leaf->name, leaf->name_len,
					t.shape, t.rank, err);
}

static int pick(void *ctx, const struct ck_pickle *p,
		struct ck_torch_leaf *leaf, bool *take, struct ck_err *err)
{
	struct optim *o = ctx;
	size_t skip = strlen(STATE ".");
	int said;

	if (o->groups)
		return pick_group(o, p, leaf, take, err);
	if (!leaf->depth)
		return 0;
	if (!o->index && is_key(leaf, STATE) && leaf->name_len > skip) {
		leaf->name += skip;
		leaf->name_len -= skip;
	}
	said = o->index && leaf->path[0].index < 0 ?
		       ck_index_say(o->index, o->file, leaf->path[0].key,
				    leaf->path[0].key_len, err) :
		       CK_INDEX_TAKE;
	*take = said != CK_INDEX_LEAVE; /* the same name twice is refused */
	if (said > 0)
		said = see(o, p, leaf, err);
	return said || !o->index ? said : put_below(leaf, STATE, err);
}

static int load_file(struct optim *o, const char *name, bool *usable,
		     struct ck_err *err)
{
	int ret;

	if (ck_has_suffix(name, ".safetensors"))
		return ck_colossalai_flat_load(o->dir, name, o->index, o->file,
					       usable, &o->joined, o->b, err);
	ret = ck_torch_file_load(&o->ld, name, err);
	*usable = o->ld.usable;
	return ret;
}

static int load_indexed(void *ctx, uint32_t file, const char *name,
			bool *usable, struct ck_err *err)
{
	struct optim *o = ctx;

	o->file = file;
	/* a parameter whose states are all None leaves nothing */
	o->index->file.v[file].may_lack = ck_has_suffix(name, ".safetensors");
	return load_file(o, name, usable, err);
}

static int load_files(struct optim *o, struct ck_err *err)
{
	int ret = ck_index_load(o->index, load_indexed, o, err);

	return ret ? ret : ck_index_report(o->index, "parameter", o->b, err);
}

static int load_groups(struct optim *o, struct ck_err *err)
{
	const char *index = o->index->name;
	const json_t *file = json_object_get(
		json_object_get(o->index->json, "metadata"), GROUPS);
	const char *name = json_string_value(file);
	int ret;

	if (!name)
		return ck_builder_report_file(
			o->b, CK_WARNING, index, err,
			"it names no file of the parameters' "
			"groups");
	if (strlen(name) != json_string_length(file) ||
	    !ck_dir_name_ok(name, strlen(name)))
		return ck_fail(err, EINVAL,
			       "%s: \"" GROUPS "\": expected the name of a "
			       "file in the folder",
			       index);
	o->groups = true;
	ret = ck_torch_file_load(&o->ld, name, err);
	if (!ret && o->ld.usable && !o->nr_params)
		return ck_builder_report_file(
			o->b, CK_ERROR, name, err,
			"expected a list of groups with their parameters: "
			"another file is in its place");
	if (ret || !o->nr_lost)
		return ret;
	/* plain SGD keeps none */
	return ck_builder_report_file(
		o->b, o->nr_lost == o->nr_params ? CK_NOTE : CK_WARNING, index,
		err,
		"of the %" PRIu64 " parameters in %s, %" PRIu64
		" have no states in it: %s is the first",
		o->nr_params, name, o->nr_lost, o->lost);
}

/* Shards of another save that was here before. */
static int note_aside(struct optim *o, const struct ck_dir_list *l,
		      struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < l->nr; i++) {
		const char *name = l->v[i].name;

		if (ck_has_suffix(name, ".safetensors") && !l->v[i].is_dir &&
		    ck_strmap_get(&o->index->files, name, strlen(name)) ==
			    CK_STRMAP_NONE)
			ret = ck_builder_report_file(
				o->b, CK_NOTE, name, err,
				"left aside: %s does not name "
				"it",
				o->index->name);
	}
	return ret ? ret :
		     ck_index_note_others(o->index->name, l,
					  ck_colossalai_optim_indexes, o->b,
					  err);
}

static void init(struct optim *o, const struct ck_dir *dir,
		 struct ck_builder *b)
{
	*o = (struct optim){ .dir = dir, .b = b };
	o->ld = (struct ck_torch_load){
		.dir = dir, .b = b, .pick = pick, .check = ck_slice_report
	};
}

static void optim_free(struct optim *o)
{
	ck_torch_load_free(&o->ld);
	ck_str_free(&o->name);
	ck_colossalai_joined_free(&o->joined);
}

int ck_colossalai_optim_load(const struct ck_dir *dir, const char *index,
			     struct ck_builder *b, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_index struct ck_index_map m = { 0 };
	__attribute__((cleanup(optim_free))) struct optim o;
	int ret;

	init(&o, dir, b);
	o.ld.ctx = &o;
	o.ld.several = true;
	o.index = &m;
	ret = ck_dir_list(dir, "", &l, err);
	if (!ret)
		ret = ck_index_read(&m, dir, index, err);
	if (!ret)
		ret = load_files(&o, err);
	if (!ret)
		ret = load_groups(&o, err);
	if (!ret)
		ret = ck_colossalai_joined_report(&o.joined, b, err);
	return ret ? ret : note_aside(&o, &l, err);
}

int ck_colossalai_optim_load_one(const struct ck_dir *dir, const char *name,
				 struct ck_builder *b, struct ck_err *err)
{
	__attribute__((cleanup(optim_free))) struct optim o;
	bool usable;
	int ret;

	init(&o, dir, b);
	o.ld.ctx = &o;
	ret = load_file(&o, name, &usable, err);
	if (!ret && !usable)
		ret = ck_fail(err, ENOENT, "%s: no such file", name);
	return ret ? ret : ck_colossalai_joined_report(&o.joined, b, err);
}

bool ck_colossalai_optim_is_flat(const struct ck_dir *dir, const char *name)
{
	ck_auto_source struct ck_source *s = NULL;
	struct ck_st_file f = { 0 };
	bool yes;

	if (!ck_has_suffix(name, ".safetensors") ||
	    ck_dir_open(dir, name, &s, NULL))
		return false;
	yes = !ck_st_file_read(&f, name, 0, s, 0, NULL) &&
	      json_object_get(f.h.metadata, "non_tensor_keys");
	ck_st_file_free(&f);
	return yes;
}
