/* SPDX-License-Identifier: Apache-2.0 */
#include "core/root/fault_point.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ck_fault_steps ck_fault_steps;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_env(void)
{
	const char *text = getenv("UNSHARD_PUBLISH_FAULT");
	long nth = 0;
	int code = 0;

	if (!text || sscanf(text, "%ld:%d", &nth, &code) < 1)
		return;
	ck_fault_steps.code = code;
	ck_fault_steps.wanted = nth;
}

int ck_fault_point(const char *what, struct ck_err *err)
{
	struct ck_fault_steps *s = &ck_fault_steps;

	pthread_once(&once, read_env);
	if (atomic_fetch_add(&s->passed, 1) + 1 != s->wanted)
		return 0;
	if (!s->code)
		raise(SIGKILL);
	return ck_fail(err, s->code, "%s: %s", what, strerror(s->code));
}
