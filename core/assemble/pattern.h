/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h - names of files that have numbers in them
 *
 *	mp_rank_#_#    *-dist-#-shard-#.bin
 *
 * '#' is a decimal number, '*' any characters, or none, of which the first one
 * takes as many as it can; all else stands for itself.  Pure; any thread.
 */
#ifndef CK_PATTERN_H
#define CK_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_PATTERN_NUMBERS 4

struct ck_pattern {
	const char *text;
	int kind; /* whatever the table's owner tells by it */
};

struct ck_pattern_found {
	int kind;
	unsigned nr;
	uint64_t n[CK_PATTERN_NUMBERS];
	/* where they stand: digits [from, to) */
	size_t from[CK_PATTERN_NUMBERS], to[CK_PATTERN_NUMBERS];
};

/* The first of @nr patterns that @name is; numbers have up to 18 digits. */
bool ck_pattern_find(const struct ck_pattern *p, size_t nr, const char *name,
		     struct ck_pattern_found *out);

#endif
