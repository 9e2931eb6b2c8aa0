/* SPDX-License-Identifier: Apache-2.0 */
#include "core/root/fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ck_fault_now ck_faults[CK_FAULTS];

static int kind_of(const char *text)
{
	static const char *const names[CK_FAULTS] = { "read:", "write:",
						      "sync:" };

	for (int i = 0; i < CK_FAULTS; i++)
		if (!strncmp(text, names[i], strlen(names[i])))
			return i;
	return -1;
}

int ck_fault_from_env(struct ck_err *err)
{
	const char *text = getenv("UNSHARD_FAULT");
	long nth = 0, times = 1;
	int code = EIO, n, kind;

	if (!text)
		return 0;
	kind = kind_of(text);
	n = sscanf(text, "%*[a-z]:%ld:%ld:%d", &nth, &times, &code);
	if (kind < 0 || n < 1 || nth < 1 || times < 1 || code < 0)
		return ck_fail(err, EINVAL,
			       "UNSHARD_FAULT=%s: expected "
			       "read|write|sync:NTH[:TIMES[:ERRNO]]",
			       text);
	ck_faults[kind].times = times;
	ck_faults[kind].code = code;
	ck_faults[kind].left = nth;
	return 0;
}

/* The count stays at 1 while further completions are to fail. */
int ck_fault_take(enum ck_fault_kind kind, int res)
{
	struct ck_fault_now *now = &ck_faults[kind];
	long left = atomic_load(&now->left);

	do {
		if (!left)
			return res;
	} while (left > 1 &&
		 !atomic_compare_exchange_weak(&now->left, &left, left - 1));
	if (left > 1)
		return res;
	if (atomic_fetch_sub(&now->times, 1) <= 1)
		now->left = 0;
	if (now->code)
		return -now->code;
	return res > 0 ? res / 2 : res;
}
