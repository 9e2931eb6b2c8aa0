/* SPDX-License-Identifier: Apache-2.0 */
/* run_dir_list.h - a directory of checkpoints, a line each */
#ifndef RUN_DIR_LIST_H
#define RUN_DIR_LIST_H

#include "mount-helpers/cmd.h"

/*
 * After cmd_open_itself() failed on @path with @why: lists the checkpoints in
 * it and returns the exit code, 1 where one is not whole; where there are none,
 * prints @why.
 */
int run_dir_list(const struct cmd *c, const char *path,
		 const struct ck_opts *opts, const struct ck_err *why);

#endif
