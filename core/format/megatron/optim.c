/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c - the distributed optimizer's files from March 2022 to May 2023
 *
 *   mp_rank_TT[_PPP]/model_rng.pt        of the first replica of the data
 *   mp_rank_TT[_PPP]_DDD/optim.pt        of replica DDD
 *
 * Each replica's part is a stretch of flat gradient buffers, in terms of
 * parameters that are numbered anew in each file: shown as it is stored.
 * mp_rank_00_001 may be stage 1 or replica 1; the files in it tell.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/assemble/file_same.h"
#include "core/format/megatron/priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PAIRED 32 /* files of which all pairs are compared */

int ck_mg_optim_add(struct ck_mg_load *ld, const char *dir, struct ck_err *err)
{
	struct ck_mg_rank r = { 0 }, *to;
	ck_auto_free char *model = NULL, *file = NULL;

	if (!ck_mg_is_rank(dir, r.at, &r.nr_at))
		return 0;
	model = ck_mg_file_of(ld->dir, dir);
	if (asprintf(&file, "%s/" CK_MG_OPTIM_OLD, dir) < 0)
		file = NULL;
	if (!model || !file)
		return ck_fail(err, ENOMEM, "no memory for a name");
	if (r.nr_at < 2 || ck_dir_has(ld->dir, model) ||
	    !ck_dir_has(ld->dir, file))
		return 0;
	to = ck_vec_push(&ld->optims);
	if (!to)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	*to = r;
	to->file = ck_steal(file);
	to->dir = strdup(dir);
	return to->dir ? 1 : ck_fail(err, ENOMEM, "no memory for ranks");
}

/* Which replica of which rank a folder is of, once the degrees are known. */
static bool place(const struct ck_mg_load *ld, struct ck_mg_rank *r)
{
	unsigned n = 1;

	r->tp = r->at[0];
	r->pp = ld->pp > 1 ? r->at[n++] : 0;
	r->ep = r->at[CK_MIN(n, 2u)];
	return ld->ep == 1 && r->nr_at == n + 1 && r->tp < ld->tp &&
	       r->pp < ld->pp;
}

static int say_stray(const struct ck_mg_load *ld, const struct ck_mg_rank *r,
		     struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = r->file };

	return ck_builder_problem(
		ld->b, &p, err,
		"%s is no replica of %u tensor-parallel ranks and %u stages, which args say there are: it is of another save",
		r->dir, ld->tp, ld->pp);
}

static int say_one(struct ck_mg_load *ld, struct ck_mg_rank *r,
		   struct ck_err *err)
{
	struct ck_mg_file f = { .ld = ld, .rank = r };
	int ret = ck_torch_open(&f.f, ld->dir, ld->b, r->file, &r->usable, err);

	if (!ret && r->usable)
		ret = ck_mg_apart_say(&f, err);
	ck_torch_open_close(&f.f);
	return ret;
}

static bool same_rank(const struct ck_mg_rank *a, const struct ck_mg_rank *b)
{
	return a->tp == b->tp && a->pp == b->pp;
}

static const struct ck_mg_rank *find(const struct ck_mg_load *ld,
				     const struct ck_mg_rank *r)
{
	return bsearch(r, ld->optims.v, ld->optims.nr, sizeof(*r),
		       ck_mg_by_place);
}

/* The name that the folder of a rank's replica has. */
static int say_lost(const struct ck_mg_load *ld, const struct ck_mg_rank *r,
		    struct ck_err *err)
{
	ck_auto_str struct ck_str file = { 0 };
	struct ck_problem_in p = { .severity = CK_ERROR };

	ck_str_fmt(&file, "mp_rank_%02u", r->tp);
	if (ld->pp > 1)
		ck_str_fmt(&file, "_%03u", r->pp);
	ck_str_fmt(&file, "_%03u/" CK_MG_OPTIM_OLD, r->ep);
	if (file.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	p.file = file.v;
	return ck_builder_problem(
		ld->b, &p, err,
		"missing: this replica's part of the optimizer's states is lost");
}

/* args.data_parallel_size, or as many as any rank has. */
static unsigned replicas(const struct ck_mg_load *ld)
{
	unsigned most = 0;

	for (size_t i = 0; i < ld->optims.nr; i++)
		most = CK_MAX(most, ld->optims.v[i].ep + 1);
	return ld->args.dp > 0 && (uint64_t)ld->args.dp <= CK_MG_MAX_RANKS ?
		       (unsigned)ld->args.dp :
		       most;
}

static int say_gaps(const struct ck_mg_load *ld, struct ck_err *err)
{
	unsigned nr = replicas(ld), lost = 0;
	struct ck_mg_rank r = { 0 };
	int ret = 0;

	for (r.pp = 0; r.pp < ld->pp && !ret; r.pp++)
		for (r.tp = 0; r.tp < ld->tp && !ret; r.tp++)
			for (r.ep = 0; r.ep < nr && !ret && lost < 256; r.ep++)
				if (!find(ld, &r)) {
					ret = say_lost(ld, &r, err);
					lost++;
				}
	for (size_t i = 0; i < ld->optims.nr && !ret; i++)
		if (ld->optims.v[i].ep >= nr)
			ret = say_stray(ld, &ld->optims.v[i], err);
	return ret;
}

/* Two replicas hold other stretches of the same buffers. */
static int say_copies(const struct ck_mg_load *ld, struct ck_err *err)
{
	size_t nr = ld->optims.nr;
	int ret = 0;

	for (size_t a = 0; a < nr && !ret; a++)
		for (size_t b = a + 1;
		     b < nr && (nr <= MAX_PAIRED || b == a + 1) && !ret; b++) {
			const struct ck_mg_rank *x = &ld->optims.v[a],
						*y = &ld->optims.v[b];
			const struct ck_problem_in p = { .severity = CK_WARNING,
							 .file = y->file };

			if (!x->usable || !y->usable || !same_rank(x, y))
				continue;
			ret = ck_dir_same(ld->dir, x->file, y->file, err);
			if (ret > 0)
				ret = ck_builder_problem(
					ld->b, &p, err,
					"it is the same as that of %s: one of them is a copy in the wrong folder",
					x->dir);
			else if (ret != -ENOMEM)
				ret = 0;
		}
	return ret;
}

int ck_mg_optims_say(struct ck_mg_load *ld, struct ck_err *err)
{
	size_t nr = 0;
	int ret = 0;

	for (size_t i = 0; i < ld->optims.nr && !ret; i++) {
		struct ck_mg_rank r = ld->optims.v[i];

		if (place(ld, &r)) {
			ld->optims.v[i] = ld->optims.v[nr];
			ld->optims.v[nr++] = r;
		} else {
			ret = say_stray(ld, &r, err);
		}
	}
	while (ld->optims.nr > nr)
		ck_mg_rank_free(&ld->optims.v[--ld->optims.nr]);
	qsort(ld->optims.v, nr, sizeof(*ld->optims.v), ck_mg_by_place);
	for (size_t i = 0; i < nr && !ret; i++)
		ret = say_one(ld, &ld->optims.v[i], err);
	if (!ret)
		ret = say_gaps(ld, err);
	return ret ? ret : say_copies(ld, err);
}
