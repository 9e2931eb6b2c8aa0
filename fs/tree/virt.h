/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virt.h - the files of .unshard/: made from the catalog, not stored
 *
 * A catalog of a million chunks is hundreds of megabytes of text.  It is made
 * once to learn its size, leaving a mark every 64 KiB, and then again from the
 * nearest mark for each read; nothing else is kept.
 *
 * Threads: any.
 */
#ifndef FS_VIRT_H
#define FS_VIRT_H

#include "core/base/err.h"
#include "core/ckpt/ckpt.h"
#include "fs/kernel/kernel.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum fs_virt_id {
	FS_VIRT_CATALOG,
	FS_VIRT_PROBLEMS_JSON,
	FS_VIRT_PROBLEMS,
	FS_VIRT_STATS,
	FS_VIRT_METRICS,
	FS_VIRT_MAP,
	FS_VIRT_NR
};

struct fs_virt;
struct fs_virt_file; /* an open one: its bytes do not change any more */

const char *fs_virt_name(unsigned id);
/* Whether it exists: nothing was described without a catalog. */
bool fs_virt_has(const struct fs_virt *v, unsigned id);
/* Whether its bytes are the same for the life of the mount. */
bool fs_virt_fixed(unsigned id);

struct fs_mounted_table;
struct fs_mounted;

/*
 * Who opens a document; one of a directory of checkpoints says to him only what he
 * may know of each.  @may: whether he may look into the entry @name, which was
 * @seen; with @read, and read all that is in it.
 */
struct fs_virt_reader {
	bool (*may)(void *ctx, struct fs_mounted_table *t, const char *name,
		    const struct stat *seen, bool read);
	void *ctx;
};

struct fs_virt_in {
	struct ck_ckpt *ck; /* NULL: @mounted alone says everything */
	const struct fs_kernel *kernel;
	unsigned sandbox;
	uint64_t generation;
	struct fs_mounted *mounted; /* NULL: it has no metrics */
	struct fs_mounted_table *owner;
	/* For who reads the files himself, what is to be asked for; NULL: no map. */
	const char *map;
};

/* Borrows all for its life; NULL: no memory. */
struct fs_virt *fs_virt_new(const struct fs_virt_in *in);
void fs_virt_free(struct fs_virt *v);

/* Bytes it has now, for who may know all; a FIXED one is made for this the first time. */
int fs_virt_size(struct fs_virt *v, unsigned id, uint64_t *size,
		 struct ck_err *err);
/* @by NULL: who may know all. */
int fs_virt_open(struct fs_virt *v, unsigned id,
		 const struct fs_virt_reader *by, struct fs_virt_file **out,
		 struct ck_err *err);
void fs_virt_close(struct fs_virt_file *f);
/* Bytes [off, off + len) as far as there are; *got says how many. */
int fs_virt_read(const struct fs_virt_file *f, void *buf, size_t len,
		 uint64_t off, size_t *got, struct ck_err *err);

#endif
