/* SPDX-License-Identifier: Apache-2.0 */
/* root_priv.h - the parts of the root; see root.h */
#ifndef CK_ROOT_PRIV_H
#define CK_ROOT_PRIV_H

#include "core/root/openat_beneath.h"
#include "core/root/root.h"

#include <limits.h>

/* Tests: behave as on a kernel that lacks openat2. */
extern bool ck_root_no_openat2;

/*
 * The first part of @rel that is a link: returns its length within @rel, and
 * its text in @target; 0 where there is none.
 */
size_t ck_beneath_link(int dirfd, const char *rel, char target[PATH_MAX]);

/* Relative, and no part is empty, "." or "..". */
bool ck_path_plain(const char *rel);
/*
 * What @rel means in the absolute directory @dir, by its text alone.  False:
 * longer than a path can be.
 */
bool ck_path_join(char out[PATH_MAX], const char *dir, const char *rel);
/* The rest of @path in @dir, "." for itself; NULL: not inside of it. */
const char *ck_path_inside(const char *path, const char *dir);

/* A file of a joined directory, open for reading. */
struct ck_root_same_file {
	const struct ck_root *root;
	int fd;
	const struct stat *st;
};

/*
 * -EINVAL with a line that names both where the index parts of @name, of one
 * size in both, differ (root_same_file.c).  What cannot be read is not
 * compared.
 */
int ck_root_compare(const char *name, const struct ck_root_same_file *a,
		    const struct ck_root_same_file *b, struct ck_err *err);

#endif
