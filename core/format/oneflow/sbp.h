/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbp.h - what the user says of per-rank saves: -o sbp=
 *
 * OneFlow writes a rank's parts with no word of ranks, placement or SBP.
 *
 *	-o sbp='split(0)'       for every tensor, over all ranks there are
 *	-o sbp=FILE             {"world_size": 4, "path": "model_{rank}",
 *	                         "rules": [{"key": "*.bias",
 *	                                    "placement": {"ranks": [[0, 1], ...]},
 *	                                    "sbp": ["split(0)", "broadcast"]}]}
 *
 * The first rule whose key fits decides; * fits any run of characters.
 */
#ifndef CK_ONEFLOW_SBP_H
#define CK_ONEFLOW_SBP_H

#include "core/base/err.h"
#include "core/root/dir.h"
#include "core/format/oneflow/split.h"
#include "core/parse/json.h"

#include <stddef.h>
#include <stdint.h>

#define CK_OF_MAX_RANKS 65536

struct ck_of_rule {
	char *key;
	size_t key_len;
	struct ck_of_nd nd;
	uint32_t *ranks; /* of each parallel id: sorted, as OneFlow does */
	uint32_t nr;
};

struct ck_of_sbp {
	uint32_t world; /* how many ranks */
	char *path; /* FILE: with {rank} or without; NULL: found by looking */
	struct ck_of_rule *rules;
	size_t nr;
};

/*
 * What the option, or unshard-layout.json in the folder, says; *given is
 * false where there is neither.  -EINVAL with a line.
 */
int ck_of_sbp_get(struct ck_of_sbp *out, const struct ck_dir *dir, bool *given,
		  struct ck_err *err);
/*
 * Whether the folder's unshard-layout.json has rules of OneFlow, and so is none
 * of our own layouts.
 */
int ck_of_sbp_in_layout(const struct ck_dir *dir, bool *found,
			struct ck_err *err);
/* Of JSON text. */
int ck_of_sbp_parse(struct ck_of_sbp *out, const char *text, size_t len,
		    struct ck_err *err);
/*
 * The same where nothing is stored yet, a mesh to cut for: "path" means
 * nothing, and without "world_size" there are as many ranks as are named.
 */
int ck_of_sbp_parse_cut(struct ck_of_sbp *out, const json_t *j,
			struct ck_err *err);
/*
 * Of "split(1)", "S(1)", "broadcast", "B", "partial_sum", "P", as themselves or
 * as in a program: "flow.sbp.split(dim=1)", "[broadcast()]"; else false.
 */
bool ck_of_sbp_word(const char *text, size_t len, int32_t *out);
void ck_of_sbp_free(struct ck_of_sbp *s);

/* NULL: no rule fits. */
const struct ck_of_rule *ck_of_sbp_rule(const struct ck_of_sbp *s,
					const char *name, size_t len);
/* @path with the rank in it, for free(); NULL: no memory. */
char *ck_of_sbp_path(const struct ck_of_sbp *s, uint32_t rank);
/* Makes the one rule that a word means apply to these ranks, in order. */
int ck_of_sbp_spread(struct ck_of_sbp *s, const uint32_t *ranks, uint32_t nr,
		     struct ck_err *err);

#endif
