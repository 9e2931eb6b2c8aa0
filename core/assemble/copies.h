/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.h - the files of a checkpoint, opened to compare replicas in them
 *
 * Replicas of many small tensors are in the same few files, so that some stay
 * open.  One thread.
 */
#ifndef CK_COPIES_H
#define CK_COPIES_H

#include "core/root/dir.h"

#define CK_COPIES_OPEN 64

struct ck_copies {
	const struct ck_dir *dir;
	struct {
		char *name;
		struct ck_source *src; /* NULL: it could not be opened */
	} v[CK_COPIES_OPEN];
};

/* *out, until the next is opened: NULL where it cannot be.  0 or -ENOMEM. */
int ck_copies_open(struct ck_copies *c, const char *file,
		   struct ck_source **out, struct ck_err *err);
/* As ck_builder_reads wants it; @ctx is a struct ck_copies. */
int ck_copies_read(void *ctx, const char *file, void *buf, size_t len,
		   uint64_t off, struct ck_err *err);
void ck_copies_free(struct ck_copies *c);

#endif
