/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay.h - edits of a checkpoint beside it: the files are never touched
 *
 *	DIR/overlay.head   which checkpoint it is for: each shard's name, size
 *	                   and time of the last change, or its manifest's digest
 *	DIR/overlay.log    records, one after the other; see overlay_log.c
 *	DIR/overlay.log.lost  its end, where that was damaged and was cut off
 *
 * Blocks of 4 KiB.  What is written goes to the end of the log; a sync puts a
 * commit behind it and makes both durable.  There is one log for all shards,
 * so that one commit covers all that an edit changed, in every replica.  A
 * write that is answered is kept: it counts after a crash of the process too.
 * What is found later is the state after some write that was answered, at
 * least that of the last commit, never a mixture.  At a sync, and
 * when it is opened, a log of which over half was written over, and 64 MiB
 * more, is made short.
 *
 * Threads: any; writes one after the other.  One process may write.
 */
#ifndef CK_OVERLAY_H
#define CK_OVERLAY_H

#include "core/base/err.h"
#include "core/geom/catalog.h"
#include "core/io/read.h"
#include "core/root/root.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_OVERLAY_BLOCK UINT64_C(4096)

struct ck_overlay;

struct ck_overlay_in {
	const char *dir; /* exists */
	const struct ck_root *root;
	const struct ck_catalog *img; /* borrowed */
	/* Of the manifest, in hexadecimal; "": it has none. */
	const char *sealed;
	bool write; /* else nothing of it is changed, and it must exist */
};

/*
 * -ESTALE: it is for another checkpoint, or the shards changed since.
 * -EBUSY: somebody writes to it.  -EINVAL, -EIO: damaged.  -ENOENT: no overlay.
 */
int ck_overlay_open(struct ck_overlay **out, const struct ck_overlay_in *in,
		    struct ck_err *err);
/* What was neither kept nor synced is lost. */
void ck_overlay_free(struct ck_overlay *o);

/* For reader_in.over; lasts as long as @o. */
const struct ck_file_layer *ck_overlay_layer(struct ck_overlay *o);

/*
 * The first bytes of source @src at or after *off, a multiple of a block, that
 * it has: all that follow each other.  False: there are none.
 */
bool ck_overlay_next(struct ck_overlay *o, uint32_t src, uint64_t *off,
		     uint64_t *len);

/* Its directory, as long as @o lasts. */
int ck_overlay_dir_fd(const struct ck_overlay *o);

struct ck_overlay_stats {
	uint64_t log_bytes, records, commits;
	uint64_t lost; /* bytes behind what counted when it was opened */
	bool unclosed; /* somebody was writing to it when it ended */
	/*
	 * Of them, the first that is not as it was written, though it was
	 * written in full; 0: they just end, as a crash leaves them.
	 */
	uint64_t damaged;
	uint64_t aside; /* bytes in overlay.log.lost */
};
void ck_overlay_stats(struct ck_overlay *o, struct ck_overlay_stats *out);

/* Removes both files; -EBUSY while somebody writes to it. */
int ck_overlay_discard(const char *dir, struct ck_err *err);

#endif
