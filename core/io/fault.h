/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - failing a read of a source on purpose, for tests
 *
 * At the boundary where a completion is looked at, because tools that fail
 * system calls do not see io_uring.  Off, it costs one load a completion.
 *
 * Threads: any; the count is one for the process.
 */
#ifndef CK_FAULT_H
#define CK_FAULT_H

#include "core/base/err.h"

#include <stdatomic.h>

/* Reads until the one that fails; 0: none will. */
extern _Atomic long ck_fault_left;

/*
 * The @nth completion from now (1: the next) and the @times - 1 after it fail
 * with @code; @code 0: they give half of what they should.
 */
void ck_fault_set(long nth, long times, int code);
/* UNSHARD_FAULT="read:NTH[:TIMES[:ERRNO]]", numbers; no such variable: 0. */
int ck_fault_from_env(struct ck_err *err);
int ck_fault_take(int res);

/* What to make of the completion @res: bytes read, or -errno. */
static inline int ck_fault(int res)
{
	if (!atomic_load_explicit(&ck_fault_left, memory_order_relaxed))
		return res;
	return ck_fault_take(res);
}

#endif
