/* SPDX-License-Identifier: Apache-2.0 */
/* everybody.h - what everybody may, whoever he is */
#ifndef FS_EVERYBODY_H
#define FS_EVERYBODY_H

#include <stdbool.h>
#include <sys/types.h>

/* By all three of the mode, for an owner may have less than others, and no list. */
bool fs_everybody_may(int fd, mode_t bits);
/*
 * Each folder on the way from @dir to @path lets everybody through; a link among
 * them may lead anywhere, and does not.
 */
bool fs_everybody_goes(int dir, const char *path);
/* All may go to the folder @path, and its mode says who may do what there. */
bool fs_everybody_sees(const char *path);

#endif
