/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - where the pieces of the ranks' files belong, by their layouts */
#include "core/format/mindspore/mindspore.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ABSENT 8

int ck_mindspore_other_world(const struct mindspore_set *s, size_t ranks,
			     const char *sign, struct ck_err *err)
{
	return ck_fail(
		err, EINVAL,
		"%s: the strategy is for %" PRIu64
		" ranks, and there are %zu, as of a run on so many devices%s%s: give that run's strategy file with -o strategy=FILE",
		s->a.dir->path, s->strategy.devices * s->strategy.nr_stages,
		ranks, sign ? "; " : "", sign ? sign : "");
}

/* The tensor cannot be had; or, in doubt about the strategy, nothing can. */
static int give_up(const struct ck_asm_join *j, const struct ck_err *why,
		   struct ck_err *err)
{
	const struct mindspore_set *s = j->a->ctx;
	uint64_t last = j->a->files.v[j->a->files.nr - 1].rank;

	return s->smaller && !j->t->fault ?
		       ck_mindspore_other_world(s, (size_t)last + 1, why->msg,
						err) :
		       0;
}

/* ---- objects ---- */

static int add_object(struct mindspore_set *s, const struct ck_asm_tensor *t,
		      const struct ck_asm_piece *p, struct ck_err *err)
{
	const struct mindspore_held *h = mindspore_held(s, p);
	struct ck_object_in o = { .name = t->name,
				  .src = p->x.src,
				  .enc = CK_ENC_RAW };

	if (h->nr_runs != 1)
		return 0;
	if (s->a.files.nr != 1)
		o.name = ck_arena_fmt(&s->a.mem, "rank_%" PRIu64 "/%s",
				      s->a.files.v[p->file].rank, t->name);
	if (!o.name)
		return ck_no_memory(err);
	o.name_len = strlen(o.name);
	o.off = h->run[0].off;
	o.len = h->bytes;
	return ck_range_ok(o.off, o.len, UINT64_C(1) << 61) ?
		       ck_builder_object(s->a.b, &o, err) :
		       0;
}

static int leave_objects(struct ck_asm_join *j, struct ck_asm_piece *p,
			 struct ck_err *err)
{
	struct mindspore_set *s = j->a->ctx;

	p->left_out = mindspore_held(s, p)->flags & MINDSPORE_OPAQUE;
	return p->left_out ? add_object(s, j->t, p, err) : 0;
}

/* ---- where a piece is ---- */

static bool is_cut(const struct ck_strategy_layout *l)
{
	uint64_t slices, shards;

	return ck_strategy_cuts(l, &slices, &shards, NULL) || slices > 1 ||
	       shards > 1;
}

static int find_place(const struct ck_asm_join *j, const struct ck_asm_piece *p,
		      struct ck_err *why)
{
	static const struct ck_strategy_layout none = { .nr_dev = 1,
							.dev = { 1 } };
	struct mindspore_set *s = j->a->ctx;
	const struct ck_strategy_item *it = mindspore_held(s, p)->item;
	int ret;

	if (p == j->first)
		s->at_stage = CK_STRATEGY_NONE;
	if (!it)
		return ck_mindspore_place(&none, MINDSPORE_WHOLE, p->x.shape,
					  p->x.rank, 0, &s->at, why);
	s->at_stage = it->l.stage;
	if (it->why)
		return ck_fail(why, EINVAL, "%s: %s",
			       s->strategy.files.v[it->file], it->why);
	ret = ck_mindspore_place_of(s, j->t, p, &s->at, why);
	if (!ret && *s->against && is_cut(&it->l))
		return ck_fail(why, EINVAL, "%s", s->against);
	return ret ? ck_wrap(why, ret == -ENOMEM ? ret : -EINVAL, "%s",
			     ck_asm_who(j->a, p)) :
		     0;
}

static int find_shape(struct ck_asm_join *j, struct ck_err *why)
{
	const struct mindspore_set *s = j->a->ctx;
	bool copies;
	int ret = ck_mindspore_are_copies(s, j->t, &copies, why);

	if (!ret && copies)
		return ck_fail(
			why, EINVAL,
			"the strategy says that the optimizer's shards of it differ, and each is the same as another, as copies are: it may be another run's strategy (-o integrated=no takes them as shards)");
	if (!ret)
		ret = find_place(j, j->first, why);
	if (ret)
		return ret;
	j->rank = s->at.rank;
	memcpy(j->shape, s->at.shape, j->rank * sizeof(*j->shape));
	return 0;
}

/* ---- parts ---- */

/* The upper half of each float32 is the bfloat16 that it was made from. */
static void set_wide(struct ck_asm_join *j, struct ck_part *part)
{
	unsigned rank = part->grid ? part->grid_rank : part->rank;

	ck_dims_strides(part->len, rank, j->stride);
	for (unsigned d = 0; d < rank; d++)
		j->stride[d] *= 2; /* all fit: bytes is 4 times it */
	part->stride = j->stride;
	part->off += 2;
}

/* Run @n of several, one after the other. */
static int set_run(struct ck_asm_join *j, const struct mindspore_run *run,
		   unsigned n, struct ck_part *part, struct ck_err *why)
{
	uint64_t elem = ck_dtype_info(part->dtype)->size;

	if (run->len % elem)
		return ck_fail(why, EINVAL,
			       "one of its records ends inside an element");
	j->flat[0] = n ? j->flat[1] : 0;
	j->flat[1] = j->flat[0] + run->len / elem;
	part->flat = j->flat;
	return 0;
}

static int place(struct ck_asm_join *j, const struct ck_asm_piece *p,
		 unsigned n, struct ck_part *part, struct ck_err *why)
{
	struct mindspore_set *s = j->a->ctx;
	const struct mindspore_held *h = mindspore_held(s, p);
	int ret = n ? 0 : find_place(j, p, why);

	if (ret)
		return ret;
	if (!h->nr_runs)
		return CK_ASM_NONE;
	j->placed = h->item || s->integrated;
	/* slices are counted by each layout for itself */
	j->replica = 1 + s->at.slice + ((uint64_t)(s->at_stage + 1) << 32);
	part->rank = s->at.rank;
	part->shape = s->at.shape;
	part->grid_rank = s->at.grid_rank;
	part->grid = s->at.grid_rank ? s->at.grid : NULL;
	part->start = s->at.start;
	part->len = s->at.len;
	part->off = h->run[n].off;
	part->overlap_ok = h->nr_runs == 1;
	if (h->flags & MINDSPORE_WIDE)
		set_wide(j, part);
	if (h->nr_runs > 1)
		ret = set_run(j, &h->run[n], n, part, why);
	return ret ? ret : n + 1 < h->nr_runs;
}

const struct ck_asm_reader ck_mindspore_reader = {
	.words = {
		[CK_ASM_COPIES] = "{file} and {other} hold copies of it that "
				  "differ (unshard heal)",
		[CK_ASM_UNPLACED] = "{file} and {other} hold different ones, "
				    "and no layout of the strategy says that "
				    "they are parts: -o strategy=FILE does, or "
				    "-o integrated=yes that they are copies",
	},
	.likes = true,
	.opened = ck_mindspore_st_opened,
	.key = ck_mindspore_st_key,
	.piece = leave_objects,
	.shape = find_shape,
	.place = place,
	.refused = give_up,
};

/* ---- what the strategy describes and no file has ---- */

/* Of many it is said once: it was not meant to be saved, as of adapters. */
static int report_few(struct mindspore_set *s, uint64_t absent, size_t first,
		      struct ck_err *err)
{
	const struct ck_strategy *st = &s->strategy;
	return ck_builder_report_file(
		s->a.b, CK_WARNING, NULL, err,
		"the strategy describes %" PRIu64
		" tensors, of which no file holds %" PRIu64
		" (such as %s): a save of some of them only, as of an adapter, or files are lost",
		(uint64_t)st->item.nr, absent,
		st->names.v[st->item.v[first].name].s);
}

static int report_absent(struct mindspore_set *s, struct ck_err *err)
{
	const struct ck_strategy *st = &s->strategy;
	uint64_t absent = 0;
	size_t first = 0;
	int ret = 0;

	for (size_t i = st->item.nr; i-- > 0;)
		if (!st->item.v[i].seen) {
			absent++;
			first = i;
		}
	if (absent > MAX_ABSENT && !s->missing)
		return report_few(s, absent, first, err);
	for (size_t i = 0; i < st->item.nr && !ret; i++) {
		const struct ck_strmap_key *k =
			&st->names.v[st->item.v[i].name];

		if (!st->item.v[i].seen)
			ret = ck_builder_report_tensor(
				s->a.b, s->missing ? CK_ERROR : CK_WARNING,
				k->s, k->len, NULL, err,
				"the strategy describes it, and no file of stage %u holds it",
				st->item.v[i].l.stage);
	}
	return ret;
}

int ck_mindspore_merge(struct mindspore_set *s, struct ck_err *err)
{
	int ret = ck_mindspore_doubt(s, err);

	if (!ret)
		ret = ck_asm_join(&s->a, err);
	return ret ? ret : report_absent(s, err);
}
