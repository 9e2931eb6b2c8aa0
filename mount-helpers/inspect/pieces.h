/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - a line for each stored piece of a tensor */
#ifndef PIECES_H
#define PIECES_H

#include "core/base/str.h"
#include "core/geom/catalog.h"
#include "core/geom/resolved.h"

#include <stdbool.h>

/* Prints to stdout; false: it did not take it, or no memory. */
bool pieces_print(const struct ck_catalog *img,
		  const struct ck_resolved *resolved,
		  const struct ck_tensor *t);

#endif
