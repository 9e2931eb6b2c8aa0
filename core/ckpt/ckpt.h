/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.h - the facade: all that fs/, the command and the library see of core
 *
 *	struct ck_ckpt *ck;
 *	ck_ckpt_open(&ck, "ckpt/step-100", &opts, &err);
 *	img = ck_ckpt_catalog(ck);
 *	ck_ckpt_read(ck, tensor, buf, len, off, &err);
 *	ck_ckpt_close(ck);
 *
 * Opening has two halves, because a mount needs a process between them:
 * ck_ckpt_describe() forks a short-lived, sandboxed process that parses the
 * files and leaves a catalog in a memfd; ck_ckpt_serve() maps and reads.
 */
#ifndef CK_CKPT_H
#define CK_CKPT_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/base/str.h"
#include "core/geom/cursor.h"
#include "core/geom/catalog.h"
#include "core/io/read.h"
#include "core/root/root.h"

struct ck_ckpt;
struct ck_edit;

/*
 * The parser gets 5 s of processor time, 1 s more for each 8 MiB of index or 10
 * files (or what parse-time= says), ten times that by the clock, and 512 MiB of
 * memory plus 16 times the index.  Its death and its time-out are errors.
 * *catalog_fd: a sealed memfd, the caller's.  Settings read from opts: format
 * sandbox parse-time verify; serve: engine cache-mem spool spool-max max-files
 * rw master verify overlay.
 */
int ck_ckpt_describe(const struct ck_root *root, const struct ck_opts *opts,
		     int *catalog_fd, struct ck_err *err);
/* Takes @root (moves it) if all goes well; @catalog_fd stays the caller's. */
int ck_ckpt_serve(struct ck_ckpt **out, struct ck_root *root,
		  const struct ck_opts *opts, int catalog_fd,
		  struct ck_err *err);
/* Both, for a path. */
int ck_ckpt_open(struct ck_ckpt **out, const char *path,
		 const struct ck_opts *opts, struct ck_err *err);
/*
 * A checkpoint of the tensors of a safetensors file that is made of another
 * checkpoint, @ck, whose root and engine it uses; it is only read.  Closing it
 * calls free(), where there is one, last.
 */
struct ck_ckpt_derivation {
	const char *what; /* for messages, as the next: both last */
	const char *name; /* of the file */
	uint64_t size;
	const struct ck_src *like; /* whose owner and time it has, or NULL */
	struct ck_ckpt *ck;
	struct ck_made made; /* its bytes; any thread */
	void (*free)(void *ctx);
};
int ck_ckpt_derive(struct ck_ckpt **out, const struct ck_ckpt_derivation *below,
		   struct ck_err *err);
void ck_ckpt_close(struct ck_ckpt *ck);

const struct ck_catalog *ck_ckpt_catalog(const struct ck_ckpt *ck);
const struct ck_root *ck_ckpt_root(const struct ck_ckpt *ck);
const struct ck_resolved *ck_ckpt_resolved(const struct ck_ckpt *ck);
const struct ck_read_stats *ck_ckpt_stats(const struct ck_ckpt *ck);
const char *ck_ckpt_engine(const struct ck_ckpt *ck);

/* See io/read.h; any thread. */
int ck_ckpt_read(struct ck_ckpt *ck, uint32_t tensor, void *buf, uint64_t len,
		 uint64_t off, struct ck_err *err);
int ck_ckpt_read_box(struct ck_ckpt *ck, uint32_t tensor,
		     const struct ck_box *box, void *buf, uint64_t len,
		     struct ck_err *err);
int ck_ckpt_read_box_bytes(struct ck_ckpt *ck, uint32_t tensor,
			   const struct ck_box *box, void *buf, uint64_t len,
			   uint64_t off, struct ck_err *err);
int ck_ckpt_read_object(struct ck_ckpt *ck, uint32_t object, void *buf,
			uint64_t len, uint64_t off, struct ck_err *err);
/*
 * Where the bytes of @tensor from @off on lie as they are: up to @len of them,
 * in one stretch of FILE source @src.  False: they are in no such.
 */
struct ck_raw_extent {
	uint32_t src;
	uint64_t off, len;
};
bool ck_ckpt_raw_extent(const struct ck_ckpt *ck, uint32_t tensor, uint64_t off,
			uint64_t len, struct ck_raw_extent *out);
/* See io/read.h; items must be resolved. */
int ck_ckpt_replicas(struct ck_ckpt *ck, uint32_t tensor, ck_differ_fn differ,
		     void *ctx, struct ck_err *err);
int ck_ckpt_mend(struct ck_ckpt *ck, uint32_t tensor,
		 const struct ck_mend *mend, struct ck_err *err);
/*
 * The XXH3-128 of its bytes, as it was sealed; false: it was not, or was
 * edited since.
 */
struct ck_digest;
bool ck_ckpt_digest(struct ck_ckpt *ck, uint32_t tensor, struct ck_digest *out);
/* The same of its bytes as they are; see manifest/hash.h. */
int ck_ckpt_hash(struct ck_ckpt *ck, uint32_t tensor, struct ck_digest *out,
		 _Atomic uint64_t *bytes, struct ck_err *err);
/* Resolves every deferred item of @tensor; bad ones become problems. */
int ck_ckpt_resolve(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err);

/* What -o overlay= holds; NULL: it was not given. */
struct ck_overlay;
struct ck_overlay *ck_ckpt_overlay(struct ck_ckpt *ck);
/*
 * A descriptor on the file system that takes what is written, borrowed: for
 * fstatvfs().  -1: not known.
 */
int ck_ckpt_room_fd(const struct ck_ckpt *ck);
/*
 * Before ck_ckpt_close(), once nobody writes any more: what an overlay holds
 * lasts, though nobody synced it.
 */
int ck_ckpt_end(struct ck_ckpt *ck, struct ck_err *err);

/*
 * Writing, where the settings said rw; else these are not to be called.  An
 * edit is one open file; see write/writer.h.  Any thread.
 */
/*
 * Whether the files are as they were described, and nobody edits them: 0,
 * -ESTALE, -EBUSY with a line.  @held: the caller has the lock
 * (io/writer_lock.h).
 */
int ck_ckpt_at_rest(struct ck_ckpt *ck, bool held, struct ck_err *err);
bool ck_ckpt_is_rw(const struct ck_ckpt *ck);
bool ck_ckpt_is_derived(const struct ck_ckpt *ck); /* by ck_ckpt_derive() */
struct ck_ckpt *ck_ckpt_derived_from(const struct ck_ckpt *ck); /* or NULL */
struct ck_edit *ck_ckpt_edit(struct ck_ckpt *ck); /* NULL: no memory */
void ck_ckpt_edit_end(struct ck_edit *e);
/*
 * Nobody else edits the checkpoint from here to ck_ckpt_close(), or -EBUSY
 * with a line; what others did up to now is known.  Writing does it by itself.
 */
int ck_ckpt_lock_writer(struct ck_ckpt *ck, struct ck_err *err);
/*
 * Calls @each for every CRC-32 that its files keep of their own bytes; what
 * cannot be found is left out.  Items must be resolved.
 */
typedef int (*ck_ckpt_sum_fn)(void *ctx, uint32_t src, uint64_t off,
			      uint64_t len, uint32_t crc, struct ck_err *err);
int ck_ckpt_sums(struct ck_ckpt *ck, ck_ckpt_sum_fn each, void *ctx,
		 struct ck_err *err);
int ck_ckpt_may_write(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err);
/*
 * What a write replaced, of bytes that pages of maps show as they were, and may
 * be written back with as if somebody had stored them: such a page leaves what
 * is there now.  To be ended when no such page is left.  NULL: no memory.
 */
struct ck_pre_image;
struct ck_pre_image *ck_ckpt_pre_image(struct ck_ckpt *ck);
void ck_ckpt_pre_image_end(struct ck_pre_image *f); /* or NULL */
/* Whether a page that was written had such bytes, and so is old itself. */
bool ck_ckpt_pre_image_merged(const struct ck_pre_image *f);

/* How bytes came. */
struct ck_written_as {
	/*
	 * In pages of a map; which of their bytes a program stored is not
	 * known, and those that are as they were it did not.
	 */
	bool page;
	uint64_t file; /* whose pages have them; 0: nobody's */
	struct ck_pre_image *pre_image; /* NULL: nobody else has older pages */
};
/* @as: NULL where nobody else may have pages of them. */
int ck_ckpt_write(struct ck_ckpt *ck, struct ck_edit *e, uint32_t tensor,
		  const void *buf, uint64_t len, uint64_t off,
		  const struct ck_written_as *as, struct ck_err *err);
/*
 * Whether a write of some of these bytes failed half-way, so that copies of them
 * differ, and none came after it.
 */
bool ck_ckpt_is_partly_written(struct ck_ckpt *ck, uint32_t tensor,
			       uint64_t len, uint64_t off);
/* Tensors that share stored bytes have the same; CK_NONE: none does. */
uint32_t ck_ckpt_shared_storage(const struct ck_ckpt *ck, uint32_t tensor);
/* The float32 copy that is written with @tensor, -o master=; CK_NONE: none. */
uint32_t ck_ckpt_written_too(const struct ck_ckpt *ck, uint32_t tensor);
/* An empty nameless file in the spool, the caller's to close. */
int ck_ckpt_nameless_file(struct ck_ckpt *ck, int *fd, struct ck_err *err);
/*
 * What is to replace bytes of tensors all at once, whatever happens meanwhile;
 * see redo/redo.h.  *redo NULL: the checkpoint's directory takes none, and *fd
 * is a nameless file as above.  Else *fd is borrowed.  *fd holds the bytes.
 */
struct ck_redo;
int ck_ckpt_redo(struct ck_ckpt *ck, struct ck_redo **redo, int *fd,
		 struct ck_err *err);
/*
 * Around what follows, for one file at a time.  -EIO, and not locked, where one
 * before it broke off.
 */
int ck_ckpt_redo_lock(struct ck_ckpt *ck, struct ck_err *err);
void ck_ckpt_redo_unlock(struct ck_ckpt *ck);
/* Bytes [at, at+len) of the file are those of @tensor from @off on. */
int ck_ckpt_redo_add(struct ck_ckpt *ck, struct ck_redo *redo, uint32_t tensor,
		     uint64_t at, uint64_t len, uint64_t off,
		     struct ck_err *err);
/* All @len are there.  From now on the next mount would write them. */
int ck_ckpt_redo_commit(struct ck_ckpt *ck, struct ck_redo *redo, uint64_t len,
			struct ck_err *err);
/* Before each piece that is written then, for tests of what breaks off. */
int ck_ckpt_redo_step(struct ck_err *err);
/*
 * @ret: what writing them to the tensors by @e gave; @some: some of them may
 * be written.  Returns @ret, or that they are not on storage.
 */
int ck_ckpt_redo_end(struct ck_ckpt *ck, struct ck_redo *redo,
		     struct ck_edit *e, int ret, bool some, struct ck_err *err);
void ck_ckpt_redo_free(struct ck_redo *redo);
/* Checksums of containers are right; and, sync, all is on storage. */
int ck_ckpt_flush_checksums(struct ck_ckpt *ck, struct ck_edit *e,
			    struct ck_err *err);
int ck_ckpt_sync(struct ck_ckpt *ck, struct ck_edit *e, struct ck_err *err);
/* Moves on with every write; 0 where nothing is written. */
uint64_t ck_ckpt_write_seq(const struct ck_ckpt *ck);
/* When we wrote tensor @tensor last, ns since 1970; 0: never. */
int64_t ck_ckpt_wrote_ns(const struct ck_ckpt *ck, uint32_t tensor);
int64_t ck_ckpt_last_wrote_ns(const struct ck_ckpt *ck); /* any tensor */
/*
 * Whether file @name of it, which is @st now, was changed by us and nobody else;
 * *was_ns: its time when it was described.  Also where nothing is written.
 */
bool ck_ckpt_wrote_file(const struct ck_ckpt *ck, const char *name,
			const struct stat *st, int64_t *was_ns);

/*
 * Problems found while serving (the catalog's own are in the catalog): a
 * growing, bounded list, each appended once.  Text as dump.h makes it; @json or
 * lines.
 */
void ck_ckpt_runtime_problems(struct ck_ckpt *ck, bool json,
			      struct ck_str *out);
/*
 * Adds to them that view @view, a name that lasts, leaves @tensor out; CK_NONE:
 * what concerns the view as a whole.  @meant: it could hold it, but is to show
 * other tensors.
 */
void ck_ckpt_view_problem(struct ck_ckpt *ck, const char *view, uint32_t tensor,
			  bool meant, const char *reason);
/* What @view said so that it left out. */
struct ck_left_out {
	uint64_t nr; /* tensors it cannot hold; */
	bool more; /* than these, for there was no room to note them all */
	uint32_t first; /* of them */
	struct ck_str why; /* the first */
	struct ck_str others; /* names of up to 100 of the others: "a, b" */
	struct ck_str other; /* in one line, what else was said; or empty */
};
void ck_ckpt_left_out(struct ck_ckpt *ck, const char *view,
		      struct ck_left_out *out);
void ck_left_out_free(struct ck_left_out *left);
uint64_t ck_ckpt_runtime_problems_seq(
	const struct ck_ckpt *ck); /* changes when it grows */
/* How many of them are errors, not warnings or notes. */
uint64_t ck_ckpt_runtime_errors(struct ck_ckpt *ck);

#endif
