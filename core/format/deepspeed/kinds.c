/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kinds.c - states that the universal form lacks of all parameters
 *
 * What one parameter has the others have; what none has only the groups in
 * zero/optimizer_state.pt tell: Adam's have betas and eps, Lion's no eps.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum adam { UNKNOWN, ADAM, ANOTHER };

static bool is_found(const struct ck_ds_load *ld, const char *kind)
{
	for (size_t i = 0; i < ld->nr_states; i++)
		if (!strcmp(ld->states[i], kind))
			return true;
	return false;
}

int ck_ds_kind_add(struct ck_ds_load *ld, const char *kind, struct ck_err *err)
{
	if (is_found(ld, kind) || ld->nr_states == CK_DS_MAX_STATES)
		return 0;
	ld->states[ld->nr_states] = strdup(kind);
	if (!ld->states[ld->nr_states])
		return ck_fail(err, ENOMEM, "no memory for names");
	ld->nr_states++;
	return 0;
}

/* Looked at in silence: it is said, and shown, when the rest is. */
static int read_optimizer(const struct ck_ds_load *ld, enum adam *out)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	int ret = ck_dir_open(ld->dir, CK_DS_GROUPS, &f.s, NULL);
	ck_pv groups, group, v;
	const struct ck_pickle *p;

	*out = UNKNOWN;
	if (!ret)
		ret = ck_torch_save_open(&f.ts, f.s, NULL);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	p = f.ts.pickle;
	if (!ck_pv_key(p, ck_pickle_root(p), "param_groups", &groups) ||
	    !ck_pv_at(p, groups, 0, &group))
		return 0;
	*out = ck_pv_key(p, group, "betas", &v) &&
			       ck_pv_key(p, group, "eps", &v) ?
		       ADAM :
		       ANOTHER;
	return 0;
}

/* Adamax and such have a state of another name in the place of one. */
static bool has_others(const struct ck_ds_load *ld)
{
	static const char *const usual[] = { "fp32", "step", "exp_avg",
					     "exp_avg_sq", "max_exp_avg_sq" };
	size_t nr = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(usual); i++)
		nr += is_found(ld, usual[i]);
	return nr < ld->nr_states;
}

int ck_ds_kinds_want(struct ck_ds_load *ld, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };
	bool avg = is_found(ld, "exp_avg"), sq = is_found(ld, "exp_avg_sq");
	enum adam adam;
	int ret = ck_ds_kind_add(ld, "fp32", err);

	if (ret || (avg && sq) || has_others(ld))
		return ret;
	if (read_optimizer(ld, &adam))
		return ck_fail(err, ENOMEM, "no memory");
	if (adam == ADAM && (avg || sq))
		return ck_ds_kind_add(ld, avg ? "exp_avg_sq" : "exp_avg", err);
	if (adam == ADAM)
		return ck_builder_problem(
			ld->b, &p, err,
			"%s is of Adam, and no parameter has exp_avg.pt or exp_avg_sq.pt: they are lost, or it had made no step",
			CK_DS_GROUPS);
	if (!sq && (!avg || adam == ANOTHER))
		return 0;
	return ck_builder_problem(
		ld->b, &p, err,
		"no parameter has %s.pt, which Adam keeps beside %s.pt",
		avg ? "exp_avg_sq" : "exp_avg", avg ? "exp_avg" : "exp_avg_sq");
}
