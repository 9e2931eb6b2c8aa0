/* SPDX-License-Identifier: Apache-2.0 */
/* ids.h - who a process is, by /proc */
#ifndef FS_IDS_H
#define FS_IDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FS_IDS_GROUPS 65536 /* the kernel's limit */
#define FS_IDS_ROOM (FS_IDS_GROUPS * 11 + 8192)

struct fs_ids {
	uid_t uid; /* those by which files are judged */
	gid_t gid;
	unsigned nr;
	gid_t *groups; /* FS_IDS_GROUPS */
	uint64_t caps;
	/* Those that access(2) takes instead of them, and what caps then are. */
	uid_t real_uid;
	gid_t real_gid;
	uint64_t permitted;
};

/* /proc/@pid/@file, of the folder @proc, as text: bytes, or -errno; -EACCES: cut off. */
ssize_t fs_ids_read(int proc, pid_t pid, const char *file, char *buf,
		    size_t room);
/* By its status.  @room: FS_IDS_ROOM bytes.  False: it cannot be known. */
bool fs_ids_know(int proc, pid_t pid, char *room, struct fs_ids *out);

/*
 * Whether the folder @proc has processes by the numbers that this process knows them
 * by, as that of the namespace above has not.  @room as above.
 */
bool fs_ids_are_ours(int proc, char *room);

bool fs_ids_same_groups(const struct fs_ids *a, const struct fs_ids *b);
/* @to has room for as many. */
void fs_ids_take_groups(struct fs_ids *to, const struct fs_ids *from);

#endif
