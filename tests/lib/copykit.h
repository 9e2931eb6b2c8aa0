/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copykit.h - three tensors, each in a file of its own, and copies of them
 *
 * Byte i of tensor t says i, t and how often its file was written.  What goes
 * wrong in the kit itself ends the program.
 */
#ifndef COPYKIT_H
#define COPYKIT_H

#include "fs/cache/copies.h"
#include "fs/kernel/passthrough.h"

#include <stddef.h>

#define CK_COPY_SIZE (((uint64_t)3 << 20) + 1000) /* of each tensor */
enum { COPYKIT_TENSORS = 3 };

struct copykit {
	char dir[64], kept[80]; /* of the checkpoint; an empty folder */
	struct ck_ckpt *ck;
	struct ck_view *v; /* tensors/ */
	unsigned version[COPYKIT_TENSORS];
	int kept_fd;
	struct fs_kernel kernel;
	struct fs_passed *passed;
	struct fs_copies *cs;
};

/* Copies of at most @max bytes, in memory or in the folder @dir. */
void copykit_start(struct copykit *k);
void copykit_serve(struct copykit *k, uint64_t max, bool memory, int dir);
void copykit_unserve(struct copykit *k);
void copykit_end(struct copykit *k);

/* Writes the file of tensor @t anew, in place; @hide: its time is set back. */
void copykit_write(struct copykit *k, unsigned t, bool hide);
/* Changes its inode, and no byte of it. */
void copykit_touch(struct copykit *k, unsigned t);
/* As the kernel opens it, by number @turn. */
int copykit_open(struct copykit *k, unsigned t, unsigned turn,
		 struct fs_copy_open *o);
void copykit_close(struct copykit *k, struct fs_copy_open *o);
/* Bytes of it: 0, -errno.  *right: they are those of @version, in the copy, too. */
int copykit_read(struct copykit *k, unsigned t, const struct fs_copy_open *o,
		 uint64_t len, uint64_t off, unsigned version, bool *right);
/* The whole, by reads of @step. */
int copykit_read_all(struct copykit *k, unsigned t,
		     const struct fs_copy_open *o, uint64_t step,
		     unsigned version, bool *right);
/* Opens, reads all and closes it. */
bool copykit_keep(struct copykit *k, unsigned t, uint64_t step);
/* Bytes that were read of the files so far. */
uint64_t copykit_source_bytes(const struct copykit *k);

#endif
