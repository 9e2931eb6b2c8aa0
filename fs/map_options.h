/* SPDX-License-Identifier: Apache-2.0 */
/* map_options.h - what .unshard/map says of the options of the mount */
#ifndef FS_MAP_OPTIONS_H
#define FS_MAP_OPTIONS_H

#include "core/base/opts.h"
#include "core/ckpt/ckpt.h"

/*
 * Those by which who opens @root himself sees the same: text, from malloc(); files
 * that they name are named only by absolute paths.  NULL: the mount has no map, for
 * it is written to, or map=off was given; or no memory.
 */
char *fs_map_options(const struct ck_opts *opts, const struct ck_root *root);

/* Whether those say that it has one. */
bool fs_map_wanted(const struct ck_opts *opts);

#endif
