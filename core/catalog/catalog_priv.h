/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_priv.h - the file that a catalog is
 *
 * A head, then sections in any order, each at a multiple of 8 bytes.  Numbers
 * are the machine's own: the magic read as an integer, and the sizes of the
 * records, tell whether they are the reader's too.
 */
#ifndef CK_CATALOG_PRIV_H
#define CK_CATALOG_PRIV_H

#include "core/base/err.h"
#include "core/geom/catalog.h"

#define CK_CATALOG_MAGIC UINT64_C(0x0a0d67696d696b63) /* "ckimig\r\n" */
#define CK_CATALOG_VERSION 4

enum {
	CK_SEC_TENSORS,
	CK_SEC_CHUNKS,
	CK_SEC_LAYOUTS,
	CK_SEC_SRCS,
	CK_SEC_INDEXES,
	CK_SEC_OBJECTS,
	CK_SEC_PROBLEMS,
	CK_SEC_TREES,
	CK_SEC_DIMS,
	CK_SEC_STRS,
	CK_SEC_BLOB,
	CK_SEC_NR
};

struct ck_catalog_sec {
	uint64_t off, nr; /* bytes from the beginning; records */
	uint64_t elem; /* bytes of a record */
};

struct ck_catalog_head {
	uint64_t magic;
	uint32_t version;
	uint32_t format; /* string: the reader's name */
	uint32_t save, saved_to; /* strings, as in struct ck_catalog */
	uint64_t size; /* bytes of the whole catalog */
	struct ck_catalog_sec sec[CK_SEC_NR];
};

static inline uint64_t ck_catalog_elem(unsigned sec)
{
	static const uint8_t size[CK_SEC_NR] = {
		[CK_SEC_TENSORS] = sizeof(struct ck_tensor),
		[CK_SEC_CHUNKS] = sizeof(struct ck_chunk),
		[CK_SEC_LAYOUTS] = sizeof(struct ck_layout),
		[CK_SEC_SRCS] = sizeof(struct ck_src),
		[CK_SEC_INDEXES] = sizeof(struct ck_src),
		[CK_SEC_OBJECTS] = sizeof(struct ck_object),
		[CK_SEC_PROBLEMS] = sizeof(struct ck_problem),
		[CK_SEC_TREES] = sizeof(uint32_t),
		[CK_SEC_DIMS] = sizeof(uint64_t),
		[CK_SEC_STRS] = 1,
		[CK_SEC_BLOB] = 1,
	};

	return size[sec];
}

/* A seed of the hashed name for each time that it was taken already. */
#define CK_NAME_SEEDS 4

/* ---- catalog_check.c ---- */

/*
 * Fills @img with places in @base (aligned to 8, @size bytes, at least a
 * head).  -EINVAL: something in it is not as the builder makes it.
 */
int ck_catalog_check(struct ck_catalog *img, const void *base, size_t size,
		     struct ck_err *err);

#endif
