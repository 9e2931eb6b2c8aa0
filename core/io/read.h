/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.h - cursor -> plan -> engine -> the caller's buffer
 *
 * A read inside a tensor is answered in full or with -errno: never short,
 * never zeros for what is missing.  One vectored read per touched source,
 * straight into the caller's buffer; gaps of up to a page are read through
 * while the bytes read are at most 4x the bytes wanted; segments of short runs
 * (transposed sources) go through a bounded cache of tiles; a bad replica
 * fails over to the next of its ring.  RAM is bounded by the settings below.
 *
 * Threads: any.
 */
#ifndef CK_READ_H
#define CK_READ_H

#include "core/base/err.h"
#include "core/geom/cursor.h"
#include "core/io/engine.h"
#include "core/io/files.h"
#include "core/root/root.h"

#include <stdatomic.h>

struct ck_reader;

/* Told of what core/write changes in FILE sources. */
struct ck_watch {
	void *ctx;
	/* Before: not 0, with @err set, and nothing is written. */
	int (*begin)(void *ctx, uint32_t src, uint64_t off, uint64_t len,
		     struct ck_err *err);
	/* After, for each begin() that was 0; @done: all of it was written. */
	void (*end)(void *ctx, uint32_t src, uint64_t off, uint64_t len,
		    bool done);
};

/* Bytes that are read and written in place of those of FILE sources. */
struct ck_file_layer {
	void *ctx;
	/* Whether any of these bytes has one. */
	bool (*covers)(void *ctx, uint32_t src, uint64_t off, uint64_t len);
	/* Bytes [off, off + len) of @src, as they were read: those that do. */
	int (*patch)(void *ctx, uint32_t src, const struct iovec *iov,
		     uint64_t off, uint64_t len);
	/* These bytes have one now; @fd is the source, for what is near. */
	int (*put)(void *ctx, uint32_t src, int fd, const struct iovec *iov,
		   uint64_t off, uint64_t len);
	/* What was put so far is found when this process is killed. */
	int (*keep)(void *ctx, struct ck_err *err);
	/* All that was put is durable, and found together or not at all. */
	int (*sync)(void *ctx, struct ck_err *err);
};

/*
 * What computes the bytes of FILE sources: all @len bytes of @src, which lie
 * inside, or -errno with @err set.  It may read by another reader.
 */
struct ck_made {
	void *ctx;
	int (*read)(void *ctx, uint32_t src, void *buf, uint64_t len,
		    uint64_t off, struct ck_err *err);
};

struct ck_checked;

struct ck_reader_in {
	const struct ck_catalog *img;
	const struct ck_root *root;
	struct ck_resolved *resolved;
	const struct ck_engine_ops *engine;
	ck_resolve_fn resolve; /* who @resolved asks; or NULL */
	void *resolve_ctx;
	uint64_t cache_mem; /* bytes of tiles; 0: 64 MiB */
	const char *spool_dir; /* for decoded items; NULL: /var/tmp */
	uint64_t spool_max; /* bytes; 0: half of what is free there */
	unsigned max_files; /* 0: from RLIMIT_NOFILE */
	struct ck_checked
		*checked; /* blocks are compared before use; or NULL */
	const struct ck_watch *watch; /* or NULL */
	/* Sources are only read, and what is written goes here; or NULL. */
	const struct ck_file_layer *over;
	const struct ck_made *made; /* no file is opened then; or NULL */
	bool write; /* its files may be written too, core/write/ */
	bool sums; /* they hold checksums of their format's own */
	bool unaided; /* one thread writes a request, never two (write_helper.h) */
	/* @src was touched: nothing that was read of it counts; or NULL. */
	void (*touched)(void *ctx, uint32_t src);
	void *touched_ctx;
	/* Told of every part that could not be read, once a chunk; may be NULL. */
	void (*fault)(void *ctx, uint32_t tensor, uint32_t chunk,
		      const struct ck_err *err);
	void *fault_ctx;
};

#define CK_TOOK_NR 12
extern const uint32_t ck_took_us[CK_TOOK_NR - 1];

struct ck_read_stats {
	_Atomic uint64_t reads, bytes, source_reads, source_bytes, resolved,
		failed, tile_hits, tile_misses, spooled_bytes, writes, written,
		source_writes, span_walks, /* of what is written */
		touched; /* files, found so */
	/* Of files that a mount keeps: opens, bytes read of them, and put there. */
	_Atomic uint64_t cache_opens, cache_bytes, cache_filled;
	_Atomic uint64_t read_ns; /* of all reads together */
	/* Reads of up to ck_took_us[i] that were not faster yet; last the others. */
	_Atomic uint64_t took[CK_TOOK_NR];
};

int ck_reader_new(struct ck_reader **out, const struct ck_reader_in *in,
		  struct ck_err *err);
void ck_reader_free(struct ck_reader *r);

/* How often files were found to be touched (geom/file_id.h). */
uint64_t ck_reader_touches(const struct ck_reader *r);
/*
 * Forgets what was kept of files that were found to be touched; how many were.  Who
 * has read and finds another number then reads once more.
 */
uint64_t ck_reader_forget_touched(struct ck_reader *r);
/* What it was made with. */
const struct ck_reader_in *ck_reader_settings(const struct ck_reader *r);
/* Bytes [off, off+len) of tensor number @t (index into img->tensors). */
int ck_reader_read(struct ck_reader *r, uint32_t t, void *buf, uint64_t len,
		   uint64_t off, struct ck_err *err);
/* The elements of @box (of the shape), row-major, whole elements. */
int ck_reader_read_box(struct ck_reader *r, uint32_t t,
		       const struct ck_box *box, void *buf, uint64_t len,
		       struct ck_err *err);
/* Bytes [off, off + len) of the same. */
int ck_reader_read_box_bytes(struct ck_reader *r, uint32_t t,
			     const struct ck_box *box, void *buf, uint64_t len,
			     uint64_t off, struct ck_err *err);
/*
 * Bytes of any source as they are (objects, items being resolved).  CODEC
 * sources are decoded into the spool first.
 */
int ck_reader_source(struct ck_reader *r, uint32_t src, void *buf, uint64_t len,
		     uint64_t off, struct ck_err *err);
/* Whether FILE source @src is there and may be read: 0 or -errno. */
int ck_reader_look(struct ck_reader *r, uint32_t src);
/* Size of a source; CODEC: of the decoded bytes (decodes). */
int ck_reader_source_size(struct ck_reader *r, uint32_t src, uint64_t *size,
			  struct ck_err *err);
/*
 * Reads every replica of every part of tensor @t.  @differ: bytes [off,
 * off + len) of the tensor are not the same in chunks @a and @b, or, @why,
 * could not be read from @b (from @a where both are the same).  @a is what a
 * read would use.  0; -ENOMEM.
 */
typedef void (*ck_differ_fn)(void *ctx, uint32_t a, uint32_t b, uint64_t off,
			     uint64_t len, const struct ck_err *why);
int ck_reader_replicas(struct ck_reader *r, uint32_t t, ck_differ_fn differ,
		       void *ctx, struct ck_err *err);
/*
 * Makes replicas of tensor @t alike.  Of a stretch of bytes that is not the same
 * in all members of a ring, those count of which counts() is true; if there are
 * such, and they agree, put() is to write what they have to all members.  Else
 * undecided(), with how many count.  put() NULL: is only looked for.
 * 0, or -errno: the first that failed, a replica that cannot be read too.
 */
struct ck_mend {
	void *ctx;
	bool (*counts)(void *ctx, uint32_t t, uint32_t chunk, uint64_t off,
		       uint64_t len);
	int (*put)(void *ctx, uint32_t t, const void *buf, uint64_t len,
		   uint64_t off, struct ck_err *err);
	void (*undecided)(void *ctx, uint32_t t, uint64_t off, uint64_t len,
			  unsigned nr);
};
int ck_reader_mend(struct ck_reader *r, uint32_t t, const struct ck_mend *mend,
		   struct ck_err *err);
/* An empty file without a name in the spool, the caller's to close. */
int ck_reader_nameless_file(struct ck_reader *r, int *fd, struct ck_err *err);
const struct ck_read_stats *ck_reader_stats(const struct ck_reader *r);
void ck_reader_count_cache(struct ck_reader *r, uint64_t opens, uint64_t bytes,
			   uint64_t filled);

#endif
