/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.h - the facade: all that fs/, the command and the library see of core
 *
 *	struct ck_ckpt *ck;
 *	ck_root_open(&root, "ckpt/step-100", &opts, &err);
 *	ck_ckpt_describe(&root, &opts, &catalog_fd, &err);
 *	ck_ckpt_serve(&ck, &root, &opts, catalog_fd, &err);
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
#include "core/base/limits.h"
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
/*
 * The same, and maps it: @out is the caller's.  A catalog that was made before and
 * is kept in @in->dir is taken where the parser would make it again, and else put
 * there.  What is wrong with that folder is no error: it is put into @in->why.
 */
struct ck_index_cache_in {
	const char *dir; /* made where it is not there */
	bool slow_only; /* what was parsed within a moment is not kept */
	char why[128];
};
int ck_ckpt_describe_kept(const struct ck_root *root,
			  const struct ck_opts *opts,
			  struct ck_index_cache_in *in, struct ck_catalog *out,
			  struct ck_err *err);
/*
 * How much time and memory the index of a checkpoint may take: what the names
 * and sizes of its files suggest, without a look into them.
 */
struct ck_parser_limits {
	uint64_t index_bytes, files, folders;
	/*
	 * Of processor time: 5, and 1 for each 8 MiB of index, 10 files or one
	 * folder; with verify, and 1 for each GiB that was sealed
	 */
	unsigned seconds;
	unsigned patience; /* by the clock, for what hangs: ten times that */
	uint64_t memory; /* 512 MiB, and 16 times the index */
};
void ck_parser_limits_guess(const struct ck_root *root,
			    const struct ck_opts *opts,
			    struct ck_parser_limits *out);
/* For RLIMIT_AS of the calling process; 0: what it has mapped is not known. */
uint64_t ck_parser_limits_memory(const struct ck_parser_limits *limits);
/*
 * What a parser does, in a process of its own: confines itself to these limits,
 * and writes the catalog to @catalog_fd.  @limits NULL: in the caller's
 * process, and nothing is confined.
 */
int ck_ckpt_parse(const struct ck_root *root, const struct ck_opts *opts,
		  const struct ck_parser_limits *limits, int catalog_fd,
		  struct ck_err *err);
/* Takes @root (moves it) if all goes well; @catalog_fd stays the caller's. */
int ck_ckpt_serve(struct ck_ckpt **out, struct ck_root *root,
		  const struct ck_opts *opts, int catalog_fd,
		  struct ck_err *err);
/* The same of what is mapped already; takes @img, too. */
int ck_ckpt_serve_mapped(struct ck_ckpt **out, struct ck_root *root,
			 const struct ck_opts *opts, struct ck_catalog *img,
			 struct ck_err *err);

/*
 * Opens it in a child process, confined as a worker is, that calls @run and
 * ends: what that returned, with its line, or what became of the process.
 */
struct ck_ckpt_apart {
	struct ck_root *root;
	const struct ck_opts *opts;
	int catalog_fd; /* of ck_ckpt_describe() */
	int out; /* a descriptor that @run needs; -1: none */
	unsigned seconds; /* by the clock */
	int (*run)(struct ck_ckpt *ck, void *ctx, struct ck_err *err);
	void *ctx;
};
int ck_ckpt_run_apart(struct ck_ckpt_apart *a, struct ck_err *err);
/*
 * A checkpoint whose files are made of another checkpoint, @ck, whose root and
 * engine it uses; it is only read.  Closing it calls free(), where there is
 * one, last.
 */
struct ck_derived_file {
	const char *name;
	uint64_t size;
	const struct ck_src *like; /* whose owner and time it has, or NULL */
};

struct ck_ckpt_derivation {
	const char *what; /* for messages; it and the files last */
	const struct ck_derived_file *file;
	uint32_t nr;
	struct ck_ckpt *ck;
	/* Bytes of file number @file, as ck_made has them; any thread. */
	int (*read)(void *ctx, uint32_t file, void *buf, uint64_t len,
		    uint64_t off, struct ck_err *err);
	void *ctx;
	void (*free)(void *ctx);
};
int ck_ckpt_derive(struct ck_ckpt **out, const struct ck_ckpt_derivation *below,
		   struct ck_err *err);
void ck_ckpt_close(struct ck_ckpt *ck);

const struct ck_catalog *ck_ckpt_catalog(const struct ck_ckpt *ck);
const struct ck_root *ck_ckpt_root(const struct ck_ckpt *ck);
const struct ck_resolved *ck_ckpt_resolved(const struct ck_ckpt *ck);
const struct ck_read_stats *ck_ckpt_stats(const struct ck_ckpt *ck);
/* Who keeps files made of it counts what is read of them: see io/read.h. */
void ck_ckpt_count_cache(struct ck_ckpt *ck, uint64_t opens, uint64_t bytes,
			 uint64_t filled);
const char *ck_ckpt_engine(const struct ck_ckpt *ck);
struct ck_reader *ck_ckpt_reader(struct ck_ckpt *ck); /* for core/load */

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
/* See io/read.h. */
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

/*
 * Where deferred items are, as another process read them: their bytes are not
 * trusted, and nor is that process.
 */
struct ck_found_item {
	uint32_t chunk;
	int ret; /* -errno: not found this time */
	bool bad; /* it will never be: @why */
	bool strided;
	uint8_t xform;
	uint64_t
		off; /* of its payload; of one that was not found, what of it */
	int64_t stride[CK_MAX_RANK];
	char why[CK_ERR_MAX];
};
/* The tensor that chunk number @chunk belongs to. */
uint32_t ck_ckpt_tensor_of(const struct ck_catalog *img, uint32_t chunk);
/* In this process. */
void ck_ckpt_find_item(struct ck_ckpt *ck, uint32_t chunk,
		       struct ck_found_item *out);
/* Puts it into the side table, if it can be so; its ret, or -errno. */
int ck_ckpt_put_item(struct ck_ckpt *ck, const struct ck_found_item *item,
		     struct ck_err *err);
/*
 * From now on @find has items found: it calls ck_ckpt_put_item() for @chunk at
 * least.  Before any read.
 */
struct ck_item_finder {
	int (*find)(void *ctx, uint32_t chunk, struct ck_err *err);
	void *ctx;
};
void ck_ckpt_find_items_by(struct ck_ckpt *ck,
			   const struct ck_item_finder *finder);

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
 * (root/writer_lock.h).
 */
int ck_ckpt_at_rest(struct ck_ckpt *ck, bool held, struct ck_err *err);
/*
 * Whether files that can be opened are those that were described; at most @most
 * of them are looked at, here and there: 0, -ESTALE with a line.
 */
int ck_ckpt_same_files(struct ck_ckpt *ck, uint32_t most, struct ck_err *err);
/*
 * Whether the FILE sources of which @srcs has the bit are there as they were
 * described, or touched: 0, -errno with a line.  *@touch 0: none was touched; another
 * than before: one was since.
 */
int ck_ckpt_unchanged(struct ck_ckpt *ck, const unsigned char *srcs,
		      uint64_t *touch, struct ck_err *err);
/* Whether all of its files, as described, were written before the last @seconds; 0: yes. */
bool ck_ckpt_settled(const struct ck_ckpt *ck, double seconds);
/* FILE source @src, not touched since it was described; *fd is the caller's. */
int ck_ckpt_open_src(struct ck_ckpt *ck, uint32_t src, int *fd);
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
/* Somebody goes over the spans of a file, for a write. */
void ck_ckpt_count_span_walk(struct ck_ckpt *ck);
/* Through a plan of one part, write_plan.h; heard of by nobody who shows it. */
int ck_ckpt_write(struct ck_ckpt *ck, struct ck_edit *e, uint32_t tensor,
		  const void *buf, uint64_t len, uint64_t off,
		  struct ck_err *err);
/* What was written outlives this process: before a write is answered. */
int ck_ckpt_keep(struct ck_ckpt *ck, struct ck_err *err);
/* Tensors that share stored bytes have the same; CK_NONE: none does. */
uint32_t ck_ckpt_shared_storage(const struct ck_ckpt *ck, uint32_t tensor);
/*
 * The same of all tensors of which a write to one may change another: they share
 * bytes, or one is the float32 master that follows.
 */
uint32_t ck_ckpt_bytes_key(const struct ck_ckpt *ck, uint32_t tensor);
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
/*
 * Who is told that a file was found to be touched (geom/file_id.h), by whoever found
 * it: what was read of @ck before counts no more.
 */
struct ck_ckpt_touched {
	void (*call)(void *ctx, const struct ck_ckpt *ck);
	void *ctx;
};
/*
 * Whether the files of @tensor, CK_NONE: all, have been what was described ever
 * since; looks at them, or says no where they are many.
 */
bool ck_ckpt_untouched(struct ck_ckpt *ck, uint32_t tensor);
void ck_ckpt_on_touch(struct ck_ckpt *ck, const struct ck_ckpt_touched *call);
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
/* Moves on with every write, and where a file was touched. */
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
enum ck_view_says {
	CK_VIEW_LACKS, /* it cannot hold it */
	CK_VIEW_NOT_MEANT, /* it could, but is to show other tensors */
	CK_VIEW_WARNS, /* nobody would expect it: a warning, and no note */
};
/*
 * Adds to them that view @view, a name that lasts, leaves @tensor out; CK_NONE:
 * what concerns the view as a whole.
 */
void ck_ckpt_view_problem(struct ck_ckpt *ck, const char *view, uint32_t tensor,
			  enum ck_view_says says, const char *reason);
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
