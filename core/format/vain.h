/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vain.h - options that are given for a checkpoint which does not use them
 *
 * The one table of which formats' readers and views read an option.  An option
 * that it does not have is for every format.
 */
#ifndef CK_VAIN_H
#define CK_VAIN_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/base/str.h"
#include "core/catalog/builder.h"
#include "core/assemble/dir.h"

struct ck_vain {
	const char *option;
	const char *formats; /* with a space between them */
	const char *also; /* what else reads it; NULL: nothing */
	bool in_views; /* used later, of its own format */
};

extern const struct ck_vain ck_vain[]; /* up to a NULL name */

/* Whether the option is given, and is nothing to a checkpoint of @format. */
bool ck_vain_is(const struct ck_vain *v, const struct ck_opts *opts,
		const char *format);
/* The same of one that is for this format, and nothing made use of. */
bool ck_vain_is_idle(const struct ck_vain *v, const struct ck_opts *opts,
		     const char *format);
/* The line that says so of either. */
void ck_vain_line(const struct ck_vain *v, const struct ck_opts *opts,
		  const char *format, struct ck_str *out);
/*
 * Says each as a problem that begins with "-o ": a warning; a note where
 * something else may read it, such as another checkpoint beside this one.
 */
int ck_vain_say(const struct ck_dir *dir, const char *format,
		struct ck_builder *b, struct ck_err *err);

#endif
