/* SPDX-License-Identifier: Apache-2.0 */
/*
 * master.c - whether weights and optimizer files are of one save, by bytes
 *
 * After each step DeepSpeed rounds its master copy to the weights; so the
 * beginning of each group's vector, in the file of data-parallel rank 0, is in
 * full precision what the group's first parameter is in the model file.
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/mesh/mesh.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COMPARED 65536 /* elements of a piece */
#define MAX_ALL (4u << 20) /* elements of all pieces of all ranks, about */
#define MIN_COMPARED 256
#define MAX_PIECES (1u << 20)

struct ck_audit_run ck_deepspeed_run(struct ck_source *s,
				     const struct ck_extent *x,
				     uint64_t element)
{
	uint64_t size = ck_dtype_info(x->dtype)->size;

	return (struct ck_audit_run){ .s = s,
				      .off = x->off + element * size,
				      .dtype = x->dtype,
				      .xform = x->xform };
}

/* What a rank has of a parameter; of each group the two longest are compared. */
struct piece {
	const struct deepspeed_param *p;
	uint64_t lo, len, at; /* of the parameter; in the rank's vector */
};

/*
 * 1: it has a weight of that name, a run of all its elements; *out: from number
 * @lo on; 0 or -ENOMEM.
 */
static int find_weight(struct deepspeed_model *m,
		       const struct deepspeed_param *p, uint64_t lo,
		       struct ck_audit_run *out)
{
	struct ck_torch_place at;
	uint64_t bytes;
	ck_pv v;
	int ret;

	if (!ck_deepspeed_weight(m, p->name, p->name_len, &v))
		return 0;
	ret = ck_torch_place(&m->f, v, &at, NULL);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	*out = ck_deepspeed_run(m->f.s, &at.x, lo);
	return ck_extent_is_dense(&at.x) && ck_extent_bytes(&at.x, &bytes) &&
	       bytes / ck_dtype_info(at.x.dtype)->size == p->numel;
}

/* Whether it differs; UNKNOWN, or -ENOMEM. */
#define UNKNOWN (-ENODATA)

static int compare_piece(struct deepspeed_model *m, const struct piece *pc,
			 struct ck_source *optim,
			 const struct deepspeed_rank *r, uint64_t most)
{
	struct ck_audit_budget budget = { .each = most, .left = most };
	const struct deepspeed_flat *flat =
		pc->p ? ck_deepspeed_flat(r, 0, pc->p->group) : NULL;
	struct ck_audit_run master, weights;
	int ret;

	if (!flat || pc->at + pc->len > flat->run.len)
		return UNKNOWN;
	ret = find_weight(m, pc->p, pc->lo, &weights);
	if (ret <= 0)
		return ret ? ret : UNKNOWN;
	master = ck_deepspeed_run(optim, &flat->run.x, pc->at);
	return ck_audit_can_round(&master, &weights) ?
		       ck_audit_rounded(&master, &weights, pc->len, &budget) :
		       UNKNOWN;
}

static void keep(struct piece best[2], struct piece new)
{
	if (new.len > best[0].len) {
		best[1] = best[0];
		best[0] = new;
	} else if (new.len > best[1].len) {
		best[1] = new;
	}
}

/* Of each rank, for group @group: best[2 * rank], and the one after. */
static void find_pieces(const struct deepspeed_zero *z, uint32_t group,
			struct piece *best)
{
	uint64_t size = z->vecs.v[group].size, lo, hi, at;

	for (size_t i = 0; i < z->m->params.nr && size; i++) {
		const struct deepspeed_param *p = &z->m->params.v[i];

		for (uint64_t r = z->pos[i] / size;
		     p->group == group && r < z->count &&
		     ck_split_meet(size, r, z->pos[i], p->numel, &lo, &hi, &at);
		     r++)
			keep(&best[2 * r],
			     (struct piece){ p, lo, hi - lo, at });
	}
}

struct verdict {
	const struct deepspeed_param *differs; /* one of those that do */
	unsigned nr_differ, nr_agree;
};

static int judge_rank(const struct deepspeed_zero *z, const struct piece *best,
		      const struct deepspeed_rank *r, struct verdict *v)
{
	ck_auto_source struct ck_source *optim = NULL;
	int ret = ck_dir_open(z->ld->dir, r->name, &optim, NULL);
	uint64_t most = MAX_ALL / (2 * z->m->nr_groups * z->count + 1);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	most = CK_MIN(CK_MAX(most, MIN_COMPARED), MAX_COMPARED);
	for (uint64_t i = 0; i < 2 * z->m->nr_groups; i++) {
		const struct piece *pc =
			&best[2 * (i / 2 * z->count + r->dp) + i % 2];

		ret = compare_piece(z->m, pc, optim, r, most);
		if (ret == -ENOMEM)
			return ret;
		if (ret > 0 && !v->nr_differ++)
			v->differs = pc->p;
		v->nr_agree += !ret;
	}
	return 0;
}

static int judge(const struct deepspeed_zero *z, struct piece *best,
		 struct verdict *v)
{
	int ret = 0;

	for (uint32_t g = 0; g < z->m->nr_groups; g++)
		find_pieces(z, g, best + 2 * g * z->count);
	for (size_t i = 0; i < z->ranks.nr && !ret; i++)
		if (z->ranks.v[i].usable)
			ret = judge_rank(z, best, &z->ranks.v[i], &v[i]);
	return ret;
}

/* An edit of one tensor is none of a save: @alone is of all that was compared. */
static int report(struct deepspeed_zero *z, struct deepspeed_rank *r,
		  const struct deepspeed_param *p, bool alone,
		  struct ck_err *err)
{
	if (alone) {
		r->usable = false;
		z->complete = false;
	}
	return deepspeed_problem(
		z->ld, alone ? CK_ERROR : CK_WARNING, r->name, err,
		"its master copy of %.*s is not what %s has, rounded: %s",
		(int)CK_MIN(p->name_len, 200), p->name, z->m->f.s->name,
		alone ? "that of other ranks is, so it is of another save and is not read" :
			"they are of two saves, or the weights were changed by themselves");
}

int ck_deepspeed_master_check(struct deepspeed_zero *z, struct ck_err *err)
{
	ck_auto_free struct piece *best = NULL;
	ck_auto_free struct verdict *v = NULL;
	bool agrees = false;
	uint64_t nr;
	int ret;

	if (z->stage3 || z->m->stage3 || !z->m->f.s ||
	    !ck_mul_ok(z->m->nr_groups, z->count, &nr) || nr > MAX_PIECES)
		return 0;
	best = calloc(2 * nr + 1, sizeof(*best));
	v = calloc(z->ranks.nr + 1, sizeof(*v));
	if (!best || !v || judge(z, best, v))
		return ck_no_memory(err);
	for (size_t i = 0; i < z->ranks.nr; i++)
		agrees |= v[i].nr_agree && !v[i].nr_differ;
	ret = 0;
	for (size_t i = 0; i < z->ranks.nr && !ret && !z->two_saves; i++)
		if (v[i].differs)
			ret = report(z, &z->ranks.v[i], v[i].differs,
				     agrees && !v[i].nr_agree &&
					     v[i].nr_differ > 1,
				     err);
	return ret;
}

/* Before anything is placed: where a group's vector begins is known. */
static int compare_first(const struct deepspeed_zero *z,
			 const struct deepspeed_rank *r)
{
	ck_auto_source struct ck_source *optim = NULL;
	int ret = ck_dir_open(z->ld->dir, r->name, &optim, NULL);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	for (size_t i = 0; i < z->m->params.nr && !ret; i++) {
		const struct deepspeed_param *p = &z->m->params.v[i];
		const struct deepspeed_flat *flat =
			ck_deepspeed_flat(r, 0, p->group);
		struct piece pc = { .p = p };

		if (p->pos || !flat)
			continue;
		pc.len = CK_MIN(p->numel, flat->run.len);
		ret = compare_piece(z->m, &pc, optim, r, MAX_COMPARED);
		ret = ret == UNKNOWN ? 0 : ret;
	}
	return ret;
}

int ck_deepspeed_master_differs(const struct deepspeed_zero *z)
{
	const struct deepspeed_rank *r = ck_deepspeed_first(z);

	return r && !r->dp && !r->stage3 && !z->m->stage3 ?
		       compare_first(z, r) :
		       0;
}
