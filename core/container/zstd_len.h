/* SPDX-License-Identifier: Apache-2.0 */
/* zstd_len.h - how long a zstd frame is when decoded */
#ifndef CK_ZSTD_LEN_H
#define CK_ZSTD_LEN_H

#include "core/root/source.h"

/* Bytes that all the objects of a checkpoint may decode to. */
#define CK_ZSTD_LEN_TOTAL (UINT64_C(256) << 20)

/*
 * Decodes bytes [off, off+len) of @s without keeping them.  *spent counts
 * the bytes of all calls up to CK_ZSTD_LEN_TOTAL.  -E2BIG past it; -EINVAL
 * where it is no whole frame.
 */
int ck_zstd_length(struct ck_source *s, uint64_t off, uint64_t len,
		   uint64_t *spent, uint64_t *out, struct ck_err *err);

#endif
