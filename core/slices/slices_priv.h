/* SPDX-License-Identifier: Apache-2.0 */
/* slices_priv.h - between slices*.c */
#ifndef CK_SLICES_PRIV_H
#define CK_SLICES_PRIV_H

#include "core/catalog/catalog.h"
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
};

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
 * slices_crcs.c: the CRC-32 of each piece's bytes, which were all written; from
 * malloc().
 */
int ck_slices_crcs(struct ck_slices *sl, uint32_t **out, struct ck_err *err);

/* slices_dcp.c: the .metadata of the shards. */
int ck_slices_metadata(const struct ck_slices *sl, int fd, struct ck_err *err);

#endif
