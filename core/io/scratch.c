/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.c - the working memory of a thread */
#include "core/io/read_priv.h"

#include <pthread.h>
#include <stdlib.h>

static _Thread_local struct ck_scratch *mine;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void free_mine(void *value)
{
	free(value);
	mine = NULL;
}

static void make_key(void)
{
	if (pthread_key_create(&key, free_mine))
		abort();
}

struct ck_scratch *ck_scratch_mine(void)
{
	if (mine)
		return mine;
	pthread_once(&once, make_key);
	/* Big, and touched only as far as requests need it. */
	mine = malloc(sizeof(*mine));
	if (!mine)
		return NULL;
	mine->nr_seg = mine->nr_bytes = 0;
	ck_plan_reset(&mine->plan);
	pthread_setspecific(key, mine);
	return mine;
}
