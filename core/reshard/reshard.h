/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard.h - a checkpoint cut for another mesh: which rank holds what
 *
 * A mesh is said in words, "dim0=8" or "pp=2,tp=4", or by a file: a placement
 * file, a MindSpore strategy, OneFlow's SBP (docs/resharding.md).  Together
 * with the tensors of one checkpoint it is a ck_reshard: for each tensor which
 * cuts, shared by all that are cut alike, so that it takes 8 bytes a tensor
 * whatever the number of ranks.  What a rank holds is computed when asked.
 *
 * Pure: no I/O.  A ck_reshard does not change once made: any thread.
 */
#ifndef CK_RESHARD_H
#define CK_RESHARD_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/base/str.h"
#include "core/geom/catalog.h"
#include "core/geom/shard.h"
#include "core/parse/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_RESHARD_MAX_RANKS 65536

struct ck_reshard;

struct ck_reshard_in {
	const struct ck_catalog *img;
	uint32_t first, nr; /* of img->tensors */
	const char *name; /* the words; with bytes the file's, for messages */
	const char *bytes; /* of the file; NULL: words */
	size_t len;
	const struct ck_opts *opts; /* "rules"; may be NULL */
	const json_t *config; /* config.json of the model; may be NULL */
};

/* What a rank holds of a tensor. */
struct ck_reshard_part {
	struct ck_shard shard;
	bool zeros; /* a partial sum, of which another rank holds all */
};

/*
 * -EINVAL with a line where the words or the file mean no mesh, or where a
 * tensor cannot be cut so, which the line names; @in is not kept.  What is
 * wrong with the words or the file alone is *of_spec.
 */
int ck_reshard_new(struct ck_reshard **out, const struct ck_reshard_in *in,
		   bool *of_spec, struct ck_err *err);
#define CK_RESHARD_OPTION "reshard"

/*
 * The files of -o reshard= alone: whether each is there, is one of the three
 * kinds, and is well formed.  -ENOENT, -EINVAL, -ENOMEM.
 */
int ck_reshard_check(const struct ck_opts *opts, struct ck_err *err);
void ck_reshard_free(struct ck_reshard *r);
/*
 * A line on the mesh, called @name, that one may want to know: what of a file
 * fits no tensor, which heads several ranks have.  Nothing: there is none.
 */
void ck_reshard_note(const struct ck_reshard *r, const char *name,
		     struct ck_str *out);

/*
 * A file of which no entry fits a tensor, so that each rank holds all of each:
 * often one of another model.
 */
bool ck_reshard_unused_options(const struct ck_reshard *r);

uint32_t ck_reshard_ranks(const struct ck_reshard *r);
/* False: rank @rank holds nothing of @tensor, not even an empty part. */
bool ck_reshard_part(const struct ck_reshard *r, uint32_t rank, uint32_t tensor,
		     struct ck_reshard_part *out);
/* Whether every rank that holds @tensor holds the whole of it. */
bool ck_reshard_uncut(const struct ck_reshard *r, uint32_t tensor);
/* The lowest rank that holds @tensor or a part of it; of sums, the first. */
uint32_t ck_reshard_first(const struct ck_reshard *r, uint32_t tensor);

/*
 * What reshard/ calls the mesh of file @path: its name without folder and
 * suffix.  *len 0: it has none that could be a directory's.
 */
const char *ck_reshard_stem(const char *path, size_t *len);

#endif
