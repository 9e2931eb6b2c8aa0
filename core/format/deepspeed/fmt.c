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
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LATEST 255 /* bytes of the name of a folder */

/* The ranks of one stage: as many as are tensor-parallel. */
struct stage {
	struct stage_rank {
		struct deepspeed_model m;
		struct deepspeed_zero z;
	} * rank;
	unsigned nr;
	bool complete;
};

static void free_stage(struct stage *s)
{
	for (unsigned i = 0; i < s->nr; i++) {
		ck_deepspeed_zero_free(&s->rank[i].z);
		ck_deepspeed_model_free(&s->rank[i].m);
	}
	free(s->rank);
	*s = (struct stage){ 0 };
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	struct deepspeed_file f;
	int ret;

	if (dir->only)
		return CK_MATCH_NONE;
	ret = ck_dir_list(dir, "", &l, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < l.nr; i++)
		if (!l.v[i].is_dir && ck_deepspeed_is_name(l.v[i].name, &f))
			return CK_MATCH_INDEX;
	ret = ck_deepspeed_is_universal(dir);
	if (ret < 0)
		return ck_no_memory(err);
	return ret ? CK_MATCH_INDEX : CK_MATCH_NONE;
}

/* ---- a model file ---- */

/* The model file of rank @mp: of stage 3 the first data-parallel rank's. */
static int open_model(struct deepspeed_model *m, struct ck_err *err)
{
	struct deepspeed_load *ld = m->ld;
	char name[64];
	size_t nr;
	const struct deepspeed_file *file =
		ck_deepspeed_files_of(ld, DEEPSPEED_MODEL, m->mp, &nr);
	bool ok = false;
	int ret = 0;

	if (!nr) {
		file = ck_deepspeed_files_of(ld, DEEPSPEED_MODEL3, m->mp, &nr);
		m->stage3 = nr;
	}
	snprintf(name, sizeof(name), "mp_rank_%02u_model_states.pt", m->mp);
	if (!nr)
		return ck_dir_source(ld->dir, ld->b, name, &m->f.src, NULL,
				     err);
	for (size_t i = 0; i < nr && !ok && !ret; i++) {
		ck_torch_open_close(&m->f);
		ret = ck_deepspeed_open(ld, &m->f, file[i].name, &ok, err);
	}
	if (!ret && !ok)
		ck_torch_open_close(&m->f);
	return ret;
}

/* The weights of a tensor-parallel rank, or the optimizer of a stage. */
static int compare_model(struct deepspeed_model *m, struct ck_err *err)
{
	ck_pv from = m->module;

	if (m->stage3)
		return 0;
	m->ld->apart |= ck_pv_kind(from) == CK_P_NONE;
	if (ck_pv_kind(from) != CK_P_NONE ||
	    ck_pv_key(m->f.ts.pickle, m->root, "optimizer", &from))
		return ck_deepspeed_compare(m->ld, &m->f, from, err);
	return 0;
}

static int read_model(struct deepspeed_model *m, struct ck_err *err)
{
	struct deepspeed_load *ld = m->ld;
	struct ck_err why = { 0 };
	bool ok;
	int ret = open_model(m, err);

	if (ret || !m->f.s)
		return ret;
	ret = ck_deepspeed_model_read(m, &why);
	if (ret == -EINVAL) {
		ret = deepspeed_problem(ld, CK_ERROR, m->f.s->name, err, "%s",
					why.msg);
		ck_deepspeed_model_free(m);
		return ret;
	}
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	ret = ck_deepspeed_check_steps(ld, m->f.s->name, m->steps, &ok, err);
	if (!ret && ok)
		ret = compare_model(m, err);
	if (!ret && ok)
		ret = ck_deepspeed_lost(ld, &m->f, err);
	if (!ret && ok)
		ret = ck_deepspeed_experts_check(m, err);
	if (!ok)
		ck_deepspeed_model_free(m);
	return ret;
}

/* ---- degrees ---- */

static bool has_kind(const struct deepspeed_load *ld, enum deepspeed_kind kind)
{
	for (size_t i = 0; i < ld->files.nr; i++)
		if (ld->files.v[i].kind == kind)
			return true;
	return false;
}

/* How many of the model-parallel ranks are stages of the pipeline. */
static int find_degrees(struct deepspeed_load *ld,
			const struct deepspeed_model *m, struct ck_err *err)
{
	uint64_t nr = (uint64_t)m->pp_degree * m->tp_degree;

	ld->pp = m->pp_degree;
	ld->tp = m->tp_degree;
	if (!nr) {
		ld->tp = 1;
		ld->pp = ld->nr_mp;
		if (ld->nr_mp > 1 && !has_kind(ld, DEEPSPEED_LAYER))
			return ck_fail(
				err, EINVAL,
				"%s: files of %u model-parallel ranks, and none has checkpoint_parallel_dimensions, which says how they share the model",
				ld->dir->path, ld->nr_mp);
		return 0;
	}
	if (nr < ld->nr_mp || nr > 64 * ld->files.nr + 64)
		return ck_fail(
			err, EINVAL,
			"%s: files of %u model-parallel ranks, where checkpoint_parallel_dimensions says %u stages of %u",
			ld->dir->path, ld->nr_mp, ld->pp, ld->tp);
	ld->nr_mp = (unsigned)nr;
	return 0;
}

/* Reads the degrees from the first model file that can be read. */
static int read_degrees(struct deepspeed_load *ld, struct ck_err *err)
{
	ld->zero = has_kind(ld, DEEPSPEED_OPTIM);
	for (size_t i = 0; i < ld->files.nr; i++)
		if (ld->files.v[i].kind != DEEPSPEED_LAYER)
			ld->nr_mp = CK_MAX(ld->nr_mp, ld->files.v[i].mp + 1);
	for (size_t i = 0; i < ld->files.nr; i++) {
		struct deepspeed_model m = { .ld = ld };
		bool ok = false;
		int ret;

		if (ld->files.v[i].kind > DEEPSPEED_MODEL3)
			continue;
		ret = ck_deepspeed_open(ld, &m.f, ld->files.v[i].name, &ok,
					err);
		if (!ret && ok) {
			ret = ck_deepspeed_model_read(&m, NULL);
			ok = !ret; /* else the next one */
			if (ret == -ENOMEM)
				ck_no_memory(err);
			else
				ret = ok ? find_degrees(ld, &m, err) : 0;
		}
		ck_deepspeed_model_free(&m);
		if (ret || ok)
			return ret;
	}
	return find_degrees(ld, &(struct deepspeed_model){ 0 }, err);
}

/* ---- stages ---- */

static int read_stage(struct deepspeed_load *ld, unsigned pp, struct stage *s,
		      struct ck_err *err)
{
	int ret = 0;

	s->complete = true;
	s->rank = calloc(ld->tp, sizeof(*s->rank));
	if (!s->rank)
		return ck_no_memory(err);
	s->nr = ld->tp;
	for (unsigned i = 0; i < s->nr && !ret; i++) {
		struct deepspeed_model *m = &s->rank[i].m;
		struct deepspeed_zero *z = &s->rank[i].z;

		*m = (struct deepspeed_model){ .ld = ld,
					       .mp = pp * ld->tp + i,
					       .tp = i,
					       .nr_tp = ld->tp };
		*z = (struct deepspeed_zero){ .ld = ld, .m = m };
		ret = read_model(m, err);
		ld->unnamed |= !m->f.s;
		if (!ret && m->f.s && !ld->universal)
			ret = ck_deepspeed_zero_read(z, err);
		if (!ret && z->ranks.nr)
			ret = ck_deepspeed_zero_join(z, err);
		s->complete &= z->complete;
	}
	return ret;
}

/* What no rule of this reader takes apart, as it is. */
static int add_rest(struct deepspeed_model *m, struct ck_err *err)
{
	static const char *const skip[] = { "module",
					    "param_shapes",
					    "frozen_param_shapes",
					    "frozen_param_fragments",
					    "shared_params",
					    "buffer_names",
					    "universal_checkpoint_info",
					    NULL };
	char prefix[32] = "";

	if (m->ld->nr_mp > 1)
		snprintf(prefix, sizeof(prefix), "mp_rank_%02u.", m->mp);
	return ck_deepspeed_add_rest(m->ld, &m->f, prefix, skip, err);
}

/* Reports what ZeRO trained, and of which no optimizer file can be read. */
static int check_lost(const struct deepspeed_model *m,
		      const struct deepspeed_zero *z, struct ck_err *err)
{
	struct deepspeed_load *ld = m->ld;
	int ret = 0;

	if (ld->universal)
		return 0;
	if (m->params.nr && !z->ranks.nr)
		ret = deepspeed_problem(
			ld, ld->zero || m->stage3 ? CK_ERROR : CK_WARNING,
			m->f.s->name, err,
			"it names %zu trained parameters, and no optimizer file of "
			"model-parallel rank %u is there that can be read: %s",
			m->params.nr, m->mp,
			m->stage3 ?
				"their values are lost with them (ZeRO 3)" :
				"their master copies and moments are not shown");
	if (ret || !ld->zero || m->names || m->moe)
		return ret;
	/* so it is with experts, and was in 2020 */
	return deepspeed_problem(
		ld, CK_ERROR, m->f.s->name, err,
		"it has no param_shapes, which names what ZeRO trains: master copies and moments are not shown");
}

/* Stages that have a tied one say the same of it: the first counts. */
static int keep_name(const struct deepspeed_model *m,
		     const struct deepspeed_param *p, struct ck_err *err)
{
	struct deepspeed_load *ld = m->ld;
	size_t had = ld->trained.nr;
	uint32_t at =
		ck_strmap_keep(&ld->trained, &ld->mem, p->name, p->name_len);
	uint64_t dims[CK_MAX_RANK];
	struct deepspeed_name *is;
	unsigned rank;

	if (at == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (ld->trained.nr == had)
		return 0;
	if (!ck_pq_dims(m->f.ts.pickle, p->shape, "", dims, &rank))
		rank = 0; /* not so: see add_param() */
	is = ck_arena_alloc(&ld->mem, sizeof(*is) + rank * sizeof(*dims));
	if (!is)
		return ck_no_memory(err);
	is->stored = false;
	is->rank = rank;
	memcpy(is->shape, dims, rank * sizeof(*dims));
	ld->trained.v[at].user = (uintptr_t)is;
	return 0;
}

static int add_stage(struct deepspeed_load *ld, struct stage *s,
		     struct ck_err *err)
{
	int ret = 0;

	for (unsigned i = 0; i < s->nr && !ret; i++) {
		struct deepspeed_model *m = &s->rank[i].m;
		struct deepspeed_zero *z = &s->rank[i].z;

		if (!m->f.s)
			continue;
		ret = m->moe ? ck_deepspeed_moe_add(z, err) :
			       ck_deepspeed_zero_add(z, err);
		if (!ret && i == 0)
			ret = ck_deepspeed_order_read(z, err);
		if (!ret)
			ret = check_lost(m, z, err);
		if (!ret)
			ret = ck_deepspeed_model_add(m, z->count, err);
		if (!ret && ld->universal)
			ret = ck_deepspeed_universal_check(m, err);
		if (!ret)
			ret = add_rest(m, err);
	}
	/* what a stage has is the other stages' too where it is tied */
	for (unsigned i = 0; i < s->nr && !ret; i++)
		for (size_t k = 0; k < s->rank[i].m.params.nr; k++) {
			const struct deepspeed_param *p =
				&s->rank[i].m.params.v[k];

			ret = keep_name(&s->rank[i].m, p, err);
			if (ret)
				break;
		}
	return ret;
}

/* Whole stages first: a tied parameter is taken from one of them. */
static int add_stages(struct deepspeed_load *ld, struct ck_err *err)
{
	struct stage *late = calloc(ld->pp, sizeof(*late));
	int ret = 0;

	if (!late)
		return ck_no_memory(err);
	for (unsigned pp = 0; pp < ld->pp && !ret; pp++) {
		struct stage *s = &late[pp];

		ret = read_stage(ld, pp, s, err);
		if (!ret && pp == 0 && ld->universal)
			ret = ck_deepspeed_universal_add(
				ld, s->rank[0].m.f.s ? &s->rank[0].m : NULL,
				err);
		if (!ret && s->complete) {
			ret = add_stage(ld, s, err);
			free_stage(s);
		}
	}
	for (unsigned pp = 0; pp < ld->pp; pp++) {
		if (!ret)
			ret = add_stage(ld, &late[pp], err);
		free_stage(&late[pp]);
	}
	free(late);
	return ret;
}

static int add_all(struct deepspeed_load *ld, struct ck_err *err)
{
	int ret;

	/* DeepSpeed's converter writes to a folder of its own */
	for (size_t i = 0; i < ld->files.nr && ld->universal; i++)
		if (ld->files.v[i].kind == DEEPSPEED_OPTIM)
			return ck_fail(
				err, EINVAL,
				"%s: optimizer states twice, in %s and in zero/ (the universal form), maybe of two saves: move one of them away",
				ld->dir->path, ld->files.v[i].name);
	ret = read_degrees(ld, err);
	if (!ret)
		ret = ck_deepspeed_find_steps(ld, err);
	if (!ret && ld->universal && !ld->nr_mp)
		ret = ck_deepspeed_universal_add(ld, NULL, err);
	if (!ret && ld->nr_mp)
		ret = add_stages(ld, err);
	if (!ret)
		ret = ck_deepspeed_layers_add(ld, err);
	if (!ret)
		ret = ck_deepspeed_experts_add(ld, err);
	return ret ? ret : ck_deepspeed_order_add(ld, err);
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct deepspeed_load ld = { .dir = dir, .b = b };
	int universal = ck_deepspeed_is_universal(dir);
	int ret = ck_deepspeed_files_list(&ld, err);

	ld.universal = universal > 0;
	if (!ret && universal < 0)
		ret = ck_no_memory(err);
	if (!ret && !ld.files.nr && !ld.universal)
		ret = ck_fail(err, EINVAL,
			      "%s: no files as DeepSpeed names them",
			      dir->path);
	if (!ret)
		ret = add_all(&ld, err);
	ck_deepspeed_order_free(&ld.order);
	ck_strmap_free(&ld.trained);
	ck_strmap_free(&ld.states);
	free(ld.files.v);
	ck_arena_free(&ld.mem);
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
		return ret == -ENOMEM ? ck_no_memory(err) : 0;
	text[strcspn(text, "\r\n")] = '\0';
	for (size_t i = 0; i < l->nr; i++)
		if (!strcmp(l->v[i].name, text))
			return 0;
	ck_str_plain(&plain, text, strlen(text));
	if (plain.failed)
		return ck_no_memory(err);
	return ck_builder_problem(b, &p, err,
				  "names %s, and there is no such folder: what "
				  "DeepSpeed saved with this is not here",
				  plain.v ? plain.v : "nothing");
}

static bool claims(const char *name)
{
	struct deepspeed_file f;

	return ck_deepspeed_is_name(name, &f);
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
	  .place = 10 },
	{ .name = "weights",
	  .type = CK_OPTION_CHOICE,
	  .value = "WHICH",
	  .choices = "module|fp32",
	  .fallback = "module, or fp32 where that is all there is",
	  .open = true,
	  .help = "hf/ and model.safetensors show this copy of DeepSpeed's "
		  "weights",
	  .group = CK_OPTION_SHOW,
	  .in_views = true },
	{ .name = NULL },
};

static const struct ck_format_sign signs[] = {
	{ "mp_rank_*_model_states.pt", CK_SIGN_STRONG },
	{ "zero_pp_rank_*", CK_SIGN_STRONG },
	{ "bf16_zero_pp_rank_*", CK_SIGN_STRONG },
	{ "mp_rank_*", 0 },
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
