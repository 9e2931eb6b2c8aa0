/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memdir.h - a checkpoint's folder that is only in memory
 *
 * Files are borrowed bytes, so a test can cut or change them in place.  A
 * name with slashes makes its folders.
 */
#ifndef TEST_MEMDIR_H
#define TEST_MEMDIR_H

#include "core/root/dir.h"

#include <stddef.h>

struct memdir_file {
	char *name;
	const void *bytes;
	size_t len;
	void *owned; /* to be freed with it, or NULL */
	int fault; /* not 0: opening it fails with this errno */
};

struct memdir {
	struct ck_dir dir; /* what readers get */
	struct memdir_file *v;
	size_t nr, room;
};

void memdir_init(struct memdir *m);
void memdir_free(struct memdir *m);
/* Replaces a file of the same name.  NULL: no memory. */
struct memdir_file *memdir_put(struct memdir *m, const char *name,
			       const void *bytes, size_t len);
struct memdir_file *memdir_find(const struct memdir *m, const char *name);
void memdir_drop(struct memdir *m, const char *name);
/* All files of a real folder, with those below it.  0 or -errno. */
int memdir_load(struct memdir *m, const char *path);

#endif
