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

/* Before each change of the disk.  0, or -errno with @what in the line. */
int ck_fault_point(const char *what, struct ck_err *err);
/* How many were passed, for who wants to try each of them. */
long ck_fault_point_passed(void);
/* @nth 0: none; @code 0: SIGKILL.  Starts the count anew. */
void ck_fault_point_set(long nth, int code);

#endif
