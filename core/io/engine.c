/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - which engine there is, and the calling thread's own */
#include "core/io/engine_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct ck_engine_ops *const engines[] = { &ck_engine_plain,
						       &ck_engine_uring };

static bool works(const struct ck_engine_ops *ops, struct ck_err *err)
{
	struct ck_engine *e = ops->open(err);

	if (e)
		ops->close(e);
	return e;
}

/* auto: uring was never behind plain where it was measured, and ahead of it
 * where read-ahead cannot help (docs/performance.md, "Engine"). */
const struct ck_engine_ops *ck_engine_choose(const char *name,
					     struct ck_err *err)
{
	const struct ck_engine_ops *ops = NULL;

	if (!strcmp(name, "auto"))
		return works(&ck_engine_uring, NULL) ? &ck_engine_uring :
						       &ck_engine_plain;
	for (size_t i = 0; i < CK_ARRAY_LEN(engines); i++)
		if (!strcmp(name, engines[i]->name))
			ops = engines[i];
	if (!ops) {
		ck_fail(err, EINVAL,
			"engine \"%s\": expected auto, plain or uring", name);
		return NULL;
	}
	return works(ops, err) ? ops : NULL;
}

/* Engines of this thread, closed when it ends. */
struct mine {
	struct ck_engine *e;
	const struct ck_engine_ops *ops;
	pid_t pid; /* after a fork() the ring is the parent's */
};

static _Thread_local struct mine mine;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool no_key; /* nothing would close it */

static void close_mine(void *value)
{
	struct mine *m = value;

	if (m->e)
		m->e->ops->close(m->e);
	m->e = NULL;
}

static void make_key(void)
{
	no_key = pthread_key_create(&key, close_mine) != 0;
}

struct ck_engine *ck_engine_mine(const struct ck_engine_ops *ops)
{
	pid_t pid = getpid();

	if (mine.e && mine.ops == ops && mine.pid == pid)
		return mine.e;
	pthread_once(&once, make_key);
	if (no_key)
		return ck_engine_plain.open(NULL); /* holds nothing */
	close_mine(&mine);
	mine.ops = ops;
	mine.pid = pid;
	mine.e = ops->open(NULL);
	/* E.g. one descriptor too many: slower, but it works. */
	if (!mine.e)
		mine.e = ck_engine_plain.open(NULL);
	pthread_setspecific(key, &mine);
	return mine.e;
}
