/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - names of files and tensors with variables in them
 *
 *	rank-{rank:05}.bin   layers.{$1+4*pp}.{$2}   {key}.tp{tp}   {{ }}
 *
 * In braces: a sum of products of numbers, mesh axes, "rank" and captures
 * ($1), maybe with a width to fill with zeros; or {key} or {$1} alone, as text.
 * No parentheses, so nothing is recursive.
 */
#ifndef CK_LAYOUT_TEXT_H
#define CK_LAYOUT_TEXT_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_LAY_AXES 16
#define CK_LAY_CAPTURES 10 /* $0, the whole, to $9 */
#define CK_LAY_FREE UINT64_MAX /* a coordinate that nothing tells */
#define CK_LAY_RANK (1u << 30) /* in @used: {rank} */
#define CK_LAY_KEY (1u << 31) /* in @used: {key} */

struct ck_lay_mesh {
	struct {
		const char *name; /* borrowed */
		uint64_t size;
	} axis[CK_LAY_AXES]; /* the first varies slowest */
	unsigned nr;
	uint64_t nr_ranks; /* 1 without axes */
	uint64_t *rank; /* by position; NULL: the position */
};

/* CK_LAY_AXES: there is no such axis. */
unsigned ck_lay_axis(const struct ck_lay_mesh *mesh, const char *name,
		     size_t len);
/* Coordinates of a position, mesh->nr of them. */
void ck_lay_coords(const struct ck_lay_mesh *mesh, uint64_t pos, uint64_t *at);

struct ck_lay_slice {
	const char *s;
	size_t len;
};

struct ck_lay_vars {
	const struct ck_lay_mesh *mesh;
	const uint64_t *at; /* by axis; CK_LAY_FREE: not known */
	uint64_t rank; /* or CK_LAY_FREE */
	struct ck_lay_slice key; /* s NULL: there is none */
	struct ck_lay_slice cap[CK_LAY_CAPTURES];
	unsigned nr_cap;
	bool dry; /* values do not matter: is @text well formed? */
};

/*
 * Appends @text with its variables replaced.  -EINVAL with what is wrong and
 * where.  @used, where not NULL, gets a bit for each axis, CK_LAY_RANK and
 * CK_LAY_KEY.
 */
int ck_lay_expand(const char *text, const struct ck_lay_vars *v,
		  struct ck_str *out, uint32_t *used, struct ck_err *err);
/* Whether a wildcard of glob(7) stands outside of braces. */
bool ck_lay_is_glob(const char *text);

#endif
