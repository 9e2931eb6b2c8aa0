/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dstore.h - files that a device reads itself: direct storage
 *
 * Which files it does so well is found out once a file system: from the first
 * large file of it as many bytes are read by the device as by way of the host,
 * and the device goes on only where it is not the slower.  Whatever fails there
 * later ends it for that file system.  What it does not read is read by way of
 * the host, so nothing here is an error.
 *
 * It reads whole blocks, into rooms of its own memory, from where the wanted
 * bytes are copied.  There are few rooms, so that little of its memory is used.
 *
 * Threads: any.
 */
#ifndef CK_DSTORE_H
#define CK_DSTORE_H

#include "core/device/device.h"

#define CK_DSTORE_BLOCK UINT64_C(4096)
#define CK_DSTORE_ROOMS 8 /* in 64 MiB at most */

struct ck_dstore;
struct ck_dstore_file;

/* Reads of up to @room bytes; NULL: the device has none, which why() of it says. */
struct ck_dstore *ck_dstore_new(struct ck_device *dev, uint64_t room);
/* No room of it is in use.  NULL: nothing. */
void ck_dstore_free(struct ck_dstore *ds);
/* Why it is not used for all files; "": it is, or nobody asked. */
void ck_dstore_why(struct ck_dstore *ds, char *out, size_t room);

/* A place in memory of the device; 0: none is free. */
uint64_t ck_dstore_room(struct ck_dstore *ds);
void ck_dstore_give_back(struct ck_dstore *ds, uint64_t mem);

struct ck_dstore_in {
	int fd;
	int (*direct)(int fd); /* opens it once more, with O_DIRECT */
	/* For a probe: a room, and as much pinned memory of the host. */
	uint64_t room;
	void *host;
};
/* NULL: it is to be read by way of the host.  Let go with put(). */
struct ck_dstore_file *ck_dstore_get(struct ck_dstore *ds,
				     const struct ck_dstore_in *in);
void ck_dstore_put(struct ck_dstore *ds, struct ck_dstore_file *file);
/*
 * At least @need bytes of the whole blocks [@off, @off + @len), into @room.  False:
 * not so; that file system is not asked for again, and why() says so.
 */
bool ck_dstore_read(struct ck_dstore *ds, struct ck_dstore_file *file,
		    uint64_t room, uint64_t off, uint64_t len, uint64_t need);

#endif
