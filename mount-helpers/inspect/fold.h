/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold.h - names that differ by numbers alone, as one
 *
 * layers.0.w, layers.1.w, ... layers.79.w -> layers.{0..79}.w.  A fold stands for
 * exactly the names that it says: every number of each {}, with each other.
 */
#ifndef FOLD_H
#define FOLD_H

#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct fold_name {
	const char *name; /* up to a NUL */
	size_t class; /* only those of one class are folded */
	size_t index; /* the caller's */
};

/*
 * Calls @each for every fold: its text, and which names, @nr of them, it is,
 * in natural order; folds by their first names.  False: no memory, or @each
 * said so.
 */
bool fold_names(struct fold_name *v, size_t nr,
		bool (*each)(void *ctx, const struct ck_str *text,
			     const struct fold_name *v, size_t nr),
		void *ctx);

#endif
