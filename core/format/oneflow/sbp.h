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

#include "core/root/dir.h"
#include "core/mesh/sbp.h"

struct ck_of_sbp {
	struct ck_sbp by;
	char *path; /* FILE: with {rank} or without; NULL: found by looking */
};

/*
 * What the option, or unshard-layout.json in the folder, says; *given is
 * false where there is neither.  -EINVAL with a line.
 */
int ck_of_sbp_get(struct ck_of_sbp *out, const struct ck_dir *dir, bool *given,
		  struct ck_err *err);
/* Whether the folder's unshard-layout.json has rules of OneFlow. */
int ck_of_sbp_in_layout(const struct ck_dir *dir, bool *found,
			struct ck_err *err);
/* Of JSON text. */
int ck_of_sbp_parse(struct ck_of_sbp *out, const char *text, size_t len,
		    struct ck_err *err);
void ck_of_sbp_free(struct ck_of_sbp *s);

/* @path with the rank in it, for free(); NULL: no memory. */
char *ck_of_sbp_path(const struct ck_of_sbp *s, uint32_t rank);
/* Makes the one rule that a word means apply to these ranks, in order. */
int ck_of_sbp_spread(struct ck_of_sbp *s, const uint32_t *ranks, uint32_t nr,
		     struct ck_err *err);

#endif
