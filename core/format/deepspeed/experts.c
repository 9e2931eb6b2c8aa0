/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c - the experts of mixture-of-experts layers
 *
 *   layer_L_expert_E_mp_rank_MM_model_states.pt   weights, with full names
 *   expert_E_mp_rank_MM_model_states.pt           the same of all layers
 *   num_experts in the model file                 how many each layer has
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/container/container.h"
#include "core/container/torch_walk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAMED 64
#define MAX_EXPERTS (1 << 16) /* of one layer */
#define MAX_LAYERS (1 << 12)

static int say_expert(struct ck_ds_load *ld, const struct ck_ds_file *file,
		      struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct ck_piter it;
	ck_pv key, v;
	bool ok;
	int ret = ck_ds_open_all(&f, ld->dir, ld->b, file->name, &ok, err);

	if (ret || !ok)
		return ret;
	ck_piter_init_pairs(&it, f.ts.pickle, ck_pickle_root(f.ts.pickle));
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		char number[24];
		const char *s;
		size_t len;

		if (ck_pv_key_text(f.ts.pickle, key, number, &s, &len) &&
		    ck_torch_is_rebuild(f.ts.pickle, v))
			ret = ck_ds_tensor(ld, NULL, &f, "module", s, len, v,
					   err);
	}
	return ret;
}

/* How many ranks have different experts, by "ep_size_4" in its groups. */
static unsigned ranks_of(const struct ck_pickle *p, ck_pv optimizer)
{
	ck_pv groups, group, name;
	struct ck_piter it;
	unsigned most = 0, nr;
	const char *s;
	size_t len;

	if (!ck_pv_key(p, optimizer, "param_groups", &groups))
		return 0;
	ck_piter_init(&it, p, groups);
	while (ck_piter_next(&it, &group)) {
		char text[16] = "";

		if (!ck_pv_key(p, group, "name", &name) ||
		    !ck_pv_str(p, name, &s, &len))
			continue;
		memcpy(text, s, CK_MIN(len, sizeof(text) - 1));
		if (sscanf(text, "ep_size_%4u", &nr) == 1)
			most = CK_MAX(most, nr);
	}
	return most;
}

/*
 * Without ZeRO an expert-parallel rank's optimizer; with it an empty place,
 * which DeepSpeed opens all the same.
 */
static int say_optim(struct ck_ds_load *ld, const struct ck_ds_file *file,
		     struct ck_err *err)
{
	static const char *const skip[] = { NULL };
	const struct ck_problem_in p = { .severity = CK_NOTE,
					 .file = file->name };
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	char prefix[64];
	ck_pv v;
	bool ok;
	int ret = ck_ds_open_all(&f, ld->dir, ld->b, file->name, &ok, err);

	if (ret || !ok ||
	    !ck_pv_key(f.ts.pickle, ck_pickle_root(f.ts.pickle), "optimizer",
		       &v) ||
	    ck_pv_kind(v) == CK_P_NONE)
		return ret;
	ld->nr_ep = CK_MAX(ld->nr_ep, ranks_of(f.ts.pickle, v));
	snprintf(prefix, sizeof(prefix), "expp_rank_%u.", file->dp);
	ret = ck_torch_rest(&f, ld->b, prefix, skip, err);
	return ret ? ret :
		     ck_builder_problem(
			     ld->b, &p, err,
			     "its optimizer states are known by number only: they are shown as stored, under %soptimizer",
			     prefix);
}

static int want_optims(struct ck_ds_load *ld, struct ck_err *err)
{
	char name[64];
	uint32_t src;
	int ret = 0;

	for (unsigned i = 0; i < ld->nr_ep && !ret; i++) {
		snprintf(name, sizeof(name),
			 "expp_rank_%u_mp_rank_00_optim_states.pt", i);
		if (!ck_dir_has(ld->dir, name))
			ret = ck_dir_source(ld->dir, ld->b, name, &src, NULL,
					    err);
	}
	return ret;
}

int ck_ds_experts_say(struct ck_ds_load *ld, struct ck_err *err)
{
	bool any = false;
	int ret = 0;

	for (size_t i = 0; i < ld->fs.v.nr && !ret; i++) {
		const struct ck_ds_file *f = &ld->fs.v.v[i];
		const struct ck_problem_in p = { .severity = CK_ERROR,
						 .file = f->name };

		if (f->kind == CK_DS_EXPERT && ld->tp > 1)
			ret = ck_builder_problem(
				ld->b, &p, err,
				"%u tensor-parallel ranks share the experts, and no file says how: they are left out",
				ld->tp);
		else if (f->kind == CK_DS_EXPERT)
			ret = say_expert(ld, f, err);
		else if (f->kind == CK_DS_EXPERT_OPTIM) {
			ret = say_optim(ld, f, err);
			any = true; /* 0.19 writes no empty ones */
		}
	}
	return ret || !any || ld->nr_mp != 1 ? ret : want_optims(ld, err);
}

/* What is looked for, of one model file. */
struct wanted {
	struct ck_ds_load *ld;
	unsigned mp;
	bool by_layer; /* older ones have a file for all layers of an expert */
	uint64_t nr_lost;
};

/* Says each file of the experts of layer @layer that is not there. */
static int want_experts(struct wanted *w, uint64_t layer, uint64_t nr,
			struct ck_err *err)
{
	int ret = 0;

	for (uint64_t i = 0; i < nr && !ret; i++) {
		char name[128];
		uint32_t src;
		int at = 0;

		if (w->by_layer)
			at = snprintf(name, sizeof(name), "layer_%" PRIu64 "_",
				      layer);
		snprintf(name + at, sizeof(name) - (size_t)at,
			 "expert_%" PRIu64 "_mp_rank_%02u_model_states.pt", i,
			 w->mp);
		if (!ck_dir_has(w->ld->dir, name) && w->nr_lost++ < MAX_NAMED)
			ret = ck_dir_source(w->ld->dir, w->ld->b, name, &src,
					    NULL, err);
	}
	return ret;
}

static int say_unnamed(const struct wanted *w, const char *file,
		       struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR, .file = file };

	if (w->nr_lost <= MAX_NAMED)
		return 0;
	return ck_builder_problem(w->ld->b, &p, err,
				  "its num_experts wants %" PRIu64
				  " more files of experts that are not there",
				  w->nr_lost - MAX_NAMED);
}

/* A number that can be that of experts; false: it cannot. */
static bool is_count(const struct ck_pickle *p, ck_pv v, int64_t *nr)
{
	return ck_pv_int(p, v, nr) && *nr >= 0 && *nr <= MAX_EXPERTS;
}

int ck_ds_experts_check(struct ck_ds_load *ld, const struct ck_ds_model *m,
			struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct wanted w = { .ld = ld, .mp = m->mp, .by_layer = true };
	uint64_t layer = 0;
	struct ck_piter it;
	int64_t nr = 0;
	ck_pv v, item;
	int ret = 0;

	if (ld->universal ||
	    !ck_pv_key(p, ck_pickle_root(p), "num_experts", &v))
		return 0;
	for (size_t i = 0; i < ld->fs.v.nr; i++)
		w.by_layer &= strncmp(ld->fs.v.v[i].name, "expert_", 7) != 0;
	if (is_count(p, v, &nr))
		w.by_layer = false;
	ck_piter_init(&it, p, v);
	while (!ret && ck_piter_next(&it, &item) && layer < MAX_LAYERS) {
		int64_t n;

		if (!is_count(p, item, &n))
			continue;
		nr = w.by_layer ? 0 : CK_MAX(nr, n);
		if (w.by_layer)
			ret = want_experts(&w, layer, (uint64_t)n, err);
		layer++;
	}
	if (!ret)
		ret = want_experts(&w, 0, (uint64_t)nr, err);
	return ret ? ret : say_unnamed(&w, m->f.s->name, err);
}
