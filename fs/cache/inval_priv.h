/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inval_priv.h - the two halves of inval.h
 *
 *	inval.c   what is to be forgotten, and the thread that does it
 *	shown.c   files that are open, and which may be beside which
 */
#ifndef FS_INVAL_PRIV_H
#define FS_INVAL_PRIV_H

#include "core/base/helpers.h"
#include "core/base/vec.h"
#include "fs/cache/inval.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define FS_SHOWN_BUCKETS 1024u

/*
 * Where in a view's file each of its tensors is.  Found by keys: tensors of which a
 * write to one may change another have the same (ck_ckpt_bytes_key()).
 */
struct fs_tensor_offset {
	uint32_t key, tensor;
	uint64_t off; /* of its first byte in the file */
};

struct fs_tensor_offsets {
	bool made;
	bool unclear; /* the file shows bytes in a way that is not known here */
	CK_VEC(struct fs_tensor_offset) v; /* sorted by key, then tensor */
};

struct fs_shown {
	struct fs_shown *next, **list; /* in its bucket */
	uint64_t ino;
	const struct ck_view *v; /* while it is open */
	const struct ck_ckpt *ck;
	uint32_t nr;
	uint32_t tensor; /* CK_NONE: of several */
	uint32_t key; /* of its tensor; CK_NONE */
	unsigned opens, mappable;
	unsigned edits; /* for writing; */
	unsigned dirties; /* and mappable; */
	unsigned flushed, flushed_dirties; /* and closed, as it seems */
	unsigned pending; /* ranges of it in the queue */
	atomic_bool paged; /* the kernel may have pages of it */
	struct fs_tensor_offsets places; /* under the lock, as all of it */
};

struct item;
struct fs_inval {
	struct fuse_session *se;
	struct ck_helpers thread; /* one; it does all there is before it ends */
	pthread_cond_t closed; /* a file that was open for writing */
	bool busy; /* an item was taken and is not done */
	struct item *first, **last;
	unsigned edits; /* of all files */
	struct fs_shown *bucket[FS_SHOWN_BUCKETS];
	struct fs_shown *several;
};

/* All under iv->thread.lock. */
/* Files of @ck that show bytes of @key alone, and others; CK_NONE: of several. */
struct fs_shown **fs_shown_list(struct fs_inval *iv, const struct ck_ckpt *ck,
				uint32_t key);
/* Frees @s where it is neither open nor in the queue. */
void fs_shown_drop(struct fs_shown *s);
/* Of a file that is open. */
const struct fs_tensor_offsets *fs_shown_places(struct fs_shown *s);
/* The first of @key; what is of it follows.  NULL: none. */
const struct fs_tensor_offset *fs_tensor_offsets_find(
	const struct fs_tensor_offsets *p, uint32_t key);
/* The one after @at, of the same key; or NULL. */
const struct fs_tensor_offset *fs_tensor_offsets_next(
	const struct fs_tensor_offsets *p, const struct fs_tensor_offset *at);

#endif
