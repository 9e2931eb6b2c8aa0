/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog/image.h - opening an image that another process made
 */
#ifndef CK_CATALOG_IMAGE_H
#define CK_CATALOG_IMAGE_H

#include "core/base/err.h"
#include "core/geom/image.h"

/*
 * Maps the image in @fd (a memfd or a sidecar file) and checks all of it once:
 * magic, version, checksum-free bounds of every section and every reference,
 * dtypes, ranks, volumes.  A hostile image gives -EINVAL, never a crash later.
 * Takes nothing: @fd may be closed afterwards.
 */
int ck_image_map(struct ck_image *img, int fd, struct ck_err *err);
/* A memfd to write an image to, of the caller; then nobody can change it. */
int ck_image_file(int *fd, struct ck_err *err);
int ck_image_seal(int fd, struct ck_err *err);
void ck_image_unmap(struct ck_image *img);

/* The tensor whose file name, or true name, it is in @tree; CK_NONE: none. */
uint32_t ck_image_find_file(const struct ck_image *img, uint32_t tree,
			    const char *file, size_t len);
uint32_t ck_image_find_name(const struct ck_image *img, uint32_t tree,
			    const char *name, size_t len);

#endif
