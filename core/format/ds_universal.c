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

/* zero/@name/@kind.pt */
static int say_file(struct ck_ds_load *ld, const struct ck_ds_model *m,
		    const char *path, const char *kind, const char *name,
		    struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	ck_auto_str struct ck_str full = { 0 };
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	ck_pv v, param;
	bool ok;
	int ret = ck_torch_open(&f, ld->dir, ld->b, path, &ok, err);

	if (ret || !ok)
		return ret;
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
	if (!ret)
		return say_place(ld, kind, name, strlen(name), &at, err);
	ck_str_fmt(&full, "%s.%s", kind, name);
	if (ret == -ENOMEM || full.failed)
		return ck_fail(err, ENOMEM, "no memory");
	return ck_builder_refuse(ld->b, 0, full.v, full.len, err, "%s: %s",
				 path, why.msg);
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
	char kind[64];
	int ret = ck_dir_list(ld->dir, folder, &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++)
		if (kind_of(&l.v[i], kind))
			ret = say_file(ld, m, l.v[i].name, kind, name, err);
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

int ck_ds_universal_say(struct ck_ds_load *ld, const struct ck_ds_model *m,
			struct ck_err *err)
{
	static const char *const skip[] = { NULL };
	__attribute__((cleanup(kinds_free))) struct kinds k = { 0 };
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(ld->dir, "zero", &l, err);

	if (!ret)
		ret = find_kinds(ld, &l, &k, err);
	for (size_t i = 0; i < l.nr && !ret; i++) {
		ck_auto_torch_open struct ck_torch_open f = { 0 };
		bool ok;

		if (l.v[i].is_dir) {
			ret = say_folder(ld, m, &k, l.v[i].name, err);
			continue;
		}
		if (strcmp(l.v[i].name, "zero/optimizer_state.pt"))
			continue;
		ret = ck_torch_open(&f, ld->dir, ld->b, l.v[i].name, &ok, err);
		if (!ret && ok)
			ret = ck_torch_rest(&f, ld->b, "optimizer_state.", skip,
					    err);
	}
	return ret;
}
