/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shardkit.h - one tensor in real files, cut and laid out as a test wants
 *
 * The bytes of the whole tensor are made up; each part is written into a file
 * of a fresh directory as its strides say, with other bytes around it.  Parts
 * of one tensor: cells first, replicas behind.  Trouble aborts.
 */
#ifndef SHARDKIT_H
#define SHARDKIT_H

#include "core/io/read.h"
#include "tests/lib/imagekit.h"

struct shardkit {
	struct imagekit ik;
	char dir[64];
	unsigned rank;
	uint64_t shape[8];
	enum ck_dtype dtype;
	uint64_t elem, size;
	unsigned char *want; /* the tensor's bytes */
	unsigned char *blob; /* of MEM sources, if a test sets it */
	uint64_t blob_len;
	uint32_t nr_cells;
	/* after sk_open() */
	struct ck_catalog img;
	struct ck_root root;
	struct ck_reader_in in; /* may be filled in before */
	struct ck_reader *r;
};

void sk_init(struct shardkit *k, enum ck_dtype dtype, unsigned rank,
	     const uint64_t *shape);
void sk_free(struct shardkit *k);

struct sk_part {
	const char *file; /* NULL: only the bytes are wanted */
	const uint64_t *start, *len;
	const int64_t *stride; /* elements; NULL: row-major */
	const uint64_t *flat;
	uint64_t pad; /* bytes in the file before it */
	uint8_t xform;
	uint64_t item_len;
	bool replica;
};
/* The part's bytes as stored, without the pad: caller frees. */
unsigned char *sk_bytes(const struct shardkit *k, const struct sk_part *p,
			uint64_t *len, uint64_t *first);
/* Writes the file and adds the chunk: its number. */
uint32_t sk_part(struct shardkit *k, const struct sk_part *p);
void sk_put(const struct shardkit *k, const char *file, const void *bytes,
	    uint64_t len);
/* Writes over six bytes at @off, so that the file's time is another too. */
void sk_spoil(const struct shardkit *k, const char *file, uint64_t off);
/* A source for a file that is there. */
uint32_t sk_src(struct shardkit *k, const char *file);
const char *sk_path(const struct shardkit *k, const char *file);

/* The cut of @axis into @nr equal parts, files s0, s1...; row-major each. */
void sk_cut(struct shardkit *k, unsigned axis, unsigned nr);

/* Ends the catalog and makes a reader; @engine: "plain" or "uring". */
void sk_open(struct shardkit *k, const char *engine);
void sk_close(struct shardkit *k);

/* Reads [off, off + len): 0 and the right bytes, or -errno; else aborts. */
int sk_read(struct shardkit *k, uint64_t len, uint64_t off, struct ck_err *err);
/* @nr ranges at random and the whole; aborts where any fails. */
void sk_read_all(struct shardkit *k, unsigned nr);
uint64_t sk_random(uint64_t *state);

#endif
