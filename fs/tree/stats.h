/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h - .unshard/stats and .unshard/metrics: one table of counters
 *
 * stats has a line "key value" for each.  They are padded, so the file has the
 * same size for the life of a mount and stat() before open() is right.  metrics
 * is Prometheus' text: each counter for each checkpoint that is mounted.
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

/* What struct ck_read_stats counts, as numbers that can be kept. */
struct fs_counts {
	uint64_t v[sizeof(struct ck_read_stats) / sizeof(uint64_t)];
};
void fs_counts_add(struct fs_counts *to, const struct ck_read_stats *s);

struct fs_metrics_of {
	const char *step; /* its name in the mount; NULL: it is the mount */
	struct fs_counts counts;
	bool whole; /* every tensor is there, and nothing was refused */
	uint64_t tensors, bytes, errors, warnings;
};
/* @mnt: where it is mounted, the label of all. */
void fs_metrics_text(const char *mnt, const struct fs_metrics_of *v, size_t nr,
		     struct ck_str *out);

#endif
