/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - the weights of one rank's file as parts of the unsplit model's
 *
 * Where a rank's file is absent, another of its stage says what was in it.
 */
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/format/megatron/megatron.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
	int ret = ck_megatron_cut(s->f, &s->name, tp, at->t.shape, at->t.rank,
				  &cut, &why);
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
	ret = ck_megatron_compare(s->f, &s->name, same ? 0 : tp + 1, at, &why);
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
		return ck_fail(err, ENOMEM, "no memory");
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
		return ck_fail(err, ENOMEM, "no memory");
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
		return ck_fail(err, ENOMEM, "no memory");
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
	int ret = 0;

	find_gaps(&s);
	for (; s.chunk < f->rank->nr_chunks && !ret; s.chunk++)
		if (ck_megatron_chunk(f->f.ts.pickle, s.chunk, &chunk))
			ret = ck_torch_walk(f->f.ts.pickle, chunk, add_leaf, &s,
					    err);
	ck_str_free(&s.name.full);
	return ret;
}
