/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - one tag folder of a DeepSpeed checkpoint
 *
 *   mp_rank_00_model_states.pt                weights, and names and shapes
 *   zero_pp_rank_0_mp_rank_00_optim_states.pt partitions of optimizer states
 *   layer_00-model_states.pt                  weights of the pipeline engine
 *   zero/NAME/fp32.pt                         the universal form
 *
 * Stage by stage of the pipeline; one stage's model files are open at once.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/format/deepspeed/groups.h"
#include "core/format/deepspeed/priv.h"
#include "core/format/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LATEST 255 /* bytes of the name of a folder */

/* The ranks of one stage: as many as are tensor-parallel. */
struct stage {
	unsigned nr;
	struct ck_ds_model *models;
	struct ck_ds_zero *zeros;
	bool complete;
};

static void free_stage(struct stage *s)
{
	for (unsigned i = 0; i < s->nr && s->models && s->zeros; i++) {
		ck_ds_zero_free(&s->zeros[i]);
		ck_ds_model_free(&s->models[i]);
	}
	free(s->models);
	free(s->zeros);
	*s = (struct stage){ 0 };
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	struct ck_ds_file f;
	int ret;

	if (dir->only)
		return CK_MATCH_NONE;
	ret = ck_dir_list(dir, "", &l, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < l.nr; i++)
		if (!l.v[i].is_dir && ck_ds_is_name(l.v[i].name, &f))
			return CK_MATCH_INDEX;
	ret = ck_ds_is_universal(dir);
	if (ret < 0)
		return ck_fail(err, ENOMEM, "no memory for names");
	return ret ? CK_MATCH_INDEX : CK_MATCH_NONE;
}

/* The model file of rank @mp: of stage 3 the first data-parallel rank's. */
static int open_model(struct ck_ds_load *ld, struct ck_ds_model *m,
		      struct ck_err *err)
{
	char name[64];
	size_t nr;
	const struct ck_ds_file *file =
		ck_ds_files_of(&ld->fs, CK_DS_MODEL, m->mp, &nr);
	bool ok = false;
	int ret = 0;

	if (!nr) {
		file = ck_ds_files_of(&ld->fs, CK_DS_MODEL3, m->mp, &nr);
		m->stage3 = nr;
	}
	snprintf(name, sizeof(name), "mp_rank_%02u_model_states.pt", m->mp);
	if (!nr)
		return ck_dir_source(ld->dir, ld->b, name, &m->f.src, NULL,
				     err);
	for (size_t i = 0; i < nr && !ok && !ret; i++) {
		ck_torch_open_close(&m->f);
		ret = ck_ds_open(&m->f, ld->dir, ld->b, file[i].name, &ok, err);
	}
	if (!ret && !ok)
		ck_torch_open_close(&m->f);
	return ret;
}

/* What it said lies in memory of its file, and goes with it. */
static void drop_model(struct ck_ds_model *m)
{
	const struct ck_ds_model rank = { .mp = m->mp,
					  .tp = m->tp,
					  .nr_tp = m->nr_tp };

	ck_ds_model_free(m);
	*m = rank;
}

/* The weights of a tensor-parallel rank, or the optimizer of a stage. */
static int find_alike(struct ck_ds_load *ld, struct ck_ds_model *m,
		      struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv from;

	if (m->stage3 || !ck_pv_key(p, ck_pickle_root(p), "module", &from))
		return 0;
	ld->apart |= ck_pv_kind(from) == CK_P_NONE;
	if (ck_pv_kind(from) != CK_P_NONE ||
	    ck_pv_key(p, ck_pickle_root(p), "optimizer", &from))
		return ck_ds_alike(ld->b, &m->f, m->f.s->name, from, err);
	return 0;
}

static int read_model(struct ck_ds_load *ld, struct ck_ds_model *m,
		      struct ck_err *err)
{
	struct ck_problem_in p = { .severity = CK_ERROR };
	struct ck_err why = { 0 };
	bool ok;
	int ret = open_model(ld, m, err);

	if (ret || !m->f.s)
		return ret;
	ret = ck_ds_model_read(m, &why);
	if (ret == -EINVAL) {
		p.file = m->f.s->name;
		ret = ck_builder_problem(ld->b, &p, err, "%s", why.msg);
		drop_model(m);
		return ret;
	}
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	ret = ck_ds_check_steps(ld, m->f.s->name, m->steps, &ok, err);
	if (!ret && ok)
		ret = find_alike(ld, m, err);
	if (!ret && ok)
		ret = ck_ds_lost(ld->b, &m->f, err);
	if (!ret && ok)
		ret = ck_ds_experts_check(ld, m, err);
	if (!ok)
		drop_model(m);
	return ret;
}

static unsigned count_mp(const struct ck_ds_files *fs)
{
	unsigned nr = 0;

	for (size_t i = 0; i < fs->v.nr; i++)
		if (fs->v.v[i].kind != CK_DS_LAYER)
			nr = CK_MAX(nr, fs->v.v[i].mp + 1);
	return nr;
}

static bool has_kind(const struct ck_ds_files *fs, enum ck_ds_kind kind)
{
	for (size_t i = 0; i < fs->v.nr; i++)
		if (fs->v.v[i].kind == kind)
			return true;
	return false;
}

/* How many of the model-parallel ranks are stages of the pipeline. */
static int find_degrees(struct ck_ds_load *ld, const struct ck_ds_model *m,
			struct ck_err *err)
{
	uint64_t nr = (uint64_t)m->pp_degree * m->tp_degree;

	ld->pp = m->pp_degree;
	ld->tp = m->tp_degree;
	if (!nr) {
		ld->tp = 1;
		ld->pp = ld->nr_mp;
		if (ld->nr_mp > 1 && !has_kind(&ld->fs, CK_DS_LAYER))
			return ck_fail(
				err, EINVAL,
				"%s: files of %u model-parallel ranks, and none has checkpoint_parallel_dimensions, which says how they share the model",
				ld->dir->path, ld->nr_mp);
		return 0;
	}
	if (nr < ld->nr_mp || nr > 64 * ld->fs.v.nr + 64)
		return ck_fail(
			err, EINVAL,
			"%s: files of %u model-parallel ranks, where checkpoint_parallel_dimensions says %u stages of %u",
			ld->dir->path, ld->nr_mp, ld->pp, ld->tp);
	ld->nr_mp = (unsigned)nr;
	return 0;
}

/* Reads the degrees from the first model file that can be read. */
static int read_degrees(struct ck_ds_load *ld, struct ck_err *err)
{
	ld->nr_mp = count_mp(&ld->fs);
	ld->zero = has_kind(&ld->fs, CK_DS_OPTIM);
	for (size_t i = 0; i < ld->fs.v.nr; i++) {
		struct ck_ds_model m = { 0 };
		bool ok = false;
		int ret;

		if (ld->fs.v.v[i].kind > CK_DS_MODEL3)
			continue;
		ret = ck_ds_open(&m.f, ld->dir, ld->b, ld->fs.v.v[i].name, &ok,
				 err);
		if (!ret && ok) {
			ret = ck_ds_model_read(&m, NULL);
			ok = !ret; /* else the next one */
			if (ret == -ENOMEM)
				ck_fail(err, ENOMEM, "no memory");
			else
				ret = ok ? find_degrees(ld, &m, err) : 0;
		}
		ck_ds_model_free(&m);
		if (ret || ok)
			return ret;
	}
	return find_degrees(ld, &(struct ck_ds_model){ 0 }, err);
}

static int read_stage(struct ck_ds_load *ld, unsigned pp, struct stage *s,
		      struct ck_err *err)
{
	int ret = 0;

	s->complete = true;
	s->models = calloc(ld->tp, sizeof(*s->models));
	s->zeros = calloc(ld->tp, sizeof(*s->zeros));
	if (!s->models || !s->zeros)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	s->nr = ld->tp;
	for (unsigned i = 0; i < s->nr && !ret; i++) {
		struct ck_ds_model *m = &s->models[i];
		struct ck_ds_zero *z = &s->zeros[i];

		*m = (struct ck_ds_model){ .mp = pp * ld->tp + i,
					   .tp = i,
					   .nr_tp = ld->tp };
		*z = (struct ck_ds_zero){ .m = m, .b = ld->b, .dir = ld->dir };
		ret = read_model(ld, m, err);
		ld->unnamed |= !m->f.s;
		z->moe = ck_ds_is_moe(m);
		if (!ret && m->f.s && !ld->universal)
			ret = ck_ds_zero_read(z, &ld->fs, err);
		if (!ret && z->ranks.nr)
			ret = ck_ds_zero_settle(z, err);
		s->complete &= z->complete;
	}
	return ret;
}

/* Names that a stage has said are the other stages' too where they are tied. */
static int keep_names(struct ck_ds_load *ld, const struct ck_ds_model *m,
		      struct ck_err *err)
{
	for (size_t i = 0; i < m->params.nr; i++) {
		const struct ck_ds_param *p = &m->params.v[i];
		char *copy, **to;

		if (ck_strmap_get(&ld->trained, p->name, p->name_len) !=
		    CK_STRMAP_NONE)
			continue;
		copy = strndup(p->name, p->name_len);
		to = copy ? ck_vec_push(&ld->kept) : NULL;
		if (to)
			*to = copy;
		else
			free(copy);
		if (!to || ck_strmap_put(&ld->trained, copy, p->name_len) ==
				   CK_STRMAP_NONE)
			return ck_fail(err, ENOMEM, "no memory for names");
	}
	return 0;
}

/* What no rule of this reader takes apart, as it is. */
static int say_rest(struct ck_ds_load *ld, struct ck_ds_model *m,
		    struct ck_err *err)
{
	static const char *const skip[] = { "module",
					    "param_shapes",
					    "frozen_param_shapes",
					    "frozen_param_fragments",
					    "shared_params",
					    "buffer_names",
					    "universal_checkpoint_info",
					    NULL };
	const struct ck_problem_in p = { .severity = CK_NOTE,
					 .file = m->f.s->name };
	char prefix[32] = "";
	ck_pv v;
	int ret;

	if (ld->nr_mp > 1)
		snprintf(prefix, sizeof(prefix), "mp_rank_%02u.", m->mp);
	ret = ck_torch_rest(&m->f, ld->b, prefix, skip, err);
	if (ret ||
	    !ck_pv_key(m->f.ts.pickle, ck_pickle_root(m->f.ts.pickle),
		       "optimizer", &v) ||
	    ck_pv_kind(v) == CK_P_NONE)
		return ret;
	return ck_builder_problem(
		ld->b, &p, err,
		"its optimizer states are known by number only: they are shown as stored, under %soptimizer",
		prefix);
}

/* The model file names what ZeRO trained; all optimizer files of its rank are lost. */
static int say_lost(struct ck_ds_load *ld, const struct ck_ds_model *m,
		    struct ck_err *err)
{
	const struct ck_problem_in p = {
		.severity = ld->zero || m->stage3 ? CK_ERROR : CK_WARNING,
		.file = m->f.s->name,
	};

	return ck_builder_problem(
		ld->b, &p, err,
		"it names %zu trained parameters, and no optimizer file of "
		"model-parallel rank %u is there that can be read: %s",
		m->params.nr, m->mp,
		m->stage3 ? "their values are lost with them (ZeRO 3)" :
			    "their master copies and moments are not shown");
}

/* So it is with experts, and was in 2020. */
static int say_unnamed(struct ck_ds_load *ld, const struct ck_ds_model *m,
		       struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = m->f.s->name };

	return ck_builder_problem(
		ld->b, &p, err,
		"it has no param_shapes, which names what ZeRO trains: master copies and moments are not shown");
}

static int say_stage(struct ck_ds_load *ld, struct stage *s, struct ck_err *err)
{
	int ret = 0;

	for (unsigned i = 0; i < s->nr && !ret; i++) {
		struct ck_ds_model *m = &s->models[i];

		if (!m->f.s)
			continue;
		ret = s->zeros[i].moe ?
			      ck_ds_moe_say(ld, &s->zeros[i], m, err) :
			      ck_ds_zero_say(&s->zeros[i], &ld->trained, err);
		if (!ret && i == 0)
			ret = ck_ds_order_read(ld, m->mp / ld->tp, &s->zeros[i],
					       err);
		if (!ret && m->params.nr && !s->zeros[i].ranks.nr &&
		    !ld->universal)
			ret = say_lost(ld, m, err);
		if (!ret && ld->zero && !ld->universal && !m->names &&
		    !s->zeros[i].moe)
			ret = say_unnamed(ld, m, err);
		if (!ret)
			ret = ck_ds_module_say(ld, m, s->zeros[i].count, err);
		if (!ret && ld->universal)
			ret = ck_ds_universal_check(ld, m, err);
		if (!ret)
			ret = say_rest(ld, m, err);
	}
	for (unsigned i = 0; i < s->nr && !ret; i++)
		ret = keep_names(ld, &s->models[i], err);
	return ret;
}

/* Whole stages first: a tied parameter is taken from one of them. */
static int say_stages(struct ck_ds_load *ld, struct ck_err *err)
{
	struct stage *late = calloc(ld->pp, sizeof(*late));
	int ret = 0;

	if (!late)
		return ck_fail(err, ENOMEM, "no memory for stages");
	for (unsigned pp = 0; pp < ld->pp && !ret; pp++) {
		struct stage *s = &late[pp];

		ret = read_stage(ld, pp, s, err);
		if (!ret && pp == 0 && ld->universal)
			ret = ck_ds_universal_say(
				ld, s->models[0].f.s ? &s->models[0] : NULL,
				err);
		if (!ret && s->complete) {
			ret = say_stage(ld, s, err);
			free_stage(s);
		}
	}
	for (unsigned pp = 0; pp < ld->pp; pp++) {
		if (!ret)
			ret = say_stage(ld, &late[pp], err);
		free_stage(&late[pp]);
	}
	free(late);
	return ret;
}

/* DeepSpeed's converter writes to a folder of its own. */
static int check_forms(const struct ck_ds_load *ld, struct ck_err *err)
{
	for (size_t i = 0; i < ld->fs.v.nr && ld->universal; i++)
		if (ld->fs.v.v[i].kind == CK_DS_OPTIM)
			return ck_fail(
				err, EINVAL,
				"%s: optimizer states twice, in %s and in zero/ (the universal form), maybe of two saves: move one of them away",
				ld->dir->path, ld->fs.v.v[i].name);
	return 0;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct ck_ds_order order = { 0 };
	struct ck_ds_load ld = { .dir = dir, .b = b, .order = &order };
	int ret = ck_ds_files_list(&ld.fs, dir, err);
	int universal = ck_ds_is_universal(dir);

	ld.universal = universal > 0;
	if (!ret && universal < 0)
		ret = ck_fail(err, ENOMEM, "no memory for names");
	if (!ret && !ld.fs.v.nr && !ld.universal)
		ret = ck_fail(err, EINVAL,
			      "%s: no files as DeepSpeed names them",
			      dir->path);
	if (!ret)
		ret = check_forms(&ld, err);
	if (!ret)
		ret = read_degrees(&ld, err);
	if (!ret)
		ret = ck_ds_find_steps(&ld, err);
	if (!ret && ld.universal && !ld.nr_mp)
		ret = ck_ds_universal_say(&ld, NULL, err);
	if (!ret && ld.nr_mp)
		ret = say_stages(&ld, err);
	if (!ret)
		ret = ck_ds_layers_say(&ld, err);
	if (!ret)
		ret = ck_ds_experts_say(&ld, err);
	if (!ret)
		ret = ck_ds_order_say(&ld, err);
	ck_ds_order_free(&order);
	ck_ds_files_free(&ld.fs);
	ck_strmap_free(&ld.trained);
	for (size_t i = 0; i < ld.kept.nr; i++)
		free(ld.kept.v[i]);
	free(ld.kept.v);
	for (size_t i = 0; i < ld.nr_states; i++)
		free(ld.states[i]);
	free(ld.said);
	return ret;
}

/* What DeepSpeed would go on from, beside a model that another reader read. */
static int check_latest(const struct ck_dir *dir, const struct ck_dir_list *l,
			struct ck_builder *b, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING,
					 .file = "latest" };
	ck_auto_free char *text = NULL;
	ck_auto_str struct ck_str plain = { 0 };
	size_t len;
	int ret = ck_dir_slurp(dir, "latest", MAX_LATEST, &text, &len, NULL);

	if (ret)
		return ret == -ENOMEM ? ck_fail(err, ENOMEM, "no memory") : 0;
	text[strcspn(text, "\r\n")] = '\0';
	for (size_t i = 0; i < l->nr; i++)
		if (!strcmp(l->v[i].name, text))
			return 0;
	ck_str_plain(&plain, text, strlen(text));
	if (plain.failed)
		return ck_fail(err, ENOMEM, "no memory");
	return ck_builder_problem(b, &p, err,
				  "names %s, and there is no such folder: what "
				  "DeepSpeed saved with this is not here",
				  plain.v ? plain.v : "nothing");
}

static bool claims(const char *name)
{
	struct ck_ds_file f;

	return ck_ds_is_name(name, &f);
}

static enum ck_slice is_slice(const struct ck_pickle *p)
{
	ck_pv root = ck_pickle_root(p), v;

	return ck_pv_key(p, root, "ds_version", &v) &&
			       ck_pv_key(p, root, "ds_config", &v) ?
		       CK_SLICE_MAYBE :
		       CK_SLICE_NO;
}

static const struct ck_option options[] = {
	{ .name = "ties",
	  .type = CK_OPTION_STRING,
	  .value = "N:NAME",
	  .fallback = "the layer's number",
	  .open = true,
	  .help = "layer N of a DeepSpeed pipeline without ZeRO is the tied "
		  "one called NAME; several: N:NAME+N:NAME",
	  .after = "views",
	  .place = 1 },
	{ .name = "weights",
	  .type = CK_OPTION_CHOICE,
	  .value = "WHICH",
	  .choices = "module|fp32",
	  .fallback = "module, or fp32 where that is all there is",
	  .open = true,
	  .help = "hf/ and model.safetensors show this copy of DeepSpeed's "
		  "weights",
	  .after = "config",
	  .in_views = true },
	{ .name = NULL },
};

static const struct ck_format_sign signs[] = {
	{ "mp_rank_*", 0 },
	{ "zero_pp_rank_*", 0 },
	{ NULL, 0 },
};

static const struct ck_format_copies copies = {
	.option = "weights",
	.usual = "module",
	.other = "fp32",
};

const struct ck_format ck_format_deepspeed = {
	.name = "deepspeed",
	.summary = "DeepSpeed: ZeRO 0 to 3, pipelines, the universal form",
	.options = options,
	.claims = claims,
	.is_slice = is_slice,
	.slice =
		"one rank's of DeepSpeed: its tensors may be that rank's slices; all ranks are read together under the names that DeepSpeed gave the files",
	.check_beside = check_latest,
	.copies = &copies,
	.signs = signs,
	.marker = "latest",
	.probe = probe,
	.load = load,
};
