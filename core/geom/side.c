/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side.c - one word a chunk, from unknown to known once and for ever
 *
 * A word is 0 (unknown), or has its kind in the two low bits: the common
 * answer (row-major, as is) is the offset itself, others point to a record.
 * The table is as large as the image's chunks, but its pages come from the
 * kernel zeroed and untouched, so only items that were resolved cost memory.
 */
#include "core/geom/side.h"

#include "core/base/auto.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { W_OFF = 1, W_RECORD = 2, W_BAD = 3, W_MASK = 3 };

struct record {
	struct record *next;
	uint64_t off;
	uint8_t xform;
	bool strided;
	int64_t stride[];
};

struct ck_side {
	_Atomic(struct record *) records; /* all, for ck_side_free() */
	_Atomic uint64_t *words;
};

struct ck_side *ck_side_new(uint32_t nr_chunks)
{
	struct ck_side *side = calloc(1, sizeof(*side));

	if (!side)
		return NULL;
	side->words = calloc(nr_chunks ? nr_chunks : 1, sizeof(*side->words));
	if (!side->words) {
		free(side);
		return NULL;
	}
	return side;
}

void ck_side_free(struct ck_side *side)
{
	struct record *r, *next;

	if (!side)
		return;
	for (r = atomic_load(&side->records); r; r = next) {
		next = r->next;
		free(r);
	}
	free(side->words);
	free(side);
}

enum ck_side_state ck_side_get(const struct ck_side *side, uint32_t chunk,
			       struct ck_place *out)
{
	uint64_t word =
		atomic_load_explicit(&side->words[chunk], memory_order_acquire);
	const struct record *r;

	*out = (struct ck_place){ 0 };
	switch (word & W_MASK) {
	case W_OFF:
		out->off = word >> 2;
		return CK_SIDE_PLACED;
	case W_RECORD:
		r = (const struct record *)(uintptr_t)(word - W_RECORD);
		out->off = r->off;
		out->xform = r->xform;
		out->stride = r->strided ? r->stride : NULL;
		return CK_SIDE_PLACED;
	case W_BAD:
		out->err = (int)(word >> 2);
		return CK_SIDE_BAD;
	default:
		return CK_SIDE_UNKNOWN;
	}
}

/* False: somebody else was first. */
static bool settle(struct ck_side *side, uint32_t chunk, uint64_t word)
{
	uint64_t unknown = 0;

	return atomic_compare_exchange_strong_explicit(
		&side->words[chunk], &unknown, word, memory_order_release,
		memory_order_relaxed);
}

static struct record *record_new(const struct ck_place *place, unsigned rank)
{
	size_t bytes = rank * sizeof(place->stride[0]);
	struct record *r = malloc(sizeof(*r) + bytes);

	if (!r)
		return NULL;
	r->off = place->off;
	r->xform = place->xform;
	r->strided = place->stride != NULL;
	if (place->stride)
		memcpy(r->stride, place->stride, bytes);
	return r;
}

int ck_side_put(struct ck_side *side, uint32_t chunk,
		const struct ck_place *place, unsigned rank)
{
	ck_auto_free struct record *mine = NULL;
	struct record *r;

	if (!place->stride && !place->xform && place->off <= UINT64_MAX >> 2) {
		settle(side, chunk, place->off << 2 | W_OFF);
		return 0;
	}
	mine = record_new(place, rank);
	if (!mine)
		return -ENOMEM;
	if (!settle(side, chunk, (uint64_t)(uintptr_t)mine | W_RECORD))
		return 0;
	r = ck_steal(mine);
	r->next = atomic_load(&side->records);
	while (!atomic_compare_exchange_weak(&side->records, &r->next, r))
		;
	return 0;
}

int ck_side_put_bad(struct ck_side *side, uint32_t chunk, int err)
{
	settle(side, chunk, (uint64_t)(unsigned)err << 2 | W_BAD);
	return 0;
}
