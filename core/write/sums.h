/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.h - the checksums that containers keep of the bytes in them
 *
 *	zip         CRC-32 of each member: in the directory, and in the local
 *	            header or the descriptor behind the bytes
 *	MindSpore   "crc_num" and the CRC-32 of all before it, at the end
 *
 * A file's sums are wrong from the first write to it until they are flushed.
 * So that a crash in between is found, its name is kept in an attribute of the
 * checkpoint's directory (or of the file, where that is all there is), made
 * durable before the first byte and taken away once all is durable.
 *
 * A sum is computed from those of blocks: a block is summed before its first
 * change, and what changed is summed again when the sums are flushed, so that an
 * edit costs its blocks, twice, and not the file, and a sum that was wrong stays
 * so, for it tells of damage.  Only where all bytes are new it is of them alone.
 *
 * Threads: any; one lock a file.
 */
#ifndef CK_SUMS_H
#define CK_SUMS_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_catalog;
struct ck_reader;
struct ck_root;
struct ck_sums;
struct ck_tensor;

#define CK_SUM_BLOCK (UINT64_C(256) << 10)

struct ck_sums *ck_sums_new(struct ck_reader *r); /* NULL: no memory */
/* Flushes the sums, syncs and takes the marks away, as far as that works. */
void ck_sums_free(struct ck_sums *s);
/*
 * From now on a sum that is touched is made of all its bytes, for what is
 * written over may not be what the sum was made of.
 */
void ck_sums_doubt(struct ck_sums *s);

/*
 * Looks which sums there are of file @src: of the archive [off, off+len) in
 * it, or, len 0, of the file as a whole.  -EROFS with a line where a sum could
 * not be kept right.  To be called before any write to those bytes.
 */
int ck_sums_need(struct ck_sums *s, uint32_t src, uint64_t off, uint64_t len,
		 struct ck_err *err);
/* Around a write to bytes [off, off+len) of @src; -errno: do not write. */
int ck_sums_before(struct ck_sums *s, uint32_t src, uint64_t off, uint64_t len,
		   struct ck_err *err);
/* @whole: it was written in full. */
void ck_sums_after(struct ck_sums *s, uint32_t src, uint64_t off, uint64_t len,
		   bool whole);
/* The sums of @src are right, though not durable. */
int ck_sums_flush(struct ck_sums *s, uint32_t src, struct ck_err *err);
/* After a sync that followed: takes the mark of @src away if all is flushed. */
void ck_sums_synced(struct ck_sums *s, uint32_t src);

/*
 * Calls @each for every sum that is kept of the archive [off, off + len) of
 * @src, or, len 0, of the file: of bytes [off, off + len).  -errno: they cannot
 * be found.
 */
typedef int (*ck_sums_each_fn)(void *ctx, uint32_t src, uint64_t off,
			       uint64_t len, uint32_t crc, struct ck_err *err);
int ck_sums_list(struct ck_reader *r, uint32_t src, uint64_t off, uint64_t len,
		 ck_sums_each_fn each, void *ctx, struct ck_err *err);

/* The archive that @chunk of @t lies in; 0, 0: the file as a whole. */
void ck_chunk_archive(const struct ck_catalog *img, const struct ck_tensor *t,
		      uint32_t chunk, uint64_t *off, uint64_t *len);

/*
 * Sources whose marks were there when the checkpoint was opened: repaired by a
 * thread that ck_sums_free() waits for; once, before anything is written, and by
 * who alone writes.  @said is told of each, as a line; it is called by that
 * thread too.
 */
struct ck_sums_found {
	void (*said)(void *ctx, uint32_t src, const char *line);
	/*
	 * Whether those bytes are known to be damaged, @look: or are found to
	 * be; NULL: never.  A sum of some is not made right.
	 */
	bool (*corrupt)(void *ctx, uint32_t src, uint64_t off, uint64_t len,
			bool look);
	/* Whether those of @src may be wrong, though no mark says so; or NULL. */
	bool (*unsure)(void *ctx, uint32_t src);
	void *ctx;
};
void ck_sums_repair(struct ck_sums *s, const struct ck_sums_found *found);
bool ck_sums_are_marked(const struct ck_root *root);
/* The same marks, on a mount that cannot repair. */
void ck_sums_warn(const struct ck_catalog *img, const struct ck_root *root,
		  const struct ck_sums_found *found);

#endif
