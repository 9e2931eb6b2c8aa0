/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strmap.h - numbers strings in the order of their first sight
 *
 * Borrows the bytes for its life, but for those that are kept.  One thread.
 */
#ifndef CK_STRMAP_H
#define CK_STRMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_strmap_key {
	const char *s;
	size_t len;
	uint64_t hash;
	uint64_t user; /* the owner's; 0 at first */
};

struct ck_strmap {
	struct ck_strmap_key *v;
	size_t nr, room;
	uint32_t *slots; /* number + 1; 0: free */
	size_t nr_slots; /* a power of two */
};

#define CK_STRMAP_NONE UINT32_MAX

struct ck_arena;

/* The number of the string, which is new if it is the @nr from before. */
uint32_t ck_strmap_put(struct ck_strmap *m, const char *s, size_t len);
/* The same; what is new is copied to @mem. */
uint32_t ck_strmap_keep(struct ck_strmap *m, struct ck_arena *mem,
			const char *s, size_t len);
/* CK_STRMAP_NONE: not in it, or, of put, no memory. */
uint32_t ck_strmap_get(const struct ck_strmap *m, const char *s, size_t len);
static inline bool ck_strmap_has(const struct ck_strmap *m, const char *s,
				 size_t len)
{
	return ck_strmap_get(m, s, len) != CK_STRMAP_NONE;
}
void ck_strmap_free(struct ck_strmap *m);
#define ck_auto_strmap __attribute__((cleanup(ck_strmap_free)))

#endif
