/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_plan.h - which bytes of which new shard each slice of a rank is
 *
 * Made once from a layout (core/layout/write.h), in a process of its
 * own, and kept in the draft, so that all who write the checkpoint, on any
 * node, put the same bytes into the same places.  Tables of fixed-size
 * records; references are indices into them.
 *
 *	ranks --entries--> pieces --> file, offset; the box of a tensor
 *
 * Ranks that hold the same box share a piece.  Little-endian hosts only, as
 * catalogs.  Threads: a loaded plan is constant, any.
 */
#ifndef CK_SLICES_PLAN_H
#define CK_SLICES_PLAN_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_slice_plan_file {
	uint64_t size, data; /* bytes; where the first tensor may begin */
	uint64_t rank;
	uint32_t name; /* string */
	uint32_t first, nr; /* pieces, by offset */
	uint32_t zero;
};

struct ck_slice_plan_tensor {
	uint64_t size; /* bytes of the full one */
	uint32_t name; /* string; sorted by name */
	uint32_t shape, grid; /* dims */
	uint32_t zero;
	uint8_t dtype, rank, grid_rank, pad[5];
};

struct ck_slice_plan_piece {
	uint64_t off, len; /* bytes in the file, padding included */
	uint64_t lo, hi; /* flat: elements of the box */
	uint32_t tensor, file;
	uint32_t dims; /* start, len, full: grid_rank each, elements */
	uint32_t zero;
	uint8_t flat, pad[7];
};

struct ck_slice_plan_rank {
	uint64_t rank;
	uint32_t first, nr; /* entries, by tensor */
};

struct ck_slice_plan {
	const struct ck_slice_plan_head *head;
	const struct ck_slice_plan_file *files;
	const struct ck_slice_plan_tensor *tensors;
	const struct ck_slice_plan_piece *pieces;
	const struct ck_slice_plan_rank *ranks; /* ascending */
	const uint32_t *entries; /* pieces */
	const uint64_t *dims;
	const char *strs; /* NUL-terminated ones */
	uint32_t nr_files, nr_tensors, nr_pieces, nr_ranks, nr_entries;
	uint64_t nr_dims, strs_len;
	bool dcp; /* files for torch.distributed.checkpoint; else safetensors */
	uint64_t id; /* tells plans apart */
	const char *layout; /* text for who reads the checkpoint */
	void *own; /* freed with it */
};

/*
 * The bytes of a plan, from those of a layout.  @format: where it says none,
 * or NULL.  -EINVAL with a line.
 */
int ck_slice_plan_make(struct ck_str *out, const char *name, const char *layout,
		       size_t len, const char *format, struct ck_err *err);
/* Takes @bytes (from malloc()) in any case; checks all of them. */
int ck_slice_plan_take(struct ck_slice_plan *p, void *bytes, size_t len,
		       struct ck_err *err);
void ck_slice_plan_free(struct ck_slice_plan *p);

/*
 * What file @f holds beside its pieces: a header, or what is around each piece
 * in an archive of its own, which knows no CRC of it yet.  @put gets it in the
 * order of offsets.
 */
typedef int (*ck_slice_plan_put_fn)(void *ctx, uint64_t off, const void *bytes,
				    size_t len, struct ck_err *err);
int ck_slice_plan_frame(const struct ck_slice_plan *p, uint32_t f,
			ck_slice_plan_put_fn put, void *ctx,
			struct ck_err *err);
/* The header of a file of safetensors, up to its data. */
int ck_slice_plan_header(const struct ck_slice_plan *p, uint32_t f,
			 struct ck_str *out, struct ck_err *err);
struct ck_torch_blob;
/* What is around piece @x in its archive; of a dtype that torch has. */
int ck_slice_plan_blob(const struct ck_slice_plan *p,
		       const struct ck_slice_plan_piece *x, uint32_t crc,
		       struct ck_torch_blob *out, struct ck_err *err);

static inline const char *ck_slice_plan_str(const struct ck_slice_plan *p,
					    uint32_t ref)
{
	return p->strs + ref;
}

/* CK_NONE: none. */
uint32_t ck_slice_plan_find_tensor(const struct ck_slice_plan *p,
				   const char *name);
uint32_t ck_slice_plan_find_rank(const struct ck_slice_plan *p, uint64_t rank);
/* The entry of tensor @t in rank number @r; CK_NONE: it holds none of it. */
uint32_t ck_slice_plan_find_entry(const struct ck_slice_plan *p, uint32_t r,
				  uint32_t t);

/*
 * Bytes of a piece that are a tensor's, and not padding: @nr runs of @len bytes
 * each, of which ck_slice_plan_run() gives the @i-th one's place in the piece.
 */
struct ck_slice_plan_runs {
	uint64_t nr, len;
	const uint64_t *shape, *full; /* of what is outside of a run */
	unsigned rank;
	uint64_t elem; /* bytes of one step of the innermost of these */
};
void ck_slice_plan_runs(const struct ck_slice_plan *p, uint32_t piece,
			struct ck_slice_plan_runs *out);
uint64_t ck_slice_plan_run(const struct ck_slice_plan_runs *r, uint64_t i);

#endif
