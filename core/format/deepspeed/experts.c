/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c - the files of experts of mixture-of-experts layers
 *
 *   layer_L_expert_E_mp_rank_MM_model_states.pt   weights, with full names
 *   expert_E_mp_rank_MM_model_states.pt           the same of all layers
 *   expp_rank_R_mp_rank_MM_optim_states.pt        without ZeRO: an optimizer
 *   num_experts in the model file                 how many each layer has
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAMED 64
#define MAX_EXPERTS (1 << 16) /* of one layer */
#define MAX_LAYERS (1 << 12)

static int add_expert(struct deepspeed_load *ld,
		      const struct deepspeed_file *file, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct deepspeed_tensors t;
	bool ok;
	int ret = ck_deepspeed_open_all(ld, &f, file->name, &ok, err);

	if (ret || !ok)
		return ret;
	ck_deepspeed_tensors(&t, f.ts.pickle, ck_pickle_root(f.ts.pickle));
	while (!ret && ck_deepspeed_next(&t))
		ret = ck_deepspeed_add_value(
			ld, NULL, &f,
			&(struct deepspeed_name){ "module", t.name, t.len },
			t.v, err);
	return ret;
}

/* How many ranks have different experts, by "ep_size_4" in its groups. */
static unsigned ranks_of(const struct ck_pickle *p, ck_pv optimizer)
{
	struct ck_piter it;
	unsigned most = 0, nr;
	ck_pv groups, group;
	const char *s;
	size_t len;

	if (!ck_pq(p, optimizer, "param_groups", &groups))
		return 0;
	ck_piter_init(&it, p, groups);
	while (ck_piter_next(&it, &group)) {
		char text[16] = "";

		if (!ck_pq_str(p, group, "name", &s, &len))
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
	struct ck_piter it;
	ck_pv v, item;
	int ret = 0;

	if (ld->universal || !ck_pq(p, m->root, "num_experts", &v))
		return 0;
	by_layer = !is_count(p, v, &nr);
	nr = by_layer ? 0 : nr;
	for (size_t i = 0; i < ld->files.nr; i++)
		by_layer &= strncmp(ld->files.v[i].name, "expert_", 7) != 0;
	ck_piter_init(&it, p, v);
	while (!ret && ck_piter_next(&it, &item) && layer < MAX_LAYERS) {
		if (!is_count(p, item, &n))
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
