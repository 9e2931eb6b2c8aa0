/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - blocks in a list; what is large has one of its own */
#include "core/base/arena.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 1024
#define MOST ((size_t)65536)

struct ck_arena_block {
	struct ck_arena_block *before;
	size_t used, room;
	max_align_t bytes[];
};

static struct ck_arena_block *new_block(struct ck_arena *a, size_t need)
{
	size_t room = a->last ? CK_MIN(2 * a->last->room, MOST) : FIRST;
	struct ck_arena_block *b;

	room = CK_MAX(room, need);
	b = room > SIZE_MAX / 2 ? NULL : malloc(sizeof(*b) + room);
	if (!b)
		return NULL;
	b->before = a->last;
	b->used = 0;
	b->room = room;
	a->last = b;
	return b;
}

static void *take(struct ck_arena *a, size_t size)
{
	const size_t align = _Alignof(max_align_t);
	struct ck_arena_block *b = a->last;
	void *at;

	if (size > SIZE_MAX - align) {
		a->failed = true;
		return NULL;
	}
	size = (size + align - 1) / align * align;
	if (!b || size > b->room - b->used)
		b = new_block(a, size);
	if (!b) {
		a->failed = true;
		return NULL;
	}
	at = (char *)b->bytes + b->used;
	b->used += size;
	return at;
}

void *ck_arena_alloc(struct ck_arena *a, size_t size)
{
	void *at = take(a, size);

	return at ? memset(at, 0, size) : NULL;
}

void *ck_arena_copy(struct ck_arena *a, const void *bytes, size_t len)
{
	char *at = len < SIZE_MAX ? take(a, len + 1) : NULL;

	if (!at) {
		a->failed = true;
		return NULL;
	}
	if (len)
		memcpy(at, bytes, len);
	at[len] = '\0';
	return at;
}

char *ck_arena_fmt(struct ck_arena *a, const char *fmt, ...)
{
	ck_auto_free char *text = NULL;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (len < 0) {
		text = NULL;
		a->failed = true;
		return NULL;
	}
	return ck_arena_copy(a, text, (size_t)len);
}

void ck_arena_free(struct ck_arena *a)
{
	while (a->last) {
		struct ck_arena_block *b = a->last;

		a->last = b->before;
		free(b);
	}
	*a = (struct ck_arena){ 0 };
}
