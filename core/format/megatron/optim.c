/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c - whether all files of the distributed optimizer are there
 *
 * From March 2022 to May 2023 they had folders of their own:
 *
 *   mp_rank_TT[_PPP]/model_rng.pt        of the first replica of the data
 *   mp_rank_TT[_PPP]_DDD/optim.pt        of replica DDD
 *
 * Each replica's part is a stretch of flat gradient buffers, in terms of
 * parameters that are numbered anew in each file: shown as it is stored.
 * Later files, MEGATRON_OPTIM, lie beside the weights and are shown with them.
 */
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/assemble/file_same.h"
#include "core/format/megatron/megatron.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PAIRED 32 /* files of which all pairs are compared */

static int report_stray(const struct megatron_load *ld,
			const struct megatron_rank *r, struct ck_err *err)
{

	return ck_builder_report_file(
		ld->b, CK_ERROR, r->file, err,
		"%s is no replica of %u tensor-parallel ranks and %u stages, which args say there are: it is of another save",
		r->dir, ld->nr[TP], ld->nr[PP]);
}

static bool same_rank(const struct megatron_rank *a,
		      const struct megatron_rank *b)
{
	return a->n[TP] == b->n[TP] && a->n[PP] == b->n[PP];
}

static const struct megatron_rank *find(const struct megatron_load *ld,
					const struct megatron_rank *r)
{
	return bsearch(r, ld->optims.v, ld->optims.nr, sizeof(*r),
		       ck_megatron_by_place);
}

/* The name that the folder of a rank's replica has. */
static int report_lost(struct megatron_load *ld, const struct megatron_rank *r,
		       struct ck_err *err)
{
	const char *dir = ck_megatron_dir_of(ld, r->n[TP], r->n[PP], r->n[EP]);

	const char *file = ck_arena_fmt(&ld->mem, "%s/" MEGATRON_OPTIM_OLD,
					dir ? dir : "");

	if (ld->mem.failed)
		return ck_no_memory(err);
	return ck_builder_report_file(
		ld->b, CK_ERROR, file, err,
		"missing: this replica's part of the optimizer's states is lost");
}

/* args.data_parallel_size, or as many as any rank has. */
static unsigned replicas(const struct megatron_load *ld)
{
	unsigned most = 0;

	for (size_t i = 0; i < ld->optims.nr; i++)
		most = CK_MAX(most, ld->optims.v[i].n[EP] + 1);
	return ld->args.dp > 0 && (uint64_t)ld->args.dp <= MEGATRON_MAX_RANKS ?
		       (unsigned)ld->args.dp :
		       most;
}

static int report_gaps(struct megatron_load *ld, struct ck_err *err)
{
	unsigned nr = replicas(ld), lost = 0;
	struct megatron_rank r = { 0 };
	int ret = 0;

	for (r.n[PP] = 0; r.n[PP] < ld->nr[PP] && !ret; r.n[PP]++)
		for (r.n[TP] = 0; r.n[TP] < ld->nr[TP] && !ret; r.n[TP]++)
			for (r.n[EP] = 0; r.n[EP] < nr && !ret && lost < 256;
			     r.n[EP]++)
				if (!find(ld, &r)) {
					ret = report_lost(ld, &r, err);
					lost++;
				}
	for (size_t i = 0; i < ld->optims.nr && !ret; i++)
		if (ld->optims.v[i].n[EP] >= nr)
			ret = report_stray(ld, &ld->optims.v[i], err);
	return ret;
}

/*
 * Two replicas of a rank hold other stretches of the same buffers, and two
 * ranks' vectors are of other weights.  Of many neighbours are compared.
 */
static int report_copies(const struct megatron_load *ld,
			 const struct megatron_rank *v, size_t nr,
			 bool replicas, struct ck_err *err)
{
	int ret = 0;

	for (size_t a = 0; a < nr && !ret; a++)
		for (size_t b = a + 1;
		     b < nr && (nr <= MAX_PAIRED || b == a + 1) && !ret; b++) {
			const struct megatron_rank *x = &v[a], *y = &v[b];

			if (!x->usable || !y->usable || !x->optim ||
			    !y->optim || (replicas && !same_rank(x, y)))
				continue;
			ret = ck_dir_same(ld->dir, x->optim, y->optim, err);
			if (ret > 0)
				ret = ck_builder_report_file(
					ld->b, CK_WARNING, y->optim, err,
					"it is the same as that of %s: one of them is a copy in the wrong folder",
					x->dir);
			else if (ret != -ENOMEM)
				ret = 0;
		}
	return ret;
}

static int read_replicas(struct megatron_load *ld, struct ck_err *err)
{
	size_t nr = 0;
	int ret = 0;

	for (size_t i = 0; i < ld->optims.nr && !ret; i++) {
		struct megatron_rank r = ld->optims.v[i];

		if (ld->nr[EP] == 1 && ck_megatron_place(ld, &r, true)) {
			ld->optims.v[i] = ld->optims.v[nr];
			ld->optims.v[nr++] = r;
		} else {
			ret = report_stray(ld, &r, err);
		}
	}
	ld->optims.nr = nr;
	qsort(ld->optims.v, nr, sizeof(*ld->optims.v), ck_megatron_by_place);
	for (size_t i = 0; i < nr && !ret; i++)
		ret = ck_megatron_file_read(ld, &ld->optims.v[i], true, err);
	if (!ret)
		ret = report_gaps(ld, err);
	return ret ? ret : report_copies(ld, ld->optims.v, nr, true, err);
}

/* ---- beside the weights ---- */

/* Whether the files are of the time when optimizers had folders. */
static bool is_old(const struct megatron_load *ld)
{
	for (size_t i = 0; i < ld->ranks.nr; i++)
		if (ck_has_suffix(ld->ranks.v[i].file, "/" MEGATRON_FILE_OLD))
			return true;
	return false;
}

/* The groups of a distributed optimizer are there, and none of its files. */
static int report_no_optim(struct megatron_load *ld, struct ck_err *err)
{
	bool old = is_old(ld);

	if (ld->any_optim || !(old ? ld->args.apart : ld->args.distributed))
		return 0;
	return ck_builder_report_file(
		ld->b, CK_WARNING, NULL, err,
		"args.use_distributed_optimizer is set, and no rank has %s: the optimizer's states and its copies of the weights in full precision are lost",
		old ? "an " MEGATRON_OPTIM_OLD : "a " MEGATRON_OPTIM);
}

/* The distributed optimizer's file is there of all ranks, or of none. */
static int report_lacking(struct megatron_load *ld, struct ck_err *err)
{
	int ret = report_no_optim(ld, err);

	for (size_t i = 0; i < ld->ranks.nr && ld->any_optim && !ret; i++) {
		const struct megatron_rank *r = &ld->ranks.v[i];
		const char *lost;

		if (!r->usable || r->optim)
			continue;
		lost = ck_arena_fmt(&ld->mem, "%s/" MEGATRON_OPTIM, r->dir);
		if (!lost)
			return ck_no_memory(err);
		ret = ck_builder_report_file(
			ld->b, CK_ERROR, lost, err,
			"missing: other ranks have one, so this rank's optimizer states are lost");
	}
	return ret || !ld->any_optim ?
		       ret :
		       report_copies(ld, ld->ranks.v, ld->ranks.nr, false, err);
}

int ck_megatron_optim(struct megatron_load *ld, struct ck_err *err)
{
	return ld->optims.nr ? read_replicas(ld, err) : report_lacking(ld, err);
}
