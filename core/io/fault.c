/* SPDX-License-Identifier: Apache-2.0 */
#include "core/io/fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

_Atomic long ck_fault_left;
static _Atomic long times_left;
static _Atomic int fail_code;

void ck_fault_set(long nth, long times, int code)
{
	times_left = times;
	fail_code = code;
	ck_fault_left = nth;
}

int ck_fault_from_env(struct ck_err *err)
{
	const char *text = getenv("UNSHARD_FAULT");
	long nth = 0, times = 1;
	int code = EIO, n;

	if (!text)
		return 0;
	n = sscanf(text, "read:%ld:%ld:%d", &nth, &times, &code);
	if (n < 1 || nth < 1 || times < 1 || code < 0)
		return ck_fail(err, EINVAL,
			       "UNSHARD_FAULT=%s: expected "
			       "read:NTH[:TIMES[:ERRNO]]",
			       text);
	ck_fault_set(nth, times, code);
	return 0;
}

/* The count stays at 1 while further completions are to fail. */
int ck_fault_take(int res)
{
	long left = atomic_load(&ck_fault_left);

	do {
		if (!left)
			return res;
	} while (left > 1 && !atomic_compare_exchange_weak(&ck_fault_left,
							   &left, left - 1));
	if (left > 1)
		return res;
	if (atomic_fetch_sub(&times_left, 1) <= 1)
		ck_fault_left = 0;
	if (fail_code)
		return -fail_code;
	return res > 0 ? res / 2 : res;
}
