/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - how much memory there is for this process, its cgroup's limit too */
#ifndef CK_LIB_ROOM_H
#define CK_LIB_ROOM_H

#include <stdint.h>

/*
 * What is left of it: of the machine, or of the tightest of the cgroups that it
 * is in, where page cache counts as left, for it makes room.
 */
uint64_t ck_lib_memory_room(void);

#endif
