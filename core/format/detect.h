/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect.h - from a folder to a catalog, with the reader that fits
 *
 * -o format=NAME decides; else the surest probe wins.  Where two are equally
 * sure and describe the same names, shapes and dtypes, safetensors wins and a
 * note says so; any other tie is an error that names both and the option.
 */
#ifndef CK_DETECT_H
#define CK_DETECT_H

#include "core/base/err.h"
#include "core/root/dir.h"

/* Writes the catalog to @fd.  Runs in the parser's process. */
int ck_detect_load(const struct ck_dir *dir, int fd, struct ck_err *err);

#endif
