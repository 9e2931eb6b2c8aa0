/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_opt.h - the bytes of -o layout=FILE, read before there is a sandbox
 *
 * Parsers may open the checkpoint's files only, and this one may lie anywhere.
 */
#ifndef CK_LAYOUT_OPT_H
#define CK_LAYOUT_OPT_H

#include "core/base/err.h"
#include "core/base/opts.h"

#define CK_LAYOUT_OPT_TEXT "layout-text" /* no option that users can give */

/*
 * Adds CK_LAYOUT_OPT_TEXT where layout= is given and it is not there yet.
 * Opens a file by a path of the user's: not for confined processes.
 */
int ck_layout_opt_read(struct ck_opts *opts, struct ck_err *err);

#endif
