/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - the weights of one rank's file as parts of the unsplit model's
 *
 * A rule, by the name of a tensor, says where a rank's shard lies in the whole.
 * Where a rank's file is absent, another of its stage says what was in it.
 */
#include "core/assemble/cut.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/container/container.h"
#include "core/format/megatron/megatron.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether the size of the whole proves that each rank has all of it. */
static int check_size(const struct megatron_file *f,
		      const struct ck_tp_rule *rule, const uint64_t *shape,
		      unsigned rank, uint64_t nr, bool *whole,
		      struct ck_err *why)
{
	uint64_t sum = 0, all;

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
	if (rule->axis >= rank || !ck_mul_ok(shape[rule->axis], nr, &all))
		return ck_fail(why, EINVAL,
			       "it is split along axis %u, and has %u",
			       rule->axis, rank);
	*whole = shape[rule->axis] == sum;
	return *whole || all == sum ?
		       0 :
		       ck_fail(why, EINVAL,
			       "a rank has %" PRIu64
			       " of axis %u, where args say %" PRIu64
			       " of all ranks",
			       shape[rule->axis], rule->axis, sum);
}

/*
 * Rank order is the order of groups, as long as no group is shared by ranks in
 * a way of its own.
 */
static int check_qkv(const struct megatron_args *a, const uint64_t *shape,
		     unsigned rank, uint64_t nr, struct ck_err *why)
{
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
	return 0;
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
	if (ld->nr[EP] > 1 && !name->numbered)
		return ck_fail(why, EINVAL,
			       "its name does not say which of the experts it "
			       "is of, which %u expert ranks share",
			       ld->nr[EP]);
	if (ld->nr[EP] > 1 &&
	    (ld->args.experts <= 0 || ld->args.experts % ld->nr[EP] ||
	     name->local >= (uint64_t)ld->args.experts / ld->nr[EP]))
		return ck_fail(
			why, EINVAL,
			"args.num_experts is %" PRId64
			", which does not number the experts of %u ranks",
			ld->args.experts, ld->nr[EP]);
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
	unsigned nr = name->expert ? f->ld->etp : f->ld->nr[TP];
	const struct ck_tp_rule *rule = NULL;
	struct ck_placement p = { 0 };
	int ret = name->expert ? check_expert(f, name, why) : 0;
	bool whole = nr <= 1;

	if (!ret && !whole)
		ret = find_rule(f, name, nr, &rule, why);
	if (!ret && rule)
		whole = rule->how == CK_TP_SAME;
	if (!ret && rule && rule->nr_of)
		ret = check_size(f, rule, shape, rank, nr, &whole, why);
	if (!ret && rule && rule->how == CK_TP_QKV)
		ret = check_qkv(&f->ld->args, shape, rank, nr, why);
	if (ret)
		return ret;
	if (whole)
		return ck_cut_whole(cut, shape, rank, why);
	ck_mesh_add_axis(&p.mesh, nr, nr);
	ck_tp_step(rule, &p, 0);
	return ck_cut_placed(cut, &p, tp, shape, rank, why);
}

/* ---- tensors ---- */

static const char extra[] = "_extra_state";
static const char head[] = "output_layer.weight";
static const char tied[] = "embedding.word_embeddings.weight";

static const struct megatron_rank *rank_at(const struct megatron_load *ld,
					   unsigned pp, int64_t tp, int64_t ep,
					   bool usable)
{
	for (size_t i = 0; i < ld->ranks.nr; i++) {
		const struct megatron_rank *r = &ld->ranks.v[i];

		if (r->n[PP] == pp && (tp < 0 || r->n[TP] == tp) &&
		    (ep < 0 || r->n[EP] == ep) &&
		    (usable ? r->usable : r->there))
			return r;
	}
	return NULL;
}

/*
 * The last stage has a copy of a tied embedding, for it is no neighbour of the
 * first.
 */
static int name_it(struct megatron_file *f, unsigned ep, const char *name,
		   size_t len)
{
	const struct megatron_load *ld = f->ld;
	int ret = ck_megatron_name(ld, f->rank->n[PP], ep, f->chunk, name, len,
				   &f->name);

	if (!ret && ld->args.there && ld->nr[PP] > 1 && !ld->args.untied &&
	    f->name.full.len == sizeof(head) - 1 &&
	    !memcmp(f->name.full.v, head, sizeof(head) - 1)) {
		f->name.full.len = 0;
		ck_str_puts(&f->name.full, tied);
	}
	return ret || f->name.full.failed ? -ENOMEM : 0;
}

/*
 * A piece of rank @tp, that @file stores as @x says, or would; CK_NONE: it is
 * in one that cannot be read, who knows where.
 */
static int add_piece(struct megatron_file *f, unsigned tp, uint32_t file,
		     const struct ck_extent *x, struct ck_err *err)
{
	struct ck_asm_tensor *t =
		ck_asm_tensor(&f->a, 0, f->name.full.v, f->name.full.len);
	ck_auto_cut struct ck_cut cut = { 0 };
	struct ck_err why = { 0 };
	int ret;

	if (!t)
		return ck_no_memory(err);
	ret = find_cut(f, &f->name, tp, x->shape, x->rank, &cut, &why);
	if (ret)
		return ck_asm_failed(&f->a, t, ret, &why, err);
	if (file != CK_NONE)
		return ck_cut_give(&cut, &f->a, t, file, x, err);
	return ck_asm_declare(&f->a, t, x->dtype, cut.whole, cut.rank) ?
		       ck_no_memory(err) :
		       0;
}

/* Registers the file that rank @tp, @ep of this stage does not have. */
static int absent_file(struct megatron_file *f, unsigned tp, unsigned ep,
		       uint32_t *file, uint32_t *src, struct ck_err *err)
{
	struct megatron_load *ld = f->ld;
	const struct megatron_rank *r = f->rank;
	const char *dir = ck_megatron_dir_of(ld, tp, r->n[PP],
					     ld->nr[EP] > 1 ? (int64_t)ep : -1);
	const char *name = ck_arena_fmt(&ld->mem, "%s%s", dir ? dir : "",
					strrchr(r->file, '/'));

	*file = name ? ck_asm_file(&f->a, name, CK_ASM_ANY) : CK_NONE;
	if (ld->mem.failed || *file == CK_NONE)
		return ck_no_memory(err);
	return ck_dir_source(ld->dir, ld->b, name, src, NULL, err);
}

/* What rank @tp, @ep of this stage would have, if no file of it is read. */
static int add_absent(struct megatron_file *f, unsigned tp, int64_t ep,
		      const char *name, size_t len, const struct ck_extent *x,
		      struct ck_err *err)
{
	const struct megatron_load *ld = f->ld;
	bool any_tp = f->name.expert && ld->etp == 1;
	unsigned pp = f->rank->n[PP], number = ep < 0 ? 0 : (unsigned)ep;
	struct ck_extent gone = *x;
	uint32_t file = CK_NONE;
	int ret = 0;

	if (rank_at(ld, pp, any_tp ? -1 : (int64_t)tp, ep, true))
		return 0;
	if (name_it(f, number, name, len))
		return ck_no_memory(err);
	if (!rank_at(ld, pp, any_tp ? -1 : (int64_t)tp, ep, false))
		ret = absent_file(f, tp, number, &file, &gone.src, err);
	return ret ? ret : add_piece(f, tp, file, &gone, err);
}

static int add_all_absent(struct megatron_file *f, const char *name, size_t len,
			  const struct ck_extent *x, struct ck_err *err)
{
	const struct megatron_load *ld = f->ld;
	bool expert = f->name.expert;
	unsigned nr_tp = expert && ld->etp <= 1 ? 1 : ld->nr[TP];
	unsigned nr_ep = expert ? ld->nr[EP] : 1;
	int ret = 0;

	for (unsigned ep = 0; ep < nr_ep && !ret; ep++)
		for (unsigned tp = 0; tp < nr_tp && !ret; tp++)
			ret = add_absent(f, tp, expert ? (int64_t)ep : -1, name,
					 len, x, err);
	return ret;
}

/* Whether any shard of this stage is in no file that can be read. */
static void find_gaps(struct megatron_file *f)
{
	const struct megatron_load *ld = f->ld;
	const struct megatron_rank *r = f->rank;

	if (rank_at(ld, r->n[PP], -1, -1, true) != r)
		return;
	for (unsigned tp = 0; tp < ld->nr[TP]; tp++)
		f->dense_gap |= !rank_at(ld, r->n[PP], tp, -1, true);
	for (unsigned ep = 0; ep < ld->nr[EP]; ep++)
		for (unsigned tp = 0; tp < ld->nr[TP]; tp++)
			f->expert_gap |= !rank_at(ld, r->n[PP], tp, ep, true);
}

static bool is_extra(const char *name, size_t len)
{
	size_t n = sizeof(extra) - 1;

	return len >= n && !memcmp(name + len - n, extra, n);
}

int ck_megatron_weight(struct megatron_file *f, unsigned chunk,
		       const struct ck_torch_leaf *leaf, struct ck_err *err)
{
	/* behind the chunk's key and a dot */
	size_t skip =
		leaf->depth > 1 ? leaf->path[0].key_len + 1 : leaf->name_len;
	const char *name = leaf->name + skip;
	size_t len = leaf->name_len - skip;
	uint32_t file = ck_asm_file(&f->a, f->rank->file, CK_ASM_ANY);
	struct ck_torch_place at;
	struct ck_asm_tensor *t;
	struct ck_err why = { 0 };
	int ret;

	if (is_extra(name, len) ||
	    !ck_torch_is_rebuild(f->f.ts.pickle, leaf->value))
		return 0;
	f->chunk = chunk;
	if (file == CK_NONE || name_it(f, f->rank->n[EP], name, len))
		return ck_no_memory(err);
	ret = ck_torch_place(&f->f, leaf->value, &at, &why);
	if (ret) {
		t = ck_asm_tensor(&f->a, 0, f->name.full.v, f->name.full.len);
		return t ? ck_asm_failed(&f->a, t, ret, &why, err) :
			   ck_no_memory(err);
	}
	ret = add_piece(f, f->rank->n[TP], file, &at.x, err);
	if (!ret && (f->name.expert ? f->expert_gap : f->dense_gap))
		ret = add_all_absent(f, name, len, &at.x, err);
	return ret;
}

int ck_megatron_file_begin(struct megatron_file *f, struct ck_err *err)
{
	static const struct ck_asm_reader plain;
	const struct ck_pickle *p = f->f.ts.pickle;

	f->a.dir = f->ld->dir;
	f->a.b = f->ld->b;
	f->a.how = &plain;
	if (!ck_pv_key(p, ck_pickle_root(p), "args", &f->args) ||
	    !f->ld->args.there)
		f->args = 0;
	find_gaps(f);
	return read_conds(f, err);
}

int ck_megatron_report_gaps(struct megatron_load *ld, struct ck_err *err)
{
	int ret = 0;

	for (unsigned pp = 0; pp < ld->nr[PP] && !ret; pp++)
		if (!rank_at(ld, pp, -1, -1, true))
			ret = ck_builder_report_file(
				ld->b, CK_ERROR, NULL, err,
				"no mp_rank_*_%03u/" MEGATRON_FILE
				" can be read: what stage %u of the pipeline has is not shown",
				pp, pp);
	return ret;
}
