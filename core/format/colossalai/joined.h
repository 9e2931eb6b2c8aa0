/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joined.h - optimizer states that ColossalAI may have joined wrongly
 *
 * It gathers the states of a layer that is query, key and value in one as if
 * each rank had a slab of it, where each has a share of all three.  Neither
 * the number of ranks nor the parameters' names are in the files, so that all
 * there is to go by are shapes: [n, 3n] or [3n, n], alone among its neighbours
 * (those of a gated layer are not), and the vector [3n] of the parameter after
 * it.
 */
#ifndef CK_COLOSSALAI_JOINED_H
#define CK_COLOSSALAI_JOINED_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"

#include <stdint.h>

struct ck_ca_state {
	char *name;
	uint64_t id, length; /* of its longer side */
	bool matrix;
};

struct ck_ca_joined {
	CK_VEC(struct ck_ca_state) seen;
};

/* Looks at a state, 7.exp_avg, of that shape.  -ENOMEM. */
int ck_ca_joined_see(struct ck_ca_joined *j, const char *name, size_t len,
		     const uint64_t *shape, unsigned rank, struct ck_err *err);
/* Notes each that may be one. */
int ck_ca_joined_say(struct ck_ca_joined *j, struct ck_builder *b,
		     struct ck_err *err);
void ck_ca_joined_free(struct ck_ca_joined *j);

#endif
