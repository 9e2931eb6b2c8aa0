/* SPDX-License-Identifier: Apache-2.0 */
/* faults.h - failing what is under way in this process; see core/root/fault.h */
#ifndef FAULTS_H
#define FAULTS_H

#include "core/root/fault.h"
#include "core/root/fault_point.h"

static inline void fault_set_kind(enum ck_fault_kind kind, long nth, long times,
				  int code)
{
	ck_faults[kind].times = times;
	ck_faults[kind].code = code;
	ck_faults[kind].left = nth;
}

static inline void fault_set(long nth, long times, int code)
{
	fault_set_kind(CK_FAULT_READ, nth, times, code);
}

/* The steps of a publish, counted anew. */
static inline void fault_point_set(long nth, int code)
{
	ck_fault_steps.wanted = nth;
	ck_fault_steps.code = code;
	ck_fault_steps.passed = 0;
}

#endif
