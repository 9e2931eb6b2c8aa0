/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolved.c - one word a chunk, from unknown to known
 *
 * A word is 0 (unknown), or has its kind in the two low bits: the common
 * answer (row-major, as is) is the offset itself, others point to a record.
 * The table is as large as the catalog's chunks, but its pages come from the
 * kernel zeroed and untouched, so only items that were resolved cost memory.
 */
#include "core/geom/resolved.h"

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

#define MAX_TRIES 64 /* of one chunk, forgotten as soon as it is known */

struct ck_resolved {
	ck_resolve_fn resolve; /* NULL: nobody knows */
	void *ctx;
	_Atomic(struct record *) records; /* all, for ck_resolved_free() */
	_Atomic uint64_t *words;
};

struct ck_resolved *ck_resolved_new(uint32_t nr_chunks)
{
	struct ck_resolved *resolved = calloc(1, sizeof(*resolved));

	if (!resolved)
		return NULL;
	resolved->words =
		calloc(nr_chunks ? nr_chunks : 1, sizeof(*resolved->words));
	if (!resolved->words) {
		free(resolved);
		return NULL;
	}
	return resolved;
}

void ck_resolved_free(struct ck_resolved *resolved)
{
	struct record *r, *next;

	if (!resolved)
		return;
	for (r = atomic_load(&resolved->records); r; r = next) {
		next = r->next;
		free(r);
	}
	free(resolved->words);
	free(resolved);
}

enum ck_resolved_state ck_resolved_get(const struct ck_resolved *resolved,
				       uint32_t chunk, struct ck_place *out)
{
	uint64_t word = atomic_load_explicit(&resolved->words[chunk],
					     memory_order_acquire);
	const struct record *r;

	*out = (struct ck_place){ 0 };
	switch (word & W_MASK) {
	case W_OFF:
		out->off = word >> 2;
		return CK_RESOLVED_PLACED;
	case W_RECORD:
		r = (const struct record *)(uintptr_t)(word - W_RECORD);
		out->off = r->off;
		out->xform = r->xform;
		out->stride = r->strided ? r->stride : NULL;
		return CK_RESOLVED_PLACED;
	case W_BAD:
		out->err = (int)(word >> 2);
		return CK_RESOLVED_BAD;
	default:
		return CK_RESOLVED_UNKNOWN;
	}
}

void ck_resolved_by(struct ck_resolved *resolved, ck_resolve_fn fn, void *ctx)
{
	resolved->resolve = fn;
	resolved->ctx = ctx;
}

enum ck_resolved_state ck_resolved_find(const struct ck_resolved *resolved,
					uint32_t chunk, struct ck_place *out,
					struct ck_err *why)
{
	enum ck_resolved_state state;
	unsigned tries = 0;
	int ret;

	for (;;) {
		state = ck_resolved_get(resolved, chunk, out);
		if (state != CK_RESOLVED_UNKNOWN)
			break;
		if (!resolved->resolve || tries++ == MAX_TRIES) {
			ck_fail(why, EIO,
				"chunk %u: where its bytes are is not known",
				chunk);
			break;
		}
		ret = resolved->resolve(resolved->ctx, chunk, why);
		if (ret && why)
			why->code = -ret;
		if (ret)
			break;
	}
	return state;
}

/* False: somebody else was first. */
static bool settle(struct ck_resolved *resolved, uint32_t chunk, uint64_t word)
{
	uint64_t unknown = 0;

	return atomic_compare_exchange_strong_explicit(
		&resolved->words[chunk], &unknown, word, memory_order_release,
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

int ck_resolved_put(struct ck_resolved *resolved, uint32_t chunk,
		    const struct ck_place *place, unsigned rank)
{
	ck_auto_free struct record *mine = NULL;
	struct record *r;

	if (!place->stride && !place->xform && place->off <= UINT64_MAX >> 2) {
		settle(resolved, chunk, place->off << 2 | W_OFF);
		return 0;
	}
	mine = record_new(place, rank);
	if (!mine)
		return -ENOMEM;
	if (!settle(resolved, chunk, (uint64_t)(uintptr_t)mine | W_RECORD))
		return 0;
	r = ck_steal(mine);
	r->next = atomic_load(&resolved->records);
	while (!atomic_compare_exchange_weak(&resolved->records, &r->next, r))
		;
	return 0;
}

int ck_resolved_put_bad(struct ck_resolved *resolved, uint32_t chunk, int err)
{
	settle(resolved, chunk, (uint64_t)(unsigned)err << 2 | W_BAD);
	return 0;
}

void ck_resolved_forget(struct ck_resolved *resolved, uint32_t chunk)
{
	/* most are unknown, and their pages not there */
	if (atomic_load(&resolved->words[chunk]))
		atomic_store(&resolved->words[chunk], 0);
}
