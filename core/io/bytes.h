/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes.h - a source of the catalog, opened: a descriptor or memory
 *
 * Pinned between get and put.  A descriptor's bytes are those described only
 * if ck_bytes_recheck() says so after they were read.
 *
 * Threads: any; one struct belongs to one thread.
 */
#ifndef CK_BYTES_H
#define CK_BYTES_H

#include "core/base/err.h"
#include "core/io/engine.h"

#include <stdint.h>

struct ck_reader;
struct ck_decomp_item;

struct ck_bytes {
	uint32_t src;
	int fd; /* -1: in memory */
	const unsigned char *mem;
	uint64_t len;
	struct ck_decomp_item *spooled; /* CODEC: its place in the spool */
};

int ck_bytes_get(struct ck_reader *r, uint32_t src, struct ck_bytes *b,
		 struct ck_err *err);
int ck_bytes_recheck(struct ck_reader *r, const struct ck_bytes *b,
		     struct ck_err *err);
void ck_bytes_put(struct ck_reader *r, struct ck_bytes *b);
/* All @len bytes at @off, checked afterwards; no scratch memory is used. */
int ck_bytes_read(struct ck_reader *r, const struct ck_bytes *b, void *buf,
		  uint64_t len, uint64_t off, struct ck_err *err);
/*
 * THE way to bytes of sources: the engine, and whatever stands before it.  Of
 * each request src is set too; res says what became of it.  @why: code 0, or
 * the line for one that failed for another reason than the engine's.
 */
void ck_fetch(struct ck_reader *r, struct ck_io *io, unsigned nr,
	      struct ck_err *why);
/* What a person knows a source by. */
const char *ck_bytes_name(const struct ck_reader *r, uint32_t src);
/* Byte @off of source @src as the place of @err, unless that has one. */
void ck_bytes_place(const struct ck_reader *r, uint32_t src, uint64_t off,
		    struct ck_err *err);
/* Sets @err for @off, @len of @b: @code and what it means. */
int ck_bytes_fail(const struct ck_reader *r, const struct ck_bytes *b,
		  uint64_t off, uint64_t len, int code, struct ck_err *err);

#endif
