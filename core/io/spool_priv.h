/* SPDX-License-Identifier: Apache-2.0 */
/* spool_priv.h - the two halves of the spool; see spool.h */
#ifndef CK_SPOOL_PRIV_H
#define CK_SPOOL_PRIV_H

#include "core/io/read_priv.h"

#include <pthread.h>

struct ck_spooled {
	struct ck_spooled *prev, *next; /* the longest unused first */
	uint32_t src;
	unsigned users;
	bool decoding;
	int fd;
	uint64_t len; /* bytes; while decoding: that room was made for */
	char *bad; /* the line to refuse it with, or NULL */
};

struct ck_spool {
	struct ck_reader *r;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char *path;
	int dirfd, dir_errno;
	unsigned decoders;
	unsigned nr_fds, max_fds; /* a part of RLIMIT_NOFILE */
	uint64_t max, held;
	struct ck_spooled list; /* the ring's head */
};

/* Room for @more bytes of @item, at the cost of idle items; false: none. */
bool ck_spool_reserve(struct ck_spool *sp, struct ck_spooled *item,
		      uint64_t more);
/* spool_zstd.c: fills item->fd and item->len. */
int ck_spool_decode(struct ck_spool *sp, struct ck_spooled *item,
		    struct ck_err *err);

#endif
