/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h - .unshard/stats: a line "key value" for each counter
 *
 * The counters are padded, so the file has the same size for the life of a
 * mount and stat() before open() is right.
 */
#ifndef FS_STATS_H
#define FS_STATS_H

#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "fs/kernel/kernel.h"

struct fs_stats_in {
	const struct ck_ckpt *ck;
	const struct fs_kernel *kernel;
	unsigned sandbox; /* CK_SANDBOX_* in force */
	uint64_t generation;
};

void fs_stats_text(const struct fs_stats_in *in, struct ck_str *out);

#endif
