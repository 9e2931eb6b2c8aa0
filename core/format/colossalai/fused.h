/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused.h - layers that hold query, key and value in one weight
 *
 * ColossalAI gives each rank its share of each of the three; the records of
 * distributed saves say one slab a rank, which is wrong.
 */
#ifndef CK_COLOSSALAI_FUSED_H
#define CK_COLOSSALAI_FUSED_H

#include "core/base/err.h"
#include "core/base/opts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_CA_MAX_FUSED 8

struct ck_ca_fused {
	bool given;
	unsigned nr; /* 0: the records are right */
	bool equal; /* @nr parts of equal size */
	uint64_t rows[CK_CA_MAX_FUSED];
};

struct ck_ca_share {
	uint64_t start, len; /* in the part */
	uint64_t all; /* rows of the part */
};

/* -o fused=3, -o fused=64+16+16, -o fused=no */
int ck_ca_fused_get(struct ck_ca_fused *f, const struct ck_opts *opts,
		    struct ck_err *err);
/* Whether a layer of that name is. */
bool ck_ca_is_fused(const char *name, size_t len);
/*
 * What the rank with the slab [off, off + len) of @all rows has of part @i.
 * -EINVAL with a line where they do not divide.
 */
int ck_ca_fused_share(const struct ck_ca_fused *f, unsigned i, uint64_t all,
		      uint64_t len, uint64_t off, struct ck_ca_share *out,
		      struct ck_err *err);

#endif
