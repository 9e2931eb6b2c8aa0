/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_cache.h - the rank files looked at last, in bounded memory
 *
 * A mesh of a thousand ranks has a thousand files, of which a few are read at
 * a time.  What falls out is made again.  Any thread; one short lock.
 */
#ifndef CK_RANK_CACHE_H
#define CK_RANK_CACHE_H

#include "core/view/reshard/rank_file.h"

#include <pthread.h>

#define CK_RANK_CACHE_BYTES (UINT64_C(32) << 20)
#define CK_RANK_CACHE_FILES 2048
#define CK_RANK_CACHE_CHAINS 1024

struct ck_rank_entry {
	struct ck_rank_file file;
	struct ck_str own; /* the file's own bytes */
	uint32_t refs;
	struct ck_rank_entry *chain; /* of its hash */
	struct ck_rank_entry *newer, *older; /* by when it was used last */
};

struct ck_rank_cache {
	const struct ck_merged_in *in; /* the tensors of all files; borrowed */
	enum ck_rank_form form;
	pthread_mutex_t lock;
	struct ck_rank_entry *chain[CK_RANK_CACHE_CHAINS];
	struct ck_rank_entry *newest, *oldest;
	uint64_t bytes;
	uint32_t nr;
};

void ck_rank_cache_init(struct ck_rank_cache *c, const struct ck_merged_in *in,
			enum ck_rank_form form);
void ck_rank_cache_free(struct ck_rank_cache *c);
/* To give back; NULL with @err set: it cannot be made. */
const struct ck_rank_entry *ck_rank_cache_get(struct ck_rank_cache *c,
					      const struct ck_reshard *rs,
					      uint32_t rank,
					      struct ck_err *err);
void ck_rank_cache_put(struct ck_rank_cache *c, const struct ck_rank_entry *e);

#endif
