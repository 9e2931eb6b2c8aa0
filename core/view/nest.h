/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.h - tensors in the order of the nested structure they were saved in
 *
 * Sorted by the parts of their paths, keys before positions, so that all
 * tensors of one dict or list are neighbours.
 */
#ifndef CK_NEST_H
#define CK_NEST_H

#include "core/geom/catalog.h"

#include <stdbool.h>

/* One part of a path: a key, or (key NULL) a position in a list. */
struct ck_nest_part {
	const char *key;
	size_t len;
	uint64_t index;
};

/* Of a path and name, as a tensor or an object has them. */
unsigned ck_nest_path_depth(const struct ck_catalog *img, uint32_t path);
struct ck_nest_part ck_nest_path_part(const struct ck_catalog *img,
				      uint32_t path, uint32_t name,
				      unsigned level);

/* A path to compare with others. */
struct ck_nest_path {
	const struct ck_catalog *img;
	const struct ck_nest_part *own; /* @depth parts; NULL: the catalog's */
	uint32_t path, name;
	unsigned depth;
};

/* @ref: a tensor, or an object as below. */
struct ck_nest_path ck_nest_path(const struct ck_catalog *img, uint32_t ref);
struct ck_nest_path ck_nest_path_of(const struct ck_catalog *img, uint32_t path,
				    uint32_t name);
/* Parts that both begin with. */
unsigned ck_nest_paths_common(const struct ck_nest_path *a,
			      const struct ck_nest_path *b);
/* One that the other begins with comes before it. */
int ck_nest_paths_cmp(const struct ck_nest_path *a,
		      const struct ck_nest_path *b);

/* Below, @tensor may also be an object: its number after that of all tensors. */
unsigned ck_nest_depth(const struct ck_catalog *img, uint32_t tensor);
struct ck_nest_part ck_nest_part(const struct ck_catalog *img, uint32_t tensor,
				 unsigned level);
int ck_nest_cmp_part(const struct ck_nest_part *a,
		     const struct ck_nest_part *b);
/* Parts that the paths of both begin with. */
unsigned ck_nest_common(const struct ck_catalog *img, uint32_t a, uint32_t b);
void ck_nest_sort(const struct ck_catalog *img, uint32_t *tensors, uint32_t nr);

#endif
