/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.h - from a byte range, or a box, of a tensor to copies
 *
 * THE place where offsets are computed.  Pure: no I/O, no allocation, no
 * lock, but for what ck_cursor_resolve() has found.  A segment is one
 * n-dimensional copy between a source and the request's buffer, not one run.
 */
#ifndef CK_CURSOR_H
#define CK_CURSOR_H

#include "core/geom/catalog.h"
#include "core/geom/range.h"
#include "core/geom/resolved.h"
#include "core/geom/tiling.h"

#define CK_SEG_AXES 6

enum ck_seg_kind {
	CK_SEG_COPY, /* bytes of source chunk->src, from src_off */
	CK_SEG_UNRESOLVED, /* chunk is deferred and unknown */
	CK_SEG_ERROR, /* -> err: torn, missing or bad part */
};

/*
 * for each (i0 < ax[0].n) ... for each (ik < ax[nax-1].n):
 *	copy run bytes from  src_off + sum i*ax.src
 *	              to    dst     + sum i*ax.dst
 * Axes are outermost first, with as few axes and as long a run as possible.
 * dst steps are positive, but for memory with strides; src steps may be 0 or negative; the copies stay
 * inside the source.  ERROR and UNRESOLVED: dst, run and the axes' n and dst
 * say which bytes they would give; src_off and src mean nothing.
 *
 * Elements are whole, but for a request that begins or ends inside one.  Where
 * bytes are taken as they are (no xform, SET) that makes no difference.  Else
 * the part is a segment of its own: run is what is wanted of the element that
 * begins at src_off - skip.
 *
 * A TORN part (the file is shorter than it should be) is COPY where all of
 * the segment lies in what is there, and ERROR with EIO where any of it lies
 * beyond; segments that would be one but for CK_SEG_AXES are judged as one.
 */
struct ck_seg {
	uint8_t kind, nax, op, xform;
	uint8_t elem; /* bytes an element: the unit of xform */
	uint8_t skip;
	int err; /* ERROR: errno */
	uint32_t chunk; /* the first good one of the cell's ring */
	uint64_t dst; /* byte offset in the request's buffer */
	uint64_t src_off; /* byte offset in the source */
	uint64_t run;
	uint64_t nbytes; /* run x all n */
	struct ck_seg_axis {
		uint64_t n;
		int64_t src, dst;
	} ax[CK_SEG_AXES];
};

/* Public so that it can live on the stack.  Points into itself: no copies. */
struct ck_cursor {
	const struct ck_catalog *img;
	const struct ck_resolved *resolved;
	const struct ck_tensor *t;
	/* private; what was asked for */
	const uint64_t *grid;
	const uint64_t *dims; /* the order of the request: its axes' lengths */
	uint64_t own_dims[CK_MAX_RANK], corner[CK_MAX_RANK];
	uint64_t step[CK_MAX_RANK]; /* buffer bytes along each grid axis */
	uint8_t group[CK_MAX_RANK + 1]; /* first grid axis of a request axis */
	uint8_t elem, rank; /* rank: of dims */
	bool grouped; /* dims are axes of the shape, not of the grid */
	bool resolves;
	struct ck_err *why;
	uint32_t sole; /* this cell alone; or CK_NONE */
	uint32_t only; /* this chunk, not the best one; or CK_NONE */
	uint64_t pos, end,
		base; /* bytes in the request's order; buffer start */
	/* how far it got, outermost first */
	uint8_t depth;
	uint8_t skip, cut; /* cut bytes of an element from skip; 0: whole */
	struct ck_range range; /* stretch of dims -> boxes */
	struct ck_box part;
	struct ck_range groups[CK_MAX_RANK]; /* box of the shape -> of grid */
	uint64_t dst; /* buffer offset of the first element of walk.want */
	struct ck_tiling walk; /* box of the grid -> cells */
	uint32_t cell;
	struct ck_range flat; /* [lo, hi) of a cell -> boxes */
	struct ck_seg held; /* looked at, but not given out yet */
	bool holding;
	uint8_t unroll; /* axes beyond CK_SEG_AXES still being walked */
	struct ck_seg first; /* of the unrolled ones */
	uint64_t at[CK_MAX_RANK];
	struct ck_seg_axis ax[CK_MAX_RANK]; /* innermost first */
};

/*
 * Bytes [pos, pos + len) of the tensor, to buffer offsets [0, len).  The
 * caller has checked the range.  @resolved may be NULL if nothing is deferred.
 */
void ck_cursor_init(struct ck_cursor *cur, const struct ck_catalog *img,
		    const struct ck_resolved *resolved,
		    const struct ck_tensor *t, uint64_t pos, uint64_t len);
/*
 * The elements of @box of the tensor's SHAPE (not grid), to the buffer in the
 * box's own row-major order (a slice, a rank's part of a reshard).
 */
void ck_cursor_init_box(struct ck_cursor *cur, const struct ck_catalog *img,
			const struct ck_resolved *resolved,
			const struct ck_tensor *t, const struct ck_box *box);
/*
 * The same elements, to memory in which neighbours along dimension d are
 * stride[d] elements apart; negative too: then dst of a segment, and of its
 * axes, is a difference modulo 2^64 from the box's first element.  Not for
 * ck_cursor_init_alt().
 */
void ck_cursor_init_box_strided(struct ck_cursor *cur,
				const struct ck_catalog *img,
				const struct ck_resolved *resolved,
				const struct ck_tensor *t,
				const struct ck_box *box,
				const int64_t *stride);
/*
 * Of them only bytes [pos, pos + len), to buffer offsets [0, len).  The caller
 * has checked the range.
 */
void ck_cursor_init_box_bytes(struct ck_cursor *cur,
			      const struct ck_catalog *img,
			      const struct ck_resolved *resolved,
			      const struct ck_tensor *t,
			      const struct ck_box *box, uint64_t pos,
			      uint64_t len);
/*
 * The elements of @seg, which @from gave, once more, to the same places in
 * the buffer: from chunk @chunk of the ring where that is not CK_NONE (a
 * replica failed), else from the first good one (it was UNRESOLVED).  May take
 * several segments.  @from may be at its end, and need not outlive this call.
 */
void ck_cursor_init_alt(struct ck_cursor *cur, const struct ck_cursor *from,
			const struct ck_seg *seg, uint32_t chunk);
/*
 * What is deferred and unknown is resolved on the way (ck_resolved_find()), before
 * the segment is given.  UNRESOLVED then: that failed, and @why, or NULL, says why; as
 * it does of an ERROR that was found just now.
 */
void ck_cursor_resolve(struct ck_cursor *cur, struct ck_err *why);
/*
 * The next segment; false at the end.  No two overlap in the buffer.  The
 * nbytes of all segments add up to the request unless the tensor has a hole,
 * which then is the difference.
 */
bool ck_cursor_next(struct ck_cursor *cur, struct ck_seg *seg);

/*
 * Turns the axes of @seg, which is not an edge, so that it goes through its
 * source from the front to the back, axes that stay where they are last; *end:
 * behind its last byte.  False, and it is as it was: its copies lie across each
 * other in the source.
 */
bool ck_seg_in_order(struct ck_seg *seg, uint64_t *end);

/*
 * Of a segment in order, the elements that begin in bytes [lo, hi) of the
 * source; as segments, in their order there.
 */
struct ck_seg_cut {
	const struct ck_seg *seg;
	uint64_t dims[CK_SEG_AXES + 1]; /* of axes that move, and of a run */
	unsigned nr; /* axes that move */
	struct ck_range range;
};
void ck_seg_cut_init(struct ck_seg_cut *cut, const struct ck_seg *seg,
		     uint64_t lo, uint64_t hi);
bool ck_seg_cut_next(struct ck_seg_cut *cut, struct ck_seg *part);

/* Copies @run bytes from @src to @dst, and so along each of @nr axes. */
#define CK_COPY_AXES (CK_SEG_AXES + 2)
void ck_copy_axes(const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		  unsigned char *dst, const unsigned char *src);

/* The first byte of @t that no cell covers; t->size if there is none. */
uint64_t ck_tensor_first_hole(const struct ck_catalog *img,
			      const struct ck_tensor *t);

#endif
