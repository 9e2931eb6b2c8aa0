/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharding.h - how a tensor is cut, in a few words
 *
 *	whole			one piece
 *	dim0=8			eight pieces along axis 0
 *	dim0=2,dim1=4		a regular grid of pieces
 *	grid=[4, 3, 64],axis0=8	the same of a refinement of the shape
 *	flat=16			stretches of the row-major order
 *	pieces=13		anything else
 *	none			no byte of it was saved
 *
 * and ",copies=2" where pieces are stored more than once.
 */
#ifndef FS_SHARDING_H
#define FS_SHARDING_H

#include "core/base/str.h"
#include "core/geom/catalog.h"

void fs_sharding_text(const struct ck_catalog *img, const struct ck_tensor *t,
		      struct ck_str *out);
/* Files that hold some of it. */
uint32_t fs_sharding_sources(const struct ck_catalog *img,
			     const struct ck_tensor *t);

#endif
