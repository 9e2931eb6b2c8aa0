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

#include <sys/ioctl.h>

/* The file is @head, the catalog itself, and @end; both to be freed. */
struct ck_map_parts {
	struct ck_str head, end;
};
/* Whether such a checkpoint has one. */
bool ck_map_is_of(const struct ck_root *root);
/* False: it has none, or no memory.  Goes over all of the catalog. */
bool ck_map_make(struct ck_map_parts *out, const struct ck_catalog *img,
		 const struct ck_root *root, const char *options);
void ck_map_parts_free(struct ck_map_parts *parts);

/* One that was read. */
struct ck_map {
	char *path, *options;
	const char *only; /* in path: the file's name; NULL: it is a folder */
	int image_fd; /* a sealed memfd, as shared_catalog.h has it; or -1 */
};
/* -EBADMSG: @fd is no such file, or not all of it. */
int ck_map_read(struct ck_map *out, int fd, struct ck_err *err);
void ck_map_free(struct ck_map *map);

/*
 * Who has a file of MNT/shards open is told by this ioctl where he may have the
 * shard's own descriptor: he connects to the abstract SOCK_SEQPACKET socket, sends
 * the token, which is good once, and is sent a byte with it.  ENOTTY: he may not.
 */
#define CK_MAP_TOKEN_LEN 16
struct ck_map_token {
	char socket[48]; /* its name, without the NUL in front */
	unsigned char token[CK_MAP_TOKEN_LEN];
};
#define CK_MAP_ASK_TOKEN _IOR('u', 0x75, struct ck_map_token)

#endif
