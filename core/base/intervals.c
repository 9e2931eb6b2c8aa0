/* SPDX-License-Identifier: Apache-2.0 */
/* intervals.c - a sorted list of blocks, each a sorted list of stretches */
#include "core/base/intervals.h"

#include "core/base/check.h"
#include "core/base/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 256

struct ck_intervals_block {
	unsigned nr; /* never 0 */
	struct ck_interval v[BLOCK];
};

void ck_intervals_free(struct ck_intervals *r)
{
	for (size_t i = 0; i < r->nr; i++)
		free(r->v[i]);
	free(r->v);
	*r = (struct ck_intervals){ 0 };
}

static const struct ck_interval *last_of(const struct ck_intervals_block *b)
{
	return &b->v[b->nr - 1];
}

/* The first block, and the first stretch in it, that ends at @pos or later. */
static bool find(const struct ck_intervals *r, uint64_t pos, size_t *block,
		 unsigned *at)
{
	const struct ck_intervals_block *b;

	*block = CK_FIRST(i, 0, r->nr, last_of(r->v[i])->end >= pos);
	*at = 0;
	if (*block == r->nr)
		return false;
	b = r->v[*block];
	*at = CK_FIRST(i, 0, b->nr, b->v[i].end >= pos);
	return true;
}

const struct ck_interval *ck_intervals_at(const struct ck_intervals *r,
					  uint64_t pos)
{
	size_t block;
	unsigned at;

	return find(r, pos + 1, &block, &at) ? &r->v[block]->v[at] : NULL;
}

static void remove_at(struct ck_intervals *r, size_t block, unsigned at)
{
	struct ck_intervals_block *b = r->v[block];

	r->total--;
	memmove(b->v + at, b->v + at + 1, (--b->nr - at) * sizeof(*b->v));
	if (b->nr)
		return;
	free(b);
	memmove(r->v + block, r->v + block + 1,
		(--r->nr - block) * sizeof(struct ck_intervals_block *));
}

/* Takes out the first that has a byte in, or touches, [off, end]. */
static bool take(struct ck_intervals *r, uint64_t off, uint64_t end,
		 struct ck_interval *out)
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
static struct ck_intervals_block *insert_block(struct ck_intervals *r,
					       size_t at)
{
	struct ck_intervals_block *b = malloc(sizeof(*b));
	size_t room = r->room ? r->room * 2 : 8;
	struct ck_intervals_block **grown;

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
static int split(struct ck_intervals *r, size_t block)
{
	struct ck_intervals_block *b = r->v[block],
				  *n = insert_block(r, block + 1);

	if (!n)
		return -ENOMEM;
	n->nr = b->nr / 2;
	b->nr -= n->nr;
	memcpy(n->v, b->v + b->nr, n->nr * sizeof(*n->v));
	return 0;
}

/* Which nothing that is in it may touch.  0 or -ENOMEM. */
static int put(struct ck_intervals *r, const struct ck_interval *run)
{
	struct ck_intervals_block *b;
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

int ck_intervals_add(struct ck_intervals *r, uint64_t off, uint64_t end)
{
	struct ck_interval all = { .off = off, .end = end };
	struct ck_interval one;

	if (off >= end)
		return 0;
	while (take(r, all.off, all.end, &one)) {
		all.off = CK_MIN(all.off, one.off);
		all.end = CK_MAX(all.end, one.end);
	}
	return put(r, &all);
}

bool ck_intervals_any(const struct ck_intervals *r, uint64_t off, uint64_t end)
{
	const struct ck_interval *run = ck_intervals_at(r, off);

	return run && run->off < end;
}

int ck_intervals_cut(struct ck_intervals *r, uint64_t off, uint64_t end)
{
	struct ck_interval one, left, right;
	int ret = 0;

	/* those that only touch stay */
	while (!ret && off < end && take(r, off + 1, end - 1, &one)) {
		left = right = one;
		left.end = off;
		right.off = end;
		if (one.off < off)
			ret = put(r, &left);
		if (!ret && one.end > end)
			ret = put(r, &right);
	}
	return ret;
}

int ck_intervals_join(struct ck_intervals *r, const struct ck_intervals *more)
{
	int ret = 0;

	for (size_t i = 0; i < more->nr && !ret; i++)
		for (unsigned k = 0; k < more->v[i]->nr && !ret; k++)
			ret = ck_intervals_add(r, more->v[i]->v[k].off,
					       more->v[i]->v[k].end);
	return ret;
}
