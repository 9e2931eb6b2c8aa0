/* SPDX-License-Identifier: Apache-2.0 */
/* failing_alloc.c - reallocarray() in front of the C library's */
#include "tests/lib/failing_alloc.h"

#include <errno.h>
#include <stdlib.h>

static _Thread_local unsigned long left;
static _Thread_local bool failed;

void failing_alloc_at(unsigned long nth)
{
	left = nth;
	failed = false;
}

bool failing_alloc_failed(void)
{
	return failed;
}

void *reallocarray(void *p, size_t nr, size_t size)
{
	size_t bytes;

	if (left && !--left) {
		failed = true;
		errno = ENOMEM;
		return NULL;
	}
	if (__builtin_mul_overflow(nr, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(p, bytes);
}
