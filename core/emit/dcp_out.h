/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_out.h - the .metadata of a torch.distributed.checkpoint, piece by piece
 *
 *   head | tensors, objects | planner_data | storage_data | end
 *
 * A pickle of protocol 2 that torch from 2.2 on loads.  Each entry gives three
 * pieces, which only refer back to the head: any of them can be made by itself
 * and again, so that the file is written, or read at any place, without being
 * held.  Who describes the entries is asked once a piece.
 *
 * Threads: any number, as far as the callbacks may be called by them.
 */
#ifndef CK_DCP_OUT_H
#define CK_DCP_OUT_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_dcp_out_entry {
	const char *name; /* UTF-8, no other entry's */
	size_t len;
	bool object; /* no tensor: an object that torch.load gives */
	/* of a tensor; torch has the dtype (torch_blob.h): */
	uint8_t dtype;
	unsigned rank;
	const uint64_t *shape;
	uint64_t nr_chunks; /* of an object: not looked at, it has one */
	unsigned depth; /* parts of its path; 0: its name is its path */
};

/* One part of a path: a key, or (key NULL) a position in a list. */
struct ck_dcp_out_part {
	const char *key;
	size_t len;
	uint64_t index;
};

/* A box of a tensor, and the archive of it (torch_blob.h) in a file. */
struct ck_dcp_out_chunk {
	uint64_t start[CK_MAX_RANK], shape[CK_MAX_RANK]; /* of a tensor */
	const char *file; /* relative to the folder of .metadata */
	uint64_t off, size;
};

struct ck_dcp_out {
	void *ctx;
	uint64_t nr; /* entries */
	/* Each fills all of *out that matters; -errno ends the piece. */
	int (*entry)(void *ctx, uint64_t i, struct ck_dcp_out_entry *out,
		     struct ck_err *err);
	int (*chunk)(void *ctx, uint64_t i, uint64_t k,
		     struct ck_dcp_out_chunk *out, struct ck_err *err);
	/*
	 * The entry that is number @i of planner_data, whose order is that in
	 * which a program has the keys; NULL: entry @i.
	 */
	uint64_t (*planned)(void *ctx, uint64_t i);
	/* Part @level < depth of entry @i's path; NULL where no depth is set. */
	void (*part)(void *ctx, uint64_t i, unsigned level,
		     struct ck_dcp_out_part *out);
	/*
	 * storage_meta: what the save was called, and where it went (or ""), in
	 * UTF-8; torch from 2.4 on loads it.  NULL: there is none.
	 */
	const char *save_id, *saved_to;
};

/* How many pieces the file consists of. */
uint64_t ck_dcp_out_pieces(const struct ck_dcp_out *o);
/* Appends piece @p. */
int ck_dcp_out_piece(const struct ck_dcp_out *o, uint64_t p, struct ck_str *s,
		     struct ck_err *err);
/*
 * All pieces in turn through @write, which gets them in order and may refuse
 * with -errno.
 */
int ck_dcp_out_write(const struct ck_dcp_out *o,
		     int (*write)(void *ctx, const void *bytes, size_t len,
				  struct ck_err *err),
		     void *ctx, struct ck_err *err);

#endif
