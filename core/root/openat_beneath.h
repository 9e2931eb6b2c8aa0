/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openat_beneath.h - opening what lies below a directory, and nothing else
 *
 * -ELOOP at any link, -EXDEV outside and at mount points.  @rel has no empty,
 * "." or ".." part.  Descriptors are the caller's, O_CLOEXEC.
 *
 * Threads: any.
 */
#ifndef CK_OPENAT_BENEATH_H
#define CK_OPENAT_BENEATH_H

#include <dirent.h>

/* @flags of open(2) without O_CREAT. */
int ck_beneath_open(int dirfd, const char *rel, int flags);
/* A directory, to be listed and synced; "" is @dirfd itself. */
int ck_beneath_dir(int dirfd, const char *rel);
/* The same by O_PATH, to name what is in it. */
int ck_beneath_at(int dirfd, const char *rel);
/* 0 and *@out, the caller's to close, or -errno and NULL. */
int ck_beneath_list(int dirfd, const char *rel, DIR **out);
/* A regular file, never waited for; -EINVAL: it is something else. */
int ck_beneath_file(int dirfd, const char *rel, int flags);

#endif
