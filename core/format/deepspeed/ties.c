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
#include "core/format/deepspeed/deepspeed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct shape {
	unsigned layer, rank;
	uint64_t dim[CK_MAX_RANK];
};

struct ties {
	struct deepspeed_load *ld;
	CK_VEC(struct shape) layers, states;
	struct ck_strmap buffers; /* names */
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

/* 1: it is a tensor of that shape; 0: none can be read; or -ENOMEM. */
static int read_shape(const struct ck_pickle *p, ck_pv v, struct shape *out)
{
	struct ck_torch_tensor t;
	int ret = ck_torch_tensor_read(p, v, &t, NULL);

	*out = (struct shape){ 0 };
	if (ret)
		return ret == -EINVAL ? 0 : ret;
	out->rank = t.rank;
	memcpy(out->dim, t.shape, t.rank * sizeof(*t.shape));
	return 1;
}

/* A parameter has the shape of its states but the counters, which have none. */
static int read_state(struct ties *t, const struct ck_pickle *p, ck_pv state)
{
	struct deepspeed_tensors it;
	struct shape s, *to;
	int ret;

	ck_deepspeed_tensors(&it, p, state);
	while (ck_deepspeed_next(&it)) {
		ret = read_shape(p, it.v, &s);
		if (ret < 0)
			return ret;
		if (!s.rank)
			continue;
		to = ck_vec_push(&t->states);
		if (!to)
			return -ENOMEM;
		*to = s;
		return 0;
	}
	t->unknown = true;
	return 0;
}

static int read_model(struct ties *t, const struct ck_pickle *p)
{
	ck_pv root = ck_pickle_root(p), states, names, key, v;
	struct ck_piter it;
	const char *s;
	size_t len;
	int ret = 0;

	if (!ck_pq(p, root, "optimizer/state", &states)) {
		t->unknown = true;
		return 0;
	}
	ck_piter_init_pairs(&it, p, states);
	while (!ret && ck_piter_next2(&it, &key, &v))
		ret = read_state(t, p, v);
	if (ret || !ck_pq(p, root, "buffer_names", &names))
		return ret;
	ck_piter_init(&it, p, names);
	while (ck_piter_next(&it, &v))
		if (ck_pv_str(p, v, &s, &len) &&
		    ck_strmap_keep(&t->buffers, &t->ld->mem, s, len) ==
			    CK_STRMAP_NONE)
			return -ENOMEM;
	return 0;
}

static int read_layer(struct ties *t, const struct ck_pickle *p, unsigned layer)
{
	ck_auto_str struct ck_str name = { 0 };
	struct deepspeed_tensors it;
	struct shape sh, *to;

	ck_deepspeed_tensors(&it, p, ck_pickle_root(p));
	while (ck_deepspeed_next(&it)) {
		int ret;

		name.len = 0;
		ck_str_fmt(&name, "%u.", layer);
		ck_str_add(&name, it.name, it.len);
		if (name.failed)
			return -ENOMEM;
		if (ck_strmap_get(&t->buffers, name.v, name.len) !=
		    CK_STRMAP_NONE)
			continue;
		ret = read_shape(p, it.v, &sh);
		t->unknown |= !ret;
		if (!ret)
			continue;
		sh.layer = layer;
		to = ret > 0 ? ck_vec_push(&t->layers) : NULL;
		if (!to)
			return -ENOMEM;
		*to = sh;
	}
	return 0;
}

/* What cannot be read is reported by whoever reads it for what it is. */
static int read_file(struct ties *t, const struct deepspeed_file *f)
{
	ck_auto_torch_open struct ck_torch_open o = { 0 };
	int ret = ck_deepspeed_peek(t->ld->dir, f->name, &o);

	if (ret) {
		t->unknown = true;
		return ret == -ENOMEM ? ret : 0;
	}
	return f->kind == DEEPSPEED_MODEL ? read_model(t, o.ts.pickle) :
					    read_layer(t, o.ts.pickle, f->dp);
}

/* Buffers are named by the model files, so these, which come first, are too. */
static int read_all(struct ties *t)
{
	unsigned stages = 0;
	int ret = 0;

	for (size_t i = 0; i < t->ld->files.nr && !ret; i++) {
		const struct deepspeed_file *f = &t->ld->files.v[i];

		if (f->kind != DEEPSPEED_MODEL && f->kind != DEEPSPEED_LAYER)
			continue;
		stages += f->kind == DEEPSPEED_MODEL;
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
	unsigned nr = 0;

	for (size_t i = 0; i < t->ld->files.nr && nr < 2; i++) {
		const struct deepspeed_file *f = &t->ld->files.v[i];

		if (f->kind != DEEPSPEED_LAYER || !accounts(t, f->dp))
			continue;
		*layer = f->dp;
		nr++;
	}
	return nr == 1;
}

static void ties_free(struct ties *t)
{
	free(t->layers.v);
	free(t->states.v);
	ck_strmap_free(&t->buffers);
}

int ck_deepspeed_tied_layer(struct deepspeed_load *ld, unsigned *layer,
			    size_t *left)
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
