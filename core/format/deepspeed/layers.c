/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - weights that are kept apart from the model file
 *
 * The pipeline engine writes a file for each layer, with names that lack the
 * layer's number.  A layer that is tied to another is written once, by the
 * names that all of them share; what the tie is called only the names of the
 * trained parameters tell.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/container/torch_walk.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_LAYER UINT_MAX
#define USUAL_TIE "embed" /* as Megatron-DeepSpeed and GPT-NeoX call it */

static const char tied[] = "tied_modules.";

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
static int given_tie(const struct ck_ds_load *ld, unsigned number,
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
static int find_prefix(const struct ck_ds_load *ld, const struct ck_pickle *p,
		       unsigned number, struct ck_str *prefix)
{
	const struct ck_strmap_key *found = NULL;
	size_t found_len = 0, tie_len, len;
	struct ck_piter it;
	const char *s;
	ck_pv key, v;

	if (given_tie(ld, number, prefix) > 0)
		return 0;
	if (ld->tie_found && number == ld->tie) {
		ck_str_fmt(prefix, "%s" USUAL_TIE ".", tied);
		return 0;
	}
	ck_str_fmt(prefix, "%u.", number);
	ck_piter_init_pairs(&it, p, ck_pickle_root(p));
	while (ck_piter_next2(&it, &key, &v)) {
		if (!ck_pv_str(p, key, &s, &len))
			continue;
		for (size_t i = 0; i < ld->trained.nr; i++) {
			const struct ck_strmap_key *k = &ld->trained.v[i];

			if (k->len == prefix->len + len &&
			    !memcmp(k->s, prefix->v, prefix->len) &&
			    !memcmp(k->s + prefix->len, s, len))
				return 0;
			if (!is_tie_of(k, s, len, &tie_len))
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

static int say_layer_tensor(struct ck_ds_load *ld, struct ck_torch_open *f,
			    const struct ck_str *prefix, const char *key,
			    size_t len, ck_pv v, struct ck_err *err)
{
	ck_auto_str struct ck_str name = { 0 };
	uint32_t at;
	int ret;

	ck_str_add(&name, prefix->v, prefix->len);
	ck_str_add(&name, key, len);
	if (name.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	at = ck_strmap_get(&ld->trained, name.v, name.len);
	if (at != CK_STRMAP_NONE)
		ld->said[at] = true;
	ret = ck_ds_tensor(ld, NULL, f, "module", name.v, name.len, v, err);
	if (ret || !ld->zero || ld->universal || at != CK_STRMAP_NONE)
		return ret;
	if (ld->unnamed)
		return ck_ds_refuse(
			ld, "fp32", name.v, name.len,
			"whether it is trained, and has a copy in full precision, a model file says that is lost",
			err);
	return ck_ds_tensor(ld, NULL, f, "fp32", name.v, name.len, v, err);
}

static int say_layer(struct ck_ds_load *ld, const struct ck_ds_file *file,
		     struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	ck_auto_str struct ck_str prefix = { 0 };
	struct ck_problem_in note = { .severity = CK_NOTE, .file = file->name };
	struct ck_piter it;
	ck_pv key, v;
	bool ok;
	int ret = ck_ds_open_all(&f, ld->dir, ld->b, file->name, &ok, err);

	if (ret || !ok)
		return ret;
	if (find_prefix(ld, f.ts.pickle, file->dp, &prefix))
		ret = ck_builder_problem(
			ld->b, &note, err,
			"several tied layers have these names: they are shown by the layer's number");
	if (!ret && prefix.failed)
		ret = ck_fail(err, ENOMEM, "no memory for a name");
	ck_piter_init_pairs(&it, f.ts.pickle, ck_pickle_root(f.ts.pickle));
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		char number[24];
		const char *s;
		size_t len;

		if (ck_pv_key_text(f.ts.pickle, key, number, &s, &len) &&
		    ck_torch_is_rebuild(f.ts.pickle, v))
			ret = say_layer_tensor(ld, &f, &prefix, s, len, v, err);
	}
	return ret;
}

static int say_lost_weight(struct ck_ds_load *ld, const struct ck_strmap_key *k,
			   struct ck_err *err)
{
	char why[128] =
		"the file of the tied layer, which should have it, is not there";

	if (isdigit((unsigned char)*k->s))
		snprintf(
			why, sizeof(why),
			"layer_%02lu-model_states.pt, which should have it, is not there, or has it not",
			strtoul(k->s, NULL, 10));
	return ck_ds_refuse(ld, "module", k->s, k->len, why, err);
}

/* Trained parameters that no layer's file has. */
static int say_lost_layers(struct ck_ds_load *ld, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < ld->trained.nr && !ret; i++) {
		const struct ck_strmap_key *k = &ld->trained.v[i];
		size_t digits = strspn(k->s, "0123456789");

		if (ld->said[i] ||
		    (strncmp(k->s, tied, sizeof(tied) - 1) != 0 &&
		     (!digits || digits > 6 || k->s[digits] != '.')))
			continue;
		ret = say_lost_weight(ld, k, err);
	}
	return ret;
}

static int find_tie(struct ck_ds_load *ld, struct ck_err *err)
{
	const struct ck_problem_in unlabelled = { .severity = CK_NOTE };
	const struct ck_problem_in usual = { .severity = CK_WARNING };
	const struct ck_problem_in lost = { .severity = CK_ERROR };
	size_t nr, left;
	int ret;

	ck_ds_files_of(&ld->fs, CK_DS_LAYER, 0, &nr);
	if (!nr || ld->zero || ld->pp < 2 || ld->tp > 1 ||
	    ck_opts_get(ld->dir->opts, "ties"))
		return 0;
	ret = ck_ds_tied_layer(ld, &ld->tie, &left);
	if (ret < 0)
		return ck_fail(err, -ret, "cannot read the layers' shapes");
	ld->tie_found = ret > 0;
	if (!ld->tie_found && left)
		return ck_builder_problem(
			ld->b, &lost, err,
			"the optimizers have states of %zu parameters that no layer's file has: a layer_NN-model_states.pt is lost, or several layers are tied, and -o ties=N:NAME says which",
			left);
	if (!ld->tie_found)
		return ck_builder_problem(
			ld->b, &unlabelled, err,
			"without ZeRO no file says which layers are tied: they are shown by the layer's number; -o ties=0:NAME gives layer 0 the name of its tie");
	return ck_builder_problem(
		ld->b, &usual, err,
		"layer %u is tied to one of another stage, whose optimizer has states of it; no file has the tie's name, so the usual one, " USUAL_TIE
		", is shown: -o ties=%u:NAME gives another",
		ld->tie, ld->tie);
}

/* All of one kind are gone, where the others say that there were some. */
static int say_none(struct ck_ds_load *ld, bool any, struct ck_err *err)
{
	const struct ck_problem_in lost = { .severity = CK_ERROR };
	const struct ck_problem_in alone = { .severity = CK_WARNING };

	if (!any && ld->apart && !ld->universal)
		return ck_builder_problem(
			ld->b, &lost, err,
			"the model files say that each layer's weights are in a file of its own (layer_NN-model_states.pt), and none is there");
	if (any && !ld->nr_mp)
		return ck_builder_problem(
			ld->b, &alone, err,
			"layers without a model file (mp_rank_NN_model_states.pt): what it says of the optimizer and of tied layers is lost");
	return 0;
}

int ck_ds_layers_say(struct ck_ds_load *ld, struct ck_err *err)
{
	ck_auto_str struct ck_str none = { 0 };
	bool any = false;
	int ret;

	if (given_tie(ld, NO_LAYER, &none) < 0)
		return ck_fail(err, EINVAL,
			       "-o ties=%s: expected N:NAME, or N:NAME+N:NAME",
			       ck_opts_get(ld->dir->opts, "ties"));
	ret = find_tie(ld, err);
	ld->said = calloc(ld->trained.nr + 1, sizeof(*ld->said));
	if (!ret && !ld->said)
		ret = ck_fail(err, ENOMEM, "no memory for names");
	for (size_t i = 0; i < ld->fs.v.nr && !ret; i++) {
		const struct ck_ds_file *f = &ld->fs.v.v[i];

		if (f->kind != CK_DS_LAYER)
			continue;
		any = true;
		if (ld->tp > 1)
			return ck_fail(
				err, EINVAL,
				"%s: %u tensor-parallel ranks share the layers, and no file says how",
				f->name, ld->tp);
		ret = say_layer(ld, f, err);
	}
	if (!ret)
		ret = say_none(ld, any, err);
	return ret || !any ? ret : say_lost_layers(ld, err);
}
