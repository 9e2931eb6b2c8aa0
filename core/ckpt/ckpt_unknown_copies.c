/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_unknown_copies.c - writes where a file is missing of which nobody knows
 * what it holds
 *
 * An index, or a layout, says what a missing file held, so that a copy in it
 * is a lost part of its tensor, and refused with that.  Files of other formats
 * say themselves what they hold: while one is missing, or cannot be read, any
 * tensor may have a copy in it.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/format/format.h"

#include <errno.h>
#include <string.h>

void ck_unknown_copies_init(struct ck_unknown_copies *l,
			    const struct ck_catalog *img)
{
	const struct ck_format *f = ck_format_of(img);

	*l = (struct ck_unknown_copies){ CK_NONE, CK_NONE };
	if (f && f->indexed)
		return;
	for (uint32_t i = 0; i < img->nr_problems; i++)
		if (img->problems[i].severity == CK_ERROR &&
		    img->problems[i].tensor == CK_NONE && l->problem == CK_NONE)
			l->problem = i;
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (img->tensors[i].state == CK_MISSING && l->tensor == CK_NONE)
			l->tensor = i;
}

int ck_unknown_copies_may(const struct ck_unknown_copies *l,
			  const struct ck_catalog *img, uint32_t tensor,
			  struct ck_err *err)
{
	const char *name = ck_catalog_str(img, img->tensors[tensor].name, NULL);
	const struct ck_problem *p = img->problems + l->problem;
	const char *file, *of;

	if (l->problem != CK_NONE) {
		file = p->file == CK_NONE ? "" :
					    ck_catalog_str(img, p->file, NULL);
		return ck_fail(err, EIO,
			       "%.300s: not written, for a copy of it may be "
			       "in what is missing: %s%s%s",
			       name, file, *file ? ": " : "",
			       ck_catalog_str(img, p->reason, NULL));
	}
	if (l->tensor == CK_NONE)
		return 0;
	of = ck_catalog_str(img, img->tensors[l->tensor].name, NULL);
	return ck_fail(err, EIO,
		       "%.300s: not written, for a copy of it may be in the "
		       "file that a part of %.300s is missing with",
		       name, of);
}
