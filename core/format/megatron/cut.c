/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.c - from a rule to where a rank's shard lies in the whole
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/glob.h"
#include "core/format/megatron/megatron.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_ONE (UINT64_C(1) << 20) /* copies up to this size are compared */
#define MAX_ALL (UINT64_C(64) << 20) /* what a mount reads for it */

int ck_megatron_conds(struct megatron_file *f, struct ck_err *err)
{
	const struct ck_tp_rules *r = &f->ld->rules;

	f->conds = ck_arena_alloc(&f->ld->mem, r->v.nr);
	if (!f->conds)
		return ck_fail(err, ENOMEM, "no memory");
	for (size_t i = 0; i < r->v.nr; i++) {
		const struct ck_tp_rule *rule = &r->v.v[i];
		int64_t n;

		f->conds[i] = rule->nr_conds ? (f->args ? 0 : -1) : 1;
		for (unsigned k = 0; k < rule->nr_conds; k++)
			if (ck_megatron_arg(f->f.ts.pickle, f->args,
					    rule->conds[k], &n) &&
			    n)
				f->conds[i] = 1;
	}
	return 0;
}

/* -EINVAL where none fits, or it depends on what nothing says. */
static int find_rule(const struct megatron_file *f,
		     const struct megatron_name *name, unsigned nr,
		     const struct ck_tp_rule **out, struct ck_err *why)
{
	const struct ck_tp_rules *r = &f->ld->rules;

	for (size_t i = 0; i < r->v.nr; i++) {
		const struct ck_tp_rule *rule = &r->v.v[i];

		if (!f->conds[i] || !ck_glob(rule->pattern.s, rule->pattern.len,
					     name->full.v, name->full.len))
			continue;
		if (f->conds[i] < 0)
			return ck_fail(
				why, EINVAL,
				"%s has no args, which say whether %.*s: -o rules=FILE can do without",
				f->rank->file, (int)rule->conds[0].len,
				rule->conds[0].s);
		*out = rule;
		return 0;
	}
	return ck_fail(
		why, EINVAL,
		"%u tensor-parallel ranks share it, and none of %s fits its name: -o rules=FILE can give one",
		nr, f->ld->rules_name);
}

/* A split that the size of the whole proves, or that it is none. */
static int cut_of(const struct megatron_file *f, const struct ck_tp_rule *rule,
		  const uint64_t *shape, unsigned rank, uint64_t at,
		  uint64_t nr, struct ck_cut *cut, struct ck_err *why)
{
	uint64_t sum = 0, whole;

	for (unsigned i = 0; i < rule->nr_of; i++) {
		int64_t n;

		if (!ck_megatron_arg(f->f.ts.pickle, f->args, rule->of[i],
				     &n) ||
		    n < 0 || !ck_add_ok(sum, (uint64_t)n, &sum))
			return ck_fail(
				why, EINVAL,
				"args.%.*s, which says its size, is not in %s",
				(int)rule->of[i].len, rule->of[i].s,
				f->rank->file);
	}
	if (rule->axis >= rank || !ck_mul_ok(shape[rule->axis], nr, &whole))
		return ck_fail(why, EINVAL,
			       "it is split along axis %u, and has %u",
			       rule->axis, rank);
	if (shape[rule->axis] == sum)
		return ck_cut_whole(cut, shape, rank, why);
	if (whole == sum)
		return ck_cut_axis(cut, shape, rank, rule->axis, 1, at, nr,
				   why);
	return ck_fail(why, EINVAL,
		       "a rank has %" PRIu64
		       " of axis %u, where args say %" PRIu64 " of all ranks",
		       shape[rule->axis], rule->axis, sum);
}

/*
 * Rank order is the order of groups, as long as no group is shared by ranks in
 * a way of its own.
 */
static int cut_qkv(const struct megatron_file *f, const uint64_t *shape,
		   unsigned rank, uint64_t at, uint64_t nr, struct ck_cut *cut,
		   struct ck_err *why)
{
	const struct megatron_args *a = &f->ld->args;
	int64_t groups = a->grouped ? a->groups : a->heads;
	uint64_t whole;

	if (a->version >= 0 && a->version < 2)
		return ck_fail(
			why, EINVAL,
			"checkpoint_version %" PRId64
			" orders queries, keys and values in another way, which is not read",
			a->version);
	if (groups >= 0 && (uint64_t)groups < nr &&
	    (a->kv_channels < 0 || a->heads < 0 || !rank ||
	     !ck_mul_ok(shape[0], nr, &whole) ||
	     whole != (uint64_t)((a->heads + 2 * groups) * a->kv_channels)))
		return ck_fail(
			why, EINVAL,
			"%" PRIu64 " tensor-parallel ranks share %" PRId64
			" groups of queries, and its size is not that of all groups: -o rules=FILE can say how",
			nr, groups);
	return ck_cut_axis(cut, shape, rank, 0, 1, at, nr, why);
}

static int apply(const struct megatron_file *f, const struct ck_tp_rule *r,
		 const uint64_t *shape, unsigned rank, uint64_t at, uint64_t nr,
		 struct ck_cut *cut, struct ck_err *why)
{
	switch (r->how) {
	case CK_TP_SAME:
		return ck_cut_whole(cut, shape, rank, why);
	case CK_TP_QKV:
		return cut_qkv(f, shape, rank, at, nr, cut, why);
	case CK_TP_PARTS:
		return ck_cut_parts(cut, shape, rank, r->axis, r->parts,
				    r->nr_parts, at, nr, why);
	case CK_TP_GATED:
		return ck_cut_axis(cut, shape, rank, r->axis, 2, at, nr, why);
	case CK_TP_SPLIT:
		break;
	}
	return r->nr_of ?
		       cut_of(f, r, shape, rank, at, nr, cut, why) :
		       ck_cut_axis(cut, shape, rank, r->axis, 1, at, nr, why);
}

static int check_expert(const struct megatron_file *f,
			const struct megatron_name *name, struct ck_err *why)
{
	const struct megatron_load *ld = f->ld;

	if (!ld->etp)
		return ck_fail(why, EINVAL,
			       "args.expert_tensor_parallel_size is %" PRId64
			       ", neither 1 nor that of other tensors: how "
			       "experts are shared is not known",
			       ld->args.etp);
	if (ld->ep > 1 && !name->numbered)
		return ck_fail(why, EINVAL,
			       "its name does not say which of the experts it "
			       "is of, which %u expert ranks share",
			       ld->ep);
	if (ld->ep > 1 && (ld->args.experts <= 0 || ld->args.experts % ld->ep ||
			   name->local >= (uint64_t)ld->args.experts / ld->ep))
		return ck_fail(
			why, EINVAL,
			"args.num_experts is %" PRId64
			", which does not number the experts of %u ranks",
			ld->args.experts, ld->ep);
	return 0;
}

int ck_megatron_cut(const struct megatron_file *f,
		    const struct megatron_name *name, unsigned tp,
		    const uint64_t *shape, unsigned rank, struct ck_cut *cut,
		    struct ck_err *why)
{
	unsigned nr = name->expert ? f->ld->etp : f->ld->tp;
	const struct ck_tp_rule *rule = NULL;
	int ret = name->expert ? check_expert(f, name, why) : 0;

	if (!ret && nr <= 1)
		return ck_cut_whole(cut, shape, rank, why);
	if (!ret)
		ret = find_rule(f, name, nr, &rule, why);
	return ret ? ret : apply(f, rule, shape, rank, tp, nr, cut, why);
}

int ck_megatron_compare(struct megatron_file *f,
			const struct megatron_name *name, unsigned part,
			const struct ck_torch_place *at, struct ck_err *why)
{
	struct megatron_load *ld = f->ld;
	const struct ck_extent x = { .shape = at->t.shape,
				     .stride = at->t.stride,
				     .dtype = (uint8_t)at->t.dtype,
				     .rank = (uint8_t)at->t.rank };
	ck_auto_str struct ck_str key = { 0 };
	ck_auto_free char *bytes = NULL;
	struct megatron_copy *copy;
	uint64_t size, sum;
	uint32_t n = CK_STRMAP_NONE;

	if (ck_dir_any_copy(ld->dir) || !ck_extent_is_dense(&x) ||
	    !ck_extent_bytes(&x, &size) || size > MAX_ONE ||
	    ld->compared + size > MAX_ALL)
		return 0;
	bytes = malloc(size + 1);
	ck_str_fmt(&key, "%u@", part);
	ck_str_add(&key, name->full.v, name->full.len);
	if (bytes && !key.failed)
		n = ck_strmap_keep(&ld->copies, &ld->mem, key.v, key.len);
	if (n == CK_STRMAP_NONE)
		return ck_fail(why, ENOMEM, "no memory");
	if (ck_source_read(f->f.s, bytes, size, at->off, NULL))
		return 0; /* reading it will say so */
	ld->compared += size;
	sum = XXH3_64bits(bytes, size);
	if (n < ld->sums.nr) {
		copy = &ld->sums.v[n];
		return copy->sum == sum ?
			       0 :
			       ck_fail(why, EINVAL,
				       "its copies in %s and %s differ (unshard heal)",
				       ld->ranks.v[copy->rank].file,
				       f->rank->file);
	}
	copy = ck_vec_push(&ld->sums);
	if (!copy)
		return ck_fail(why, ENOMEM, "no memory");
	*copy = (struct megatron_copy){ .sum = sum, .rank = f->number };
	return 0;
}
