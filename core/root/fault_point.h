/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_point.h - the steps of a publish, at each of which a test may end it
 *
 * UNSHARD_PUBLISH_FAULT="NTH" kills the process with SIGKILL before the NTH
 * step, "NTH:ERRNO" fails that step.  Off, a step costs one load.
 *
 * Threads: any; the count is one for the process.
 */
#ifndef CK_FAULT_POINT_H
#define CK_FAULT_POINT_H

#include "core/base/err.h"

#include <stdatomic.h>

/* Before each change of the disk.  0, or -errno with @what in the line. */
int ck_fault_point(const char *what, struct ck_err *err);
/*
 * The @wanted-th step counted by @passed ends the process, or with @code fails;
 * 0: none.  Set by the environment at the first step, or by a test.
 */
extern struct ck_fault_steps {
	atomic_long passed, wanted;
	atomic_int code;
} ck_fault_steps;

#endif
