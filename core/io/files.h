/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.h - bounded cache of open source files
 *
 * At most a part of RLIMIT_NOFILE is open at once; least recently used ones
 * are closed.  A file that is no longer the one described is never read: gone
 * -> EIO, shorter than described -> EIO, other inode, size or mtime -> ESTALE.
 * What our own writes (self_writes.h) did to it counts as described; of one that
 * was touched, self_writes.h is told.
 *
 * Threads: any; one short lock around the table.
 */
#ifndef CK_FILES_H
#define CK_FILES_H

#include "core/base/err.h"
#include "core/geom/catalog.h"
#include "core/root/root.h"

struct ck_files;
struct ck_self_writes;

struct ck_files_in {
	const struct ck_root *root; /* borrowed, as all of these */
	const struct ck_catalog *img;
	unsigned max; /* 0: a quarter of RLIMIT_NOFILE */
	struct ck_self_writes *self_writes;
	bool write; /* open for reading and writing */
};
struct ck_files *ck_files_new(const struct ck_files_in *in);
void ck_files_free(struct ck_files *f);

/*
 * The descriptor of FILE source @src, pinned until ck_files_put(), after its
 * identity was compared (one fstat a call).  0 or -errno with @err set.
 */
int ck_files_get(struct ck_files *f, uint32_t src, int *fd, struct ck_err *err);
void ck_files_put(struct ck_files *f, uint32_t src);
/* Whether bytes read since ck_files_get() gave the pinned @fd may be used. */
int ck_files_recheck(const struct ck_files *f, uint32_t src, int fd,
		     struct ck_err *err);

#endif
