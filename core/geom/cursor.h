/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.h - from a byte range, or a box, of a tensor to copies
 *
 * THE place where offsets are computed.  Pure: no I/O, no allocation, no
 * lock.  A segment is one n-dimensional copy between a source and the
 * request's buffer, not one run.
 */
#ifndef CK_CURSOR_H
#define CK_CURSOR_H

#include "core/geom/image.h"
#include "core/geom/range.h"
#include "core/geom/side.h"
#include "core/geom/tiling.h"

#define CK_SEG_AXES 6

enum ck_seg_kind {
	CK_SEG_COPY, /* bytes of source chunk->src, from src_off */
	CK_SEG_UNRESOLVED, /* chunk is deferred and unknown: resolve, go on */
	CK_SEG_ERROR, /* -> err: torn, missing or bad part */
};

/*
 * for each (i0 < ax[0].n) ... for each (ik < ax[nax-1].n):
 *	copy run bytes from  src_off + sum i*ax.src
 *	              to    dst     + sum i*ax.dst
 * Axes are outermost first, with as few axes and as long a run as possible.
 * src steps may be 0 or negative; the copies stay inside the source.
 * ERROR and UNRESOLVED: dst, run and axes say which bytes they would give.
 */
struct ck_seg {
	uint8_t kind, nax, op, xform;
	uint8_t elem; /* bytes an element: the unit of xform */
	int err; /* ERROR: errno */
	uint32_t chunk; /* the cell; its ring has the alternatives */
	uint64_t dst; /* byte offset in the request's buffer */
	uint64_t src_off; /* byte offset in the source */
	uint64_t run;
	uint64_t nbytes; /* run x all n */
	struct {
		uint64_t n;
		int64_t src, dst;
	} ax[CK_SEG_AXES];
};

struct ck_cursor {
	const struct ck_image *img;
	const struct ck_side *side;
	const struct ck_tensor *t;
	/* private */
	unsigned phase, edge;
	uint64_t pos, end; /* bytes of the tensor */
	struct ck_box want; /* grid box being served */
	uint64_t want_dst; /* buffer offset of its first element */
	struct ck_range range;
	struct ck_tiling walk;
	struct ck_range flat;
	uint32_t chunk;
	struct ck_seg rest; /* a seg of more than CK_SEG_AXES axes, unrolled */
};

/*
 * Bytes [pos, pos + len) of the tensor, to buffer offsets [0, len).  The
 * caller has checked the range.  @ring_skip picks alternatives: a chunk whose
 * bit... see ck_cursor_alt().  @side may be NULL if nothing is deferred.
 */
void ck_cursor_init(struct ck_cursor *cur, const struct ck_image *img,
		    const struct ck_side *side, const struct ck_tensor *t,
		    uint64_t pos, uint64_t len);
/*
 * The elements of @box of the tensor's SHAPE (not grid), to the buffer in the
 * box's own row-major order (a slice, a rank's part of a reshard).
 */
void ck_cursor_init_box(struct ck_cursor *cur, const struct ck_image *img,
			const struct ck_side *side, const struct ck_tensor *t,
			const struct ck_box *box);
/*
 * The next segment; false at the end.  The nbytes of all segments add up to
 * the request unless the tensor has a hole, which then is the difference.
 */
bool ck_cursor_next(struct ck_cursor *cur, struct ck_seg *seg);

/*
 * The same elements as @seg, taken from replica @chunk of its ring instead:
 * refills src_off, axes' src steps, kind, err, xform.  Ring members have the
 * same box, so dst does not change.
 */
void ck_seg_alt(const struct ck_image *img, const struct ck_side *side,
		const struct ck_tensor *t, uint32_t chunk, struct ck_seg *seg);

/* The first byte of @t that no cell covers; t->size if there is none. */
uint64_t ck_tensor_first_hole(const struct ck_image *img,
			      const struct ck_tensor *t);

#endif
