/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imagewalk.h - does with a catalog all that its readers do
 *
 * For catalogs that were damaged and accepted: nothing may be read outside
 * them, no segment may lie outside its source or the request.  Aborts where one
 * does; the sanitizers see the rest.
 */
#ifndef IMAGEWALK_H
#define IMAGEWALK_H

#include "core/geom/catalog.h"

void imagewalk(const struct ck_catalog *img);

/* A small catalog with everything in it, to free(); the same each time. */
unsigned char *imagewalk_sample(unsigned kind, size_t *size);
#define IMAGEWALK_SAMPLES 3

#endif
