/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - memory that is taken bit by bit and given back at once
 *
 *	struct ck_arena mem = { 0 };
 *	char *name = ck_arena_copy(&mem, s, len);   (NULL: no memory)
 *	ck_arena_free(&mem);
 *
 * What fails is remembered in @failed, so that several may be taken before it
 * is asked once.  One thread.
 */
#ifndef CK_ARENA_H
#define CK_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct ck_arena_block;

struct ck_arena {
	struct ck_arena_block *last;
	bool failed;
};

/* @size bytes of zeros, for any type. */
void *ck_arena_alloc(struct ck_arena *a, size_t size);
/* A copy of @len bytes; one NUL follows. */
void *ck_arena_copy(struct ck_arena *a, const void *bytes, size_t len);
char *ck_arena_fmt(struct ck_arena *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* All of it is gone; more may be taken. */
void ck_arena_free(struct ck_arena *a);
#define ck_auto_arena __attribute__((cleanup(ck_arena_free)))

#endif
