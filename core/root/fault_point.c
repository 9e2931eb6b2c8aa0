/* SPDX-License-Identifier: Apache-2.0 */
#include "core/root/fault_point.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long passed, wanted;
static atomic_int fail_code;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void ck_fault_point_set(long nth, int code)
{
	wanted = nth;
	fail_code = code;
	passed = 0;
}

static void read_env(void)
{
	const char *text = getenv("UNSHARD_PUBLISH_FAULT");
	long nth = 0;
	int code = 0;

	if (text && sscanf(text, "%ld:%d", &nth, &code) >= 1)
		ck_fault_point_set(nth, code);
}

long ck_fault_point_passed(void)
{
	return passed;
}

int ck_fault_point(const char *what, struct ck_err *err)
{
	long now;

	pthread_once(&once, read_env);
	now = atomic_fetch_add(&passed, 1) + 1;
	if (now != wanted)
		return 0;
	if (!fail_code)
		raise(SIGKILL);
	return ck_fail(err, fail_code, "%s: %s", what, strerror(fail_code));
}
