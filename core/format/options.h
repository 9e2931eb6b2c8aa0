/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - options that only some formats read: which there are, and those
 * that were given and are of no use to the checkpoint
 *
 * A format declares its own; those that several read, or something else too,
 * are declared in options.c.  An option of neither is for every format.
 */
#ifndef CK_OPTIONS_H
#define CK_OPTIONS_H

#include "core/base/option.h"
#include "core/format/format.h"

/*
 * Reports options that are nothing to a checkpoint of @f, or are for it and
 * nothing made use of: each a problem that begins with "-o ", a warning; a note
 * where something else may read it, such as another checkpoint beside this one.
 */
int ck_options_report(const struct ck_dir *dir, const struct ck_format *f,
		      struct ck_builder *b, struct ck_err *err);

#endif
