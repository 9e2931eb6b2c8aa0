/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal.h - the manifest of a checkpoint that is open
 */
#ifndef CK_SEAL_H
#define CK_SEAL_H

#include "core/ckpt/ckpt.h"
#include "core/manifest/hash.h"
#include "core/manifest/manifest.h"

#include <stdatomic.h>

struct ck_seal_in {
	struct ck_ckpt *ck;
	unsigned jobs; /* threads; 0: as many as this machine suggests */
	bool crcs; /* what the containers say of their bytes must be true */
	const struct ck_hash_known *known; /* and is not read; or NULL */
	void *ctx;
	/* From the caller's thread, now and then; may be NULL. */
	void (*tick)(void *ctx, uint64_t bytes, uint64_t total);
	/* Out: tensors without a digest, because they could not be read. */
	uint64_t unknown;
};

/*
 * The blocks of all files and the XXH3-128 of every tensor, into @n.  A tensor
 * is read when the blocks that hold it have just been, so that storage is asked
 * once where memory holds what lies between.  -EBADMSG: a CRC-32 is wrong.
 */
int ck_seal(struct ck_seal_in *in, struct ck_manifest_new *n,
	    struct ck_err *err);
/*
 * The same of the checkpoint at @root, which nobody has open, by a process of
 * its own, in a sandbox.  The manifest's bytes, from malloc(); what they say is
 * that process's.
 */
int ck_seal_subprocess(struct ck_root *root, const struct ck_opts *opts,
		       const struct ck_hash_known *known, void **bytes,
		       size_t *len, struct ck_err *err);

#endif
