/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checked.h - blocks of files that are compared with a digest before their first
 * byte is used
 *
 * A bit and a digest a block, for as long as the checkpoint is open.  Before
 * any other byte of a file counts, its first and its last block are compared,
 * where most formats say what the file is; all that the parser reads was
 * compared by it (manifest/sealed_index.h).
 *
 * Threads: any.  Of those that need the same block at the same time one reads it,
 * and the others wait for what it finds.
 */
#ifndef CK_CHECKED_H
#define CK_CHECKED_H

#include "core/base/err.h"
#include "core/io/engine.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_checked;

/* A block is 1 << @shift bytes of a file; @nr sources.  NULL: no memory. */
struct ck_checked *ck_checked_new(uint32_t nr, unsigned shift);
void ck_checked_free(struct ck_checked *s);
/*
 * Source @src has @size bytes and a digest, an XXH3-64, of each block.  All
 * reading of sources that were not added fails.  Copies.
 */
int ck_checked_add(struct ck_checked *s, uint32_t src, uint64_t size,
		   const uint64_t *digest, struct ck_err *err);
/* The same of @src, and that it was @was bytes long when it was sealed. */
void ck_checked_other_size(struct ck_checked *s, uint32_t src, uint64_t was);
/*
 * Who may know a later digest of a block than the one that was given, as
 * another mount edits the file: more than 0 where it is another than *digest, to
 * that; 0: the same; -EBUSY: the same, and the file is being edited.  Any thread.
 */
struct ck_checked_later {
	int (*call)(void *ctx, uint32_t src, uint64_t block, uint64_t *digest);
	void *ctx;
};
void ck_checked_ask(struct ck_checked *s, const struct ck_checked_later *later);
/* We write these bytes: what they are is not compared any more. */
void ck_checked_ours(struct ck_checked *s, uint32_t src, uint64_t off,
		     uint64_t len);
/* What @src has may be other bytes now: all is compared again. */
void ck_checked_forget(struct ck_checked *s, uint32_t src);

/*
 * Whether bytes [off, off + len) of @src, open as @fd and called @name, may be
 * used: 0, or -EIO with a line that names the block.
 */
int ck_checked_use(struct ck_checked *s, const struct ck_engine_ops *engine,
		   uint32_t src, int fd, const char *name, uint64_t off,
		   uint64_t len, struct ck_err *err);

/* The XXH3-64 of [off, end) of @fd: 0 or -errno. */
int ck_checked_hash(const struct ck_engine_ops *engine, int fd, uint64_t off,
		    uint64_t end, uint64_t *digest);

#endif
