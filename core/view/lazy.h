/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lazy.h - a composed file that is made when somebody first looks at it
 *
 * Who only reads tensors/ pays nothing for the other views.
 */
#ifndef CK_LAZY_H
#define CK_LAZY_H

#include "core/view/compose.h"

#include <pthread.h>
#include <stdatomic.h>

struct ck_lazy {
	struct ck_compose file;
	/* Fills @file; called once, under the lock. */
	int (*make)(struct ck_compose *file, void *ctx, struct ck_err *err);
	void *ctx;
	pthread_mutex_t lock;
	_Atomic int state; /* 0: not made, 1: made, < 0: -errno, for good */
};

void ck_lazy_init(struct ck_lazy *l,
		  int (*make)(struct ck_compose *, void *, struct ck_err *),
		  void *ctx);
void ck_lazy_free(struct ck_lazy *l);
/* The file, or NULL where it cannot be made (@err set the first time). */
const struct ck_compose *ck_lazy_get(struct ck_lazy *l, struct ck_err *err);

#endif
