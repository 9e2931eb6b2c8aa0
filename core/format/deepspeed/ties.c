/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ties.c - which layer of a pipeline is tied, where no file says so
 *
 * Without ZeRO no file names the trained parameters.  But the optimizer of
 * each stage has states for all of its parameters, and a layer that is tied to
 * one of another stage has a file once and states twice.  So the states that
 * no layer file accounts for are those of the tied layer, if only one layer
 * has their shapes.
 */
#include "core/format/deepspeed/priv.h"

#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct shape {
	unsigned layer, rank;
	uint64_t dim[CK_MAX_RANK];
};

struct ties {
	struct ck_ds_load *ld;
	CK_VEC(struct shape) layers, states;
	struct ck_strmap buffers; /* names; of kept[] */
	CK_VEC(char *) kept;
	bool unknown;
};

static int by_shape(const void *a, const void *b)
{
	const struct shape *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	for (unsigned d = 0; d < x->rank; d++)
		if (x->dim[d] != y->dim[d])
			return x->dim[d] < y->dim[d] ? -1 : 1;
	return 0;
}

static bool read_shape(const struct ck_pickle *p, ck_pv v, struct shape *out,
		       int *ret)
{
	struct ck_torch_tensor t;

	*out = (struct shape){ 0 };
	*ret = ck_torch_tensor_read(p, v, &t, NULL);
	if (*ret == -EINVAL)
		*ret = 0;
	else if (!*ret) {
		out->rank = t.rank;
		memcpy(out->dim, t.shape, t.rank * sizeof(*t.shape));
		return true;
	}
	return false;
}

/* A parameter has the shape of its states but the counters, which have none. */
static int read_state(struct ties *t, const struct ck_pickle *p, ck_pv state)
{
	struct ck_piter it;
	struct shape s, *to;
	ck_pv key, v;
	int ret = 0;

	ck_piter_init_pairs(&it, p, state);
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		if (!ck_torch_is_rebuild(p, v) || !read_shape(p, v, &s, &ret) ||
		    !s.rank)
			continue;
		to = ck_vec_push(&t->states);
		if (!to)
			return -ENOMEM;
		*to = s;
		return 0;
	}
	t->unknown = true;
	return ret;
}

static int keep(struct ties *t, const char *s, size_t len)
{
	char **to = ck_vec_push(&t->kept);

	if (!to)
		return -ENOMEM;
	*to = malloc(len + 1);
	if (!*to)
		return -ENOMEM;
	memcpy(*to, s, len);
	(*to)[len] = '\0';
	return ck_strmap_put(&t->buffers, *to, len) == CK_STRMAP_NONE ?
		       -ENOMEM :
		       0;
}

static int read_model(struct ties *t, const struct ck_pickle *p)
{
	ck_pv root = ck_pickle_root(p), optimizer, states, names, key, v;
	struct ck_piter it;
	const char *s;
	size_t len;
	int ret = 0;

	if (!ck_pv_key(p, root, "optimizer", &optimizer) ||
	    !ck_pv_key(p, optimizer, "state", &states)) {
		t->unknown = true;
		return 0;
	}
	ck_piter_init_pairs(&it, p, states);
	while (!ret && ck_piter_next2(&it, &key, &v))
		ret = read_state(t, p, v);
	if (ret || !ck_pv_key(p, root, "buffer_names", &names))
		return ret;
	ck_piter_init(&it, p, names);
	while (!ret && ck_piter_next(&it, &v))
		if (ck_pv_str(p, v, &s, &len))
			ret = keep(t, s, len);
	return ret;
}

static int read_layer(struct ties *t, const struct ck_pickle *p, unsigned layer)
{
	ck_auto_str struct ck_str name = { 0 };
	struct ck_piter it;
	struct shape sh, *to;
	ck_pv key, v;
	const char *s;
	size_t len;
	int ret = 0;

	ck_piter_init_pairs(&it, p, ck_pickle_root(p));
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		if (!ck_pv_str(p, key, &s, &len) || !ck_torch_is_rebuild(p, v))
			continue;
		name.len = 0;
		ck_str_fmt(&name, "%u.", layer);
		ck_str_add(&name, s, len);
		if (name.failed)
			return -ENOMEM;
		if (ck_strmap_get(&t->buffers, name.v, name.len) !=
		    CK_STRMAP_NONE)
			continue;
		if (!read_shape(p, v, &sh, &ret)) {
			t->unknown = true;
			continue;
		}
		sh.layer = layer;
		to = ck_vec_push(&t->layers);
		if (!to)
			return -ENOMEM;
		*to = sh;
	}
	return ret;
}

/* What cannot be read is said by whoever reads it for what it is. */
static int read_file(struct ties *t, const struct ck_ds_file *f)
{
	ck_auto_source struct ck_source *s = NULL;
	ck_auto_torch_save struct ck_torch_save ts = { 0 };
	int ret = ck_dir_open(t->ld->dir, f->name, &s, NULL);

	ret = ret ? ret : ck_torch_save_open(&ts, s, NULL);
	if (ret == -ENOMEM)
		return ret;
	if (ret) {
		t->unknown = true;
		return 0;
	}
	return f->kind == CK_DS_MODEL ? read_model(t, ts.pickle) :
					read_layer(t, ts.pickle, f->dp);
}

/* Buffers are named by the model files, so these come first. */
static int read_all(struct ties *t)
{
	static const enum ck_ds_kind kinds[] = { CK_DS_MODEL, CK_DS_LAYER };
	unsigned stages = 0;
	int ret = 0;

	for (unsigned k = 0; k < 2; k++)
		for (size_t i = 0; i < t->ld->fs.v.nr && !ret; i++) {
			const struct ck_ds_file *f = &t->ld->fs.v.v[i];

			if (f->kind != kinds[k])
				continue;
			stages += !k;
			ret = read_file(t, f);
		}
	t->unknown |= stages != t->ld->pp;
	return ret;
}

/* Leaves in states those that no layer has; false: a layer has others. */
static bool subtract(struct ties *t)
{
	size_t from = 0, left = 0;

	for (size_t i = 0; i < t->states.nr; i++)
		if (from < t->layers.nr &&
		    !by_shape(&t->states.v[i], &t->layers.v[from]))
			from++;
		else
			t->states.v[left++] = t->states.v[i];
	t->states.nr = left;
	return from == t->layers.nr;
}

/* Whether what is left is that of @layer, some times over. */
static bool accounts(const struct ties *t, unsigned layer)
{
	size_t nr = 0, times, at = 0;

	for (size_t i = 0; i < t->layers.nr; i++)
		nr += t->layers.v[i].layer == layer;
	if (!nr || t->states.nr % nr)
		return false;
	times = t->states.nr / nr;
	for (size_t i = 0; i < t->layers.nr; i++) {
		if (t->layers.v[i].layer != layer)
			continue;
		for (size_t n = 0; n < times; n++)
			if (by_shape(&t->layers.v[i], &t->states.v[at++]))
				return false;
	}
	return true;
}

static bool find(const struct ties *t, unsigned *layer)
{
	const struct ck_ds_files *fs = &t->ld->fs;
	unsigned nr = 0;

	for (size_t i = 0; i < fs->v.nr && nr < 2; i++) {
		const struct ck_ds_file *f = &fs->v.v[i];

		if (f->kind != CK_DS_LAYER || !accounts(t, f->dp))
			continue;
		*layer = f->dp;
		nr++;
	}
	return nr == 1;
}

static void ties_free(struct ties *t)
{
	for (size_t i = 0; i < t->kept.nr; i++)
		free(t->kept.v[i]);
	free(t->kept.v);
	free(t->layers.v);
	free(t->states.v);
	ck_strmap_free(&t->buffers);
}

int ck_ds_tied_layer(struct ck_ds_load *ld, unsigned *layer, size_t *left)
{
	__attribute__((cleanup(ties_free))) struct ties t = { .ld = ld };
	int ret = read_all(&t);

	*left = 0;
	if (ret || t.unknown || !t.layers.nr || !t.states.nr)
		return ret;
	qsort(t.layers.v, t.layers.nr, sizeof(*t.layers.v), by_shape);
	qsort(t.states.v, t.states.nr, sizeof(*t.states.v), by_shape);
	if (!subtract(&t))
		return 0;
	*left = t.states.nr;
	return t.states.nr && find(&t, layer);
}
