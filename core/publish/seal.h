/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal.h - the manifest of a checkpoint that is open
 */
#ifndef CK_SEAL_H
#define CK_SEAL_H

#include "core/ckpt.h"
#include "core/publish/manifest.h"

#include <stdatomic.h>

struct ck_seal_in {
	struct ck_ckpt *ck;
	unsigned jobs; /* threads; 0: as many as this machine suggests */
	void *ctx;
	/* From the caller's thread, now and then; may be NULL. */
	void (*tick)(void *ctx, uint64_t bytes, uint64_t total);
	/* Out: tensors without a digest, because they could not be read. */
	uint64_t unknown;
};

/* The XXH3-128 of every tensor, into @n. */
int ck_seal_tensors(struct ck_seal_in *in, struct ck_manifest_new *n,
		    struct ck_err *err);
/* The XXH3-128 of tensor @t; -errno where not all of it can be read. */
int ck_seal_tensor(struct ck_ckpt *ck, uint32_t t, struct ck_digest *out,
		   _Atomic uint64_t *bytes, struct ck_err *err);

#endif
