/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch.c - the working memory of a thread: one for its reads, and others for
 * those that a read of what is made of another checkpoint takes: of a view of
 * CKPT/views/NAME
 */
#include "core/io/read_priv.h"

#include <pthread.h>
#include <stdlib.h>

#define DEPTH 3

static _Thread_local struct ck_scratch *mine[DEPTH];
static _Thread_local unsigned depth;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool no_key; /* nothing would free it */

static void free_mine(void *value)
{
	(void)value;
	for (unsigned i = 0; i < DEPTH; i++) {
		free(mine[i]);
		mine[i] = NULL;
	}
}

static void make_key(void)
{
	no_key = pthread_key_create(&key, free_mine) != 0;
}

struct ck_scratch *ck_scratch_mine(void)
{
	struct ck_scratch *s;

	if (depth >= DEPTH)
		return NULL;
	if (mine[depth])
		return mine[depth];
	pthread_once(&once, make_key);
	if (no_key)
		return NULL;
	/* Big, and touched only as far as requests need it. */
	s = malloc(sizeof(*s));
	if (!s)
		return NULL;
	s->nr_seg = s->nr_bytes = 0;
	ck_plan_reset(&s->plan);
	mine[depth] = s;
	pthread_setspecific(key, mine);
	return s;
}

void ck_scratch_deeper(bool in)
{
	depth += in ? 1 : -1u;
}
