/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fast.h - functions whose loops the compiler is to make vectors of
 *
 * At -O2, too.  Both sides of a choice are computed: that no trap depends on
 * which one it is may be taken for granted.
 */
#ifndef CK_FAST_H
#define CK_FAST_H

#if defined(__GNUC__) && !defined(__clang__)
#define CK_FAST __attribute__((optimize("O3", "no-trapping-math")))
#else
#define CK_FAST
#endif

#endif
