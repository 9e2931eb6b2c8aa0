/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog/catalog.h - opening a catalog that another process made
 */
#ifndef CK_CATALOG_CATALOG_H
#define CK_CATALOG_CATALOG_H

#include "core/base/err.h"
#include "core/geom/catalog.h"

/*
 * Maps the catalog in @fd (a memfd or a sidecar file) and checks all of it
 * once: magic, version, checksum-free bounds of every section and every
 * reference, dtypes, ranks, volumes.  A hostile catalog gives -EINVAL, never a
 * crash later.  Takes nothing: @fd may be closed afterwards.
 */
int ck_catalog_map(struct ck_catalog *img, int fd, struct ck_err *err);
/* The same of @size bytes that @fill puts into memory: 0, or -errno with a line. */
typedef int (*ck_catalog_fill_fn)(void *ctx, void *to, size_t size,
				  struct ck_err *err);
int ck_catalog_fill(struct ck_catalog *img, uint64_t size,
		    ck_catalog_fill_fn fill, void *ctx, struct ck_err *err);
/* A memfd to write a catalog to, of the caller; then nobody can change it. */
int ck_catalog_file(int *fd, struct ck_err *err);
int ck_catalog_seal(int fd, struct ck_err *err);
void ck_catalog_unmap(struct ck_catalog *img);

/* The tensor whose file name, or true name, it is in @tree; CK_NONE: none. */
uint32_t ck_catalog_find_file(const struct ck_catalog *img, uint32_t tree,
			      const char *file, size_t len);
uint32_t ck_catalog_find_name(const struct ck_catalog *img, uint32_t tree,
			      const char *name, size_t len);

#endif
