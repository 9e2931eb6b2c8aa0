/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - checkpoints of nnScaler, 0.7 to 0.9
 *
 *   0.ckpt 1.ckpt ...        one file a rank, whole or deduplicated
 *   0.safetensors ...        the same in another container
 *   dist_checkpoint-0.ckpt   as modules save themselves
 *   merged.ckpt              the ranks' files merged by the framework
 *
 * The fields that there are decide, never the version that a file names.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/builder.h"
#include "core/format/explain.h"
#include "core/format/format.h"
#include "core/format/nnscaler/priv.h"
#include "core/container/torch_save.h"

#include <errno.h>
#include <string.h>

static void set_freep(struct ck_nn_set *s)
{
	ck_nn_set_free(s);
}
#define auto_set __attribute__((cleanup(set_freep)))

static bool is_safetensors(const char *name)
{
	size_t len = strlen(name);

	return len > 12 && !strcmp(name + len - 12, ".safetensors");
}

/* A merged file has nothing of nnScaler's but what the trainer was told. */
static bool is_merged(const struct ck_nn_file *f)
{
	ck_pv model, args, v;

	return ck_pv_key(f->p, f->root, "model", &model) &&
	       ck_pv_key(f->p, f->root, "train_args", &args) &&
	       ck_nn_field(f->p, args, "compute_config", &v) &&
	       ck_nn_field(f->p, args, "checkpoint", &v) &&
	       ck_nn_field(f->p, v, "save_type", &v) &&
	       !ck_nn_extra(f->p, model, &v);
}

/* 1, 0 or -ENOMEM */
static int merged_at(const struct ck_dir *dir, const char *name,
		     struct ck_err *err)
{
	ck_auto_nn_file struct ck_nn_file f = { 0 };
	struct ck_err why;
	bool ok;
	int ret = ck_nn_file_open(&f, dir, NULL, name, &ok, &why, err);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	return ok && is_merged(&f);
}

/* The one file that may be a merged checkpoint: the only one of its kind. */
static const char *candidate(const struct ck_dir *dir,
			     const struct ck_dir_list *l)
{
	const char *found = NULL;

	if (dir->only)
		return ck_torch_save_is_name(dir->only) ||
				       is_safetensors(dir->only) ?
			       dir->only :
			       NULL;
	for (size_t i = 0; i < l->nr; i++) {
		const char *name = l->v[i].name;

		if (l->v[i].is_dir ||
		    (!ck_torch_save_is_name(name) && !is_safetensors(name)))
			continue;
		if (found)
			return NULL;
		found = name;
	}
	return found;
}

static int find_merged(const struct ck_dir *dir, struct ck_dir_list *l,
		       const char **name, struct ck_err *err)
{
	int ret = dir->only ? 0 : ck_dir_list(dir, "", l, err);

	if (ret)
		return ret;
	*name = candidate(dir, l);
	ret = *name ? merged_at(dir, *name, err) : 0;
	if (ret <= 0)
		*name = NULL;
	return ret < 0 ? ret : 0;
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	auto_set struct ck_nn_set s = { .dir = dir };
	const char *merged;
	int ret = ck_nn_set_find(&s, err);

	if (s.files.nr) /* what is wrong with them load() says */
		return ret == -ENOMEM ? ret : CK_MATCH_INDEX;
	if (ret)
		return ret;
	ret = find_merged(dir, &l, &merged, err);
	return ret ? ret : merged ? CK_MATCH_INDEX : CK_MATCH_NONE;
}

static int say_all(struct ck_nn_set *s, struct ck_err *err)
{
	int ret = ck_nn_model_say(s, err);

	if (!ret)
		ret = ck_nn_optim_say(s, err);
	if (!ret && !s->merged)
		ret = ck_nn_absent_say(s, err);
	return ret ? ret : ck_nn_pieces_say(s, err);
}

static int load_merged(struct ck_nn_set *s, const char *name,
		       struct ck_err *err)
{
	ck_auto_nn_file struct ck_nn_file f = { 0 };
	struct ck_nn_rank *r = ck_vec_push(&s->ranks);
	struct ck_err why;
	bool ok;
	int ret;

	if (!r)
		return ck_fail(err, ENOMEM, "no memory for a file");
	*r = (struct ck_nn_rank){ .file = name, .ok = true };
	s->merged = true;
	ret = ck_nn_file_open(&f, s->dir, s->b, name, &ok, &why, err);
	if (!ret && !ok)
		ret = ck_fail(err, EINVAL, "%s", why.msg);
	if (!ret && f.st)
		ret = ck_st_file_say_tail(&f.h, s->b, err);
	if (!ret)
		ret = ck_nn_rank_read(s, r, &f, err);
	if (!ret)
		ret = ck_nn_rest_say(s, &f, 0, err);
	return ret ? ret : say_all(s, err);
}

/* Parts that a serializer of the user's keeps in files of their own. */
static int say_side_files(const struct ck_nn_set *s, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(s->dir, "", &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		const struct ck_problem_in p = { .severity = CK_WARNING,
						 .file = l.v[i].name };

		for (size_t k = 0; k < s->files.nr && !ret; k++) {
			size_t n = s->files.v[k] ? strlen(s->files.v[k]) : 0;

			if (!n || strncmp(l.v[i].name, s->files.v[k], n) != 0 ||
			    l.v[i].name[n] != '.')
				continue;
			ret = ck_builder_problem(
				s->b, &p, err,
				"a serializer of the user's has put a part of %s into it, which is not read",
				s->files.v[k]);
			break;
		}
	}
	return ret;
}

/* Of safetensors; of torch.save files all readers' notes tell. */
static int say_others(const struct ck_nn_set *s, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(s->dir, "", &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		const struct ck_problem_in p = { .severity = CK_NOTE,
						 .file = l.v[i].name };

		if (!l.v[i].is_dir && is_safetensors(l.v[i].name) &&
		    !ck_leftover_is_name(l.v[i].name) &&
		    !ck_builder_has_file(s->b, l.v[i].name))
			ret = ck_builder_problem(
				s->b, &p, err,
				"left aside: it is none of the ranks' files");
	}
	return ret;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	auto_set struct ck_nn_set s = { .dir = dir, .b = b };
	const char *merged = NULL;
	int ret = ck_nn_set_find(&s, err);

	if (!ret && !s.files.nr)
		ret = find_merged(dir, &l, &merged, err);
	if (ret)
		return ret;
	if (merged)
		return load_merged(&s, merged, err);
	if (!s.files.nr)
		return ck_fail(
			err, EINVAL,
			"%s: expected nnScaler's files of all ranks (0.ckpt, 1.ckpt, ...), or one that it merged",
			dir->path);
	ret = ck_nn_set_read(&s, err);
	if (!ret)
		ret = say_side_files(&s, err);
	if (!ret)
		ret = say_others(&s, err);
	return ret ? ret : say_all(&s, err);
}

static bool is_rank(const struct ck_pickle *p)
{
	static const char *const keys[] = { "model", "state_dict" };
	ck_pv root = ck_pickle_root(p), model, extra;
	struct ck_nn_identity id = { 0 };
	bool found = ck_nn_extra(p, root, &extra);

	for (size_t i = 0; i < CK_ARRAY_LEN(keys) && !found; i++)
		found = ck_pv_key(p, root, keys[i], &model) &&
			ck_nn_extra(p, model, &extra);
	if (found)
		ck_nn_config_read(p, extra, &id);
	return found && id.world != 1;
}

static enum ck_slice is_slice(const struct ck_pickle *p)
{
	return is_rank(p) ? CK_SLICE_YES : CK_SLICE_NO;
}

static int is_slice_by(const struct ck_dir *dir, const char *file,
		       const json_t *metadata, bool *yes, struct ck_err *err)
{
	ck_auto_nn_file struct ck_nn_file f = { 0 };
	struct ck_err why;
	bool ok;
	int ret;

	if (!json_object_get(metadata, "obj") ||
	    !json_object_get(metadata, "nnscaler"))
		return 0;
	ret = ck_nn_file_open(&f, dir, NULL, file, &ok, &why, err);
	*yes = !ret && ok && is_rank(f.p);
	return ret == -ENOMEM ? ret : 0;
}

static const struct ck_option options[] = {
	{ .name = "params",
	  .type = CK_OPTION_FILES,
	  .value = "FILE",
	  .fallback = "from order and shapes",
	  .open = true,
	  .help = "FILE has the names of a model's parameters, a name a line, "
		  "for nnScaler's optimizers that number them",
	  .after = "views",
	  .place = 2 },
	{ .name = NULL },
};

const struct ck_format ck_format_nnscaler = {
	.name = "nnscaler",
	.summary = "nnScaler: files of all ranks, ZeRO 1 and 3, merged ones",
	.options = options,
	.reads = "file",
	.is_slice = is_slice,
	.is_slice_by = is_slice_by,
	.slice =
		"one rank's of nnScaler: its tensors are that rank's slices; all ranks are read together where their names differ in a number only, such as 0.ckpt, 1.ckpt and so on",
	.covers = "torch hf safetensors",
	.compares = true,
	.probe = probe,
	.load = load,
};
