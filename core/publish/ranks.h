/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - which ranks' files there are, by their names
 *
 * rank_3/, node0/, model_rank7.pt, rank-00003.safetensors, and folders of saves
 * that end in a number, model_3/.  Formats that say in a file how
 * many ranks there are need none of this; for the others it is the only way to
 * notice that one has not written yet.
 *
 * Threads: any.
 */
#ifndef CK_RANKS_H
#define CK_RANKS_H

#include "core/base/err.h"
#include "core/draft/dir_tree.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * What a rank wrote, or what only looks like it: a file, or the folder of one.
 * Those of all ranks are called alike but for the number.
 */
struct ck_rank {
	const char *path; /* of some file in it; borrowed from the list */
	size_t len; /* of the path, that is the rank's */
	size_t from, to; /* where the number is in it */
	uint64_t rank;
	bool is_dir;
};

struct ck_ranks {
	struct ck_rank *v; /* by name, each path once */
	size_t nr, room;
	uint64_t nr_ranks; /* how many numbers there are */
	bool told; /* some name says of how many: model-00001-of-00004 */
	bool saves; /* folders of saves, in which nothing says it */
};
/*
 * What is called as ranks' files are; where nothing is, what lies at the top and
 * has a number in its name.
 */
enum ck_ranks_by {
	CK_RANKS_WORDS, /* nothing else is a rank's */
	CK_RANKS_FILES, /* a file there is */
	CK_RANKS_ANY, /* a folder too: somebody said that there are ranks */
};
int ck_ranks_find(struct ck_ranks *out, const struct ck_dir_tree *files,
		  enum ck_ranks_by by, struct ck_err *err);
void ck_ranks_free(struct ck_ranks *r);
/*
 * -ENODATA, naming some that are missing or too many, unless all of 0..@nr.  A
 * number that no other file differs in, or without a 0 where there is one rank
 * only, is of something else: lora_rank16.pt.
 */
int ck_ranks_are(const struct ck_ranks *r, uint64_t nr, struct ck_err *err);

#endif
