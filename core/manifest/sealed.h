/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed.h - the manifest of a checkpoint that is open, kept true
 *
 * What is written through a mount changes blocks that have a digest.  Before
 * the first byte of a file changes, the file's name is put into EDITED, beside
 * the manifest, durably; after a close or an fsync the touched blocks are
 * hashed anew and the manifest is replaced; after an fsync, and when the mount
 * ends, EDITED is removed.  Whoever finds EDITED knows
 * that a mount died between the two, and that those files may hold what no
 * digest says; the next mount for writing hashes them again.
 *
 * Only the blocks that were touched.  One of which a part is written is compared
 * before; if it is not what was sealed, it keeps the digest that it had, and so
 * stays damaged, until every byte of it was written.  Digests
 * of tensors are made again up to a limit of bytes; beyond it they are not
 * known until somebody seals again.
 *
 * Threads: any.
 */
#ifndef CK_SEALED_H
#define CK_SEALED_H

#include "core/geom/catalog.h"
#include "core/io/read.h"
#include "core/manifest/manifest.h"

#define CK_MANIFEST_EDITED CK_MANIFEST_OURS "edited"

struct ck_sealed;

/* Borrows both; without a manifest, before ck_sealed_load(). */
struct ck_sealed *ck_sealed_new(
	const struct ck_root *root,
	const struct ck_catalog *img); /* NULL: no memory */
/* As it is now, nothing having been written yet.  -ENOENT: there is none. */
int ck_sealed_load(struct ck_sealed *s, struct ck_err *err);
/* Both. */
int ck_sealed_open(struct ck_sealed **out, const struct ck_root *root,
		   const struct ck_catalog *img, struct ck_err *err);
void ck_sealed_free(struct ck_sealed *s);

/* Whether the digest of tensor number @t is known. */
bool ck_sealed_digest(struct ck_sealed *s, uint32_t t, struct ck_digest *out);

/*
 * For reading: all blocks are compared before they are used.  Files that are
 * no source of @img, at most a limit of bytes each, are compared here and now.
 * The sums are the caller's.  -EBADMSG: one of those is not what was sealed.
 */
int ck_sealed_sums(struct ck_sealed *s, struct ck_checked **out,
		   struct ck_err *err);

/* Is told, from any thread, what is wrong with source @src. */
struct ck_sealed_said {
	void (*call)(void *ctx, uint32_t src, const char *line);
	void *ctx;
};
/*
 * For writing: the watch, for the reader, lasts as long as @s; it tells @sums
 * too, which may be NULL.
 */
const struct ck_watch *ck_sealed_watch(struct ck_sealed *s,
				       struct ck_checked *sums,
				       const struct ck_sealed_said *said);
/*
 * Once, by who holds the checkpoint (root/writer_lock.h), before the first write:
 * the manifest as others have left it, and what EDITED names is to be hashed.
 */
int ck_sealed_writer_lock(struct ck_sealed *s, struct ck_err *err);
/* Whether there is such a file. */
bool ck_sealed_is_edited(const struct ck_root *root);
/*
 * What was written up to now is in the manifest; @reader and @resolved are
 * those of the checkpoint.  @last: it is on storage too, with all that was
 * written to the same files, and EDITED goes if nobody writes meanwhile.  On
 * failure EDITED stays, and a later call tries again.
 */
int ck_sealed_update_manifest(struct ck_sealed *s, struct ck_reader *reader,
			      const struct ck_resolved *resolved, bool last,
			      struct ck_err *err);

/*
 * Whether bytes of [off, off + len) of source @src are known not to be what was
 * sealed, nor written since; @look: blocks of which nothing is known are
 * compared.  Any thread.
 */
bool ck_sealed_is_corrupt(struct ck_sealed *s, uint32_t src, uint64_t off,
			  uint64_t len, bool look);

/* Whether EDITED names @file, or cannot be understood; for verify. */
bool ck_sealed_was_edited(const struct ck_root *root, const char *file);

#endif
