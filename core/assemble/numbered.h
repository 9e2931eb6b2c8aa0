/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbered.h - files of a set whose names are numbers
 *
 *   STEM-00001-of-00002.SUFFIX                          with a total
 *   pytorch_model[.PREFIX]-00001.bin                    ColossalAI: without
 *   model[.PREFIX]-stage-00001-shard-00001.safetensors
 *   part0.safetensors                                   MindSpore: without
 *
 * Without an index nothing says what a file held that is not there.  With a
 * total it can be seen that none is missing; without one it cannot.
 */
#ifndef CK_NUMBERED_H
#define CK_NUMBERED_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define CK_NUMBERED_PARTS "param_name_map.json" /* the index of MindSpore's */

struct ck_numbered {
	size_t stem; /* bytes of the name before its numbers */
	const char *suffix; /* in the name */
	unsigned k, of; /* of 0: the name has no total */
	unsigned stage; /* 0 where there are none */
	bool part; /* MindSpore's */
};

/* Whether @name, which may have folders before it, has such numbers. */
bool ck_numbered_is(const char *name, struct ck_numbered *out);
/*
 * Whether both are of one set; and whether @b is the number after @a, or any
 * other where names are not sorted by their numbers: the set is counted once.
 */
bool ck_numbered_same(const char *a, const char *b);
bool ck_numbered_next(const char *a, const char *b);
/*
 * Whether files are missing of the set that @name[@i] is of, @nr names being
 * there: -EINVAL with a line that counts them and says that there is no
 * *@index.  0 for a name of no set.
 */
int ck_numbered_check(const char *const *name, size_t nr, size_t i,
		      const char *index, struct ck_err *err);

#endif
