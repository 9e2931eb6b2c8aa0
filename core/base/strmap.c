/* SPDX-License-Identifier: Apache-2.0 */
/* strmap.c - an open table of numbers over an array of strings */
#include "core/base/strmap.h"

#include "core/base/arena.h"
#include "core/base/vec.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The slot of the string, or the free one where it would go. */
static uint32_t *find_slot(const struct ck_strmap *m, const char *s, size_t len,
			   uint64_t hash)
{
	size_t at = hash & (m->nr_slots - 1);

	for (;; at = (at + 1) & (m->nr_slots - 1)) {
		const struct ck_strmap_key *k;

		if (!m->slots[at])
			return &m->slots[at];
		k = &m->v[m->slots[at] - 1];
		if (k->hash == hash && k->len == len && !memcmp(k->s, s, len))
			return &m->slots[at];
	}
}

static bool grow_slots(struct ck_strmap *m)
{
	size_t want = m->nr_slots ? 2 * m->nr_slots : 64;
	uint32_t *old = m->slots;
	uint32_t *fresh = calloc(want, sizeof(*fresh));

	if (!fresh)
		return false;
	m->slots = fresh;
	m->nr_slots = want;
	for (size_t i = 0; i < m->nr; i++)
		*find_slot(m, m->v[i].s, m->v[i].len, m->v[i].hash) =
			(uint32_t)i + 1;
	free(old);
	return true;
}

/* @mem NULL: what is new is borrowed. */
static uint32_t put(struct ck_strmap *m, struct ck_arena *mem, const char *s,
		    size_t len)
{
	uint64_t hash = XXH3_64bits(s, len);
	struct ck_strmap_key *k;
	uint32_t *slot;

	if (m->nr + 1 >= UINT32_MAX ||
	    (m->nr * 2 >= m->nr_slots && !grow_slots(m)))
		return CK_STRMAP_NONE;
	slot = find_slot(m, s, len, hash);
	if (*slot)
		return *slot - 1;
	if (mem)
		s = ck_arena_copy(mem, s, len);
	k = s || !mem ? ck_vec_push(m) : NULL;
	if (!k)
		return CK_STRMAP_NONE;
	*k = (struct ck_strmap_key){ .s = s, .len = len, .hash = hash };
	*slot = (uint32_t)m->nr;
	return *slot - 1;
}

uint32_t ck_strmap_put(struct ck_strmap *m, const char *s, size_t len)
{
	return put(m, NULL, s, len);
}

uint32_t ck_strmap_keep(struct ck_strmap *m, struct ck_arena *mem,
			const char *s, size_t len)
{
	return put(m, mem, s, len);
}

uint32_t ck_strmap_get(const struct ck_strmap *m, const char *s, size_t len)
{
	uint32_t *slot;

	if (!m->nr_slots)
		return CK_STRMAP_NONE;
	slot = find_slot(m, s, len, XXH3_64bits(s, len));
	return *slot ? *slot - 1 : CK_STRMAP_NONE;
}

void ck_strmap_free(struct ck_strmap *m)
{
	free(m->v);
	free(m->slots);
	*m = (struct ck_strmap){ 0 };
}
