/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/helpers.h"

#include <criterion/criterion.h>
#include <stdatomic.h>

struct heap {
	struct ck_helpers h;
	_Atomic unsigned left;
	unsigned done;
};

static bool has_work(void *ctx)
{
	struct heap *heap = ctx;

	return heap->left;
}

static bool work(void *ctx)
{
	struct heap *heap = ctx;

	if (!heap->left)
		return false;
	heap->left--;
	pthread_mutex_unlock(&heap->h.lock);
	pthread_mutex_lock(&heap->h.lock);
	heap->done++;
	return true;
}

static const struct ck_helpers_in in = { .work = work, .has_work = has_work };

/* Whether they look or sleep, all is done when they have stopped. */
Test(helpers, do_all_there_is_before_they_end, .timeout = 20)
{
	for (unsigned look = 0; look < 2; look++) {
		struct heap heap = { 0 };

		ck_helpers_init(&heap.h, &in, &heap, look);
		cr_assert_gt(ck_helpers_start(&heap.h, 9), 0);
		cr_expect_leq(heap.h.nr, CK_HELPERS_MAX);
		for (unsigned i = 0; i < 1000; i++) {
			pthread_mutex_lock(&heap.h.lock);
			heap.left += 3;
			pthread_cond_signal(&heap.h.wake);
			pthread_mutex_unlock(&heap.h.lock);
		}
		ck_helpers_stop(&heap.h);
		cr_expect_eq(heap.done, 3000);
		ck_helpers_free(&heap.h);
	}
}
