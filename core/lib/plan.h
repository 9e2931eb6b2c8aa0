/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - which bytes of which files are behind a tensor or a slice */
#ifndef CK_LIB_PLAN_H
#define CK_LIB_PLAN_H

#include "core/ckpt/ckpt.h"
#include "core/lib/target.h"

struct ck_plan_sums {
	uint64_t size, planned, lost; /* bytes: asked, found, of errors */
};

/* Segment by segment; @target is a tensor. */
void ck_plan_begin(struct ck_ckpt *ck, const struct ck_target *target,
		   struct ck_cursor *cur, struct ck_plan_sums *sums);
bool ck_plan_next(struct ck_cursor *cur, struct ck_seg *seg,
		  struct ck_plan_sums *sums);
/* All of it as JSON: every stretch.  What @put returns, if that is not 0. */
int ck_plan_json(struct ck_ckpt *ck, const struct ck_target *target,
		 int (*put)(void *ctx, const char *text, size_t len), void *ctx,
		 struct ck_plan_sums *sums, struct ck_err *err);
/* Why a segment of @chunk is none that can be copied; @err: its errno. */
const char *ck_plan_why(const struct ck_catalog *img, uint32_t chunk, int err);
const char *ck_plan_xform(uint8_t xform); /* NULL: as stored */

#endif
