/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - the time since some moment, which no setting of the clock moves;
 * and moments to come
 */
#ifndef CK_CLOCK_H
#define CK_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t ck_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline int64_t ck_now_ms(void)
{
	return ck_now_ns() / 1000000;
}

static inline int64_t ck_now_s(void)
{
	return ck_now_ns() / 1000000000;
}

/* In @ns nanoseconds, by the clock that who waits for it goes by. */
static inline struct timespec ck_deadline(clockid_t clock, int64_t ns)
{
	struct timespec t;

	clock_gettime(clock, &t);
	ns += t.tv_nsec;
	t.tv_sec += ns / INT64_C(1000000000);
	t.tv_nsec = ns % INT64_C(1000000000);
	return t;
}

#endif
