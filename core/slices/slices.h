/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices.h - a draft whose shards are written as slices of tensors
 *
 *	SRC/.staging-NAME/
 *	  slices/
 *	    plan	slices_plan.h
 *	    given	the layout as it was given
 *	    extras	objects that are no tensors, and paths; or none
 *	    objects/	the bytes of those, by number
 *	    same-R.log	digests of what rank R has and another one writes
 *	    files/	shards to be; they move to the draft's files/ when all
 *			of them are whole
 *	    w-*		claims.h
 *
 * Whoever opens such a draft, on any node, can write any slice: bytes go to
 * their places in the shards, and what was written is claimed.  Holders of
 * copies write to the same place.
 *
 * Threads: any, on one of them.
 */
#ifndef CK_SLICES_H
#define CK_SLICES_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/slices/slices_plan.h"
#include "core/draft/draft.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_SLICES_DIR "slices"
/*
 * Beside it in the draft: files that have names of no slice yet, by folder:
 * "step", "tensors", or the number of a rank.
 */
#define CK_SLICES_SIBLING "beside"
#define CK_SLICES_SIBLING_STEP "step"
#define CK_SLICES_SIBLING_TENSORS "tensors"

struct ck_slices;
struct ck_catalog;

/*
 * The draft is to hold what @layout says: -EEXIST where another layout was
 * given before, 0 where the same was.  -EINVAL: it does not make sense, with
 * a line that says where.
 */
int ck_slices_make(struct ck_draft *s, const struct ck_root *root,
		   const struct ck_opts *opts, const char *layout, size_t len,
		   struct ck_err *err);
/*
 * The same of a layout that the caller made himself, in this process.  @extras:
 * JSON, of what the checkpoint has beside its tensors, or NULL:
 * {"objects": ["a", ...], "paths": {"b.0": ["b", 0], ...}}, where each stood in
 * what was saved.
 */
int ck_slices_make_here(struct ck_draft *s, const char *layout, size_t len,
			const char *extras, size_t extras_len,
			struct ck_err *err);
/* What -o layout= gives for new checkpoints; NULL: nothing of the kind. */
const char *ck_slices_wanted(const struct ck_opts *opts, size_t *len);
/* Whether there is such a thing, without opening it. */
bool ck_slices_look(const struct ck_draft *s);
/* -ENODATA, with the first file that became no slice. */
int ck_slices_no_others(const struct ck_draft *s, struct ck_err *err);
/* Whether something of it was written. */
bool ck_slices_begun(const struct ck_draft *s);
/* Borrows @s; -ENOENT: nothing of the kind. */
int ck_slices_open(struct ck_slices **out, struct ck_draft *s,
		   struct ck_err *err);
void ck_slices_close(struct ck_slices *sl);

const struct ck_slice_plan *ck_slices_plan(const struct ck_slices *sl);
/* The tensors, with names of files for them; as they will be read. */
const struct ck_catalog *ck_slices_catalog(const struct ck_slices *sl);
/* Tensor of the plan for one of the catalog. */
uint32_t ck_slices_tensor(const struct ck_slices *sl, uint32_t catalog_tensor);
/* The layout as it was given; from malloc(). */
int ck_slices_given(const struct ck_slices *sl, char **bytes, size_t *len,
		    struct ck_err *err);

/* What bytes are of: a slice, or (@whole) a tensor of the catalog. */
struct ck_slice {
	bool whole;
	uint32_t nr; /* piece of the plan; or tensor of the catalog */
};
uint64_t ck_slice_size(const struct ck_slices *sl, struct ck_slice of);
/* How many of its bytes were written. */
uint64_t ck_slice_written(struct ck_slices *sl, struct ck_slice of);
/*
 * [off, off + len) is inside of it.  -EIO where a byte was not written;
 * @mapped: then those are of a value that no data has, where the type has one.
 */
int ck_slice_read(struct ck_slices *sl, struct ck_slice of, void *buf,
		  uint64_t len, uint64_t off, bool mapped, struct ck_err *err);
/* @mapped: of pages that were read so; elements of that value are left out. */
int ck_slice_write(struct ck_slices *sl, struct ck_slice of, const void *buf,
		   uint64_t len, uint64_t off, bool mapped, struct ck_err *err);
/* Elements of piece @piece of the plan, which is of that tensor. */
struct ck_box;
struct ck_slice_part {
	uint32_t tensor; /* of the catalog */
	uint32_t piece;
	const struct ck_box
		*box; /* of the tensor's shape, inside of the piece */
};
/*
 * @buf has them in row-major order.  Bytes that were written already stay, and
 * have to be the same: -EBADMSG with tensor, range and ranks.
 */
int ck_slice_write_once(struct ck_slices *sl, const struct ck_slice_part *of,
			const void *buf, struct ck_err *err);
/*
 * Rank @rank has them too, and another one writes them: a publish compares.
 */
int ck_slice_same(struct ck_slices *sl, const struct ck_slice_part *of,
		  uint64_t rank, const void *buf, struct ck_err *err);
/*
 * An object that was declared; else -ENOENT.  -EBADMSG: other bytes of it were
 * written before.  Durable.
 */
int ck_slices_put_object(struct ck_slices *sl, const char *name,
			 const void *bytes, size_t len, struct ck_err *err);
/* Its bytes are to be written anew. */
int ck_slice_empty(struct ck_slices *sl, struct ck_slice of,
		   struct ck_err *err);
/* Whether any byte of any slice was written, by anybody. */
int ck_slices_any(struct ck_slices *sl, bool *any, struct ck_err *err);
/* What was written of it through here is durable, and known to be. */
int ck_slice_sync(struct ck_slices *sl, struct ck_slice of, struct ck_err *err);
/* The same of everything; does nothing where nothing is left to do. */
int ck_slices_sync(struct ck_slices *sl, struct ck_err *err);

/* What is missing of one rank's slices. */
struct ck_slices_missing {
	uint64_t rank, slices, whole; /* how many, and how many are whole */
	uint64_t bytes; /* that are missing */
	const char *tensor; /* of the first slice that lacks some */
	uint64_t from, to; /* the first stretch of it */
};
/*
 * Of all ranks that lack something; *out from malloc(), with the names.  0: *nr
 * of them.  Reads what others wrote meanwhile.
 */
int ck_slices_lacks(struct ck_slices *sl, struct ck_slices_missing **out,
		    size_t *nr, struct ck_err *err);
/*
 * -ENODATA, with tensor, range and ranks of the first missing byte, or with a
 * file that became no slice.
 */
int ck_slices_check(struct ck_slices *sl, struct ck_err *err);

/* ---- slices_sums.c: digests, by who has the bytes at hand ---- */

/* All bytes of a piece, as they will be in its shard. */
struct ck_slice_mem {
	uint32_t piece;
	const void *bytes;
};
/*
 * Digests of what ck_slice_write_once() wrote, as far as it is whole.  @mem: where
 * it need not be read again, by piece.  What fails here is left to a publish.
 */
int ck_slices_sum(struct ck_slices *sl, const struct ck_slice_mem *mem,
		  size_t nr, unsigned threads, struct ck_err *err);
/*
 * ck_slices_sync(); and shards that were all written through here move to files/,
 * and what their digests are is said, so that a publish need not read them.
 */
int ck_slices_finish(struct ck_slices *sl, unsigned threads,
		     struct ck_err *err);

struct ck_hash_known;
/*
 * Of a publisher, who has the draft alone: if all is there, the shards move
 * to files/, with a layout beside them.  0 too where there are no slices.
 * *known: what was said of them, to be freed.
 */
int ck_slices_gather(struct ck_draft *s, struct ck_hash_known *known,
		     struct ck_err *err);
/*
 * Whether a publisher could: -EEXIST where a file is in the way.  *gathered:
 * one did already, and broke off behind that.
 */
int ck_slices_in_way(const struct ck_slices *sl, bool *gathered,
		     struct ck_err *err);
/* After the fsync of all files: what was written is durable. */
int ck_slices_move_files(struct ck_draft *s, struct ck_err *err);

#endif
