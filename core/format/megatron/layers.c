/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - the numbers of layers and experts in the unsplit model
 *
 * They begin at 0 in each chunk of each stage; chunk 0 of all stages comes
 * before chunk 1 of any.  What a chunk has is counted in its file, so that
 * uneven stages come out right; of a stage without a file args say it.
 */
#include "core/base/check.h"
#include "core/base/number.h"
#include "core/format/megatron/megatron.h"
#include "core/geom/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS (UINT64_C(1) << 24)

struct component {
	const char *s;
	size_t len, at; /* @at: in the name */
};

static bool next_component(const char *name, size_t len, struct component *c)
{
	size_t at = c->s ? c->at + c->len + 1 : 0;
	const char *dot;

	if (at > len)
		return false;
	dot = memchr(name + at, '.', len - at);
	*c = (struct component){ name + at,
				 (dot ? (size_t)(dot - name) : len) - at, at };
	return true;
}

static bool is(const struct component *c, const char *text)
{
	return c->s && strlen(text) == c->len && !memcmp(c->s, text, c->len);
}

static bool digits(const char *s, size_t len, uint64_t *out)
{
	return ck_decimal(s, len, MAX_LAYERS - 1, out);
}

int ck_megatron_layer(const char *name, size_t len, uint64_t *layer,
		      size_t *from, size_t *to)
{
	static const char *const stacks[] = { "decoder", "encoder",
					      "transformer" };
	struct component c = { 0 }, before = { 0 }, first = { 0 };

	while (next_component(name, len, &c)) {
		if (is(&before, "layers") && digits(c.s, c.len, layer))
			for (int i = 0; i < MEGATRON_STACKS; i++)
				if (is(&first, stacks[i])) {
					*from = c.at;
					*to = c.at + c.len;
					return i;
				}
		first = before;
		before = c;
	}
	return -1;
}

/* What is counted of all chunks, first of all stages, then the next of each. */
struct counts {
	const struct megatron_load *ld;
	const uint64_t **have; /* MEGATRON_STACKS numbers; NULL: no file says */
	size_t nr, unknown;
	int stack; /* the only one that there is; -1: several, or none */
	uint64_t known; /* layers of that stack, in files that are there */
	bool trusted; /* args are right of all those */
};

static bool divide(int64_t all, int64_t by, uint64_t *out)
{
	if (all < 0 || by <= 0 || all % by)
		return false;
	*out = (uint64_t)(all / by);
	return true;
}

/* How many layers args say that chunk @c of stage @pp has. */
static bool by_args(const struct megatron_load *ld, unsigned pp, unsigned c,
		    uint64_t *out)
{
	const struct megatron_args *a = &ld->args;
	int64_t stages = ld->nr[PP], chunks = ld->nr_chunks, middle = a->layers;
	bool last = pp + 1 == ld->nr[PP];

	if (a->layers < 0 || a->custom)
		return false;
	if (a->first >= 0 || a->last >= 0) {
		if (!pp && a->first >= 0)
			return divide(a->first, chunks, out);
		if (last && a->last >= 0)
			return divide(a->last, chunks, out);
		middle -= CK_MAX(a->first, 0) + CK_MAX(a->last, 0);
		stages -= (a->first >= 0) + (a->last >= 0);
		return divide(middle, stages * chunks, out);
	}
	middle += a->with_embedding + a->with_loss;
	if (!divide(middle, stages * chunks, out))
		return false;
	if (a->with_embedding && !pp && !c)
		*out -= *out > 0;
	if (a->with_loss && last && c + 1 == ld->nr_chunks)
		*out -= *out > 0;
	return true;
}

/* The one kind of stack that the files have; -1: more than one, or none. */
static int only_stack(const struct counts *t)
{
	int found = -1;

	for (size_t k = 0; k < t->nr; k++)
		for (int s = 0; t->have[k] && s < MEGATRON_STACKS; s++) {
			if (t->have[k][s] && found >= 0 && found != s)
				return -1;
			found = t->have[k][s] ? s : found;
		}
	return found;
}

static void count_all(struct counts *t)
{
	const struct megatron_load *ld = t->ld;

	for (size_t i = 0; i < ld->ranks.nr; i++) {
		const struct megatron_rank *r = &ld->ranks.v[i];

		for (size_t c = 0; r->usable && c < r->nr_chunks; c++)
			t->have[c * ld->nr[PP] + r->n[PP]] =
				r->layers + c * MEGATRON_STACKS;
	}
	t->stack = only_stack(t);
	t->trusted = t->stack >= 0;
	for (size_t k = 0; k < t->nr; k++) {
		uint64_t n;

		t->unknown += !t->have[k];
		if (!t->have[k] || t->stack < 0)
			continue;
		t->known += t->have[k][t->stack];
		t->trusted &= by_args(ld, (unsigned)(k % ld->nr[PP]),
				      (unsigned)(k / ld->nr[PP]), &n) &&
			      n == t->have[k][t->stack];
	}
}

/* What no file says of a chunk: from args, or what the others leave. */
static int guess(const struct counts *t, size_t k, uint64_t *out,
		 struct ck_err *err)
{
	const struct megatron_load *ld = t->ld;
	int64_t layers = ld->args.layers;

	if (t->trusted && by_args(ld, (unsigned)(k % ld->nr[PP]),
				  (unsigned)(k / ld->nr[PP]), &out[t->stack]))
		return 0;
	if (t->stack < 0 || t->unknown != 1 || layers < 0 ||
	    t->known > (uint64_t)layers)
		return ck_fail(
			err, EINVAL,
			"%s: no file of stage %zu of the pipeline can be read, and how many layers it has follows from no other: those of the stages after it cannot be numbered",
			ld->dir->path, k % ld->nr[PP]);
	out[t->stack] = (uint64_t)layers - t->known;
	return 0;
}

static int sum_up(struct megatron_load *ld, const struct counts *t,
		  struct ck_err *err)
{
	uint64_t at[MEGATRON_STACKS] = { 0 };
	int ret = 0;

	for (size_t k = 0; k < t->nr && !ret; k++) {
		uint64_t n[MEGATRON_STACKS] = { 0 };
		uint64_t *to = ld->offset + ((k % ld->nr[PP]) * ld->nr_chunks +
					     k / ld->nr[PP]) *
						    MEGATRON_STACKS;

		if (t->have[k])
			memcpy(n, t->have[k], sizeof(n));
		else
			ret = guess(t, k, n, err);
		memcpy(to, at, sizeof(at));
		for (int s = 0; s < MEGATRON_STACKS; s++)
			at[s] += n[s];
	}
	if (!ret && t->nr > 1 && t->stack >= 0 && ld->args.layers >= 0 &&
	    at[t->stack] != (uint64_t)ld->args.layers)
		return ck_fail(err, EINVAL,
			       "%s: its stages have %" PRIu64
			       " layers, where args.num_layers is %" PRId64,
			       ld->dir->path, at[t->stack], ld->args.layers);
	return ret;
}

int ck_megatron_offsets(struct megatron_load *ld, struct ck_err *err)
{
	struct counts t = { .ld = ld,
			    .nr = (size_t)ld->nr[PP] * ld->nr_chunks };

	t.have = ck_arena_alloc(&ld->mem, t.nr * sizeof(*t.have));
	ld->offset = ck_arena_alloc(&ld->mem, t.nr * MEGATRON_STACKS *
						      sizeof(*ld->offset));
	if (ld->mem.failed)
		return ck_no_memory(err);
	count_all(&t);
	return sum_up(ld, &t, err);
}

/* Each rank has as many experts as any other. */
static uint64_t experts_before(const struct megatron_load *ld, unsigned ep)
{
	return ld->args.experts > 0 ?
		       (uint64_t)ld->args.experts / ld->nr[EP] * ep :
		       0;
}

/* Copies component @c; @expert: number of the first one of this rank. */
static void add_component(struct megatron_name *out, const struct component *c,
			  const struct component *before, uint64_t expert)
{
	static const char *const stems[] = { "weight", "bias" };

	if (is(before, "local_experts") && digits(c->s, c->len, &out->local)) {
		out->numbered = true;
		ck_str_fmt(&out->full, "%" PRIu64, out->local + expert);
		return;
	}
	for (size_t i = 0; i < CK_ARRAY_LEN(stems); i++) {
		size_t n = strlen(stems[i]);

		if (!out->expert || out->numbered || c->len <= n ||
		    memcmp(c->s, stems[i], n) != 0 ||
		    (!is(before, "linear_fc1") && !is(before, "linear_fc2")) ||
		    !digits(c->s + n, c->len - n, &out->local))
			continue;
		out->numbered = true;
		ck_str_fmt(&out->full, "%s%" PRIu64, stems[i],
			   out->local + expert);
		return;
	}
	ck_str_add(&out->full, c->s, c->len);
}

int ck_megatron_name(const struct megatron_load *ld, unsigned pp, unsigned ep,
		     unsigned chunk, const char *name, size_t len,
		     struct megatron_name *out)
{
	struct component c = { 0 }, before = { 0 };
	uint64_t layer = 0;
	size_t from = 0, to = 0;
	int stack = ck_megatron_layer(name, len, &layer, &from, &to);

	out->expert = out->numbered = false;
	out->full.len = 0;
	while (next_component(name, len, &c)) {
		if (before.s)
			ck_str_puts(&out->full, ".");
		out->expert |= is(&c, "experts") || is(&c, "local_experts");
		if (stack >= 0 && c.at == from && c.at + c.len == to)
			ck_str_fmt(
				&out->full, "%" PRIu64,
				layer + ld->offset[((size_t)pp * ld->nr_chunks +
						    chunk) *
							   MEGATRON_STACKS +
						   (size_t)stack]);
		else
			add_component(out, &c, &before, experts_before(ld, ep));
		before = c;
	}
	return out->full.failed ? -ENOMEM : 0;
}
