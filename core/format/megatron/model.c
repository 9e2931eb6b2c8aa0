/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - the weights of one rank's file as parts of the unsplit model's
 *
 * A rule, by the name of a tensor, says where a rank's shard lies in the whole.
 * Where a rank's file is absent, another of its stage says what was in it.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/glob.h"
#include "core/container/container.h"
#include "core/format/megatron/megatron.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_ONE (UINT64_C(1) << 20) /* copies up to this size are compared */
#define MAX_ALL (UINT64_C(64) << 20) /* what a mount reads for it */

/* ---- where a shard lies ---- */

/* f->conds, of each rule: 1, 0; -1: args are not there. */
static int read_conds(struct megatron_file *f, struct ck_err *err)
{
	const struct ck_tp_rules *r = &f->ld->rules;

	f->conds = ck_arena_alloc(&f->ld->mem, r->v.nr);
	if (!f->conds)
		return ck_no_memory(err);
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

/*
 * How tensor @name of that shape, of tensor-parallel rank @tp, lies in the
 * whole.  -EINVAL with a line in @why where nothing says so.
 */
static int find_cut(const struct megatron_file *f,
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

/* ---- copies ---- */

/*
 * Compares a small piece with its copies seen before.  0; -EINVAL with a line
 * in @why where they differ, or -ENOMEM.
 */
static int compare(struct megatron_file *f, const struct megatron_name *name,
		   unsigned part, const struct ck_torch_place *at,
		   struct ck_err *why)
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
		return ck_no_memory(why);
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
		return ck_no_memory(why);
	*copy = (struct megatron_copy){ .sum = sum, .rank = f->number };
	return 0;
}

/* ---- tensors ---- */

static const char extra[] = "_extra_state";
static const char head[] = "output_layer.weight";
static const char tied[] = "embedding.word_embeddings.weight";

struct rank {
	struct megatron_file *f;
	unsigned chunk;
	bool dense_gap, expert_gap; /* it stands in for ranks of its stage */
	struct megatron_name name;
};

static const struct megatron_rank *rank_at(const struct megatron_load *ld,
					   unsigned pp, int64_t tp, int64_t ep,
					   bool usable)
{
	for (size_t i = 0; i < ld->ranks.nr; i++) {
		const struct megatron_rank *r = &ld->ranks.v[i];

		if (r->pp == pp && (tp < 0 || r->tp == tp) &&
		    (ep < 0 || r->ep == ep) && (usable ? r->usable : r->there))
			return r;
	}
	return NULL;
}

/*
 * The last stage has a copy of a tied embedding, for it is no neighbour of the
 * first.
 */
static int name_it(struct rank *s, unsigned ep, const char *name, size_t len)
{
	const struct megatron_load *ld = s->f->ld;
	int ret = ck_megatron_name(ld, s->f->rank->pp, ep, s->chunk, name, len,
				   &s->name);

	if (!ret && ld->args.there && ld->pp > 1 && !ld->args.untied &&
	    s->name.full.len == sizeof(head) - 1 &&
	    !memcmp(s->name.full.v, head, sizeof(head) - 1)) {
		s->name.full.len = 0;
		ck_str_puts(&s->name.full, tied);
	}
	return ret || s->name.full.failed ? -ENOMEM : 0;
}

static int refuse(struct rank *s, const struct ck_err *why, struct ck_err *err)
{
	return ck_builder_refuse(s->f->ld->b, 0, s->name.full.v,
				 s->name.full.len, err, "%s", why->msg);
}

enum piece {
	STORED,
	ABSENT, /* in a file that does not exist */
	UNKNOWN, /* in one that cannot be read, who knows where */
};

/* A piece of rank @tp, that is stored as @at says, or would be like that. */
static int add_piece(struct rank *s, enum piece kind, unsigned tp,
		     const struct ck_torch_place *at, struct ck_err *err)
{
	const struct ck_cut_run none = { .place.t.dtype = at->t.dtype };
	ck_auto_cut struct ck_cut cut = { 0 };
	struct ck_err why = { 0 };
	int ret = find_cut(s->f, &s->name, tp, at->t.shape, at->t.rank, &cut,
			   &why);
	bool same;

	if (ret == -EINVAL)
		return refuse(s, &why, err);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	if (kind == UNKNOWN)
		return ck_cut_add_run(&cut, s->f->ld->b, s->name.full.v,
				      s->name.full.len, 0, 0, 0, &none, err);
	ret = ck_cut_add_tensor(&cut, s->f->ld->b, s->name.full.v,
				s->name.full.len, at, err);
	if (ret || kind != STORED)
		return ret;
	same = !memcmp(cut.whole, cut.shard, cut.rank * sizeof(*cut.whole));
	ret = compare(s->f, &s->name, same ? 0 : tp + 1, at, &why);
	if (ret == -EINVAL)
		return refuse(s, &why, err);
	return ret ? ck_fail(err, -ret, "%s", why.msg) : 0;
}

/* Registers the file that rank @tp, @ep of this stage does not have. */
static int absent_file(const struct rank *s, unsigned tp, unsigned ep,
		       uint32_t *src, struct ck_err *err)
{
	struct megatron_load *ld = s->f->ld;
	const struct megatron_rank *r = s->f->rank;
	const char *dir = ck_megatron_dir_of(ld, tp, r->pp,
					     ld->ep > 1 ? (int64_t)ep : -1);
	const char *file = ck_arena_fmt(&ld->mem, "%s%s", dir ? dir : "",
					strrchr(r->file, '/'));

	if (ld->mem.failed)
		return ck_no_memory(err);
	return ck_dir_source(ld->dir, ld->b, file, src, NULL, err);
}

/* What rank @tp, @ep of this stage would have, if no file of it is read. */
static int add_absent(struct rank *s, unsigned tp, int64_t ep, const char *name,
		      size_t len, const struct ck_torch_place *at,
		      struct ck_err *err)
{
	const struct megatron_load *ld = s->f->ld;
	bool any_tp = s->name.expert && ld->etp == 1;
	unsigned pp = s->f->rank->pp, number = ep < 0 ? 0 : (unsigned)ep;
	struct ck_torch_place gone = *at;
	int ret;

	if (rank_at(ld, pp, any_tp ? -1 : (int64_t)tp, ep, true))
		return 0;
	if (name_it(s, number, name, len))
		return ck_no_memory(err);
	if (rank_at(ld, pp, any_tp ? -1 : (int64_t)tp, ep, false))
		return add_piece(s, UNKNOWN, tp, at, err);
	ret = absent_file(s, tp, number, &gone.src, err);
	return ret ? ret : add_piece(s, ABSENT, tp, &gone, err);
}

static int add_all_absent(struct rank *s, const char *name, size_t len,
			  const struct ck_torch_place *at, struct ck_err *err)
{
	const struct megatron_load *ld = s->f->ld;
	bool expert = s->name.expert;
	unsigned nr_tp = expert && ld->etp <= 1 ? 1 : ld->tp;
	unsigned nr_ep = expert ? ld->ep : 1;
	int ret = 0;

	for (unsigned ep = 0; ep < nr_ep && !ret; ep++)
		for (unsigned tp = 0; tp < nr_tp && !ret; tp++)
			ret = add_absent(s, tp, expert ? (int64_t)ep : -1, name,
					 len, at, err);
	return ret;
}

/* Whether any shard of this stage is in no file that can be read. */
static void find_gaps(struct rank *s)
{
	const struct megatron_load *ld = s->f->ld;
	const struct megatron_rank *r = s->f->rank;

	if (rank_at(ld, r->pp, -1, -1, true) != r)
		return;
	for (unsigned tp = 0; tp < ld->tp; tp++)
		s->dense_gap |= !rank_at(ld, r->pp, tp, -1, true);
	for (unsigned ep = 0; ep < ld->ep; ep++)
		for (unsigned tp = 0; tp < ld->tp; tp++)
			s->expert_gap |= !rank_at(ld, r->pp, tp, ep, true);
}

static bool is_extra(const struct ck_torch_leaf *leaf)
{
	size_t n = sizeof(extra) - 1;

	return leaf->name_len >= n &&
	       !memcmp(leaf->name + leaf->name_len - n, extra, n);
}

static int add_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		    struct ck_err *err)
{
	struct rank *s = ctx;
	const struct megatron_rank *r = s->f->rank;
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	int ret;

	if (is_extra(leaf) ||
	    !ck_torch_is_rebuild(s->f->f.ts.pickle, leaf->value))
		return 0;
	if (name_it(s, r->ep, leaf->name, leaf->name_len))
		return ck_no_memory(err);
	ret = ck_torch_place(&s->f->f, leaf->value, &at, &why);
	if (ret == -EINVAL)
		return refuse(s, &why, err);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	ret = add_piece(s, STORED, r->tp, &at, err);
	if (!ret && (s->name.expert ? s->expert_gap : s->dense_gap))
		ret = add_all_absent(s, leaf->name, leaf->name_len, &at, err);
	return ret;
}

int ck_megatron_model(struct megatron_file *f, struct ck_err *err)
{
	struct rank s = { .f = f };
	ck_pv chunk;
	int ret = read_conds(f, err);

	find_gaps(&s);
	for (; s.chunk < f->rank->nr_chunks && !ret; s.chunk++)
		if (ck_megatron_chunk(f->f.ts.pickle, s.chunk, &chunk))
			ret = ck_torch_walk(f->f.ts.pickle, chunk, add_leaf, &s,
					    err);
	ck_str_free(&s.name.full);
	return ret;
}
