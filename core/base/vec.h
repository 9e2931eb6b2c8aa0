/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec.h - a growing array
 *
 *	CK_VEC(struct ck_chunk) chunks = { 0 };
 *	struct ck_chunk *c = ck_vec_push(&chunks);   (NULL: no memory)
 *	ret = ck_vec_put(&chunks, err, chunk);       (0 or -ENOMEM)
 *	free(chunks.v);
 */
#ifndef CK_VEC_H
#define CK_VEC_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#define CK_VEC(type)         \
	struct {             \
		type *v;     \
		size_t nr;   \
		size_t room; \
	}

/* Makes room for @more elements of @size bytes each; false: no memory. */
static inline bool ck_vec_reserve_(void **v, size_t nr, size_t *room,
				   size_t more, size_t size)
{
	size_t want = *room ? *room : 8;
	void *grown;

	if (nr + more <= *room)
		return true;
	while (want < nr + more)
		want += want / 2;
	grown = reallocarray(*v, want, size);
	if (!grown)
		return false;
	*v = grown;
	*room = want;
	return true;
}

#define ck_vec_reserve(vec, more)                                            \
	ck_vec_reserve_((void **)&(vec)->v, (vec)->nr, &(vec)->room, (more), \
			sizeof(*(vec)->v))
#define ck_vec_push(vec) \
	(ck_vec_reserve((vec), 1) ? &(vec)->v[(vec)->nr++] : NULL)
#define ck_vec_put(vec, err, ...)                             \
	(ck_vec_reserve((vec), 1) ?                           \
		 ((vec)->v[(vec)->nr++] = (__VA_ARGS__), 0) : \
		 ck_no_memory(err))

#endif
