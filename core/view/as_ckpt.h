/* SPDX-License-Identifier: Apache-2.0 */
/*
 * as_ckpt.h - what a view shows, as a checkpoint of its own
 *
 * So CKPT/hf can be listed and compared, and every view can be had of a folder
 * of views/: views compose.
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
/*
 * Of what is called @name in @v: a file, or a folder of them; "": all of it.
 * Owned, as above; -ENOENT with @err set: there is none.
 */
int ck_view_shown_as_ckpt(struct ck_ckpt **out, struct ck_view *v,
			  const char *name, struct ck_err *err);
/* The folder that @name, or the beginning of FOLDER/FILE, calls; -errno. */
int ck_view_folder_called(const struct ck_view *v, const char *name,
			  uint32_t *d, struct ck_err *err);
/*
 * The file called @name, which may be FOLDER/FILE, of @v; of a view that is
 * one file ("") that.  CK_NONE: it is none, as @err says.
 */
uint32_t ck_view_file_called(const struct ck_view *v, const char *name,
			     struct ck_err *err);

#endif
