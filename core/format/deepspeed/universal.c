/* SPDX-License-Identifier: Apache-2.0 */
/*
 * universal.c - the universal form: zero/NAME/{fp32,exp_avg,...}.pt
 *
 * Each file is a dict with the whole tensor in "param", or, made from stage 3,
 * a bare vector whose shape only param_shapes in the model files has.  What
 * one parameter has the others have; what none has only the groups in
 * zero/optimizer_state.pt tell: Adam's have betas and eps, Lion's no eps.
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Elements compared with the weights: of one, of all. */
#define MAX_ONE 65536
#define MAX_ALL (UINT64_C(16) << 20)

struct universal {
	struct deepspeed_load *ld;
	struct deepspeed_model *m; /* or NULL */
	bool whole; /* no tensor-parallel ranks share the weights in @m */
	struct ck_audit_budget budget;
};

/* ---- kinds of states ---- */

static bool is_found(const struct deepspeed_load *ld, const char *kind)
{
	return ck_strmap_has(&ld->states, kind, strlen(kind));
}

static int add_kind(struct deepspeed_load *ld, const char *kind,
		    struct ck_err *err)
{
	if (ld->states.nr == DEEPSPEED_MAX_STATES ||
	    ck_strmap_keep(&ld->states, &ld->mem, kind, strlen(kind)) !=
		    CK_STRMAP_NONE)
		return 0;
	return ck_no_memory(err);
}

/* Those of Adam, and what there always is: tensors with a file each. */
static bool is_usual(const char *kind)
{
	return !strcmp(kind, "fp32") || !strcmp(kind, "exp_avg") ||
	       !strcmp(kind, "exp_avg_sq");
}

/* "exp_avg" of "zero/NAME/exp_avg.pt"; false: it is no such file. */
static bool kind_of(const struct ck_dir_entry *e, char kind[64])
{
	const char *file = strrchr(e->name, '/') + 1;
	const char *dot = strrchr(file, '.');

	if (e->is_dir || !dot || strcmp(dot, ".pt") != 0 || dot - file >= 64)
		return false;
	memcpy(kind, file, (size_t)(dot - file));
	kind[dot - file] = '\0';
	return true;
}

/* Whether folder @name has the weights or the moments of a parameter. */
static int has_weights(const struct ck_dir *dir, const char *name)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	char kind[64];
	int ret = ck_dir_list(dir, name, &l, NULL);

	for (size_t i = 0; i < l.nr; i++)
		if (kind_of(&l.v[i], kind) && is_usual(kind))
			return 1;
	return ret == -ENOMEM ? ret : 0;
}

int ck_deepspeed_is_universal(const struct ck_dir *dir)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(dir, "zero", &l, NULL);
	int found = 0;

	for (size_t i = 0; i < l.nr && !found; i++)
		if (l.v[i].is_dir)
			found = has_weights(dir, l.v[i].name);
	return ret == -ENOMEM ? ret : found;
}

#define UNKNOWN (-ENODATA)

/*
 * Whether the optimizer is Adam; UNKNOWN, or -ENOMEM.  Looked at in silence: it
 * is reported, and shown, when the rest is.
 */
static int is_adam(const struct deepspeed_load *ld)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	int ret = ck_deepspeed_peek(ld->dir, DEEPSPEED_GROUPS, &f);
	const struct ck_pickle *p = f.ts.pickle;
	ck_pv group, v;

	if (ret == -ENOMEM)
		return ret;
	if (ret || !ck_pq(p, ck_pickle_root(p), "param_groups/0", &group))
		return UNKNOWN;
	return ck_pq(p, group, "betas", &v) && ck_pq(p, group, "eps", &v);
}

/* Adamax and such have a state of another name in the place of one. */
static bool has_others(const struct deepspeed_load *ld)
{
	static const char *const usual[] = { "fp32", "step", "exp_avg",
					     "exp_avg_sq", "max_exp_avg_sq" };
	size_t nr = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(usual); i++)
		nr += is_found(ld, usual[i]);
	return nr < ld->states.nr;
}

/* Adds, or reports, what all parameters should have and none has. */
static int want_kinds(struct deepspeed_load *ld, struct ck_err *err)
{
	bool avg = is_found(ld, "exp_avg"), sq = is_found(ld, "exp_avg_sq");
	int ret = add_kind(ld, "fp32", err), adam;

	if (ret || (avg && sq) || has_others(ld))
		return ret;
	adam = is_adam(ld);
	if (adam == -ENOMEM)
		return ck_no_memory(err);
	if (adam == 1 && (avg || sq))
		return add_kind(ld, avg ? "exp_avg_sq" : "exp_avg", err);
	if (adam == 1)
		return deepspeed_problem(
			ld, CK_WARNING, NULL, err,
			"%s is of Adam, and no parameter has exp_avg.pt or exp_avg_sq.pt: they are lost, or it had made no step",
			DEEPSPEED_GROUPS);
	if (!sq && (!avg || !adam))
		return 0;
	return deepspeed_problem(
		ld, CK_WARNING, NULL, err,
		"no parameter has %s.pt, which Adam keeps beside %s.pt",
		avg ? "exp_avg_sq" : "exp_avg", avg ? "exp_avg" : "exp_avg_sq");
}

static int find_kinds(struct deepspeed_load *ld,
		      const struct ck_dir_list *folders, struct ck_err *err)
{
	char kind[64];
	int ret = 0;

	for (size_t i = 0; i < folders->nr && !ret; i++) {
		ck_auto_dir_list struct ck_dir_list l = { 0 };

		if (!folders->v[i].is_dir)
			continue;
		ret = ck_dir_list(ld->dir, folders->v[i].name, &l, err);
		for (size_t k = 0; k < l.nr && !ret; k++)
			if (kind_of(&l.v[k], kind))
				ret = add_kind(ld, kind, err);
	}
	return ret ? ret : want_kinds(ld, err);
}

/* ---- one file ---- */

static int refuse(struct universal *u, const char *path, const char *kind,
		  const char *name, const char *why, struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(u->ld);
	int ret = ck_deepspeed_refuse(&a, kind, name, strlen(name), err,
				      "%s: %s", path, why);

	return ret ? ret : ck_asm_join(&a, err);
}

/* A vector is a tensor whose shape the model file has. */
static int make_shape(const struct deepspeed_model *m, const char *name,
		      struct ck_torch_place *at, struct ck_err *why)
{
	uint64_t shape[CK_MAX_RANK], numel, step = 1;
	uint32_t i = m ? ck_strmap_get(&m->by_name, name, strlen(name)) :
			 CK_STRMAP_NONE;
	unsigned rank;

	if (at->t.rank != 1)
		return ck_fail(why, EINVAL, "expected a vector");
	if (i == CK_STRMAP_NONE)
		return ck_fail(
			why, EINVAL,
			"its file has a bare vector, and param_shapes of no model file has its shape");
	if (!ck_pq_dims(m->f.ts.pickle, m->params.v[i].shape, "", shape,
			&rank) ||
	    !ck_dims_volume(shape, rank, &numel) || numel != at->t.shape[0] ||
	    (numel > 1 && at->t.stride[0] != 1))
		return ck_fail(
			why, EINVAL,
			"its file has as many elements as its shape in param_shapes has not");
	at->t.rank = rank;
	at->x.rank = (uint8_t)rank;
	for (unsigned d = rank; d-- > 0;) {
		at->t.shape[d] = shape[d];
		at->t.stride[d] = (int64_t)step;
		step *= shape[d];
	}
	return 0;
}

/* Whether torch saved it under the name of another kind, or of a rank's file. */
static bool is_another(const struct ck_torch_open *f,
		       const struct deepspeed_load *ld, const char *kind)
{
	struct deepspeed_file ds;
	char text[128];
	bool is_rank;

	if (!ck_torch_save_called(&f->ts, ".pt", text, sizeof(text)))
		return false;
	is_rank = ck_deepspeed_is_name(text, &ds);
	text[strlen(text) - strlen(".pt")] = '\0';
	return strcmp(text, kind) != 0 && (is_rank || is_found(ld, text));
}

/*
 * Whether weight @v of the model file and the master copy @full in @f differ, as
 * ck_audit_rounded(); or -EINVAL: their shapes do.
 */
static int compare(struct universal *u, ck_pv v, struct ck_torch_open *f,
		   const struct ck_extent *full)
{
	struct ck_audit_run weights, master = ck_deepspeed_run(f->s, full, 0);
	struct ck_torch_place at;
	const struct ck_extent *w = &at.x;
	uint64_t whole;
	int ret = ck_torch_place(&u->m->f, v, &at, NULL);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	if (w->rank != full->rank ||
	    memcmp(w->shape, full->shape, w->rank * sizeof(*w->shape)) != 0)
		return -EINVAL;
	weights = ck_deepspeed_run(u->m->f.s, w, 0);
	return ck_extent_is_dense(full) && ck_extent_bytes(full, &whole) &&
			       ck_extent_is_dense(w) ?
		       ck_audit_rounded(&master, &weights,
					whole / sizeof(float), &u->budget) :
		       0;
}

/*
 * What the model file beside has under the same name, in its own precision: no
 * other shape fits; other values are another save's, or another parameter's.
 */
static int check_weight(struct universal *u, struct ck_torch_open *f,
			const char *name, const struct ck_torch_place *at,
			struct ck_err *why, struct ck_err *err)
{
	int ret = 0;
	ck_pv v;

	if (u->whole && ck_deepspeed_weight(u->m, name, strlen(name), &v))
		ret = compare(u, v, f, &at->x);
	if (ret == -EINVAL)
		return ck_fail(why, EINVAL,
			       "its shape is not that of the weights in %s: it "
			       "is another parameter's",
			       u->m->f.s->name);
	if (ret <= 0)
		return ret;
	return deepspeed_problem(
		u->ld, CK_WARNING, f->s->name, err,
		"it is not what %s has, rounded: it is of another save or another parameter, or the weights were changed by themselves",
		u->m->f.s->name);
}

/* What is a value of another sort is shown as it is: *object. */
static int place_file(struct universal *u, struct ck_torch_open *f,
		      const char *kind, const char *name,
		      struct ck_torch_place *at, bool *object,
		      struct ck_err *why)
{
	const struct ck_pickle *p = f->ts.pickle;
	ck_pv v = ck_pickle_root(p), param;
	int ret;

	*object = false;
	if (ck_torch_is_rebuild(p, v)) {
		ret = ck_torch_place(f, v, at, why);
		return ret || !at->t.rank ? ret :
					    make_shape(u->m, name, at, why);
	}
	if (ck_pv_key(p, v, "param", &param))
		return ck_torch_place(f, param, at, why);
	*object = !is_usual(kind) && ck_pv_kind(v) != CK_P_DICT;
	return *object ? 0 : ck_fail(why, EINVAL, "expected a tensor");
}

/* @path: zero/@name/@kind.pt */
static int read_file(struct universal *u, struct ck_asm *a, const char *path,
		     const char *kind, const char *name, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct deepspeed_load *ld = u->ld;
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	bool ok, object;
	int ret = ck_torch_open(&f, ld->dir, ld->b, path, &ok, err);

	if (ret || !ok)
		return ret;
	if (is_another(&f, ld, kind))
		return refuse(u, path, kind, name,
			      "it says that it was saved under another name",
			      err);
	ret = ck_deepspeed_lost(ld, &f, err);
	if (ret)
		return ret;
	ret = place_file(u, &f, kind, name, &at, &object, &why);
	if (object)
		return ck_builder_object(
			ld->b,
			&(struct ck_object_in){ .src = f.src,
						.enc = CK_ENC_PICKLE,
						.off = f.ts.pickle_off,
						.len = f.ts.pickle_len,
						.name = path,
						.name_len = strlen(path) },
			err);
	if (!ret && !strcmp(kind, "fp32"))
		ret = check_weight(u, &f, name, &at, &why, err);
	if (ret == -EINVAL)
		return refuse(u, path, kind, name, why.msg, err);
	return ret ? ck_no_memory(err) :
		     ck_deepspeed_give_at(a, NULL, path, kind, name,
					  strlen(name), &at, err);
}

/* ---- one parameter ---- */

static bool is_kind(const struct ck_asm_tensor *t, const char *kind)
{
	return t->user == strlen(kind) && !memcmp(t->name, kind, t->user);
}

/*
 * Why a state does not belong to the weights @w beside it: all but a step and
 * such numbers have their shape.  NULL: it does.
 */
static const char *misfit(const struct ck_asm_tensor *t,
			  const struct ck_asm_tensor *w)
{
	bool one = true;

	for (unsigned d = 0; d < t->rank; d++)
		one &= t->shape[d] == 1;
	if (is_kind(t, "step"))
		return one ? NULL : "expected a step, which is one number";
	return !w ||
			       (t->rank == w->rank &&
				!memcmp(t->shape, w->shape,
					t->rank * sizeof(*t->shape))) ||
			       (!t->rank && strncmp(t->name, "exp_avg", 7)) ?
		       NULL :
		       "its shape is not that of fp32.pt beside it: one of them "
		       "is another parameter's";
}

/* What a folder has of one parameter: whether it goes together, and then it. */
static int join(struct universal *u, struct ck_asm *a, struct ck_err *err)
{
	const struct ck_asm_tensor *w = NULL;
	const char *why = NULL;
	int ret = 0;

	for (size_t i = 0; i < a->tensors.nr; i++)
		if (is_kind(&a->tensors.v[i], "fp32"))
			w = &a->tensors.v[i];
	for (size_t i = 0; i < a->tensors.nr && w; i++)
		if (!is_kind(&a->tensors.v[i], "step") &&
		    misfit(&a->tensors.v[i], w))
			why = "its shape is not that of the states beside it: "
			      "one of them is another parameter's";
	for (size_t i = 0; i < a->tensors.nr && !ret; i++) {
		struct ck_asm_tensor *t = &a->tensors.v[i];
		const struct ck_asm_piece *p = &a->pieces.v[t->first];
		const char *bad = t == w ? why : misfit(t, w);

		if (bad)
			ret = ck_asm_refuse(a, t, err, "%s: %s",
					    ck_asm_who(a, p), bad);
		else if (a->tensors.nr > 1 && !is_kind(t, "step"))
			ret = ck_deepspeed_compare_one(u->ld, ck_asm_who(a, p),
						       0, &p->x, err);
	}
	return ret ? ret : ck_asm_join(a, err);
}

static int refuse_lost(struct ck_asm *a, const char *kind, const char *text,
		       size_t len, struct ck_err *err)
{
	return ck_deepspeed_refuse(
		a, kind, text, len, err,
		"zero/%.*s/%s.pt, which should have it, is not there",
		(int)CK_MIN(len, 200), text, kind);
}

static bool has_kind(const struct ck_dir_list *l, const char *want)
{
	char kind[64];

	for (size_t i = 0; i < l->nr; i++)
		if (kind_of(&l->v[i], kind) && !strcmp(kind, want))
			return true;
	return false;
}

/*
 * All have weights; one that is trained, or has any other state, has all the
 * states that others have.
 */
static int check_kinds(struct universal *u, const struct ck_dir_list *l,
		       const char *name, struct ck_err *err)
{
	struct deepspeed_load *ld = u->ld;
	size_t len = strlen(name);
	bool trained = u->m && ck_strmap_has(&u->m->by_name, name, len);
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(ld);
	int ret = 0;

	for (size_t i = 0; i < ld->states.nr; i++)
		trained |= strcmp(ld->states.v[i].s, "fp32") != 0 &&
			   has_kind(l, ld->states.v[i].s);
	for (size_t i = 0; i < ld->states.nr && !ret; i++) {
		const char *kind = ld->states.v[i].s;

		if ((trained || !strcmp(kind, "fp32")) && !has_kind(l, kind))
			ret = refuse_lost(&a, kind, name, len, err);
	}
	return ret ? ret : ck_asm_join(&a, err);
}

static int add_folder(struct universal *u, const char *folder,
		      struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(u->ld);
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *name = strrchr(folder, '/') + 1;
	char kind[64];
	int ret = ck_dir_list(u->ld->dir, folder, &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++)
		if (kind_of(&l.v[i], kind))
			ret = read_file(u, &a, l.v[i].name, kind, name, err);
	if (!ret)
		ret = join(u, &a, err);
	return ret ? ret : check_kinds(u, &l, name, err);
}

/* ---- what has no folder ---- */

/*
 * Frozen parameters, buffers and shared names: all have folders, or none.
 * *any: one has; @report: those that have none are lost.
 */
static int check_others(const struct deepspeed_model *m, struct ck_asm *a,
			const struct ck_strmap *folders, bool report, bool *any,
			struct ck_err *err)
{
	struct deepspeed_tensors t;
	int ret = 0;

	if (m->stage3)
		return 0;
	ck_deepspeed_tensors(&t, m->f.ts.pickle, m->module);
	while (!ret && ck_deepspeed_next(&t))
		if (ck_strmap_has(&m->by_name, t.name, t.len))
			continue;
		else if (ck_strmap_has(folders, t.name, t.len))
			*any = true;
		else if (report)
			ret = refuse_lost(a, "fp32", t.name, t.len, err);
	return ret;
}

int ck_deepspeed_universal_check(const struct deepspeed_model *m,
				 struct ck_err *err)
{
	struct deepspeed_load *ld = m->ld;
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(ld);
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_strmap struct ck_strmap folders = { 0 };
	bool any = false;
	int ret = ck_dir_list(ld->dir, "zero", &l, err);

	for (size_t i = 0; i < l.nr; i++) {
		const char *name = strrchr(l.v[i].name, '/') + 1;

		if (ck_strmap_put(&folders, name, strlen(name)) ==
		    CK_STRMAP_NONE)
			return ck_no_memory(err);
	}
	for (size_t i = 0; i < m->params.nr && !ret; i++) {
		const struct deepspeed_param *p = &m->params.v[i];

		for (size_t k = 0; k < ld->states.nr && !ret; k++)
			if (!ck_strmap_has(&folders, p->name, p->name_len))
				ret = refuse_lost(&a, ld->states.v[k].s,
						  p->name, p->name_len, err);
	}
	if (!ret)
		ret = check_others(m, &a, &folders, false, &any, err);
	if (!ret && any)
		ret = check_others(m, &a, &folders, true, &any, err);
	return ret ? ret : ck_asm_join(&a, err);
}

/* ---- all of it ---- */

/* What optimizers have that is of no parameter: groups and their settings. */
static int add_groups(struct deepspeed_load *ld, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	bool ok;
	int ret;

	if (!ck_dir_has(ld->dir, DEEPSPEED_GROUPS))
		return deepspeed_problem(
			ld, CK_WARNING, DEEPSPEED_GROUPS, err,
			"missing: what it had of the optimizer is lost");
	ret = ck_torch_open(&f, ld->dir, ld->b, DEEPSPEED_GROUPS, &ok, err);
	if (ret || !ok)
		return ret;
	if (is_another(&f, ld, "optimizer_state"))
		return deepspeed_problem(
			ld, CK_ERROR, DEEPSPEED_GROUPS, err,
			"it says that it was saved under another name: it is not read");
	ret = ck_torch_rest(&f, ld->b, "optimizer_state.",
			    &(const char *const){ NULL }, err);
	return ret ? ret : ck_deepspeed_order_universal(ld, &f, err);
}

int ck_deepspeed_universal_add(struct deepspeed_load *ld,
			       struct deepspeed_model *m, struct ck_err *err)
{
	struct universal u = { .ld = ld,
			       .m = m,
			       .whole = m && !m->stage3 && m->nr_tp == 1,
			       .budget = { MAX_ONE, MAX_ALL } };
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(ld->dir, "zero", &l, err);

	if (!ret && !ld->nr_mp)
		ret = deepspeed_problem(
			ld, CK_ERROR, NULL, err,
			"no model file (mp_rank_00_model_states.pt) beside zero/: the weights in their own precision and what else it had are lost");
	if (!ret)
		ret = find_kinds(ld, &l, err);
	for (size_t i = 0; i < l.nr && !ret; i++)
		if (l.v[i].is_dir)
			ret = add_folder(&u, l.v[i].name, err);
	if (!ret)
		ret = add_groups(ld, err);
	return ret;
}
