/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - which ranks' files there are, by their names
 *
 * rank_3/, node0/, model_rank7.pt, rank-00003.safetensors.  Formats that say
 * in a file how many ranks there are need none of this; for the others it is
 * the only way to notice that one has not written yet.
 *
 * Threads: any.
 */
#ifndef CK_RANKS_H
#define CK_RANKS_H

#include "core/base/err.h"
#include "core/publish/below.h"

#include <stdbool.h>
#include <stdint.h>

/* The number after "rank" or "node" in @path, the first that has one. */
bool ck_rank_of(const char *path, uint64_t *rank);

struct ck_ranks {
	uint64_t *v; /* ascending, each once */
	size_t nr, room;
	bool told; /* some name says of how many: model-00001-of-00004 */
};
int ck_ranks_find(struct ck_ranks *out, const struct ck_below *files,
		  struct ck_err *err);
void ck_ranks_free(struct ck_ranks *r);
/* -ENODATA, naming some that are missing or too many, unless all of 0..@nr. */
int ck_ranks_are(const struct ck_ranks *r, uint64_t nr, struct ck_err *err);

#endif
