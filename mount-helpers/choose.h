/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.h - the tensors and objects that patterns choose, in natural order
 *
 * layers.2 stands before layers.10.  A pattern is as a shell has them
 * (fnmatch(3)); a name that is the pattern, whatever is in it, is chosen too.
 */
#ifndef CHOOSE_H
#define CHOOSE_H

#include "core/geom/catalog.h"

#include <stdbool.h>

struct choice {
	uint32_t *tensor, *object; /* numbers */
	uint32_t nr_tensors, nr_objects;
};

bool choose_matches(const struct ck_catalog *img, uint32_t name,
		    const char *pattern);
/* All that one of @nr patterns chooses, or all.  False: no memory. */
bool choose(struct choice *c, const struct ck_catalog *img,
	    char *const *pattern, unsigned nr);
void choice_free(struct choice *c);

#endif
