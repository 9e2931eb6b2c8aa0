/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.h - whether what lies in a directory is a whole checkpoint
 *
 * Our own reader decides: every tensor that the files tell of is there, every
 * item of them can be resolved, and nothing was refused.  Everything is read
 * in short-lived, sandboxed processes.
 *
 * Threads: any.
 */
#ifndef CK_COMPLETE_H
#define CK_COMPLETE_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/draft/dir_tree.h"

#include <stdint.h>

/*
 * @path: the directory; @files: what is in it; @opts: how it is to be read.
 * @ranks: how many wrote it, 0: not said.  @holes: bytes that are in no block
 * of a file count as written.  0; -ENODATA with what is missing; -errno where
 * it could not be found out.
 */
int ck_complete(const char *path, const struct ck_dir_tree *files,
		const struct ck_opts *opts, uint64_t ranks, bool holes,
		struct ck_err *err);

#endif
