/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbp.h - OneFlow's placements: ranks in a grid, of which each axis has an SBP
 *
 *	split(0)
 *	{"world_size": 4, "rules": [{"key": "*.bias",
 *	                             "placement": {"ranks": [[0, 1], [2, 3]]},
 *	                             "sbp": ["split(0)", "broadcast"]}]}
 *
 * Axis 0 cuts first, the next one what is left, each in balanced sizes.  The
 * first rule whose key fits decides; * fits any run of characters.
 */
#ifndef CK_SBP_H
#define CK_SBP_H

#include "core/base/arena.h"
#include "core/mesh/mesh.h"
#include "core/parse/json.h"

#include <stddef.h>

#define CK_SBP_AXES 8
#define CK_SBP_RANKS 65536

/* Else a number not below 0: split along that dimension. */
#define CK_SBP_BROADCAST (-1)
#define CK_SBP_PARTIAL (-2)

struct ck_sbp_rule {
	const char *key;
	size_t key_len;
	struct ck_mesh_place *place; /* @nr, by rank, as OneFlow has them */
	uint32_t nr;
	unsigned axes;
	uint32_t size[CK_SBP_AXES]; /* not 0; the product is @nr */
	int32_t sbp[CK_SBP_AXES];
};

struct ck_sbp {
	struct ck_arena mem; /* has the rules */
	uint32_t world; /* how many ranks */
	bool any_rank; /* whatever @world is, rules may name any */
	struct ck_sbp_rule *rules;
	size_t nr;
};

/*
 * Of "split(1)", "S(1)", "broadcast", "B", "partial_sum", "P", as themselves or
 * as in a program: "flow.sbp.split(dim=1)", "[broadcast()]"; else false.
 */
bool ck_sbp_word(const char *text, size_t len, int32_t *out);

/*
 * The members of a file of rules, and how many ranks it is for: 0 where it may
 * leave that out, of a mesh to come, and does.  @saved: of what is stored.
 */
int ck_sbp_head(struct ck_sbp *out, const json_t *j, bool saved,
		struct ck_err *err);
/* Then its rules; without a number of ranks there are as many as they name. */
int ck_sbp_rules(struct ck_sbp *s, const json_t *j, struct ck_err *err);
void ck_sbp_free(struct ck_sbp *s);

/* NULL: no rule fits. */
const struct ck_sbp_rule *ck_sbp_rule(const struct ck_sbp *s, const char *name,
				      size_t len);
/* @out is zeroed, and borrows from @r. */
void ck_sbp_placement(const struct ck_sbp_rule *r, struct ck_placement *out);

#endif
