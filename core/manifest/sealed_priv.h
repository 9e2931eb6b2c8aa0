/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed_priv.h - the parts of sealed.h
 *
 *	sealed.c      opening and reading
 *	sealed_old.c  what touched blocks held before
 *	sealed_later.c  what another mount made of it since
 *	update_manifest.c      noting, and a manifest that is true again
 */
#ifndef CK_SEALED_PRIV_H
#define CK_SEALED_PRIV_H

#include "core/base/str.h"
#include "core/io/checked.h"
#include "core/manifest/manifest_priv.h"
#include "core/base/intervals.h"
#include "core/manifest/sealed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* Of a block: what is known of the bytes that are not written. */
enum {
	CK_OLD_UNKNOWN, /* nothing was written to it yet */
	CK_OLD_BUSY, /* somebody compares it */
	CK_OLD_GOOD, /* they are what was sealed, or all are new */
	CK_OLD_BAD, /* they may not be: its digest stays as it was */
	CK_OLD_COVERED, /* nobody knows, and one write is about to be all */
};

struct ck_sealed {
	const struct ck_root *root;
	const struct ck_catalog *img;
	pthread_mutex_t lock; /* of all below */
	pthread_mutex_t updating;
	bool present; /* no change once something is written: there is one; else @m is empty, and the rest NULL */
	struct ck_manifest m;
	uint64_t *file_of; /* of each source: in the manifest, or CK_NO_FILE */
	_Atomic uint64_t *touched; /* a bit a block of the manifest */
	_Atomic unsigned char *old; /* of each block */
	struct ck_intervals
		fresh; /* written bytes of BAD ones; block << shift */
	pthread_cond_t compared; /* with the lock */
	struct ck_sealed_said said;
	bool held; /* nobody else edits it: @m is true */
	struct ck_id seen; /* the manifest's file when it was read last */
	struct ck_manifest later; /* what that had then, if it is not @m */
	bool has_later;
	unsigned char *marked; /* by file: EDITED has its name */
	int edited_fd;
	bool edited; /* something was, and is not in the manifest */
	unsigned writing; /* writes under way */
	struct ck_checked *checked;
	struct ck_watch watch;
};

/* With the lock: the manifest as it is by now, until the lock is let go. */
const struct ck_manifest *ck_sealed_newest(struct ck_sealed *s);
/* Whether somebody is at a file that has bytes of tensor @t, or died at it. */
bool ck_sealed_is_at(const struct ck_sealed *s, uint32_t t);
/* For ck_checked_ask(). */
int ck_sealed_later(void *ctx, uint32_t src, uint64_t block, uint64_t *digest);
/* The same of a file of @size bytes by its name. */
int ck_sealed_block_later(struct ck_sealed *s, const char *name, uint64_t size,
			  uint64_t block, uint64_t *digest);

/*
 * Before bytes [off, off + len) of @file are written, without the lock: waits
 * for, or makes, the comparison of blocks that they are a part of.
 */
void ck_sealed_old(struct ck_sealed *s, uint32_t src, uint64_t file,
		   uint64_t off, uint64_t len);
/* What EDITED says of such a block. */
void ck_sealed_was_bad(struct ck_sealed *s, const char *text);
/* With the lock: what EDITED is to have of @file before it is written to. */
void ck_sealed_names(const struct ck_sealed *s, uint64_t file,
		     struct ck_str *out);
/* After a write that failed, with the lock. */
void ck_sealed_failed(struct ck_sealed *s, uint64_t file, uint64_t off,
		      uint64_t len);
/* After, with the lock: a block that is new as a whole is good. */
void ck_sealed_read_new(struct ck_sealed *s, uint64_t file, uint64_t off,
			uint64_t len);

#endif
