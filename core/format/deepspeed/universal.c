/* SPDX-License-Identifier: Apache-2.0 */
/*
 * universal.c - the universal form: zero/NAME/{fp32,exp_avg,...}.pt
 *
 * Each file is a dict with the whole tensor in "param", or, made from stage 3,
 * a bare vector whose shape only param_shapes in the model files has.
 */
#include "core/format/deepspeed/groups.h"
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/container/torch_walk.h"
#include "core/geom/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ALL (UINT64_C(16) << 20) /* elements compared with the weights */

struct saying {
	struct ck_ds_load *ld;
	struct ck_ds_model *m; /* or NULL */
	struct ck_strmap names; /* of m->module, where it has whole weights */
	CK_VEC(ck_pv) weights; /* same numbers */
	uint64_t left; /* elements that may still be compared */
};

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

int ck_ds_is_universal(const struct ck_dir *dir)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(dir, "zero", &l, NULL);
	int found = 0;

	for (size_t i = 0; i < l.nr && !found; i++)
		if (l.v[i].is_dir)
			found = has_weights(dir, l.v[i].name);
	return ret == -ENOMEM ? ret : found;
}

/* A vector is a tensor whose shape the model file has. */
static int make_shape(const struct ck_ds_model *m, const char *name, size_t len,
		      struct ck_torch_place *at, struct ck_err *why)
{
	uint64_t shape[CK_MAX_RANK], numel, step = 1;
	uint32_t i = m ? ck_strmap_get(&m->by_name, name, len) : CK_STRMAP_NONE;
	unsigned rank;

	if (at->t.rank != 1)
		return ck_fail(why, EINVAL, "expected a vector");
	if (i == CK_STRMAP_NONE)
		return ck_fail(
			why, EINVAL,
			"its file has a bare vector, and param_shapes of no model file has its shape");
	if (!ck_torch_size(m->f.ts.pickle, m->params.v[i].shape, shape,
			   &rank) ||
	    !ck_dims_volume(shape, rank, &numel) || numel != at->t.shape[0] ||
	    (numel > 1 && at->t.stride[0] != 1))
		return ck_fail(
			why, EINVAL,
			"its file has as many elements as its shape in param_shapes has not");
	at->t.rank = rank;
	for (unsigned d = rank; d-- > 0;) {
		at->t.shape[d] = shape[d];
		at->t.stride[d] = (int64_t)step;
		step *= shape[d];
	}
	return 0;
}

static int say_place(struct ck_ds_load *ld, const char *kind, const char *name,
		     size_t len, const struct ck_torch_place *at,
		     struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };
	ck_auto_cut struct ck_cut cut = { 0 };
	int ret = ck_cut_whole(&cut, at->t.shape, at->t.rank, err);

	ck_str_fmt(&full, "%s.", kind);
	ck_str_add(&full, name, len);
	if (full.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	if (!ret)
		ret = ck_cut_add_tensor(&cut, ld->b, full.v, full.len, at, err);
	return ret ? ret : ck_ds_path(ld->b, kind, name, len, &full, err);
}

/* What a folder holds of one parameter. */
struct held {
	char kind[64];
	const char *path; /* borrowed */
	struct ck_torch_place at;
};

struct folder {
	const char *name;
	CK_VEC(struct held) v;
};

static int refuse(struct ck_ds_load *ld, const struct folder *in,
		  const char *kind, const char *path, const char *why,
		  struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };

	ck_str_fmt(&full, "%s.%s", kind, in->name);
	if (full.failed)
		return ck_fail(err, ENOMEM, "no memory");
	return ck_builder_refuse(ld->b, 0, full.v, full.len, err, "%s: %s",
				 path, why);
}

/* Whether torch saved it under the name of another kind, or of a rank's file. */
static bool is_another(const struct ck_torch_open *f,
		       const struct ck_ds_load *ld, const char *kind)
{
	struct ck_ds_file ds;
	char text[128];
	size_t len;
	const char *top = ck_torch_save_top(&f->ts, &len);

	if (!top || len + sizeof(".pt") > sizeof(text) ||
	    (len == strlen(kind) && !memcmp(top, kind, len)))
		return false;
	for (size_t i = 0; i < ld->nr_states; i++)
		if (strlen(ld->states[i]) == len &&
		    !memcmp(top, ld->states[i], len))
			return true;
	memcpy(text, top, len);
	memcpy(text + len, ".pt", sizeof(".pt"));
	return !memchr(top, 0, len) && ck_ds_is_name(text, &ds);
}

/*
 * What the model file beside has under the same name, in its own precision: no
 * other shape fits; other values are another save's, or another parameter's.
 */
static int check_weight(struct saying *s, struct ck_torch_open *f,
			const char *name, const struct ck_torch_place *at,
			struct ck_err *why, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING,
					 .file = f->s->name };
	uint32_t i = ck_strmap_get(&s->names, name, strlen(name));
	int ret = i == CK_STRMAP_NONE ?
			  0 :
			  ck_ds_twin_whole(&s->m->f, s->weights.v[i], f->s, at,
					   &s->left);

	if (ret == -EINVAL)
		return ck_fail(why, EINVAL,
			       "its shape is not that of the weights in %s: it "
			       "is another parameter's",
			       s->m->f.s->name);
	if (ret <= 0)
		return ret;
	return ck_builder_problem(
		s->ld->b, &p, err,
		"it is not what %s has, rounded: it is of another save or another parameter, or the weights were changed by themselves",
		s->m->f.s->name);
}

/* zero/NAME/@kind.pt */
static int read_file(struct saying *s, const char *path, const char *kind,
		     struct folder *in, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct ck_ds_load *ld = s->ld;
	const char *name = in->name;
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	struct held *to;
	ck_pv v, param;
	bool ok;
	int ret = ck_torch_open(&f, ld->dir, ld->b, path, &ok, err);

	if (ret || !ok)
		return ret;
	if (is_another(&f, ld, kind))
		return refuse(ld, in, kind, path,
			      "it says that it was saved under another name",
			      err);
	v = ck_pickle_root(f.ts.pickle);
	ret = ck_ds_lost(ld->b, &f, err);
	if (ret)
		return ret;
	if (ck_torch_is_rebuild(f.ts.pickle, v)) {
		ret = ck_torch_place(&f, v, &at, &why);
		if (!ret && at.t.rank)
			ret = make_shape(s->m, name, strlen(name), &at, &why);
	} else if (ck_pv_key(f.ts.pickle, v, "param", &param)) {
		ret = ck_torch_place(&f, param, &at, &why);
	} else if (is_usual(kind) || ck_pv_kind(v) == CK_P_DICT) {
		ret = ck_fail(&why, EINVAL, "expected a tensor");
	} else {
		const struct ck_object_in o = { .src = f.src,
						.enc = CK_ENC_PICKLE,
						.off = f.ts.pickle_off,
						.len = f.ts.pickle_len,
						.name = path,
						.name_len = strlen(path) };

		return ck_builder_object(ld->b, &o, err);
	}
	if (!ret && !strcmp(kind, "fp32"))
		ret = check_weight(s, &f, name, &at, &why, err);
	if (ret == -ENOMEM || (!ret && !(to = ck_vec_push(&in->v))))
		return ck_fail(err, ENOMEM, "no memory");
	if (ret)
		return refuse(ld, in, kind, path, why.msg, err);
	*to = (struct held){ .path = path, .at = at };
	strcpy(to->kind, kind);
	return 0;
}

static bool same_shape(const struct ck_torch_tensor *a,
		       const struct ck_torch_tensor *b)
{
	return a->rank == b->rank &&
	       !memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape));
}

/*
 * Why a state does not belong to the weights @w beside it: all but a step and
 * such numbers have their shape.  NULL: it does.
 */
static const char *misfit(const struct held *h, const struct held *w)
{
	bool one = true;

	for (unsigned d = 0; d < h->at.t.rank; d++)
		one &= h->at.t.shape[d] == 1;
	if (!strcmp(h->kind, "step"))
		return one ? NULL : "expected a step, which is one number";
	return !w || same_shape(&h->at.t, &w->at.t) ||
			       (!h->at.t.rank &&
				strncmp(h->kind, "exp_avg", 7)) ?
		       NULL :
		       "its shape is not that of fp32.pt beside it: one of them "
		       "is another parameter's";
}

static int say_held(struct ck_ds_load *ld, const struct folder *in,
		    struct ck_err *err)
{
	const struct held *w = NULL;
	const char *why = NULL;
	int ret = 0;

	for (size_t i = 0; i < in->v.nr; i++)
		if (!strcmp(in->v.v[i].kind, "fp32"))
			w = &in->v.v[i];
	for (size_t i = 0; i < in->v.nr && w; i++)
		if (strcmp(in->v.v[i].kind, "step") != 0 &&
		    misfit(&in->v.v[i], w))
			why = "its shape is not that of the states beside it: "
			      "one of them is another parameter's";
	for (size_t i = 0; i < in->v.nr && !ret; i++) {
		const struct held *h = &in->v.v[i];
		const char *bad = h == w ? why : misfit(h, w);

		if (!bad && in->v.nr > 1 && strcmp(h->kind, "step") != 0)
			ret = ck_ds_stretch(ld->b, h->path, 0, &h->at, err);
		if (ret)
			break;
		ret = bad ? refuse(ld, in, h->kind, h->path, bad, err) :
			    say_place(ld, h->kind, in->name, strlen(in->name),
				      &h->at, err);
	}
	return ret;
}

static bool has_kind(const struct ck_dir_list *l, const char *want)
{
	char kind[64];

	for (size_t i = 0; i < l->nr; i++)
		if (kind_of(&l->v[i], kind) && !strcmp(kind, want))
			return true;
	return false;
}

static int add_kinds(struct ck_ds_load *ld, const struct ck_dir_list *l,
		     struct ck_err *err)
{
	char kind[64];
	int ret = 0;

	for (size_t i = 0; i < l->nr && !ret; i++)
		if (kind_of(&l->v[i], kind))
			ret = ck_ds_kind_add(ld, kind, err);
	return ret;
}

static int find_kinds(struct ck_ds_load *ld, const struct ck_dir_list *folders,
		      struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < folders->nr && !ret; i++) {
		ck_auto_dir_list struct ck_dir_list l = { 0 };

		if (!folders->v[i].is_dir)
			continue;
		ret = ck_dir_list(ld->dir, folders->v[i].name, &l, err);
		if (!ret)
			ret = add_kinds(ld, &l, err);
	}
	return ret ? ret : ck_ds_kinds_want(ld, err);
}

static int say_lost(struct ck_ds_load *ld, const char *kind, const char *name,
		    size_t len, struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };

	ck_str_fmt(&full, "%s.", kind);
	ck_str_add(&full, name, len);
	if (full.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	return ck_builder_refuse(
		ld->b, 0, full.v, full.len, err,
		"zero/%.*s/%s.pt, which should have it, is not there",
		(int)CK_MIN(len, 200), name, kind);
}

/*
 * All have weights; one that is trained, or has any other state, has all the
 * states that others have.
 */
static int say_lost_kinds(struct saying *s, const struct ck_dir_list *l,
			  const char *name, struct ck_err *err)
{
	struct ck_ds_load *ld = s->ld;
	bool trained = s->m && ck_strmap_get(&s->m->by_name, name,
					     strlen(name)) != CK_STRMAP_NONE;
	int ret = 0;

	for (size_t i = 0; i < ld->nr_states; i++)
		trained |= strcmp(ld->states[i], "fp32") != 0 &&
			   has_kind(l, ld->states[i]);
	for (size_t i = 0; i < ld->nr_states && !ret; i++)
		if ((trained || !strcmp(ld->states[i], "fp32")) &&
		    !has_kind(l, ld->states[i]))
			ret = say_lost(ld, ld->states[i], name, strlen(name),
				       err);
	return ret;
}

static int say_folder(struct saying *s, const char *folder, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *name = strrchr(folder, '/') + 1;
	struct folder in = { .name = name };
	char kind[64];
	int ret = ck_dir_list(s->ld->dir, folder, &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++)
		if (kind_of(&l.v[i], kind))
			ret = read_file(s, l.v[i].name, kind, &in, err);
	if (!ret)
		ret = say_held(s->ld, &in, err);
	free(in.v.v);
	return ret ? ret : say_lost_kinds(s, &l, name, err);
}

static int by_name(const void *key, const void *entry)
{
	return strcmp(key, ((const struct ck_dir_entry *)entry)->name);
}

/* 1: there is a folder of that name; 0: not; or -ENOMEM. */
static int has_folder(const struct ck_dir_list *l, const char *name, size_t len)
{
	ck_auto_str struct ck_str path = { 0 };

	ck_str_puts(&path, "zero/");
	ck_str_add(&path, name, len);
	if (path.failed)
		return -ENOMEM;
	return l->nr && bsearch(path.v, l->v, l->nr, sizeof(*l->v), by_name);
}

/* Frozen parameters, buffers and shared names: all have folders, or none. */
static int check_others(struct ck_ds_load *ld, const struct ck_ds_model *m,
			const struct ck_dir_list *l, bool say,
			struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct ck_piter it;
	ck_pv key, v;
	const char *name;
	size_t len;
	int ret = 0;

	ck_piter_init_pairs(&it, p, m->module);
	while (!ret && !m->stage3 && ck_piter_next2(&it, &key, &v)) {
		if (!ck_pv_str(p, key, &name, &len) ||
		    !ck_torch_is_rebuild(p, v) ||
		    ck_strmap_get(&m->by_name, name, len) != CK_STRMAP_NONE)
			continue;
		ret = has_folder(l, name, len);
		if (ret < 0)
			return ck_fail(err, ENOMEM, "no memory for a name");
		if (say)
			ret = ret ? 0 : say_lost(ld, "fp32", name, len, err);
	}
	return ret;
}

int ck_ds_universal_check(struct ck_ds_load *ld, const struct ck_ds_model *m,
			  struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(ld->dir, "zero", &l, err);

	for (size_t i = 0; i < m->params.nr && !ret; i++) {
		const struct ck_ds_param *p = &m->params.v[i];

		ret = has_folder(&l, p->name, p->name_len);
		if (ret < 0)
			return ck_fail(err, ENOMEM, "no memory for a name");
		for (size_t k = 0; !ret && k < ld->nr_states; k++)
			if ((ret = say_lost(ld, ld->states[k], p->name,
					    p->name_len, err)))
				return ret;
		ret = 0;
	}
	if (!ret)
		ret = check_others(ld, m, &l, false, err);
	return ret > 0 ? check_others(ld, m, &l, true, err) : ret;
}

static bool has_steps(const struct ck_ds_load *ld)
{
	for (size_t i = 0; i < ld->nr_states; i++)
		if (!strcmp(ld->states[i], "step"))
			return true;
	return false;
}

/* What optimizers have that is of no parameter: groups and their settings. */
static int say_groups(struct ck_ds_load *ld, struct ck_err *err)
{
	static const char *const skip[] = { NULL };
	struct ck_problem_in p = { .severity = CK_WARNING,
				   .file = CK_DS_GROUPS };
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	bool ok;
	int ret;

	if (!ck_dir_has(ld->dir, CK_DS_GROUPS))
		return ck_builder_problem(
			ld->b, &p, err,
			"missing: what it had of the optimizer is lost");
	ret = ck_torch_open(&f, ld->dir, ld->b, CK_DS_GROUPS, &ok, err);
	if (ret || !ok)
		return ret;
	if (!is_another(&f, ld, "optimizer_state")) {
		ret = ck_torch_rest(&f, ld->b, "optimizer_state.", skip, err);
		return ret ? ret :
			     ck_ds_groups_read_universal(&ld->order->universal,
							 &f, !has_steps(ld),
							 err);
	}
	p.severity = CK_ERROR;
	return ck_builder_problem(
		ld->b, &p, err,
		"it says that it was saved under another name: it is not read");
}

/* Weights that tensor-parallel ranks share are whole in no model file. */
static int list_weights(struct saying *s, struct ck_err *err)
{
	const struct ck_ds_model *m = s->m;
	struct ck_piter it;
	ck_pv key, v, *to;
	const char *name;
	size_t len;

	if (!m || m->stage3 || m->nr_tp > 1)
		return 0;
	ck_piter_init_pairs(&it, m->f.ts.pickle, m->module);
	while (ck_piter_next2(&it, &key, &v)) {
		if (!ck_pv_str(m->f.ts.pickle, key, &name, &len) ||
		    !ck_torch_is_rebuild(m->f.ts.pickle, v) ||
		    ck_strmap_get(&s->names, name, len) != CK_STRMAP_NONE)
			continue;
		to = ck_vec_push(&s->weights);
		if (!to ||
		    ck_strmap_put(&s->names, name, len) == CK_STRMAP_NONE)
			return ck_fail(err, ENOMEM, "no memory for names");
		*to = v;
	}
	return 0;
}

int ck_ds_universal_say(struct ck_ds_load *ld, struct ck_ds_model *m,
			struct ck_err *err)
{
	const struct ck_problem_in alone = { .severity = CK_ERROR };
	struct saying s = { .ld = ld, .m = m, .left = MAX_ALL };
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(ld->dir, "zero", &l, err);

	if (!ret && !ld->nr_mp)
		ret = ck_builder_problem(
			ld->b, &alone, err,
			"no model file (mp_rank_00_model_states.pt) beside zero/: the weights in their own precision and what else it had are lost");
	if (!ret)
		ret = find_kinds(ld, &l, err);
	if (!ret)
		ret = list_weights(&s, err);
	for (size_t i = 0; i < l.nr && !ret; i++)
		if (l.v[i].is_dir)
			ret = say_folder(&s, l.v[i].name, err);
	if (!ret)
		ret = say_groups(ld, err);
	ck_strmap_free(&s.names);
	free(s.weights.v);
	return ret;
}
