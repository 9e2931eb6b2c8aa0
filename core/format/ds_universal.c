/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_universal.c - the universal form: zero/NAME/{fp32,exp_avg,...}.pt
 *
 * Each file is a dict with the whole tensor in "param", or, made from stage 3,
 * a bare vector whose shape only param_shapes in the model files has.
 */
#include "core/format/ds_priv.h"

#include "core/base/check.h"
#include "core/format/torch_walk.h"
#include "core/geom/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The states that any parameter has: "fp32", "exp_avg", ... */
#define GROUPS "zero/optimizer_state.pt"

struct kinds {
	char *v[CK_DS_MAX_STATES];
	size_t nr;
};

/* Whether folder @name has the weights of a parameter. */
static int has_weights(const struct ck_dir *dir, const char *name)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(dir, name, &l, NULL);

	for (size_t i = 0; i < l.nr; i++) {
		const char *slash = strrchr(l.v[i].name, '/');

		if (slash && !strcmp(slash, "/fp32.pt"))
			return 1;
	}
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
static bool is_another(const struct ck_torch_open *f, const struct kinds *k,
		       const char *kind)
{
	struct ck_ds_file ds;
	char text[128];
	size_t len;
	const char *top = ck_torch_save_top(&f->ts, &len);

	if (!top || len + sizeof(".pt") > sizeof(text) ||
	    (len == strlen(kind) && !memcmp(top, kind, len)))
		return false;
	for (size_t i = 0; i < k->nr; i++)
		if (strlen(k->v[i]) == len && !memcmp(top, k->v[i], len))
			return true;
	memcpy(text, top, len);
	memcpy(text + len, ".pt", sizeof(".pt"));
	return !memchr(top, 0, len) && ck_ds_is_name(text, &ds);
}

/* zero/NAME/@kind.pt */
static int read_file(struct ck_ds_load *ld, const struct ck_ds_model *m,
		     const struct kinds *k, const char *path, const char *kind,
		     struct folder *in, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	const char *name = in->name;
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	struct held *to;
	ck_pv v, param;
	bool ok;
	int ret = ck_torch_open(&f, ld->dir, ld->b, path, &ok, err);

	if (ret || !ok)
		return ret;
	if (is_another(&f, k, kind))
		return refuse(ld, in, kind, path,
			      "it says that it was saved under another name",
			      err);
	v = ck_pickle_root(f.ts.pickle);
	ret = 0;
	if (ck_torch_is_rebuild(f.ts.pickle, v)) {
		ret = ck_torch_place(&f, v, &at, &why);
		if (!ret && at.t.rank)
			ret = make_shape(m, name, strlen(name), &at, &why);
	} else if (ck_pv_key(f.ts.pickle, v, "param", &param)) {
		ret = ck_torch_place(&f, param, &at, &why);
	} else {
		const struct ck_object_in o = { .src = f.src,
						.enc = CK_ENC_PICKLE,
						.off = f.ts.pickle_off,
						.len = f.ts.pickle_len,
						.name = path,
						.name_len = strlen(path) };

		return ck_builder_object(ld->b, &o, err);
	}
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
	return !w || !h->at.t.rank || same_shape(&h->at.t, &w->at.t) ?
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

		ret = bad ? refuse(ld, in, h->kind, h->path, bad, err) :
			    say_place(ld, h->kind, in->name, strlen(in->name),
				      &h->at, err);
	}
	return ret;
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

static bool has_kind(const struct ck_dir_list *l, const char *want)
{
	char kind[64];

	for (size_t i = 0; i < l->nr; i++)
		if (kind_of(&l->v[i], kind) && !strcmp(kind, want))
			return true;
	return false;
}

static int add_kinds(struct kinds *k, const struct ck_dir_list *l,
		     struct ck_err *err)
{
	char kind[64];

	for (size_t i = 0; i < l->nr; i++) {
		size_t at = 0;

		if (!kind_of(&l->v[i], kind))
			continue;
		while (at < k->nr && strcmp(k->v[at], kind) != 0)
			at++;
		if (at < k->nr || k->nr == CK_DS_MAX_STATES)
			continue;
		k->v[k->nr] = strdup(kind);
		if (!k->v[k->nr])
			return ck_fail(err, ENOMEM, "no memory for names");
		k->nr++;
	}
	return 0;
}

static void kinds_free(struct kinds *k)
{
	for (size_t i = 0; i < k->nr; i++)
		free(k->v[i]);
}

static int find_kinds(struct ck_ds_load *ld, const struct ck_dir_list *folders,
		      struct kinds *k, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < folders->nr && !ret; i++) {
		ck_auto_dir_list struct ck_dir_list l = { 0 };

		if (!folders->v[i].is_dir)
			continue;
		ret = ck_dir_list(ld->dir, folders->v[i].name, &l, err);
		if (!ret)
			ret = add_kinds(k, &l, err);
	}
	return ret;
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
static int say_lost_kinds(struct ck_ds_load *ld, const struct ck_ds_model *m,
			  const struct kinds *k, const struct ck_dir_list *l,
			  const char *name, struct ck_err *err)
{
	bool trained = m && ck_strmap_get(&m->by_name, name, strlen(name)) !=
				    CK_STRMAP_NONE;
	int ret = 0;

	for (size_t i = 0; i < k->nr; i++)
		trained |= strcmp(k->v[i], "fp32") != 0 && has_kind(l, k->v[i]);
	for (size_t i = 0; i < k->nr && !ret; i++)
		if ((trained || !strcmp(k->v[i], "fp32")) &&
		    !has_kind(l, k->v[i]))
			ret = say_lost(ld, k->v[i], name, strlen(name), err);
	return ret;
}

static int say_folder(struct ck_ds_load *ld, const struct ck_ds_model *m,
		      const struct kinds *k, const char *folder,
		      struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *name = strrchr(folder, '/') + 1;
	struct folder in = { .name = name };
	char kind[64];
	int ret = ck_dir_list(ld->dir, folder, &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++)
		if (kind_of(&l.v[i], kind))
			ret = read_file(ld, m, k, l.v[i].name, kind, &in, err);
	if (!ret)
		ret = say_held(ld, &in, err);
	free(in.v.v);
	return ret ? ret : say_lost_kinds(ld, m, k, &l, name, err);
}

static int by_name(const void *key, const void *entry)
{
	return strcmp(key, ((const struct ck_dir_entry *)entry)->name);
}

int ck_ds_universal_check(struct ck_ds_load *ld, const struct ck_ds_model *m,
			  struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_str struct ck_str path = { 0 };
	int ret = ck_dir_list(ld->dir, "zero", &l, err);

	for (size_t i = 0; i < m->params.nr && !ret; i++) {
		const struct ck_ds_param *p = &m->params.v[i];

		path.len = 0;
		ck_str_puts(&path, "zero/");
		ck_str_add(&path, p->name, p->name_len);
		if (path.failed)
			return ck_fail(err, ENOMEM, "no memory for a name");
		if (!l.nr || !bsearch(path.v, l.v, l.nr, sizeof(*l.v), by_name))
			ret = say_lost(ld, "fp32", p->name, p->name_len, err);
	}
	return ret;
}

/* What optimizers have that is of no parameter: groups and their settings. */
static int say_groups(struct ck_ds_load *ld, const struct kinds *k,
		      struct ck_err *err)
{
	static const char *const skip[] = { NULL };
	struct ck_problem_in p = { .severity = CK_WARNING, .file = GROUPS };
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	bool ok;
	int ret;

	if (!ck_dir_has(ld->dir, GROUPS))
		return ck_builder_problem(
			ld->b, &p, err,
			"missing: what it had of the optimizer is lost");
	ret = ck_torch_open(&f, ld->dir, ld->b, GROUPS, &ok, err);
	if (ret || !ok)
		return ret;
	if (!is_another(&f, k, "optimizer_state"))
		return ck_torch_rest(&f, ld->b, "optimizer_state.", skip, err);
	p.severity = CK_ERROR;
	return ck_builder_problem(
		ld->b, &p, err,
		"it says that it was saved under another name: it is not read");
}

int ck_ds_universal_say(struct ck_ds_load *ld, const struct ck_ds_model *m,
			struct ck_err *err)
{
	__attribute__((cleanup(kinds_free))) struct kinds k = { 0 };
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(ld->dir, "zero", &l, err);

	if (!ret)
		ret = find_kinds(ld, &l, &k, err);
	for (size_t i = 0; i < l.nr && !ret; i++)
		if (l.v[i].is_dir)
			ret = say_folder(ld, m, &k, l.v[i].name, err);
	if (!ret)
		ret = say_groups(ld, &k, err);
	return ret;
}
