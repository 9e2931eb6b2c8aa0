/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.h - digests of all blocks of many files, as fast as they can be read
 *
 * Several threads, each with a stretch of one file at a time, so that one big
 * file is read by all of them and many small ones too.  Files are opened by
 * their root, one descriptor a thread.
 */
#ifndef CK_HASH_H
#define CK_HASH_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/geom/file_id.h"
#include "core/root/root.h"
#include "core/manifest/manifest.h"

#include <pthread.h>

struct ck_hash_file {
	char *name; /* relative to the root */
	uint64_t size; /* bytes that are read */
	struct ck_id id;
	bool known; /* its digests are: nothing of it is read */
};

/* Regular files, and links that lead to some; sorted by name. */
struct ck_hash_list {
	struct ck_hash_file *v;
	size_t nr, room;
};

/*
 * All files of a checkpoint, as deep as its directories go, but ours (see
 * CK_MANIFEST_OURS).  What is no file, and links that are not followed, are
 * left out.
 */
int ck_hash_list(struct ck_hash_list *out, const struct ck_root *root,
		 struct ck_err *err);
void ck_hash_list_free(struct ck_hash_list *l);
#define ck_auto_hash_list __attribute__((cleanup(ck_hash_list_free)))

struct ck_hash_in {
	const struct ck_root *root;
	const struct ck_hash_file *file;
	size_t nr;
	unsigned shift; /* log2 of a block */
	unsigned jobs; /* threads; 0: as many as this machine suggests */
	void *ctx; /* of the calls below */
	/* Block @k of file @i is to be read; NULL: all are.  One at a time. */
	bool (*want)(void *ctx, size_t i, uint64_t k);
	/*
	 * Its XXH3-64, or @err: -errno with a line.  From any thread, several
	 * at once.  Not 0: stop.
	 */
	int (*block)(void *ctx, size_t i, uint64_t k, uint64_t digest,
		     const struct ck_err *err);
	/* Bytes of file @i from @at on, in order for each block; may be NULL. */
	void (*pass)(void *ctx, size_t i, uint64_t at, const void *bytes,
		     size_t len);
	/* From the caller's thread, ten times a second; may be NULL. */
	void (*tick)(void *ctx, uint64_t bytes);
};

/* 0; what block() stopped with; or -ENOMEM. */
int ck_hash_run(const struct ck_hash_in *in, struct ck_err *err);

/* One thread's share of that, for who says what is next: want, jobs and tick
 * mean nothing then.  NULL: no memory. */
struct ck_hasher;
struct ck_hasher *ck_hasher_new(const struct ck_hash_in *in,
				_Atomic uint64_t *bytes);
void ck_hasher_free(struct ck_hasher *h);
/* Blocks [first, end) of file @i.  What block() stopped with, or 0. */
int ck_hasher_run(struct ck_hasher *h, size_t i, uint64_t first, uint64_t end);

/*
 * What was known of files when they were so, and of tensors that are all the bytes
 * of a chunk of one: both by name, as strcmp() sorts.  Of a file that is another by
 * now nothing counts.
 */
struct ck_hash_known {
	struct ck_hash_known_file {
		const char *name;
		struct ck_id id; /* its dev is not compared: of any node */
		const uint64_t *block; /* of the usual size */
	} * file;
	struct ck_hash_known_tensor {
		const char *name, *file;
		uint64_t size;
		struct ck_digest digest;
	} * tensor;
	size_t nr_files, nr_tensors;
	struct ck_arena mem; /* all of it is there */
};

/* What the next consists of: all files, where their digests go, the rest. */
struct ck_hash_all {
	struct ck_hash_list list;
	struct ck_hash_in in; /* for ck_hash_run(), or a hasher */
	uint64_t total; /* bytes */
	/* private */
	uint64_t *block, *first;
	pthread_mutex_t lock;
	struct ck_err why;
};
/* @known: may be NULL. */
int ck_hash_all_begin(struct ck_hash_all *a, const struct ck_root *root,
		      unsigned shift, const struct ck_hash_known *known,
		      struct ck_err *err);
/* @ret: of the run.  All files into @n, if they are still what they were. */
int ck_hash_all_end(struct ck_hash_all *a, int ret, struct ck_manifest_new *n,
		    struct ck_err *err);
void ck_hash_all_free(struct ck_hash_all *a);

/*
 * All files of @root into @n: the whole of what a publish says of files.  A
 * file that changes meanwhile is -EBUSY.  @tick as above, @total in bytes.
 */
int ck_hash_manifest(struct ck_manifest_new *n, const struct ck_root *root,
		     const struct ck_hash_known *known, unsigned jobs,
		     void (*tick)(void *ctx, uint64_t bytes, uint64_t total),
		     void *ctx, struct ck_err *err);

struct ck_reader;
/*
 * The XXH3-128 of the @size bytes of tensor @t; -errno where not all of it can
 * be read.  *bytes, if any, grows as they are read.
 */
int ck_hash_tensor(struct ck_reader *r, uint32_t t, uint64_t size,
		   struct ck_digest *out, _Atomic uint64_t *bytes,
		   struct ck_err *err);

#endif
