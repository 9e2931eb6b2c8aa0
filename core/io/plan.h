/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - runs of bytes, in any order, as few vectored reads or writes
 *
 * Runs are sorted by source and offset; neighbours become one read, also
 * across a gap of up to a page, if all_gaps or at most 4x the bytes wanted are
 * read; a write has no gaps.  A plan is filled, made, run by an engine, and
 * asked which segments a failed read belongs to.
 *
 * One thread; no allocation.
 */
#ifndef CK_PLAN_H
#define CK_PLAN_H

#include "core/geom/cursor.h"
#include "core/io/engine.h"

#define CK_PLAN_RUNS 4096
#define CK_PLAN_SRCS 64
#define CK_PLAN_GAP 4096

struct ck_plan_run {
	uint64_t off, len;
	unsigned char *dst;
	unsigned src, seg; /* the caller's numbers */
	/* Not in one piece in memory: pieces of this many bytes. */
	uint64_t piece; /* 0: it is */
	int64_t step; /* from one piece to the next */
};

struct ck_plan {
	unsigned nr_run, nr_io, nr_iov;
	unsigned nr_piece; /* of all runs: at most CK_PLAN_RUNS */
	enum ck_io_op op; /* READ after a reset */
	/* All gaps of up to CK_PLAN_GAP are read through; false after a reset. */
	bool all_gaps;
	struct ck_plan_run run[CK_PLAN_RUNS];
	struct ck_plan_run sorted[CK_PLAN_RUNS]; /* while they are sorted */
	struct ck_io io[CK_PLAN_RUNS];
	unsigned io_end[CK_PLAN_RUNS]; /* its runs end before this one */
	struct iovec iov[2 * CK_PLAN_RUNS];
	unsigned char gap[CK_PLAN_GAP]; /* written, never read */
};

void ck_plan_reset(struct ck_plan *p);
/* False: full. */
bool ck_plan_add(struct ck_plan *p, const struct ck_plan_run *run);
/* Fills io[0..nr_io); @fd by source number. */
void ck_plan_make(struct ck_plan *p, const int *fd);
/* Bytes that io asks for, gaps included; before it is run. */
uint64_t ck_plan_bytes(const struct ck_plan *p);

/* The copies of a segment one by one, in the order of its axes. */
struct ck_runs {
	const struct ck_seg *seg;
	uint64_t at[CK_SEG_AXES];
	uint64_t src, dst; /* of the current copy */
	bool done;
};
void ck_runs_init(struct ck_runs *it, const struct ck_seg *seg);
void ck_runs_step(struct ck_runs *it);
/*
 * Adds what is left of @it, whose buffer is @buf, as runs of @src and @seg;
 * false: the plan is full before all of it is in.
 */
bool ck_plan_add_all(struct ck_plan *p, struct ck_runs *it, unsigned char *buf,
		     unsigned src, unsigned seg);

/* Applies the transform of @seg to its bytes in @buf; whole elements. */
void ck_seg_transform(const struct ck_seg *seg, uint8_t dtype,
		      unsigned char *buf);

#endif
