/* SPDX-License-Identifier: Apache-2.0 */
/*
 * corrupt_elements.h - which elements of which tensors the bytes of a file are
 * Threads: one at a time for each object.
 */
#ifndef CK_CORRUPT_ELEMENTS_H
#define CK_CORRUPT_ELEMENTS_H

#include "core/base/err.h"
#include "core/geom/catalog.h"
#include "core/geom/range.h"
#include "core/geom/resolved.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Elements [start, end) of a tensor, in row-major order. */
struct ck_element_range {
	uint64_t start, end;
};

struct ck_corrupt_elements {
	uint32_t tensor;
	uint64_t nr_elements;
	/* Sorted, apart from each other; NULL: too many to be listed. */
	const struct ck_element_range *v;
	size_t nr;
	/* The smallest box of the shape that holds them all. */
	uint64_t start[CK_MAX_RANK], end[CK_MAX_RANK];
	bool copies; /* each has a replica, if perhaps no better one */
};

/*
 * Calls @each for every tensor that bytes [off, off + len) of @file are
 * elements of; what it is given lasts for the call.  Items of the checkpoint
 * must be resolved.  Remembers which tensors the file of the last call had.
 */
struct ck_corrupt_finder {
	const struct ck_catalog *img;
	const struct ck_resolved *resolved;
	bool elements; /* what is between the elements of an item is nobody's */
	void *ctx;
	void (*each)(void *ctx, const struct ck_corrupt_elements *s);
	/* private */
	uint32_t src;
	uint32_t *tensors;
	uint32_t nr_tensors;
	bool known;
};
int ck_corrupt_finder_find(struct ck_corrupt_finder *sp, const char *file,
			   uint64_t off, uint64_t len, struct ck_err *err);
void ck_corrupt_finder_free(struct ck_corrupt_finder *sp);
/* Whether object @i has bytes there. */
bool ck_corrupt_finder_object(const struct ck_catalog *img, uint32_t i,
			      const char *file, uint64_t off, uint64_t len);

/* Gathers stretches of bytes of a tensor. */
struct ck_element_ranges {
	uint64_t elem; /* bytes */
	struct ck_element_range *v;
	size_t nr, room;
	uint64_t lost; /* elements that were not kept, for there are too many */
	uint64_t low, high; /* of all */
	bool failed; /* no memory */
};
void ck_element_ranges_add(struct ck_element_ranges *g, uint64_t off,
			   uint64_t len);
/* Sorts and joins; fills all of @out but tensor and copies. */
void ck_element_ranges_end(struct ck_element_ranges *g,
			   const struct ck_catalog *img,
			   const struct ck_tensor *t,
			   struct ck_corrupt_elements *out);
void ck_element_ranges_free(struct ck_element_ranges *g);

#endif
