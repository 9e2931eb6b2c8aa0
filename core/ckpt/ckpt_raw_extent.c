/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_raw_extent.c - the part of the facade that says what lies where as it is
 */
#include "core/ckpt/ckpt_priv.h"
#include "core/geom/cursor.h"

bool ck_ckpt_raw_extent(const struct ck_ckpt *ck, uint32_t tensor, uint64_t off,
			uint64_t len, struct ck_raw_extent *out)
{
	const struct ck_catalog *img = &ck->img;
	struct ck_cursor cur;
	struct ck_seg seg;

	ck_cursor_init(&cur, img, ck->resolved, &img->tensors[tensor], off,
		       len);
	ck_cursor_resolve(&cur, NULL);
	if (ck->overlay || ck->over || !ck_cursor_next(&cur, &seg) ||
	    seg.kind != CK_SEG_COPY || seg.nax || seg.dst ||
	    seg.xform != CK_XF_NONE || seg.op != CK_OP_SET)
		return false;
	*out = (struct ck_raw_extent){ .src = img->chunks[seg.chunk].src,
				       .off = seg.src_off,
				       .len = seg.run };
	return img->srcs[out->src].kind == CK_SRC_FILE;
}
