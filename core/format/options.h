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
#include "core/base/str.h"
#include "core/format/format.h"

/* Whether the option is given, and is nothing to a checkpoint of @f. */
bool ck_option_unread(const struct ck_option *o, const struct ck_opts *opts,
		      const struct ck_format *f);
/* The same of one that is for this format, and nothing made use of. */
bool ck_option_unused(const struct ck_option *o, const struct ck_opts *opts,
		      const struct ck_format *f);
/* The line that says so of either. */
void ck_option_line(const struct ck_option *o, const struct ck_opts *opts,
		    const struct ck_format *f, struct ck_str *out);
/*
 * Reports each as a problem that begins with "-o ": a warning; a note where
 * something else may read it, such as another checkpoint beside this one.
 */
int ck_options_report(const struct ck_dir *dir, const struct ck_format *f,
		      struct ck_builder *b, struct ck_err *err);

#endif
