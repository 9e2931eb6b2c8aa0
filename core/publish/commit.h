/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.h - publishing: a draft becomes a checkpoint, by one rename
 *
 *	alone -> whole? -> fsync of all -> manifest -> record -> rename
 *	-> fsync of SRC -> the draft is removed
 *
 * Until the rename nothing is to be seen; after it, all of it.  The record
 * tells whoever comes after a crash which publish was meant, so that doing it
 * again does the rest: any number of times, by anybody, is the same as once.
 *
 * Threads: any; of several publishers of one draft, one works and the others
 * get -EBUSY.
 */
#ifndef CK_COMMIT_H
#define CK_COMMIT_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/draft/draft.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_commit_in {
	const struct ck_opts *opts; /* how the files are to be read */
	uint64_t ranks; /* how many wrote; 0: not said */
	const char *as; /* another name to publish it under; or NULL */
	bool replace; /* a checkpoint that has the name is thrown away */
	bool holes; /* are zeros that are meant; see sparse_check.h */
};

/*
 * 0: it is published, and durable; @s is over.  -EBUSY: somebody writes to it
 * or publishes it, or edits the one that it is to replace.  -ESTALE: it was
 * published meanwhile.  -ENODATA: what is missing.  -EEXIST: the name is taken.
 * -EIO: it is poisoned, now or before.  After any but the last it is as it was,
 * and can be tried again.
 */
int ck_commit(struct ck_draft *s, const struct ck_commit_in *in,
	      struct ck_err *err);

/* What ck_commit() would look at, alone, and without changing anything. */
int ck_commit_check(struct ck_draft *s, const struct ck_commit_in *in,
		    struct ck_err *err);

#endif
