/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decomp_cache.h - compressed items, decoded once into unlinked files
 *
 * A zstd frame has no random access.  It is decoded whole at first touch, as
 * a stream, into a file without a name in the spool directory.  All of them
 * together stay within a limit; those not in use go first, the longest unused
 * first.  Two threads that want the same item wait for one decoding.
 *
 * Threads: any.
 */
#ifndef CK_DECOMP_CACHE_H
#define CK_DECOMP_CACHE_H

#include "core/base/err.h"
#include "core/io/bytes.h"

struct ck_decomp_cache;

/*
 * Opens @dir now, since the process may be confined later.  @max 0: half of
 * what is free there at the first decoding.
 */
int ck_decomp_cache_new(struct ck_decomp_cache **out, struct ck_reader *r,
			const char *dir, uint64_t max, struct ck_err *err);
void ck_decomp_cache_free(struct ck_decomp_cache *sp);

/* An empty file without a name, the caller's; -errno with a line. */
int ck_decomp_cache_nameless(struct ck_decomp_cache *sp, int *fd,
			     struct ck_err *err);
/* The decoded bytes of CODEC source @src; ck_bytes_put() ends the use. */
int ck_decomp_cache_get(struct ck_decomp_cache *sp, uint32_t src,
			struct ck_bytes *b, struct ck_err *err);
void ck_decomp_cache_put(struct ck_decomp_cache *sp,
			 struct ck_decomp_item *item);
/* What was decoded of file @src is not given to anybody any more. */
void ck_decomp_cache_forget(struct ck_decomp_cache *sp, uint32_t src);

#endif
