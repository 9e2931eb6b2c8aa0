/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadkit.h - items of a load at random, and what their memory is to hold
 *
 * Of the one tensor of a shardkit: a box, memory with strides of any order and
 * sign and gaps between, and a cast where there is one.  The memory is compared
 * as a whole, so that what nobody asked for to be written is seen.
 */
#ifndef LOADKIT_H
#define LOADKIT_H

#include "core/load/load.h"
#include "tests/lib/shardkit.h"

struct lk_item {
	struct ck_load_item in;
	uint64_t start[8], len[8];
	int64_t stride[8];
	unsigned char *mem, *want;
	uint64_t bytes; /* of both */
	uint64_t wanted; /* as stored */
};

#define LK_MAX 16

struct lk_load {
	struct lk_item v[LK_MAX];
	struct ck_load_item item[LK_MAX];
	unsigned nr;
	struct ck_load_in in;
};

/* A tensor in files, cut, turned and typed as @seed says. */
void lk_tensor(struct shardkit *k, uint64_t seed);
/* @nr items of it; @plain: whole boxes of row-major memory, not cast. */
void lk_make(struct lk_load *l, struct shardkit *k, uint64_t *seed, unsigned nr,
	     bool plain);
void lk_free(struct lk_load *l);
/* The memory as it was before. */
void lk_reset(struct lk_load *l);
/*
 * Items' memory is the device's from now on, which is as theirs was; @mem: LK_MAX.
 * Back: that of one, as it is there now; false: the device does not give it.
 */
struct ck_device;
void lk_move_in(struct lk_load *l, struct ck_device *dev, uint64_t *mem);
bool lk_move_back(const struct lk_load *l, struct ck_device *dev,
		  const uint64_t *mem, unsigned item);
/* Whether it holds what it should. */
bool lk_whole(const struct lk_load *l, unsigned item);

/* Says what is wrong, and ends. */
#define LK_CHECK(x)                                                        \
	do {                                                               \
		if (!(x)) {                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, \
				#x);                                       \
			abort();                                           \
		}                                                          \
	} while (0)

#endif
