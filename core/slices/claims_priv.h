/* SPDX-License-Identifier: Apache-2.0 */
/* claims_priv.h - between claims.c and claims_log.c, which has the files */
#ifndef CK_CLAIMS_PRIV_H
#define CK_CLAIMS_PRIV_H

#include "core/slices/claims.h"
#include "core/base/intervals.h"

#include <pthread.h>

#define CK_CLAIMS_SLOTS (UINT32_C(1) << 22)

struct ck_claims_record {
	uint64_t off, len; /* len 0: the slot is free */
	uint32_t file;
	uint32_t cut; /* of .safe: not written any more */
	uint64_t sum; /* XXH3-64 of what is before it, by the plan's id */
};

struct ck_claims_log {
	int fd, safe; /* -1: not there yet */
	char name[24]; /* "w-0123456789abcdef", "": none yet */
	uint32_t nr; /* slots */
	uint32_t *free; /* numbers of free ones */
	size_t nr_free, room_free;
	uint64_t safe_len; /* bytes */
};

struct ck_claims {
	int dir;
	const struct ck_slice_plan *plan;
	pthread_mutex_t lock;
	struct ck_intervals *own, *others; /* by file */
	struct ck_claims_log log;
};

/* Makes it, and takes over those whose mounts are gone; under the lock. */
int ck_claims_log_start(struct ck_claims *c, struct ck_err *err);
/* Closes it; a log that says nothing goes. */
void ck_claims_log_end(struct ck_claims_log *log, int dir);
int ck_claims_slot_new(struct ck_claims_log *log, uint32_t *slot,
		       struct ck_err *err);
int ck_claims_slot_write(struct ck_claims *c, uint32_t slot, uint32_t file,
			 uint64_t off, uint64_t end, struct ck_err *err);
int ck_claims_slot_free(struct ck_claims *c, uint32_t slot, struct ck_err *err);
/* Appended, not synced. */
int ck_claims_safe_put(struct ck_claims *c, uint32_t file, uint64_t off,
		       uint64_t end, bool cut, struct ck_err *err);
int ck_claims_safe_sync(struct ck_claims *c, struct ck_err *err);
/* What all logs but our own say, into c->others, which is empty. */
int ck_claims_read_others(struct ck_claims *c, struct ck_err *err);
/* claims.c: under the lock. */
int ck_claims_add_own(struct ck_claims *c, uint32_t file, uint64_t off,
		      uint64_t end, struct ck_err *err);

#endif
