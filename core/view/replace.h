/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.h - all bytes of a view's file, buffered until every one was written
 *
 * What a program writes after O_TRUNC goes to a file of its own, beside the
 * shards or, where they are not to be written beside, in the spool.  Which
 * bytes came is kept as intervals, for they may come in any order; when the
 * program closes the file and all are there they are written to the shards, and
 * otherwise the file stays as it was and the close says so.  Beside the shards
 * that is all or nothing, whatever breaks off.
 *
 * Threads: any.
 */
#ifndef CK_REPLACE_H
#define CK_REPLACE_H

#include "core/view/view.h"

struct ck_replace;

/* Of file @i of @v, by edit @e; borrows both. */
int ck_replace_new(struct ck_replace **out, const struct ck_view *v, uint32_t i,
		   struct ck_edit *e, struct ck_err *err);
/* What was not committed is forgotten. */
void ck_replace_free(struct ck_replace *r);

/*
 * -EFBIG past the end; the replacement can then no longer be committed, for
 * the program has something else in mind.
 */
int ck_replace_write(struct ck_replace *r, const void *buf, uint64_t len,
		     uint64_t off, struct ck_err *err);
/*
 * Nothing written: 0.  All: written to the shards, and *committed is how, for
 * who shows the bytes; else NULL.  Part of it: -EIO with a line, and more may
 * come.
 */
int ck_replace_close(struct ck_replace *r, struct ck_wplan **committed,
		     struct ck_err *err);

#endif
