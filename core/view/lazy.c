/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lazy.c - one make under a lock, then lock-free looks
 */
#include "core/view/lazy.h"

void ck_lazy_init(struct ck_lazy *l,
		  int (*make)(struct ck_compose *, void *, struct ck_err *),
		  void *ctx)
{
	*l = (struct ck_lazy){ .file = CK_COMPOSE_INIT,
			       .make = make,
			       .ctx = ctx };
	pthread_mutex_init(&l->lock, NULL);
}

void ck_lazy_free(struct ck_lazy *l)
{
	ck_compose_free(&l->file);
	pthread_mutex_destroy(&l->lock);
}

const struct ck_compose *ck_lazy_get(struct ck_lazy *l, struct ck_err *err)
{
	int state = atomic_load_explicit(&l->state, memory_order_acquire);

	if (!state) {
		pthread_mutex_lock(&l->lock);
		state = atomic_load(&l->state);
		if (!state) {
			state = l->make(&l->file, l->ctx, err) ?: 1;
			atomic_store_explicit(&l->state, state,
					      memory_order_release);
		}
		pthread_mutex_unlock(&l->lock);
	}
	return state > 0 ? &l->file : NULL;
}
