/* SPDX-License-Identifier: Apache-2.0 */
/*
 * as_ckpt.h - what a folder of views/ shows, as a checkpoint of its own
 *
 * So every view can be had of it: views compose.
 */
#ifndef CK_AS_CKPT_H
#define CK_AS_CKPT_H

#include "core/view/view.h"

/*
 * Of folder @d of @v, a view whose ops nest.  @owned: closing it closes @v and
 * then its checkpoint; else both must outlive it.
 */
int ck_view_as_ckpt(struct ck_ckpt **out, struct ck_view *v, uint32_t d,
		    bool owned, struct ck_err *err);
/* The file of @v that it is made of; CK_NONE: there is no such folder. */
uint32_t ck_view_as_ckpt_file(const struct ck_view *v, uint32_t d);

#endif
