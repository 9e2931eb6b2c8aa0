/* SPDX-License-Identifier: Apache-2.0 */
/* runs.c - a sorted list of blocks, each a sorted list of stretches */
#include "core/base/runs.h"

#include "core/base/check.h"
#include "core/base/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 256

struct ck_runs_block {
	unsigned nr; /* never 0 */
	struct ck_run v[BLOCK];
};

void ck_runs_free(struct ck_runs *r)
{
	for (size_t i = 0; i < r->nr; i++)
		free(r->v[i]);
	free(r->v);
	*r = (struct ck_runs){ 0 };
}

static const struct ck_run *last_of(const struct ck_runs_block *b)
{
	return &b->v[b->nr - 1];
}

/* The first block, and the first stretch in it, that ends at @pos or later. */
static bool find(const struct ck_runs *r, uint64_t pos, size_t *block,
		 unsigned *at)
{
	const struct ck_runs_block *b;

	*block = CK_FIRST(i, 0, r->nr, last_of(r->v[i])->end >= pos);
	*at = 0;
	if (*block == r->nr)
		return false;
	b = r->v[*block];
	*at = CK_FIRST(i, 0, b->nr, b->v[i].end >= pos);
	return true;
}

const struct ck_run *ck_runs_at(const struct ck_runs *r, uint64_t pos)
{
	size_t block;
	unsigned at;

	return find(r, pos + 1, &block, &at) ? &r->v[block]->v[at] : NULL;
}

static void remove_at(struct ck_runs *r, size_t block, unsigned at)
{
	struct ck_runs_block *b = r->v[block];

	r->total--;
	memmove(b->v + at, b->v + at + 1, (--b->nr - at) * sizeof(*b->v));
	if (b->nr)
		return;
	free(b);
	memmove(r->v + block, r->v + block + 1,
		(--r->nr - block) * sizeof(struct ck_runs_block *));
}

bool ck_runs_take(struct ck_runs *r, uint64_t off, uint64_t end,
		  struct ck_run *out)
{
	size_t block;
	unsigned at;

	if (!find(r, off, &block, &at) || r->v[block]->v[at].off > end)
		return false;
	*out = r->v[block]->v[at];
	remove_at(r, block, at);
	return true;
}

/* An empty place for a block at @at. */
static struct ck_runs_block *insert_block(struct ck_runs *r, size_t at)
{
	struct ck_runs_block *b = malloc(sizeof(*b));
	size_t room = r->room ? r->room * 2 : 8;
	struct ck_runs_block **grown;

	if (!b)
		return NULL;
	if (r->nr == r->room) {
		grown = reallocarray(r->v, room, sizeof(*grown));
		if (!grown) {
			free(b);
			return NULL;
		}
		r->v = grown;
		r->room = room;
	}
	memmove(r->v + at + 1, r->v + at, (r->nr - at) * sizeof(b));
	r->v[at] = b;
	r->nr++;
	b->nr = 0;
	return b;
}

/* The upper half goes to a block of its own. */
static int split(struct ck_runs *r, size_t block)
{
	struct ck_runs_block *b = r->v[block], *n = insert_block(r, block + 1);

	if (!n)
		return -ENOMEM;
	n->nr = b->nr / 2;
	b->nr -= n->nr;
	memcpy(n->v, b->v + b->nr, n->nr * sizeof(*n->v));
	return 0;
}

int ck_runs_put(struct ck_runs *r, const struct ck_run *run)
{
	struct ck_runs_block *b;
	size_t block;
	unsigned at;

	if (!find(r, run->off, &block, &at)) {
		/* behind all of them */
		block = r->nr ? r->nr - 1 : 0;
		if (!r->nr && !insert_block(r, 0))
			return -ENOMEM;
		at = r->v[block]->nr;
	}
	if (r->v[block]->nr == BLOCK) {
		if (split(r, block))
			return -ENOMEM;
		if (at > r->v[block]->nr) {
			at -= r->v[block]->nr;
			block++;
		}
	}
	b = r->v[block];
	memmove(b->v + at + 1, b->v + at, (b->nr - at) * sizeof(*b->v));
	b->v[at] = *run;
	b->nr++;
	r->total++;
	return 0;
}

int ck_runs_add(struct ck_runs *r, uint64_t off, uint64_t end)
{
	struct ck_run all = { .off = off, .end = end, .slot = CK_RUN_NO_SLOT };
	struct ck_run one;

	if (off >= end)
		return 0;
	while (ck_runs_take(r, all.off, all.end, &one)) {
		all.off = CK_MIN(all.off, one.off);
		all.end = CK_MAX(all.end, one.end);
	}
	return ck_runs_put(r, &all);
}

int ck_runs_cut(struct ck_runs *r, uint64_t off, uint64_t end)
{
	struct ck_run one, left, right;
	int ret = 0;

	/* those that only touch stay */
	while (!ret && off < end && ck_runs_take(r, off + 1, end - 1, &one)) {
		left = right = one;
		left.end = off;
		right.off = end;
		if (one.off < off)
			ret = ck_runs_put(r, &left);
		if (!ret && one.end > end)
			ret = ck_runs_put(r, &right);
	}
	return ret;
}

int ck_runs_each(const struct ck_runs *r,
		 int (*call)(void *ctx, const struct ck_run *run), void *ctx)
{
	int ret = 0;

	for (size_t i = 0; i < r->nr && !ret; i++)
		for (unsigned k = 0; k < r->v[i]->nr && !ret; k++)
			ret = call(ctx, &r->v[i]->v[k]);
	return ret;
}
