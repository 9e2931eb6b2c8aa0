/* SPDX-License-Identifier: Apache-2.0 */
/* cursor_priv.h - the two halves of the cursor */
#ifndef CK_CURSOR_PRIV_H
#define CK_CURSOR_PRIV_H

#include "core/geom/cursor.h"

/*
 * segment.c: the elements of grid box @sub, which lies in cur->cell and in
 * cur->walk.want, as one segment, the first of several where it has too many
 * axes; then ck_segment_more() gives the others.
 */
void ck_segment_make(struct ck_cursor *cur, const struct ck_box *sub,
		     struct ck_seg *seg);
bool ck_segment_more(struct ck_cursor *cur, struct ck_seg *seg);

/* Makes @seg the longer by @next, which the buffer has right behind it. */
bool ck_segment_join(struct ck_seg *seg, const struct ck_seg *next);

#endif
