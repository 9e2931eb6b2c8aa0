/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - which number has this key: open addressing over indices
 *
 * The keys lie with the caller, who compares them.  A slot keeps 32 bits of
 * the hash, so growing needs no key.  At most 2^32 - 2 entries.
 */
#ifndef CK_TABLE_H
#define CK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_table {
	uint64_t *slot; /* hash << 32 | index + 1; 0: empty */
	size_t room, nr;
};

typedef bool (*ck_table_eq)(const void *ctx, uint32_t index, const void *key);

/* The index put under an equal key, or CK_NONE. */
uint32_t ck_table_find(const struct ck_table *t, uint64_t hash, ck_table_eq eq,
		       const void *ctx, const void *key);
/* The key is known not to be there; false: no memory. */
bool ck_table_put(struct ck_table *t, uint64_t hash, uint32_t index);
/* Empties it, keeps its memory where that is not far too large. */
void ck_table_clear(struct ck_table *t);
void ck_table_free(struct ck_table *t);

#endif
