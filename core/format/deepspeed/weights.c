/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c - the weights in model files and those of experts
 *
 * Stages 0 to 2 keep the weights themselves; stage 3 keeps buffers, empty
 * places for the weights, and of frozen parameters ceil(n / ranks) elements in
 * each rank's file.  Experts have files of their own:
 *
 *   layer_L_expert_E_mp_rank_MM_model_states.pt   weights, with full names
 *   expert_E_mp_rank_MM_model_states.pt           the same of all layers
 *   expp_rank_R_mp_rank_MM_optim_states.pt        without ZeRO: an optimizer
 *   num_experts in the model file                 how many each layer has
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/check.h"
#include "core/mesh/mesh.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAMED 64
#define MAX_EXPERTS (1 << 16) /* of one layer */
#define MAX_LAYERS (1 << 12)

/* ---- a tensor ---- */

static int add_path(struct ck_asm_join *j, struct ck_err *err)
{
	const struct ck_asm_tensor *t = j->t;
	size_t kind = (size_t)t->user;
	const struct ck_path_part parts[] = {
		{ t->name, kind, -1 },
		{ t->name + kind + 1, t->len - kind - 1, -1 },
	};

	return ck_builder_path(j->a->b, 0, t->name, t->len, parts, 2, err);
}

struct ck_asm ck_deepspeed_asm(const struct deepspeed_load *ld)
{
	static const struct ck_asm_reader reader = { .note = add_path };

	return (struct ck_asm){ .dir = ld->dir, .b = ld->b, .how = &reader };
}

struct ck_asm_tensor *ck_deepspeed_tensor(struct ck_asm *a, const char *kind,
					  const char *name, size_t len)
{
	ck_auto_str struct ck_str full = { 0 };
	struct ck_asm_tensor *t;

	ck_str_fmt(&full, "%s.", kind);
	ck_str_add(&full, name, len);
	t = full.failed ? NULL : ck_asm_tensor(a, 0, full.v, full.len);
	if (t)
		t->user = strlen(kind);
	return t;
}

int ck_deepspeed_refuse(struct ck_asm *a, const char *kind, const char *name,
			size_t len, struct ck_err *err, const char *fmt, ...)
{
	struct ck_asm_tensor *t = ck_deepspeed_tensor(a, kind, name, len);
	char why[CK_ERR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return t ? ck_asm_refuse(a, t, err, "%s", why) : ck_no_memory(err);
}

int ck_deepspeed_give_at(struct ck_asm *a, const struct deepspeed_model *m,
			 const char *file, const char *kind, const char *name,
			 size_t len, const struct ck_torch_place *at,
			 struct ck_err *err)
{
	struct ck_asm_tensor *t = ck_deepspeed_tensor(a, kind, name, len);
	uint32_t nr = ck_asm_file(a, file, CK_ASM_ANY);
	const struct ck_extent *x = &at->x;
	ck_auto_cut struct ck_cut cut = { 0 };
	struct ck_err why = { 0 };
	int ret;

	if (!t || nr == CK_NONE)
		return ck_no_memory(err);
	ret = m ? ck_deepspeed_cut(m, name, len, x->shape, x->rank, &cut,
				   &why) :
		  ck_cut_whole(&cut, x->shape, x->rank, &why);
	return ret ? ck_asm_failed(a, t, ret, &why, err) :
		     ck_cut_give(&cut, a, t, nr, x, err);
}

int ck_deepspeed_give(struct ck_asm *a, const struct deepspeed_model *m,
		      struct ck_torch_open *f, const char *kind,
		      const char *name, size_t len, ck_pv v, struct ck_err *err)
{
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	int ret = ck_torch_place(f, v, &at, &why);

	if (ret == -EINVAL)
		return ck_deepspeed_refuse(a, kind, name, len, err, "%s",
					   why.msg);
	return ret ? ck_fail(err, -ret, "%s", why.msg) :
		     ck_deepspeed_give_at(a, m, f->s->name, kind, name, len,
					  &at, err);
}

/* ---- weights ---- */

/*
 * Whether the optimizer files, or frozen pieces, have it in full precision; so
 * may they where nothing names what is trained (experts, files of 2020).
 */
static bool is_elsewhere(const struct deepspeed_model *m, const char *name,
			 size_t len)
{
	uint32_t alias = ck_strmap_get(&m->aliases, name, len), holder;

	if (!m->names && !ck_deepspeed_is_buffer(m, name, len))
		return true;
	if (ck_strmap_has(&m->by_name, name, len))
		return true;
	if (alias != CK_STRMAP_NONE && ck_deepspeed_holder(m, alias, &holder))
		return m->stage3 || holder != CK_STRMAP_NONE;
	return m->stage3 && ck_strmap_has(&m->frozen, name, len);
}

/* Where stage 3 leaves a place for a weight, and no file says its name. */
static bool is_empty_place(const struct deepspeed_model *m, const char *name,
			   size_t len, ck_pv v)
{
	struct ck_torch_tensor t;

	return m->stage3 &&
	       !ck_torch_tensor_read(m->f.ts.pickle, v, &t, NULL) &&
	       t.rank == 1 && !t.shape[0] &&
	       !ck_deepspeed_is_buffer(m, name, len);
}

static int add_weight(struct deepspeed_model *m, struct ck_asm *a,
		      const struct deepspeed_tensors *t, struct ck_err *err)
{
	struct deepspeed_load *ld = m->ld;
	int ret = 0;

	if (!m->stage3)
		ret = ck_deepspeed_give(a, m, &m->f, "module", t->name, t->len,
					t->v, err);
	if (ret || !ld->zero || ld->universal ||
	    is_elsewhere(m, t->name, t->len))
		return ret;
	if (is_empty_place(m, t->name, t->len, t->v))
		return ck_deepspeed_refuse(
			a, "fp32", t->name, t->len, err,
			"an empty place for it is all there is; who has its weights the first rank's model file says");
	return ck_deepspeed_give(a, m, &m->f, "fp32", t->name, t->len, t->v,
				 err);
}

/* ---- what is frozen ---- */

/* One rank's piece of a frozen parameter, @v in file @f of rank @dp. */
static int add_piece(struct ck_asm *a, struct ck_torch_open *f,
		     struct ck_asm_tensor *t, ck_pv v, uint64_t dp,
		     uint64_t nr_dp, const struct ck_cut *cut, uint64_t numel,
		     struct ck_err *err)
{
	const struct ck_split each = { .how = CK_SIZES_CEIL, .nr = nr_dp };
	uint32_t file = ck_asm_file(a, f->s->name, dp);
	struct ck_asm_run run = { 0 };
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	uint64_t lo, len;
	int ret = ck_torch_place(f, v, &at, &why);

	if (!ret &&
	    (at.t.rank != 1 || at.t.shape[0] != CK_DIV_UP(numel, nr_dp) ||
	     (at.t.shape[0] > 1 && at.t.stride[0] != 1)))
		ret = ck_fail(&why, EINVAL,
			      "its frozen pieces are not of equal size");
	if (!ret)
		ret = ck_split_part(&each, numel, dp, &lo, &len, &why);
	if (ret)
		return ck_asm_failed(a, t, ret, &why, err);
	run.len = at.t.shape[0];
	run.x = at.x;
	return file == CK_NONE ? ck_no_memory(err) :
				 ck_cut_give_run(cut, a, t, file, lo, lo + len,
						 0, &run, err);
}

/* The pieces that one rank's file has of all frozen parameters. */
static int add_frozen(const struct deepspeed_model *m, struct ck_torch_open *f,
		      uint64_t dp, uint64_t nr_dp, struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(m->ld);
	ck_auto_strmap struct ck_strmap shapes = { 0 };
	const struct ck_pickle *p = f->ts.pickle;
	ck_pv root = ck_pickle_root(p), v;
	int ret = ck_pq_index(&shapes, p, root, "frozen_param_shapes/{}", err);

	if (!ck_pv_key(p, root, "frozen_param_shapes", &v))
		return 0;
	for (struct ck_pq_each e =
		     ck_pq_begin(p, root, "frozen_param_fragments/{}");
	     !ret && ck_pq_next(&e);) {
		ck_auto_cut struct ck_cut cut = { 0 };
		uint64_t shape[CK_MAX_RANK], numel;
		struct ck_err why = { 0 };
		struct ck_asm_tensor *t;
		uint32_t at;
		unsigned rank;

		if (!e.name)
			continue;
		t = ck_deepspeed_tensor(&a, "fp32", e.name, e.len);
		if (!t)
			return ck_no_memory(err);
		at = ck_strmap_get(&shapes, e.name, e.len);
		if (at == CK_STRMAP_NONE ||
		    !ck_pq_dims(p, shapes.v[at].user, "", shape, &rank) ||
		    !ck_dims_volume(shape, rank, &numel))
			ret = ck_fail(&why, EINVAL,
				      "frozen_param_shapes has no shape of it");
		else
			ret = ck_deepspeed_cut(m, e.name, e.len, shape, rank,
					       &cut, &why);
		ret = ret ? ck_asm_failed(&a, t, ret, &why, err) :
			    add_piece(&a, f, t, e.v, dp, nr_dp, &cut, numel,
				      err);
	}
	return ret ? ret : ck_asm_join(&a, err);
}

/* What the model file of another data-parallel rank has. */
static int add_other(const struct deepspeed_model *m,
		     const struct deepspeed_file *file, uint64_t nr_dp,
		     struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	ck_pv parts;
	bool ok;
	int ret = ck_deepspeed_open(m->ld, &f, file->name, &ok, err);

	if (!ret && ok)
		ret = ck_deepspeed_check_beside(m->ld, m, &f, &ok, err);
	if (!ret && ok)
		ret = ck_deepspeed_check_params(m, &f, err);
	if (ret || !ok)
		return ret;
	if (ck_pq(f.ts.pickle, ck_pickle_root(f.ts.pickle),
		  "frozen_param_fragments", &parts))
		ret = ck_deepspeed_compare(m->ld, &f, parts, err);
	return ret ? ret : add_frozen(m, &f, file->dp, nr_dp, err);
}

/* A file that is not read for what it holds: it has to say what the first says. */
static int compare_other(const struct deepspeed_model *m,
			 const struct deepspeed_file *file, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	int ret = ck_deepspeed_peek(m->ld->dir, file->name, &f);

	if (ret)
		return ret == -ENOMEM ? ck_no_memory(err) : 0;
	return ck_deepspeed_check_params(m, &f, err);
}

/*
 * Without frozen parameters the other ranks' model files say what the first
 * one says, with which one of them is compared: they are no files that nobody
 * knows.
 */
static int add_others(const struct deepspeed_model *m, bool frozen,
		      uint64_t nr_dp, struct ck_err *err)
{
	struct deepspeed_load *ld = m->ld;
	uint32_t src;
	size_t nr;
	const struct deepspeed_file *file =
		ck_deepspeed_files_of(ld, DEEPSPEED_MODEL3, m->mp, &nr);
	int ret = !frozen && nr > 1 && (!nr_dp || file[1].dp < nr_dp) ?
			  compare_other(m, &file[1], err) :
			  0;

	for (size_t i = 0; i < nr && !ret; i++) {
		if (nr_dp && file[i].dp >= nr_dp)
			continue;
		ret = frozen ? add_other(m, &file[i], nr_dp, err) :
			       ck_dir_source(ld->dir, ld->b, file[i].name, &src,
					     NULL, err);
	}
	return ret;
}

int ck_deepspeed_model_add(struct deepspeed_model *m, uint64_t nr_dp,
			   struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(m->ld);
	const struct ck_pickle *p = m->f.ts.pickle;
	struct deepspeed_tensors t;
	struct ck_pq_each any =
		ck_pq_begin(p, m->root, "frozen_param_fragments/{}");
	int ret = ck_deepspeed_check_shapes(m, err);

	ck_deepspeed_tensors(&t, p, m->module);
	while (!ret && ck_deepspeed_next(&t))
		ret = add_weight(m, &a, &t, err);
	if (!ret)
		ret = ck_asm_join(&a, err);
	if (ret || !m->stage3)
		return ret;
	return add_others(m, nr_dp && !m->ld->universal && ck_pq_next(&any),
			  nr_dp, err);
}

/* ---- experts ---- */

static int add_expert(struct deepspeed_load *ld,
		      const struct deepspeed_file *file, struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(ld);
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct deepspeed_tensors t;
	bool ok;
	int ret = ck_deepspeed_open_all(ld, &f, file->name, &ok, err);

	if (ret || !ok)
		return ret;
	ck_deepspeed_tensors(&t, f.ts.pickle, ck_pickle_root(f.ts.pickle));
	while (!ret && ck_deepspeed_next(&t))
		ret = ck_deepspeed_give(&a, NULL, &f, "module", t.name, t.len,
					t.v, err);
	return ret ? ret : ck_asm_join(&a, err);
}

/* How many ranks have different experts, by "ep_size_4" in its groups. */
static unsigned ranks_of(const struct ck_pickle *p, ck_pv optimizer)
{
	unsigned most = 0, nr;

	for (struct ck_pq_each e =
		     ck_pq_begin(p, optimizer, "param_groups/[]/name");
	     ck_pq_next(&e);) {
		char text[16] = "";
		const char *s;
		size_t len;

		if (!ck_pv_str(p, e.v, &s, &len))
			continue;
		memcpy(text, s, CK_MIN(len, sizeof(text) - 1));
		if (sscanf(text, "ep_size_%4u", &nr) == 1)
			most = CK_MAX(most, nr);
	}
	return most;
}

int ck_deepspeed_add_rest(struct deepspeed_load *ld, struct ck_torch_open *f,
			  const char *prefix, const char *const *skip,
			  struct ck_err *err)
{
	const struct ck_pickle *p = f->ts.pickle;
	ck_pv v;
	int ret = ck_torch_rest(f, ld->b, prefix, skip, err);

	if (ret || !ck_pv_key(p, ck_pickle_root(p), "optimizer", &v) ||
	    ck_pv_kind(v) == CK_P_NONE)
		return ret;
	return deepspeed_problem(
		ld, CK_NOTE, f->s->name, err,
		"its optimizer states are known by number only: they are shown as stored, under %soptimizer",
		prefix);
}

/*
 * Without ZeRO an expert-parallel rank's optimizer; with it an empty place,
 * which DeepSpeed opens all the same.
 */
static int add_optim(struct deepspeed_load *ld,
		     const struct deepspeed_file *file, struct ck_err *err)
{
	static const char *const skip[] = { NULL };
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	char prefix[64];
	ck_pv v;
	bool ok;
	int ret = ck_deepspeed_open_all(ld, &f, file->name, &ok, err);

	if (ret || !ok ||
	    !ck_pv_key(f.ts.pickle, ck_pickle_root(f.ts.pickle), "optimizer",
		       &v) ||
	    ck_pv_kind(v) == CK_P_NONE)
		return ret;
	ld->nr_ep = CK_MAX(ld->nr_ep, ranks_of(f.ts.pickle, v));
	snprintf(prefix, sizeof(prefix), "expp_rank_%u.", file->dp);
	return ck_deepspeed_add_rest(ld, &f, prefix, skip, err);
}

/* Registers a file that should be there; *lost: it is not. */
static int want(struct deepspeed_load *ld, const char *name, bool *lost,
		struct ck_err *err)
{
	uint32_t src;

	*lost = !ck_dir_has(ld->dir, name);
	return *lost ? ck_dir_source(ld->dir, ld->b, name, &src, NULL, err) : 0;
}

int ck_deepspeed_experts_add(struct deepspeed_load *ld, struct ck_err *err)
{
	char name[64];
	bool any = false, lost;
	int ret = 0;

	for (size_t i = 0; i < ld->files.nr && !ret; i++) {
		const struct deepspeed_file *f = &ld->files.v[i];

		if (f->kind == DEEPSPEED_EXPERT && ld->tp > 1)
			ret = deepspeed_problem(
				ld, CK_ERROR, f->name, err,
				"%u tensor-parallel ranks share the experts, and no file says how: they are left out",
				ld->tp);
		else if (f->kind == DEEPSPEED_EXPERT)
			ret = add_expert(ld, f, err);
		else if (f->kind == DEEPSPEED_EXPERT_OPTIM) {
			ret = add_optim(ld, f, err);
			any = true; /* 0.19 writes no empty ones */
		}
	}
	for (unsigned i = 0; any && ld->nr_mp == 1 && i < ld->nr_ep && !ret;
	     i++) {
		snprintf(name, sizeof(name),
			 "expp_rank_%u_mp_rank_00_optim_states.pt", i);
		ret = want(ld, name, &lost, err);
	}
	return ret;
}

/* Each file of the experts of layer @layer; -1: of all layers. */
static int want_experts(const struct deepspeed_model *m, int64_t layer,
			uint64_t nr, uint64_t *nr_lost, struct ck_err *err)
{
	int ret = 0;

	for (uint64_t i = 0; i < nr && !ret; i++) {
		char name[128];
		bool lost = false;
		int at = layer < 0 ? 0 :
				     snprintf(name, sizeof(name),
					      "layer_%" PRIi64 "_", layer);

		snprintf(name + at, sizeof(name) - (size_t)at,
			 "expert_%" PRIu64 "_mp_rank_%02u_model_states.pt", i,
			 m->mp);
		if (*nr_lost < MAX_NAMED)
			ret = want(m->ld, name, &lost, err);
		else
			lost = !ck_dir_has(m->ld->dir, name);
		*nr_lost += lost;
	}
	return ret;
}

/* A number that can be that of experts; false: it cannot. */
static bool is_count(const struct ck_pickle *p, ck_pv v, int64_t *nr)
{
	return ck_pv_int(p, v, nr) && *nr >= 0 && *nr <= MAX_EXPERTS;
}

int ck_deepspeed_experts_check(const struct deepspeed_model *m,
			       struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct deepspeed_load *ld = m->ld;
	int64_t layer = 0, nr = 0, n;
	uint64_t nr_lost = 0;
	bool by_layer; /* older ones have a file for all layers of an expert */
	ck_pv v;
	int ret = 0;

	if (ld->universal || !ck_pq(p, m->root, "num_experts", &v))
		return 0;
	by_layer = !is_count(p, v, &nr);
	nr = by_layer ? 0 : nr;
	for (size_t i = 0; i < ld->files.nr; i++)
		by_layer &= ld->files.v[i].kind != DEEPSPEED_EXPERT ||
			    ld->files.v[i].nr > 2;
	for (struct ck_pq_each e = ck_pq_begin(p, v, "[]");
	     !ret && layer < MAX_LAYERS && ck_pq_next(&e);) {
		if (!is_count(p, e.v, &n))
			continue;
		if (by_layer)
			ret = want_experts(m, layer, (uint64_t)n, &nr_lost,
					   err);
		nr = CK_MAX(nr, n);
		layer++;
	}
	if (!ret && !by_layer)
		ret = want_experts(m, -1, (uint64_t)nr, &nr_lost, err);
	if (ret || nr_lost <= MAX_NAMED)
		return ret;
	return deepspeed_problem(ld, CK_ERROR, m->f.s->name, err,
				 "its num_experts wants %" PRIu64
				 " more files of experts that are not there",
				 nr_lost - MAX_NAMED);
}
