/* SPDX-License-Identifier: Apache-2.0 */
/* slices_priv.h - between slices*.c */
#ifndef CK_SLICES_PRIV_H
#define CK_SLICES_PRIV_H

#include "core/catalog/catalog.h"
#include "core/root/journal.h"
#include "core/slices/claims.h"
#include "core/slices/slices.h"

#include <pthread.h>

#define CK_SLICES_FDS 64

struct ck_slices_fd {
	int fd;
	uint32_t file;
	unsigned pins;
	bool writes;
	uint64_t used;
};

/* What a checkpoint has beside its tensors. */
struct ck_slices_extras {
	struct ck_slices_object {
		const char *name;
		uint64_t off, len; /* in the file of them */
	} * v; /* by name */
	size_t nr;
	bool read;
	void *json; /* private */
};

struct ck_slices {
	struct ck_draft *draft; /* borrowed */
	int dir, files; /* slices/, slices/files/ */
	struct ck_slice_plan plan;
	struct ck_claims *claims;
	struct ck_catalog img;
	bool has_catalog;
	uint32_t *to_plan; /* tensor of the catalog -> of the plan */
	uint32_t *by_tensor; /* pieces of tensor t: from first_of[t] on */
	uint32_t *first_of;
	pthread_mutex_t lock; /* of fds */
	struct ck_slices_fd fds[CK_SLICES_FDS];
	uint64_t clock;
	struct ck_claims_sums *told; /* of a publisher, by file; else NULL */
	pthread_mutex_t same_lock; /* of what follows */
	struct ck_slices_sums **sums; /* slices_sums.c; by file, or NULL */
	CK_VEC(uint32_t) summed; /* pieces whose bytes have all been */
	struct ck_slices_extras extras; /* slices_extras.c */
	struct ck_journal same; /* slices_once.c; fd -1: not open */
};

/* slices.c: all of a file of slices/, as by ck_read_file(). */
int ck_slices_read_file(int dir, const char *name, uint64_t most, char **bytes,
			size_t *len, struct ck_err *err);

/* slices_catalog.c: the plan as a catalog, checked as any reader's would be. */
int ck_slice_plan_catalog(const struct ck_slice_plan *p, struct ck_catalog *out,
			  struct ck_err *err);

/*
 * slices_files.c: a descriptor of shard @file, which ck_slices_put() gives
 * back; made, with its header, where @writes.  -ENOENT: nobody did yet.
 */
int ck_slices_get(struct ck_slices *sl, uint32_t file, bool writes,
		  struct ck_slices_fd **out, struct ck_err *err);
void ck_slices_put(struct ck_slices *sl, struct ck_slices_fd *fd);
int ck_slices_shard(struct ck_slices *sl, uint32_t file, bool writes,
		    struct ck_err *err);
static inline const char *ck_slices_file_name(const struct ck_slices *sl,
					      uint32_t file)
{
	return ck_slice_plan_str(&sl->plan, sl->plan.files[file].name);
}
/* -@code, and a line that names the draft and the file. */
int ck_slices_fail(const struct ck_slices *sl, uint32_t file, int code,
		   struct ck_err *err);
int ck_slices_move(struct ck_slices *sl, uint32_t file, struct ck_err *err);

/* slices_io.c: bytes of a shard, and their claim. */
int ck_slices_write_at(struct ck_slices *sl, uint32_t file, uint64_t off,
		       const void *buf, uint64_t len, struct ck_err *err);
/* -EIO where they were not written. */
int ck_slices_read_at(struct ck_slices *sl, uint32_t file, uint64_t off,
		      void *buf, uint64_t len, struct ck_err *err);
/* Every stretch of what @cur goes over in a shard, and its bytes of @buf. */
struct ck_cursor;
typedef int (*ck_slices_run_fn)(void *ctx, uint32_t file, uint64_t off,
				char *buf, uint64_t len);
int ck_slices_walk(struct ck_slices *sl, struct ck_cursor *cur, char *buf,
		   ck_slices_run_fn run, void *ctx, struct ck_err *err);
/* -EIO where a byte of them was not written. */
int ck_slices_read_part(struct ck_slices *sl, const struct ck_slice_part *of,
			void *buf, struct ck_err *err);
/* They may go to storage, so that a sync does not begin with all of them. */
void ck_slices_flush(struct ck_slices *sl, uint32_t file, uint64_t off,
		     uint64_t len);

/* slices_missing.c: missing bytes of a piece, and the first stretch of them. */
struct ck_slices_lack {
	uint64_t bytes, from, to;
};
void ck_slices_lack(const struct ck_slices *sl, uint32_t piece,
		    struct ck_slices_lack *out);
/* "TENSOR: bytes F to T of N @what (slice of ranks ...)". */
int ck_slices_refuse(const struct ck_slices *sl, uint32_t piece, uint64_t from,
		     uint64_t to, int code, const char *what,
		     struct ck_err *err);

/* slices_once.c: whether who has the same as another has the same bytes. */
int ck_slices_check_same(struct ck_slices *sl, struct ck_err *err);

/* slices_extras.c: reads sl->extras, once; of a draft without any all is 0. */
#define CK_SLICES_EXTRAS "extras"
#define CK_SLICES_OBJECTS "__0_1.distcp" /* which has the objects */
int ck_slices_extras_read(struct ck_slices *sl, struct ck_err *err);
void ck_slices_extras_free(struct ck_slices *sl);
/* -ENODATA with the first that was not written; then where they will be. */
int ck_slices_objects_place(struct ck_slices *sl, struct ck_err *err);
/* All of them, one after the other. */
int ck_slices_objects_write(const struct ck_slices *sl, int fd,
			    struct ck_err *err);
/* Parts of the path of tensor or object @name; 0: its name is its path. */
unsigned ck_slices_path_depth(const struct ck_slices *sl, const char *name);
struct ck_dcp_out_part;
void ck_slices_path_part(const struct ck_slices *sl, const char *name,
			 unsigned level, struct ck_dcp_out_part *out);

/*
 * slices_unset.c: what bytes look like in a map that were not written; NULL:
 * nothing that could not be data.  @phase: of the first byte in its element.
 */
struct ck_unset;
const struct ck_unset *ck_unset_of(uint8_t dtype);
unsigned ck_unset_size(const struct ck_unset *u); /* of an element */
void ck_unset_fill(const struct ck_unset *u, void *buf, size_t len,
		   uint64_t phase);
/* The next stretch of @buf at *at or after it that does not look so. */
bool ck_unset_next(const struct ck_unset *u, const void *buf, size_t len,
		   uint64_t phase, size_t *at, size_t *nr);

/*
 * slices_sums.c: bytes [off, off + len) of @piece have just been written, for the
 * first time; NULL: something else was, and its CRC-32 is to be read.
 */
int ck_slices_sum_add(struct ck_slices *sl, uint32_t piece, uint64_t off,
		      const void *bytes, uint64_t len, struct ck_err *err);
void ck_slices_sums_free(struct ck_slices *sl);
/* slices_told.c: what was said of files that are still so: sl->told. */
int ck_slices_told(struct ck_slices *sl, struct ck_err *err);
/* The digest of a piece's bytes, if it was said. */
const struct ck_claims_digest *ck_slices_told_digest(const struct ck_slices *sl,
						     uint32_t piece);
int ck_slices_know(const struct ck_slices *sl, struct ck_hash_known *known,
		   struct ck_err *err);

#define CK_SLICES_BUFFER ((uint64_t)256 << 10) /* to read through */

/*
 * slices_frame.c: what is around one piece in its archive, with the CRC-32 of its
 * bytes; NULL: they are read.  And what is in a whole file, without.
 */
int ck_slices_frame(const struct ck_slices *sl, uint32_t piece,
		    const uint32_t *crc, int fd, struct ck_err *err);
int ck_slices_frames(const struct ck_slices *sl, uint32_t file, int fd,
		     struct ck_err *err);
/* All of it, when all pieces were written, but in files that are told of. */
int ck_slices_frame_all(struct ck_slices *sl, struct ck_err *err);

/* slices_dcp.c: the .metadata of the shards. */
int ck_slices_metadata(const struct ck_slices *sl, int fd, struct ck_err *err);

#endif
