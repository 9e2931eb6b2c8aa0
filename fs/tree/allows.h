/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allows.h - what files allow, as far as one mode and one owner can say it
 *
 * What a mode cannot say stands as what others may: it lets in who may be let
 * in, and who asks is asked about then (fs/ask/ask.h).  Threads: any.
 */
#ifndef FS_ALLOWS_H
#define FS_ALLOWS_H

#include "core/ckpt/ckpt.h"

#include <sys/stat.h>

/* Mode, owner and group of one file, when it was looked at. */
struct fs_allows {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	bool listed; /* it has an access list: the group's bits are its mask */
	int64_t at_ms; /* 0: never */
};

/* Below @root now; what the catalog has of it where it is not there. */
void fs_allows_look(const struct ck_root *root, const struct ck_catalog *img,
		    const struct ck_src *file, struct fs_allows *out);
/* Its mode; what an access list gives at most, others have. */
mode_t fs_allows_mode(const struct fs_allows *a);
/* The mode of @st, of the file or folder @fd (opened for reading), likewise. */
void fs_allows_fd(int fd, struct stat *st);
/* What all of @nr files allow together, at least one, as @st. */
void fs_allows_all(const struct fs_allows *v, uint32_t nr, struct stat *st);

#endif
