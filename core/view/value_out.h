/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_out.h - a value of a parsed pickle, walked and written as opcodes
 *
 * What may be written, and how, is the caller's; the way through containers
 * in containers is here.  Iterative, and counted, because the pickle is
 * untrusted: a small one may describe a value that is endless to walk.
 *
 * One thread.
 */
#ifndef CK_VALUE_OUT_H
#define CK_VALUE_OUT_H

#include "core/base/str.h"
#include "core/parse/pickle.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_VALUE_OUT_DEPTH 32

struct ck_value_out {
	/* by the caller: */
	const struct ck_pickle *p;
	struct ck_str *s; /* is appended to */
	/* Puts one value; of a container ck_value_out_enter() alone. */
	void (*put)(struct ck_value_out *o, ck_pv v);
	uint64_t steps, max_steps; /* taken, and allowed */
	size_t max_len; /* bytes of the whole */
	const char *why; /* it is not written to its end; NULL: it is */

	unsigned depth;
	struct ck_value_out_frame {
		struct ck_piter it;
		bool pairs;
		ck_pv value; /* of the key that was put last; 0: none */
		const char *end;
	} frame[CK_VALUE_OUT_DEPTH];
};

/* Puts @root with all that is in it, or gives the reason in o->why. */
void ck_value_out_run(struct ck_value_out *o, ck_pv root);
/*
 * Puts @begin, and after @put has put each member of @v (its @pairs: keys and
 * values in turns), @end.  Entered twice: the later one comes first.
 */
void ck_value_out_enter(struct ck_value_out *o, ck_pv v, bool pairs,
			const char *begin, const char *end);
/* Puts None, a truth, an integer or a float; false: @v is none of them. */
bool ck_value_out_scalar(struct ck_value_out *o, ck_pv v);

#endif
