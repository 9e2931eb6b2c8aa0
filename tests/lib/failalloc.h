/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failalloc.h - the n-th allocation fails
 *
 * Covers malloc and its kin as called by our own objects (the Makefile wraps
 * them when it links the unit tests), jansson's through json.c's; not what libc
 * and other libraries call inside.  Those of any thread count.
 */
#ifndef TEST_FAILALLOC_H
#define TEST_FAILALLOC_H

#include <stdbool.h>

/* The @nth from now fails, 1 being the next one; 0: none does. */
void failalloc_arm(unsigned long nth);
/* Whether it did; disarms. */
bool failalloc_happened(void);

/* Of this thread none fails meanwhile, nor counts. */
extern _Thread_local bool failalloc_apart;

#endif
