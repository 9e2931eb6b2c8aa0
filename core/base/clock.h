/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - the time since some moment, which no setting of the clock moves
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

#endif
