/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.h - whether a file is what one rank of several saved
 *
 * Some formats say so inside of their files.  Where names and folders are not
 * theirs their readers do not take them, and a slice must not be shown as the
 * whole of a tensor without a word.
 */
#ifndef CK_SLICE_H
#define CK_SLICE_H

#include "core/root/dir.h"
#include "core/base/err.h"
#include "core/catalog/builder.h"
#include "core/parse/json.h"
#include "core/parse/pickle.h"

/*
 * Reports it of @file of @dir, whose object is @p's, as a problem: an error, or
 * a warning where that file is all that was asked for.  0 or -ENOMEM.
 */
int ck_slice_report(const struct ck_dir *dir, struct ck_builder *b,
		    const char *file, const struct ck_pickle *p,
		    struct ck_err *err);
/* The same of a safetensors file with that __metadata__; NULL: it has none. */
int ck_slice_report_metadata(const struct ck_dir *dir, struct ck_builder *b,
			     const char *file, const json_t *metadata,
			     struct ck_err *err);

#endif
