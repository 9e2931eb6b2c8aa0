/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_catalog.h - a catalog for other processes: a sealed memfd that holds it, and
 * how far below the path it was found
 */
#ifndef CK_SHARED_CATALOG_H
#define CK_SHARED_CATALOG_H

#include "core/base/err.h"
#include "core/geom/catalog.h"
#include "core/root/root.h"

struct ck_shared_catalog {
	int fd; /* borrowed */
	uint64_t size; /* of the catalog, which comes first */
	unsigned depth;
	uint64_t where; /* whose it is; see ck_shared_catalog_is_of() */
};

/* *fd is the caller's to close; @digest may be NULL. */
int ck_shared_catalog_make(const struct ck_catalog *img,
			   const struct ck_root *root, unsigned depth, int *fd,
			   uint64_t digest[2], struct ck_err *err);
/* What stands behind the catalog in it, where it is put together elsewhere. */
struct ck_shared_catalog_tail {
	uint64_t magic, size, depth, where;
};
void ck_shared_catalog_tail(const struct ck_catalog *img,
			    const struct ck_root *root, unsigned depth,
			    struct ck_shared_catalog_tail *out);
/* Whether it was made of what is at @root: the same directories, or file. */
bool ck_shared_catalog_is_of(const struct ck_shared_catalog *image,
			     const struct ck_root *root);
/* -EINVAL: @fd is no such, or can still be changed. */
int ck_shared_catalog_open(struct ck_shared_catalog *out, int fd,
			   struct ck_err *err);
/* A sealed memfd of the catalog alone, the caller's to close. */
int ck_shared_catalog_alone(const struct ck_shared_catalog *image, int *fd,
			    struct ck_err *err);

#endif
