/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover.h - the shards' own descriptors, for who may read them here
 *
 * Who has a file of shards/ open was let in as for any file.  He may then have a
 * descriptor of the shard itself, for reading, where its path leads nowhere in his
 * namespace: op_ioctl() gives him a token (core/ckpt/map_file.h), good once, and
 * for that a socket gives the descriptor.  The socket's name is abstract, so that
 * whoever shares the network namespace reaches it; others go on reading the mount.
 */
#ifndef FS_HANDOVER_H
#define FS_HANDOVER_H

#include "core/base/err.h"
#include "core/ckpt/map_file.h"

struct fs_handover;

/* Supervisor: makes the socket, for the worker can make none.  NULL: there is none. */
struct fs_handover *fs_handover_open(void);
/* The worker must keep it open; -1 of NULL. */
int fs_handover_fd(const struct fs_handover *h);
/* Worker: begins to answer; without a thread for it nobody is answered. */
void fs_handover_start(struct fs_handover *h);
/*
 * Takes @fd, to be given for what is put into @out; of too many that nobody came
 * for the oldest is closed.  -errno: it is closed.
 */
int fs_handover_add(struct fs_handover *h, int fd, struct ck_map_token *out);
/* Either process; NULL: nothing. */
void fs_handover_close(struct fs_handover *h);

#endif
