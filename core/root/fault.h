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

/* Operations of a kind until the one that fails; 0: none will. */
extern _Atomic long ck_fault_left[CK_FAULTS];

/*
 * The @nth completion of @kind from now (1: the next) and the @times - 1
 * after it fail with @code; @code 0: they give half of what they should.
 */
void ck_fault_set_kind(enum ck_fault_kind kind, long nth, long times, int code);
/* The same, of reads. */
void ck_fault_set(long nth, long times, int code);
/*
 * UNSHARD_FAULT="KIND:NTH[:TIMES[:ERRNO]]", numbers; KIND is read, write or
 * sync; no such variable: 0.
 */
int ck_fault_from_env(struct ck_err *err);
int ck_fault_take(enum ck_fault_kind kind, int res);

/* What to make of the completion @res: bytes, or -errno. */
static inline int ck_fault_of(enum ck_fault_kind kind, int res)
{
	if (!atomic_load_explicit(&ck_fault_left[kind], memory_order_relaxed))
		return res;
	return ck_fault_take(kind, res);
}

static inline int ck_fault(int res)
{
	return ck_fault_of(CK_FAULT_READ, res);
}

#endif
