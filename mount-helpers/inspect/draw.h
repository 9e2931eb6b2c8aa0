/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - a tensor's pieces as a picture of boxes
 *
 *	       0        3584     7168
 *	     0 +--------+--------+
 *	       | rank 0 | rank 1 |
 *	       | rank 4 | rank 5 |     two copies
 *	  4096 +--------+--------+
 */
#ifndef DRAW_H
#define DRAW_H

#include "mount-helpers/inspect/labels.h"

/*
 * Appends the picture, at most @width columns wide.  False, with @out as it
 * was: pieces are cut along more than two axes, or are too many.
 */
bool draw_tensor(const struct ck_catalog *img, const struct ck_tensor *t,
		 const struct labels *labels, unsigned width,
		 struct ck_str *out);

#endif
