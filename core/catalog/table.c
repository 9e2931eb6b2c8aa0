/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - open addressing with linear steps, at most half full */
#include "core/catalog/table.h"

#include "core/geom/catalog.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 64
#define KEEP_ROOM 4096

uint32_t ck_table_find(const struct ck_table *t, uint64_t hash, ck_table_eq eq,
		       const void *ctx, const void *key)
{
	uint32_t tag = (uint32_t)(hash >> 32);

	if (!t->room)
		return CK_NONE;
	for (size_t i = tag & (t->room - 1); t->slot[i];
	     i = (i + 1) & (t->room - 1)) {
		uint32_t index = (uint32_t)t->slot[i] - 1;

		if (t->slot[i] >> 32 == tag && eq(ctx, index, key))
			return index;
	}
	return CK_NONE;
}

static void place(struct ck_table *t, uint64_t value)
{
	size_t i = (size_t)(value >> 32) & (t->room - 1);

	while (t->slot[i])
		i = (i + 1) & (t->room - 1);
	t->slot[i] = value;
}

static bool grow(struct ck_table *t)
{
	struct ck_table old = *t;

	t->room = old.room ? old.room * 2 : FIRST_ROOM;
	t->slot = reallocarray(NULL, t->room, sizeof(*t->slot));
	if (!t->slot) {
		*t = old;
		return false;
	}
	memset(t->slot, 0, t->room * sizeof(*t->slot));
	for (size_t i = 0; i < old.room; i++)
		if (old.slot[i])
			place(t, old.slot[i]);
	free(old.slot);
	return true;
}

bool ck_table_put(struct ck_table *t, uint64_t hash, uint32_t index)
{
	if (2 * (t->nr + 1) > t->room && !grow(t))
		return false;
	place(t, hash >> 32 << 32 | (index + 1));
	t->nr++;
	return true;
}

void ck_table_clear(struct ck_table *t)
{
	if (t->room > KEEP_ROOM)
		ck_table_free(t);
	else if (t->nr)
		memset(t->slot, 0, t->room * sizeof(*t->slot));
	t->nr = 0;
}

void ck_table_free(struct ck_table *t)
{
	free(t->slot);
	*t = (struct ck_table){ 0 };
}
