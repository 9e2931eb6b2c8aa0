/* SPDX-License-Identifier: Apache-2.0 */
/* decomp_cache_priv.h - the two halves of the cache; see decomp_cache.h */
#ifndef CK_DECOMP_CACHE_PRIV_H
#define CK_DECOMP_CACHE_PRIV_H

#include "core/io/read_priv.h"

#include <pthread.h>

struct ck_decomp_item {
	struct ck_decomp_item *prev, *next; /* the longest unused first */
	uint32_t src;
	unsigned users;
	bool decoding;
	bool old; /* its file was touched since; nobody gets it any more */
	int fd;
	uint64_t len; /* bytes; while decoding: that room was made for */
	char *bad; /* the line to refuse it with, or NULL */
};

struct ck_decomp_cache {
	struct ck_reader *r;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char *path;
	int dirfd, dir_errno;
	unsigned decoders;
	unsigned nr_fds, max_fds; /* a part of RLIMIT_NOFILE */
	uint64_t max, held;
	uint64_t *wanted; /* of each source, once asked for; see below */
	struct ck_decomp_item list; /* the ring's head */
};

/* Room for @more bytes of @item, at the cost of idle items; false: none. */
bool ck_decomp_cache_reserve(struct ck_decomp_cache *sp,
			     struct ck_decomp_item *item, uint64_t more);
/* decomp_cache_zstd.c: no item may unpack to more bytes; NULL: no memory. */
uint64_t *ck_decomp_cache_wanted(const struct ck_catalog *img);
/* Fills item->fd and item->len. */
int ck_decomp_cache_decode(struct ck_decomp_cache *sp,
			   struct ck_decomp_item *item, struct ck_err *err);

#endif
