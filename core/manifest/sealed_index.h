/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed_index.h - what the parser reads of a sealed checkpoint, compared first
 *
 * Each block of 1 << shift bytes of which a byte is read is read whole, hashed
 * and compared with the manifest before the byte is given out; one that was
 * good once is not read again while the file stays what it was.  A bad one is
 * EIO, but for a file's first and last: what these mean is known only when all
 * was read, and ck_sealed_index_end() says it.  Files that
 * the manifest does not have are read as they are: the bytes of their tensors
 * are refused later (io/checked.h).
 *
 * Threads: one.
 */
#ifndef CK_SEALED_INDEX_H
#define CK_SEALED_INDEX_H

#include "core/root/dir.h"
#include "core/geom/catalog.h"
#include "core/root/root.h"

struct ck_sealed_index;

/* -ENOENT: it is not sealed.  Borrows @root. */
int ck_sealed_index_open(struct ck_sealed_index **out,
			 const struct ck_root *root, struct ck_err *err);
void ck_sealed_index_free(struct ck_sealed_index *x);
/* For struct ck_dir; lasts as long as @x. */
const struct ck_dir_wrap *ck_sealed_index_wrap(struct ck_sealed_index *x);
/*
 * 0, or the first of what was read and is not what was sealed: whatever was
 * made of the rest, by a reader that goes on without a file, is not to be used.
 * But where files are @apart (struct ck_format) one with bytes of tensors of
 * @img may be bad in its first or last block: none of them is given out then
 * (io/checked.h).  @img: NULL where nothing was made.
 */
int ck_sealed_index_end(const struct ck_sealed_index *x,
			const struct ck_catalog *img, bool apart,
			struct ck_err *err);

#endif
