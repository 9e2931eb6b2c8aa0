/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - failing an operation on a source on purpose, for tests
 *
 * At the boundary where a completion is looked at, because tools that fail
 * system calls do not see io_uring.  Off, it costs one load a completion.
 *
 * Threads: any; the counts are one for the process.
 */
#ifndef CK_FAULT_H
#define CK_FAULT_H

#include "core/base/err.h"

#include <stdatomic.h>

enum ck_fault_kind { CK_FAULT_READ, CK_FAULT_WRITE, CK_FAULT_SYNC, CK_FAULTS };

/*
 * By kind: the @left-th completion from now (1: the next; 0: none) and the
 * @times - 1 after it fail with @code; @code 0: they give half of what they
 * should.  Set by the environment, or by a test, @left last.
 */
extern struct ck_fault_now {
	_Atomic long left, times;
	_Atomic int code;
} ck_faults[CK_FAULTS];

/*
 * UNSHARD_FAULT="KIND:NTH[:TIMES[:ERRNO]]", numbers; KIND is read, write or
 * sync; no such variable: 0.
 */
int ck_fault_from_env(struct ck_err *err);
int ck_fault_take(enum ck_fault_kind kind, int res);

/* What to make of the completion @res: bytes, or -errno. */
static inline int ck_fault_of(enum ck_fault_kind kind, int res)
{
	if (!atomic_load_explicit(&ck_faults[kind].left, memory_order_relaxed))
		return res;
	return ck_fault_take(kind, res);
}

static inline int ck_fault(int res)
{
	return ck_fault_of(CK_FAULT_READ, res);
}

#endif
