/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - the layer files of DeepSpeed's pipeline engine
 *
 * Their keys lack the layer's number, which is put before.  A tied layer's are
 * called after its tie, tied_modules.TIE.KEY.
 *
 * Without ZeRO no file names the trained parameters.  But the optimizer of
 * each stage has states for all of its parameters, and a layer that is tied to
 * one of another stage has a file once and states twice.  So the states that
 * no layer file accounts for are those of the tied layer, if only one layer
 * has their shapes.
 */
#include "core/format/deepspeed/deepspeed.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_LAYER UINT_MAX
#define USUAL_TIE "embed" /* as Megatron-DeepSpeed and GPT-NeoX call it */

static const char tied[] = "tied_modules.";

/* ---- which layer is tied ---- */

struct tensor {
	unsigned layer;
	uint32_t shape; /* number in shapes */
};

/* What says which layer is tied, where no file does. */
struct ties {
	struct deepspeed_load *ld;
	/* Their user: how many more states than layers' tensors are so. */
	struct ck_strmap shapes;
	size_t nr_states;
	CK_VEC(struct tensor) tensors; /* of all layers */
	struct ck_strmap buffers; /* names */
	bool unknown;
};

/* *at: the number of its shape; CK_STRMAP_NONE: it cannot be read. */
static int find_shape(struct ties *t, const struct ck_pickle *p, ck_pv v,
		      uint32_t *at)
{
	struct ck_torch_tensor is;
	int ret = ck_torch_tensor_read(p, v, &is, NULL);

	*at = CK_STRMAP_NONE;
	if (ret)
		return ret == -EINVAL ? 0 : ret;
	*at = ck_strmap_keep(&t->shapes, &t->ld->mem, (const char *)is.shape,
			     is.rank * sizeof(*is.shape));
	return *at == CK_STRMAP_NONE ? -ENOMEM : 0;
}

/* A parameter has the shape of its states but the counters, which have none. */
static int read_state(struct ties *t, const struct ck_pickle *p, ck_pv state)
{
	struct deepspeed_tensors it;
	uint32_t at;

	ck_deepspeed_tensors(&it, p, state);
	while (ck_deepspeed_next(&it)) {
		int ret = find_shape(t, p, it.v, &at);

		if (ret)
			return ret;
		if (at == CK_STRMAP_NONE || !t->shapes.v[at].len)
			continue;
		t->shapes.v[at].user++;
		t->nr_states++;
		return 0;
	}
	t->unknown = true;
	return 0;
}

static int read_model(struct ties *t, const struct ck_pickle *p)
{
	ck_pv root = ck_pickle_root(p), v;
	int ret = 0;

	if (!ck_pq(p, root, "optimizer/state", &v)) {
		t->unknown = true;
		return 0;
	}
	for (struct ck_pq_each e = ck_pq_begin(p, v, "{}");
	     !ret && ck_pq_next(&e);)
		ret = read_state(t, p, e.v);
	for (struct ck_pq_each e = ck_pq_begin(p, root, "buffer_names/[]");
	     !ret && ck_pq_next(&e);)
		if (e.name && ck_strmap_keep(&t->buffers, &t->ld->mem, e.name,
					     e.len) == CK_STRMAP_NONE)
			ret = -ENOMEM;
	return ret;
}

static int read_layer(struct ties *t, const struct ck_pickle *p, unsigned layer)
{
	ck_auto_str struct ck_str name = { 0 };
	struct deepspeed_tensors it;
	uint32_t at;
	int ret;

	ck_deepspeed_tensors(&it, p, ck_pickle_root(p));
	while (ck_deepspeed_next(&it)) {
		name.len = 0;
		ck_str_fmt(&name, "%u.", layer);
		ck_str_add(&name, it.name, it.len);
		if (name.failed)
			return -ENOMEM;
		if (ck_strmap_has(&t->buffers, name.v, name.len))
			continue;
		ret = find_shape(t, p, it.v, &at);
		if (!ret && at != CK_STRMAP_NONE) {
			t->shapes.v[at].user--;
			ret = ck_vec_put(&t->tensors, NULL,
					 (struct tensor){ layer, at });
		}
		if (ret)
			return ret;
		t->unknown |= at == CK_STRMAP_NONE;
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

static void subtract(struct ties *t, unsigned layer, uint64_t times)
{
	for (size_t i = 0; i < t->tensors.nr; i++)
		if (t->tensors.v[i].layer == layer)
			t->shapes.v[t->tensors.v[i].shape].user -= times;
}

/* Whether the @left states are those of @layer, some times over. */
static bool accounts(struct ties *t, unsigned layer, size_t left)
{
	bool all = true;
	size_t nr = 0;

	for (size_t i = 0; i < t->tensors.nr; i++)
		nr += t->tensors.v[i].layer == layer;
	if (!nr || left % nr)
		return false;
	subtract(t, layer, left / nr);
	for (size_t i = 0; i < t->shapes.nr; i++)
		all &= !t->shapes.v[i].user;
	subtract(t, layer, -(left / nr));
	return all;
}

static void ties_free(struct ties *t)
{
	free(t->tensors.v);
	ck_strmap_free(&t->shapes);
	ck_strmap_free(&t->buffers);
}

/*
 * Without ZeRO: 1 and the layer whose parameters stages have states of that
 * have no file of it; 0: none, or it cannot be told; or -errno.  *left: how
 * many states no layer's file accounts for; 0 also where this is not known.
 */
static int find_tied(struct deepspeed_load *ld, unsigned *layer, size_t *left)
{
	__attribute__((cleanup(ties_free))) struct ties t = { .ld = ld };
	unsigned nr = 0;
	int ret = read_all(&t);

	*left = 0;
	if (ret || t.unknown || !t.tensors.nr || !t.nr_states)
		return ret;
	for (size_t i = 0; i < t.shapes.nr; i++)
		if ((int64_t)t.shapes.v[i].user < 0)
			return 0;
	*left = t.nr_states - t.tensors.nr;
	for (size_t i = 0; i < ld->files.nr && *left && nr < 2; i++) {
		const struct deepspeed_file *f = &ld->files.v[i];

		if (f->kind != DEEPSPEED_LAYER || !accounts(&t, f->dp, *left))
			continue;
		*layer = f->dp;
		nr++;
	}
	return nr == 1;
}

/* ---- the files ---- */

/* Whether a trained name is "tied_modules.TIE.@key". */
static bool is_tie_of(const struct ck_strmap_key *k, const char *key,
		      size_t len, size_t *tie_len)
{
	size_t head = sizeof(tied) - 1;

	if (k->len <= head + len + 1 || memcmp(k->s, tied, head) != 0 ||
	    k->s[k->len - len - 1] != '.' ||
	    memcmp(k->s + k->len - len, key, len) != 0)
		return false;
	*tie_len = k->len - len - 1;
	return true;
}

/*
 * "0:embed+7:head": 1 with the tie that layer @number is of, as the user says;
 * 0: he does not; -1: it is not written like that.
 */
static int given_tie(const struct deepspeed_load *ld, unsigned number,
		     struct ck_str *prefix)
{
	const char *at = ck_opts_get(ld->dir->opts, "ties");

	while (at) {
		char *end = NULL;
		unsigned long n = strtoul(at, &end, 10);
		size_t len = *end == ':' ? strcspn(end + 1, "+") : 0;

		if (!isdigit((unsigned char)*at) || !len)
			return -1;
		if (n == number) {
			ck_opts_use(ld->dir->opts, "ties");
			ck_str_puts(prefix, tied);
			ck_str_add(prefix, end + 1, len);
			ck_str_puts(prefix, ".");
			return 1;
		}
		at = end[1 + len] ? end + 2 + len : NULL;
	}
	return 0;
}

/*
 * What stands before the keys of layer @number: "12", or the one tie that has
 * its keys where no trained parameter has the number.  -1: it cannot be told.
 */
static int find_prefix(const struct deepspeed_load *ld,
		       const struct ck_pickle *p, unsigned number,
		       struct ck_str *prefix)
{
	const struct ck_strmap_key *found = NULL;
	size_t found_len = 0, tie_len;

	if (given_tie(ld, number, prefix) > 0)
		return 0;
	if (ld->tie_found && number == ld->tie) {
		ck_str_fmt(prefix, "%s" USUAL_TIE ".", tied);
		return 0;
	}
	ck_str_fmt(prefix, "%u.", number);
	for (struct ck_pq_each e = ck_pq_begin(p, ck_pickle_root(p), "{}");
	     !prefix->failed && ck_pq_next(&e);) {
		for (size_t i = 0; e.name && i < ld->trained.nr; i++) {
			const struct ck_strmap_key *k = &ld->trained.v[i];

			if (k->len == prefix->len + e.len &&
			    !memcmp(k->s, prefix->v, prefix->len) &&
			    !memcmp(k->s + prefix->len, e.name, e.len))
				return 0;
			if (!is_tie_of(k, e.name, e.len, &tie_len))
				continue;
			if (found && (tie_len != found_len ||
				      memcmp(found->s, k->s, tie_len) != 0))
				return -1;
			found = k;
			found_len = tie_len;
		}
	}
	if (!found)
		return 0;
	prefix->len = 0;
	ck_str_add(prefix, found->s, found_len);
	ck_str_puts(prefix, ".");
	return 0;
}

static struct deepspeed_name *said_of(const struct ck_strmap_key *k)
{
	return (struct deepspeed_name *)(uintptr_t)k->user;
}

static int add_weight(struct deepspeed_load *ld, struct ck_asm *a,
		      struct ck_torch_open *f, const char *name, size_t len,
		      ck_pv v, struct ck_err *err)
{
	uint32_t at = ck_strmap_get(&ld->trained, name, len);
	struct deepspeed_name *is =
		at == CK_STRMAP_NONE ? NULL : said_of(&ld->trained.v[at]);
	int ret = 0;

	if (is) {
		is->stored = true;
		ret = ck_deepspeed_check_shape(ld, f, "its layer's file", name,
					       len, v, is->shape, is->rank,
					       err);
	}
	if (!ret)
		ret = ck_deepspeed_give(a, NULL, f, "module", name, len, v,
					err);
	if (ret || !ld->zero || ld->universal || at != CK_STRMAP_NONE)
		return ret;
	if (ld->unnamed)
		return ck_deepspeed_refuse(
			a, "fp32", name, len, err,
			"whether it is trained, and has a copy in full precision, a model file says that is lost");
	return ck_deepspeed_give(a, NULL, f, "fp32", name, len, v, err);
}

static int add_layer(struct deepspeed_load *ld,
		     const struct deepspeed_file *file, struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(ld);
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	ck_auto_str struct ck_str name = { 0 };
	struct deepspeed_tensors t;
	size_t prefix;
	bool ok;
	int ret = ck_deepspeed_open_all(ld, &f, file->name, &ok, err);

	if (ret || !ok)
		return ret;
	if (find_prefix(ld, f.ts.pickle, file->dp, &name))
		ret = deepspeed_problem(
			ld, CK_NOTE, file->name, err,
			"several tied layers have these names: they are shown by the layer's number");
	prefix = name.len;
	ck_deepspeed_tensors(&t, f.ts.pickle, ck_pickle_root(f.ts.pickle));
	while (!ret && ck_deepspeed_next(&t)) {
		name.len = prefix;
		ck_str_add(&name, t.name, t.len);
		ret = name.failed ? ck_no_memory(err) :
				    add_weight(ld, &a, &f, name.v, name.len,
					       t.v, err);
	}
	return ret ? ret : ck_asm_join(&a, err);
}

/* Trained parameters that no layer's file has. */
static int report_lost(struct deepspeed_load *ld, struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(ld);
	int ret = 0;

	for (size_t i = 0; i < ld->trained.nr && !ret; i++) {
		const struct ck_strmap_key *k = &ld->trained.v[i];
		size_t digits = strspn(k->s, "0123456789");

		if (said_of(k)->stored)
			continue;
		if (digits && digits <= 6 && k->s[digits] == '.')
			ret = ck_deepspeed_refuse(
				&a, "module", k->s, k->len, err,
				"layer_%02lu-model_states.pt, which should have it, is not there, or has it not",
				strtoul(k->s, NULL, 10));
		else if (!strncmp(k->s, tied, sizeof(tied) - 1))
			ret = ck_deepspeed_refuse(
				&a, "module", k->s, k->len, err,
				"the file of the tied layer, which should have it, is not there");
	}
	return ret ? ret : ck_asm_join(&a, err);
}

static int find_tie(struct deepspeed_load *ld, struct ck_err *err)
{
	size_t nr, left;
	int ret;

	ck_deepspeed_files_of(ld, DEEPSPEED_LAYER, 0, &nr);
	if (!nr || ld->zero || ld->pp < 2 || ld->tp > 1 ||
	    ck_opts_get(ld->dir->opts, "ties"))
		return 0;
	ret = find_tied(ld, &ld->tie, &left);
	if (ret < 0)
		return ck_fail(err, -ret, "cannot read the layers' shapes");
	ld->tie_found = ret > 0;
	if (!ld->tie_found && left)
		return deepspeed_problem(
			ld, CK_ERROR, NULL, err,
			"the optimizers have states of %zu parameters that no layer's file has: a layer_NN-model_states.pt is lost, or several layers are tied, and -o ties=N:NAME says which",
			left);
	if (!ld->tie_found)
		return deepspeed_problem(
			ld, CK_NOTE, NULL, err,
			"without ZeRO no file says which layers are tied: they are shown by the layer's number; -o ties=0:NAME gives layer 0 the name of its tie");
	return deepspeed_problem(
		ld, CK_WARNING, NULL, err,
		"layer %u is tied to one of another stage, whose optimizer has states of it; no file has the tie's name, so the usual one, " USUAL_TIE
		", is shown: -o ties=%u:NAME gives another",
		ld->tie, ld->tie);
}

/* All of one kind are gone, where the others say that there were some. */
static int check_any(struct deepspeed_load *ld, bool any, struct ck_err *err)
{
	if (!any && ld->apart && !ld->universal)
		return deepspeed_problem(
			ld, CK_ERROR, NULL, err,
			"the model files say that each layer's weights are in a file of its own (layer_NN-model_states.pt), and none is there");
	if (any && !ld->nr_mp)
		return deepspeed_problem(
			ld, CK_WARNING, NULL, err,
			"layers without a model file (mp_rank_NN_model_states.pt): what it says of the optimizer and of tied layers is lost");
	return 0;
}

int ck_deepspeed_layers_add(struct deepspeed_load *ld, struct ck_err *err)
{
	ck_auto_str struct ck_str none = { 0 };
	bool any = false;
	int ret;

	if (given_tie(ld, NO_LAYER, &none) < 0)
		return ck_fail(err, EINVAL,
			       "-o ties=%s: expected N:NAME, or N:NAME+N:NAME",
			       ck_opts_get(ld->dir->opts, "ties"));
	ret = find_tie(ld, err);
	for (size_t i = 0; i < ld->files.nr && !ret; i++) {
		const struct deepspeed_file *f = &ld->files.v[i];

		if (f->kind != DEEPSPEED_LAYER)
			continue;
		any = true;
		if (ld->tp > 1)
			return ck_fail(
				err, EINVAL,
				"%s: %u tensor-parallel ranks share the layers, and no file says how",
				f->name, ld->tp);
		ret = add_layer(ld, f, err);
	}
	if (!ret)
		ret = check_any(ld, any, err);
	return ret || !any ? ret : report_lost(ld, err);
}
