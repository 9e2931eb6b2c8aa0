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
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/catalog/builder.h"
#include "core/format/explain.h"
#include "core/format/format.h"
#include "core/format/nnscaler/nnscaler.h"

#include <errno.h>
#include <string.h>

static void nnscaler_free(struct nnscaler *n)
{
	for (size_t i = 0; i < n->ranks.nr; i++)
		free(n->ranks.v[i].states.v);
	free(n->ranks.v);
	free(n->names.v);
	free(n->files.v);
	free(n->shown.v);
	free(n->plain.v);
	ck_dir_list_free(&n->list);
	ck_strmap_free(&n->map);
	ck_strmap_free(&n->numbers);
	ck_str_free(&n->text);
	ck_asm_free(&n->a);
}
#define auto_nnscaler __attribute__((cleanup(nnscaler_free)))

/* ---- one file that the framework merged ---- */

/* It has nothing of nnScaler's but what the trainer was told. */
static bool is_merged(const struct nnscaler_file *f)
{
	ck_pv model, args, v;

	return ck_pv_key(f->p, f->root, "model", &model) &&
	       ck_pv_key(f->p, f->root, "train_args", &args) &&
	       ck_pq(f->p, args, "compute_config", &v) &&
	       ck_pq(f->p, args, "checkpoint/save_type", &v) &&
	       !ck_nnscaler_extra(f->p, model, &v);
}

static bool may_be_merged(const char *name)
{
	return ck_torch_save_is_name(name) ||
	       ck_has_suffix(name, ".safetensors");
}

/* The only file of its kind, if it is one: *name, else NULL.  0 or -ENOMEM. */
static int find_merged(const struct nnscaler *n, const char **name,
		       struct ck_err *err)
{
	ck_auto_nnscaler_file struct nnscaler_file f = { 0 };
	const char *found = n->a.dir->only;
	struct ck_err why;
	size_t nr = found && may_be_merged(found);
	bool ok;
	int ret;

	*name = NULL;
	for (size_t i = 0; i < n->list.nr; i++)
		if (!n->list.v[i].is_dir && may_be_merged(n->list.v[i].name)) {
			found = n->list.v[i].name;
			nr++;
		}
	if (nr != 1)
		return 0;
	ret = ck_nnscaler_open(&f, n->a.dir, NULL, found, &ok, &why, err);
	if (!ret && ok && is_merged(&f))
		*name = found;
	return ret == -ENOMEM ? ret : 0;
}

static int read_merged(struct nnscaler *n, const char *name, struct ck_err *err)
{
	ck_auto_nnscaler_file struct nnscaler_file f = { 0 };
	const struct nnscaler_rank r = { .file = name, .ok = true };
	struct ck_err why;
	bool ok = false;
	int ret = ck_vec_put(&n->ranks, err, r);

	n->merged = true;
	if (!ret)
		ret = ck_nnscaler_open(&f, n->a.dir, n->a.b, name, &ok, &why,
				       err);
	if (!ret && !ok)
		ret = ck_fail(err, EINVAL, "%s", why.msg);
	if (!ret)
		ret = ck_nnscaler_add_file(n, 0, name, f.c.t.src, true, err);
	if (!ret && f.c.is_st)
		ret = ck_st_file_say_faults(&f.c.st, n->a.b, err);
	if (!ret)
		ret = ck_nnscaler_rank(n, 0, &f, err);
	return ret ? ret : ck_nnscaler_rest(n, 0, &f, err);
}

/* ---- what is there and not read, and what is not there ---- */

/* Parts that a serializer of the user's keeps in files of their own. */
static int report_side_file(const struct nnscaler *n, const char *name,
			    struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING, .file = name };

	for (size_t k = 0; k < n->files.nr; k++) {
		const char *file = n->files.v[k];
		size_t len = file ? strlen(file) : 0;

		if (len && !strncmp(name, file, len) && name[len] == '.')
			return ck_builder_problem(
				n->a.b, &p, err,
				"a serializer of the user's has put a part of %s into it, which is not read",
				file);
	}
	return 0;
}

/* Of safetensors; of torch.save files all readers' notes tell. */
static int report_other(const struct nnscaler *n, const char *name,
			struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_NOTE, .file = name };

	if (!ck_has_suffix(name, ".safetensors") || ck_leftover_is_name(name) ||
	    ck_builder_has_file(n->a.b, name))
		return 0;
	return ck_builder_problem(n->a.b, &p, err,
				  "left aside: it is none of the ranks' files");
}

static int report_beside(const struct nnscaler *n, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < n->list.nr && !ret; i++)
		ret = report_side_file(n, n->list.v[i].name, err);
	for (size_t i = 0; i < n->list.nr && !ret; i++)
		if (!n->list.v[i].is_dir)
			ret = report_other(n, n->list.v[i].name, err);
	return ret;
}

/* Marks the names that pieces have, and those that are tied with them. */
static void mark_held(struct nnscaler *n)
{
	for (size_t i = 0; i < n->names.nr; i++)
		n->names.v[i]->held = ck_nnscaler_is_held(n, n->names.v[i]);
	/* a name may be in two lists */
	for (int round = 0; round < 2; round++)
		for (struct nnscaler_tie *t = n->ties; t; t = t->next) {
			bool held = false;

			for (size_t i = 0; i < t->nr; i++)
				held |= t->names[i]->held;
			for (size_t i = 0; i < t->nr; i++)
				t->names[i]->held |= held;
		}
}

/* Finds for each name the first attribute that has it. */
static void find_attrs(const struct nnscaler *n)
{
	for (size_t i = 0; i < n->ranks.nr; i++)
		for (struct nnscaler_module *m = n->ranks.v[i].modules; m;
		     m = m->next)
			for (struct nnscaler_attr *a = m->attrs; a; a = a->next)
				if (!a->name->attr)
					a->name->attr = a;
}

/* What lists and maps name and no file holds. */
static int report_missing(struct nnscaler *n, struct ck_err *err)
{
	int ret = 0;

	mark_held(n);
	find_attrs(n);
	for (size_t i = 0; i < n->names.nr && !ret; i++) {
		const struct nnscaler_name *name = n->names.v[i];
		bool by_design =
			!name->listed && !(name->attr && name->attr->is_param);
		bool lost = !by_design && (name->mapped || n->nr_missing);
		const struct ck_problem_in p = {
			.severity = lost ? CK_ERROR : CK_NOTE,
			.tensor = name->s,
			.tensor_len = name->len,
		};

		if (name->held || (!name->listed && !name->mapped))
			continue;
		ret = ck_builder_problem(
			n->a.b, &p, err, "%s",
			by_design ?
				"not saved by design: a buffer that is not persistent" :
			lost ? "it is listed in " NNSCALER_EXTRA
			       ", and no file that is there holds it" :
			       "no file holds it: the model does not use it");
	}
	return ret;
}

/* ---- the format ---- */

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	auto_nnscaler struct nnscaler n = { .a = { .dir = dir } };
	const char *merged;
	int ret = ck_nnscaler_find(&n, err);

	if (n.files.nr) /* what is wrong with them load() says */
		return ret == -ENOMEM ? ret : CK_MATCH_INDEX;
	if (!ret)
		ret = find_merged(&n, &merged, err);
	return ret ? ret : merged ? CK_MATCH_INDEX : CK_MATCH_NONE;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	auto_nnscaler struct nnscaler n = { .a = { .dir = dir, .b = b } };
	const char *merged = NULL;
	int ret = ck_nnscaler_find(&n, err);

	if (!ret && !n.files.nr)
		ret = find_merged(&n, &merged, err);
	if (ret)
		return ret;
	if (!merged && !n.files.nr)
		return ck_fail(
			err, EINVAL,
			"%s: expected nnScaler's files of all ranks (0.ckpt, 1.ckpt, ...), or one that it merged",
			dir->path);
	ret = merged ? read_merged(&n, merged, err) :
		       ck_nnscaler_ranks(&n, err);
	if (!ret && !merged)
		ret = report_beside(&n, err);
	if (!ret)
		ret = ck_nnscaler_optim(&n, err);
	if (!ret && n.a.mem.failed)
		ret = ck_no_memory(err);
	if (!ret && !merged)
		ret = report_missing(&n, err);
	return ret ? ret : ck_nnscaler_add_pieces(&n, err);
}

static enum ck_slice is_slice(const struct ck_pickle *p)
{
	ck_pv root = ck_pickle_root(p), model, extra;
	int64_t fact[NNSCALER_FACTS];

	if (!ck_nnscaler_extra(p, root, &extra) &&
	    !(ck_pv_key(p, root, "model", &model) &&
	      ck_nnscaler_extra(p, model, &extra)) &&
	    !(ck_pv_key(p, root, "state_dict", &model) &&
	      ck_nnscaler_extra(p, model, &extra)))
		return CK_SLICE_NO;
	ck_nnscaler_config(p, extra, fact);
	return fact[NNSCALER_WORLD] == 1 ? CK_SLICE_NO : CK_SLICE_YES;
}

static int is_slice_by(const struct ck_dir *dir, const char *file,
		       const json_t *metadata, bool *yes, struct ck_err *err)
{
	ck_auto_nnscaler_file struct nnscaler_file f = { 0 };
	struct ck_err why;
	bool ok;
	int ret;

	if (!json_object_get(metadata, "obj") ||
	    !json_object_get(metadata, "nnscaler"))
		return 0;
	ret = ck_nnscaler_open(&f, dir, NULL, file, &ok, &why, err);
	*yes = !ret && ok && is_slice(f.p) == CK_SLICE_YES;
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
	  .place = 11 },
	{ .name = NULL },
};

const struct ck_format ck_format_nnscaler = {
	.name = "nnscaler",
	.summary = "nnScaler: files of all ranks, ZeRO 1 and 3, merged ones",
	.options = options,
	.reads = "file",
	.files = "nnScaler's files of two kinds",
	.is_slice = is_slice,
	.is_slice_by = is_slice_by,
	.slice =
		"one rank's of nnScaler: its tensors are that rank's slices; all ranks are read together where their names differ in a number only, such as 0.ckpt, 1.ckpt and so on",
	.covers = "torch hf safetensors",
	.probe = probe,
	.load = load,
};
