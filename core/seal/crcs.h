/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crcs.h - what containers say of their bytes, while those pass to be hashed
 *
 * Each thread sums the part of a member that lies in the block that it reads;
 * the parts are put together at the end.
 *
 * Threads: ck_crcs_pass() any, of different blocks; the others one.
 */
#ifndef CK_CRCS_H
#define CK_CRCS_H

#include "core/ckpt/ckpt.h"
#include "core/manifest/hash.h"

struct ck_crc {
	size_t file; /* in the list */
	uint64_t off, len; /* bytes; apart from each other */
	size_t first; /* of its parts, one a block */
	uint32_t crc; /* as the container says */
};

struct ck_crcs {
	const struct ck_hash_list *files;
	unsigned shift; /* log2 of a block */
	struct ck_crc *v; /* by file and place */
	size_t nr, room;
	uint32_t *part;
};

/* Finds all that @ck's files, which are @files, keep. */
int ck_crcs_find(struct ck_crcs *c, struct ck_ckpt *ck,
		 const struct ck_hash_list *files, unsigned shift,
		 struct ck_err *err);
/* ck_hash_in.pass */
void ck_crcs_pass(struct ck_crcs *c, size_t file, uint64_t at,
		  const void *bytes, size_t len);
/* -EBADMSG with a line for the first that is wrong. */
int ck_crcs_check(const struct ck_crcs *c, struct ck_err *err);
void ck_crcs_free(struct ck_crcs *c);

#endif
