/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_file.h - .unshard/map of a mount: what is mounted, for who reads it himself
 *
 * The path of the checkpoint, options that say what views show, the catalog, which
 * has the size and time of each shard, and a hash of it all at the end.
 */
#ifndef CK_MAP_FILE_H
#define CK_MAP_FILE_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/geom/catalog.h"
#include "core/root/root.h"

/* The file is @head, the catalog itself, and @end; both to be freed. */
struct ck_map_parts {
	struct ck_str head, end;
};
/* False: there is none of such a checkpoint, or no memory. */
bool ck_map_make(struct ck_map_parts *out, const struct ck_catalog *img,
		 const struct ck_root *root, const char *options);
void ck_map_parts_free(struct ck_map_parts *parts);

/* One that was read. */
struct ck_map {
	char *path, *options;
	int image_fd; /* a sealed memfd, as shared_catalog.h has it; or -1 */
};
/* -EBADMSG: @fd is no such file, or not all of it. */
int ck_map_read(struct ck_map *out, int fd, struct ck_err *err);
void ck_map_free(struct ck_map *map);

#endif
