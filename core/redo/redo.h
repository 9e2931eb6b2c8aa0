/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redo.h - bytes of tensors that are whole and durable before any shard changes
 *
 *	.unshard-new-N    is being filled; whoever fills it holds a lock on it
 *	.unshard-redo-N   is whole: what it holds goes to the shards, by who made
 *	                  it or, if that died, by the next to write; then it goes
 *
 * N is when it was begun, so that names sort by time.  A file is its bytes, a
 * record for each stretch of a tensor, and a trailer; redo_file.c has them.
 *
 * Threads: one for each struct.
 */
#ifndef CK_REDO_H
#define CK_REDO_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/root/root.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_REDO_NEW CK_MANIFEST_OURS "new-"
#define CK_REDO_WHOLE CK_MANIFEST_OURS "redo-"

struct ck_redo; /* being made */

/*
 * An empty file.  -EOPNOTSUPP: @root is no place for one, being a single file
 * or a directory that may not be written to.
 */
int ck_redo_new(struct ck_redo **out, const struct ck_root *root,
		struct ck_err *err);
int ck_redo_fd(const struct ck_redo *r); /* to be filled from byte 0 on */

struct ck_redo_part {
	uint64_t at; /* of its first byte in the file */
	uint64_t off, len; /* of the tensor's bytes */
	uint64_t size; /* of the tensor */
	const char *tree, *name;
	size_t tree_len, name_len;
};
int ck_redo_add(struct ck_redo *r, const struct ck_redo_part *part,
		struct ck_err *err);
/*
 * @len bytes and the parts are there, on storage, and will be in the shards
 * whatever happens.  @also: the optimizer's copies are written too.
 */
int ck_redo_commit(struct ck_redo *r, uint64_t len, bool also,
		   struct ck_err *err);
/* All is in the shards, and on storage. */
int ck_redo_end(struct ck_redo *r, struct ck_err *err);
/* What was committed and not ended stays; all else is removed. */
void ck_redo_free(struct ck_redo *r);

/* A whole one that somebody left. */
struct ck_redo_left {
	char name[NAME_MAX + 1];
	int fd;
	bool also;
	uint64_t nr, len; /* parts, bytes */
	/* private */
	unsigned char *tail;
	size_t at, tail_len;
};

/*
 * Calls @fn for each, the oldest first, while 0 is returned, and removes it
 * after that; what others are at is passed over.  With @sweep also removes
 * what was never whole.
 */
int ck_redo_each(const struct ck_root *root, bool sweep,
		 int (*fn)(void *ctx, struct ck_redo_left *left,
			   struct ck_err *err),
		 void *ctx, struct ck_err *err);
/* Removes what was never whole, and nobody is at; whether there was any. */
bool ck_redo_sweep(const struct ck_root *root);
/* The next part; its names are valid as long as @left.  False: no more. */
bool ck_redo_part(struct ck_redo_left *left, struct ck_redo_part *out);
/* Whether there is one that nobody is at, and its name. */
bool ck_redo_is_left(const struct ck_root *root, char name[NAME_MAX + 1]);

/*
 * For tests: @tail, the last @len bytes of a file of @size, taken as the end of
 * one.  -EINVAL with a line for all that is not exactly that.
 */
int ck_redo_parse(struct ck_redo_left *left, const unsigned char *tail,
		  size_t len, uint64_t size, struct ck_err *err);
/* How long the end of a file is that has this trailer; 0: it is none. */
#define CK_REDO_TRAILER 48
uint64_t ck_redo_tail_len(const unsigned char trailer[CK_REDO_TRAILER]);
/* Appends a record, and then the trailer for all of @tail. */
void ck_redo_put_part(struct ck_str *tail, const struct ck_redo_part *part);
void ck_redo_put_end(struct ck_str *tail, uint64_t len, uint64_t nr, bool also);

#endif
