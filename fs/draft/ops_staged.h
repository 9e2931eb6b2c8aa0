/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_staged.h - each operation, for a checkpoint that is being written or,
 * as ops.h has it, for anything else
 *
 * By the inode's number alone (stages.h); and in the root of a directory of
 * checkpoints, names that mean a stage are looked up, made, renamed and
 * removed here.
 */
#ifndef FS_OPS_STAGED_H
#define FS_OPS_STAGED_H

#include "fs/kernel/kernel.h"

/* @ops of ops.h become those that know stages too. */
void fs_ops_with_stages(struct fuse_lowlevel_ops *ops);

#endif
