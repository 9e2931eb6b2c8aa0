/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compose.h - a file made of pieces: own bytes and whole tensors, in order
 *
 *   off 0        n0            n0+size(t5)
 *   [bytes n0   ][tensor 5    ][bytes ...   ][tensor 2 ...
 *
 * 24 bytes a piece.  Filled once by one thread, then read by any.
 */
#ifndef CK_COMPOSE_H
#define CK_COMPOSE_H

#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/geom/catalog.h"
#include "core/view/view.h"

struct ck_piece {
	uint64_t off; /* in the file */
	uint64_t at; /* where in the tensor, or in the blob; bytes shown */
	uint32_t tensor; /* CK_NONE: own bytes */
	uint8_t dtype; /* its elements are shown as these; 0: as they are */
	bool turned; /* matrix number @tensor of turned, all of it */
	bool zeros; /* nothing but these */
	bool saturate; /* the cast does, see cast.h */
};

struct ck_compose {
	CK_VEC(struct ck_piece) pieces;
	CK_VEC(struct ck_turned) turned; /* owns their runs */
	struct ck_bands *bands; /* of all of them */
	struct ck_str blob; /* all own bytes; under 4 GiB */
	uint64_t size;
	uint32_t newest; /* source that changed last; CK_NONE: none */
	bool failed; /* no memory, or too large */
};

#define CK_COMPOSE_INIT           \
	{                         \
		.newest = CK_NONE \
	}

void ck_compose_free(struct ck_compose *c);
void ck_compose_bytes(struct ck_compose *c, const void *bytes, size_t len);
void ck_compose_zeros(struct ck_compose *c, uint64_t len);
/* Adds all of tensor @t; one of size 0 adds nothing. */
void ck_compose_tensor(struct ck_compose *c, const struct ck_catalog *img,
		       uint32_t t);
/*
 * Adds bytes [at, at + len) of tensor @t as its elements are when they are cast
 * to @dtype (0: as they are).  The piece, for the cast to be refined; NULL: none
 * was needed, or no memory.
 */
struct ck_piece *ck_compose_range(struct ck_compose *c,
				  const struct ck_catalog *img, uint32_t t,
				  uint64_t at, uint64_t len, uint8_t dtype);
/*
 * Adds the rows of @turned as columns, its elements cast to @dtype (not 0).
 * Takes its runs, from malloc().  The piece, or NULL, as above.
 */
struct ck_piece *ck_compose_turned(struct ck_compose *c,
				   const struct ck_catalog *img,
				   const struct ck_turned *turned,
				   uint8_t dtype);
/* 0, or -ENOMEM with @err set, once everything was added. */
int ck_compose_done(const struct ck_compose *c, struct ck_err *err);

/* Fills all of @out but the tensor; true. */
bool ck_compose_vfile(const struct ck_compose *c, struct ck_vfile *out);
/* ops->at() and ops->made() of a view whose file this is. */
void ck_compose_at(const struct ck_compose *c, uint64_t off,
		   struct ck_span *out);
int ck_compose_made(const struct ck_compose *c, void *buf, uint64_t len,
		    uint64_t off, struct ck_err *err);

#endif
