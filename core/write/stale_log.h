/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stale_log.h - what writes replaced, while pages of maps may still show it
 *
 * The kernel writes pages of maps back whole.  One that it read before somebody
 * else's write has the bytes that were there before that, and sends them as if
 * a program had stored them.  They are told by being exactly what the write
 * replaced, which is kept until the kernel has no such page any more.
 *
 * Bytes, of a key (a tensor) and an offset.  Threads: any; who merges and then
 * keeps has to be the only writer of the bytes meanwhile (range_lock.h).
 */
#ifndef CK_STALE_LOG_H
#define CK_STALE_LOG_H

#include <stdbool.h>
#include <stdint.h>

struct ck_stale_log; /* of a checkpoint */
struct ck_pre_image; /* of one write */

/* Keeps up to @max bytes, of which each replaced one takes two; NULL: no memory */
struct ck_stale_log *ck_stale_log_new(uint64_t max);
/* It goes with the last write that it has something of. */
void ck_stale_log_free(struct ck_stale_log *all);

struct ck_pre_image *ck_pre_image_new(
	struct ck_stale_log *all); /* NULL: no memory */
/* No page of before the write is left. */
void ck_pre_image_end(struct ck_pre_image *f); /* or NULL */

/* Which bytes, and whose pages show them. */
struct ck_pre_image_at {
	uint32_t key;
	uint64_t off;
	uint64_t file; /* 0: nobody's */
	uint32_t as; /* the key that @file shows them under */
};

/*
 * @now took the place of @was, and pages of @at->file under @at->as have it.
 * False: it is not kept, for there is too much already.
 */
bool ck_pre_image_keep(struct ck_pre_image *f, const struct ck_pre_image_at *at,
		       const void *was, const void *now, uint64_t len);
/*
 * *out: NULL where a page's @buf is to be written as it is, or bytes to be
 * freed: where it has what was replaced, what is there now, @is.  0, -ENOMEM.
 */
int ck_stale_log_merge(struct ck_stale_log *all,
		       const struct ck_pre_image_at *at, const void *buf,
		       const void *is, uint64_t len, unsigned char **out);
/* Whether a page that was written by @f had such bytes. */
bool ck_pre_image_merged(const struct ck_pre_image *f);
void ck_pre_image_set_merged(struct ck_pre_image *f);
uint64_t ck_stale_log_bytes(const struct ck_stale_log *all);

#endif
