/* SPDX-License-Identifier: Apache-2.0 */
/*
 * edited.h - the file that says which files are being edited; see sealed.h
 *
 * Names, each followed by a NUL; a tail without one was cut off by a crash,
 * before the file that it would name was touched.  NAME CK_EDITED_BAD K: what
 * block K of NAME held was not what was sealed, before anything was written to
 * it.
 */
#ifndef CK_EDITED_H
#define CK_EDITED_H

#include "core/base/err.h"
#include "core/root/root.h"

#include <stdbool.h>
#include <stddef.h>

#define CK_EDITED_BAD "//" /* in no name of a file */

/* All of it, from malloc(), each name with its NUL; -ENOENT: there is none. */
int ck_edited_read(const struct ck_root *root, char **names, size_t *len,
		   struct ck_err *err);
/*
 * Puts @names in, @len bytes, each with its NUL; durable when it returns.  *fd
 * is -1 at first, and kept.
 */
int ck_edited_add(const struct ck_root *root, int *fd, const char *names,
		  size_t len, struct ck_err *err);
int ck_edited_remove(const struct ck_root *root, int *fd, struct ck_err *err);

#endif
