/* SPDX-License-Identifier: Apache-2.0 */
/* handed.h - the shard itself, from a mount that shows it */
#ifndef CK_HANDED_H
#define CK_HANDED_H

/*
 * Takes @fd, a file of MNT/shards, and gives the shard's own descriptor, if the
 * mount's worker hands it over; else @fd, by which the mount is read.
 */
int ck_handed(int fd);

#endif
