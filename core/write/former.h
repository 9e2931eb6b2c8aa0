/* SPDX-License-Identifier: Apache-2.0 */
/*
 * former.h - what writes replaced, while pages of maps may still show it
 *
 * The kernel writes pages of maps back whole.  One that it read before somebody
 * else's write has the bytes that were there before that, and sends them as if
 * a program had stored them.  They are told by being exactly what the write
 * replaced, which is kept until the kernel has no such page any more.
 *
 * Bytes, of a key (a tensor) and an offset.  Threads: any; who merges and then
 * keeps has to be the only writer of the bytes meanwhile (stints.h).
 */
#ifndef CK_FORMER_H
#define CK_FORMER_H

#include <stdbool.h>
#include <stdint.h>

struct ck_formers; /* of a checkpoint */
struct ck_former; /* of one write */

/* Keeps up to @max bytes, of which each replaced one takes two; NULL: no memory */
struct ck_formers *ck_formers_new(uint64_t max);
/* It goes with the last write that it has something of. */
void ck_formers_free(struct ck_formers *all);

struct ck_former *ck_former_new(struct ck_formers *all); /* NULL: no memory */
/* No page of before the write is left. */
void ck_former_end(struct ck_former *f); /* or NULL */

/* Which bytes, and whose pages show them. */
struct ck_former_at {
	uint32_t key;
	uint64_t off;
	uint64_t file; /* 0: nobody's */
	uint32_t as; /* the key that @file shows them under */
};

/*
 * @now took the place of @was, and pages of @at->file under @at->as have it.
 * False: it is not kept, for there is too much already.
 */
bool ck_former_keep(struct ck_former *f, const struct ck_former_at *at,
		    const void *was, const void *now, uint64_t len);
/*
 * *out: NULL where a page's @buf is to be written as it is, or bytes to be
 * freed: where it has what was replaced, what is there now, @is.  0, -ENOMEM.
 */
int ck_formers_merge(struct ck_formers *all, const struct ck_former_at *at,
		     const void *buf, const void *is, uint64_t len,
		     unsigned char **out);
/* Whether a page that was written by @f had such bytes. */
bool ck_former_merged(const struct ck_former *f);
void ck_former_set_merged(struct ck_former *f);
uint64_t ck_formers_bytes(const struct ck_formers *all);

#endif
