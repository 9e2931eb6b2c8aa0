/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failing_alloc.h - lets the n-th reallocarray() of the program fail
 *
 * Only that function, which growing arrays use, so that the C library, the
 * test framework and the sanitizers keep their memory.  One thread.
 */
#ifndef FAILING_ALLOC_H
#define FAILING_ALLOC_H

#include <stdbool.h>

/* From now on: the @nth call (1: the next) gets NULL; 0: none does. */
void failing_alloc_at(unsigned long nth);
/* Whether that call has come; counts again from failing_alloc_at(). */
bool failing_alloc_failed(void);

#endif
