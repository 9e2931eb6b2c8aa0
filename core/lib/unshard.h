/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unshard.h - tensors of a sharded checkpoint into a process's memory
 *
 * No mount, no FUSE.  See unshard(3).
 *
 * Calls return 0 or a negative errno, and where @err is not NULL a line there
 * that says what was wrong.  Nothing prints, exits, aborts, forks or installs a
 * signal handler; two contexts share nothing.  Any thread may call anything; a
 * request is waited for by one thread.  After a fork() the child gets -ECHILD
 * of all that its parent made, and what frees does nothing there.
 *
 * A struct begins with its size, which the caller sets: what the library knows
 * beyond it is 0, the default, so zero what you do not use.  Strings that are
 * handed out live as long as the object that they are of.
 */
#ifndef UNSHARD_H
#define UNSHARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who was built with N runs with every library of ABI N. */
#define UNSHARD_ABI 1
#define UNSHARD_API __attribute__((visibility("default")))
#define UNSHARD_NONE UINT32_MAX
#define UNSHARD_NOWHERE UINT64_MAX

typedef struct unshard_ctx unshard_ctx; /* what a process asks for */
typedef struct unshard_ckpt unshard_ckpt; /* a checkpoint; never changes */
typedef struct unshard_mesh unshard_mesh; /* which rank holds what of it */
typedef struct unshard_req unshard_req; /* a load under way */
typedef struct unshard_comm unshard_comm; /* ranks that load together */
struct DLTensor; /* dlpack.h, which is not included */
struct DLManagedTensorVersioned;

/*
 * @file and @name are those of the checkpoint, whatever bytes are in them; they
 * are cut where they are longer, and "" where they are not known.
 */
typedef struct {
	int code; /* errno */
	uint32_t item; /* of an array of items; UNSHARD_NONE: of none */
	uint64_t offset; /* of the byte in @file; UNSHARD_NOWHERE: not known */
	char text[1008]; /* one line */
	uint32_t tensor, pad; /* its number; UNSHARD_NONE: of none */
	char name[1024]; /* of the tensor */
	char file[1024]; /* where bytes are bad or missing */
} unshard_error;

typedef struct {
	const char *p; /* any bytes; a NUL behind */
	size_t len;
} unshard_str;

/*
 * Takes @len bytes of text; not 0 ends what calls it, which returns that, and
 * says so in its error: -errno as such, what is above 0 as ECANCELED.
 */
typedef int (*unshard_put)(void *arg, const char *text, size_t len);

/* ---- the process ---- */

typedef struct {
	size_t size;
	/*
	 * Bytes of host memory between storage and a device, pinned and kept; 0:
	 * 128 MiB, or a 16th of what the process's cgroup leaves, divided by
	 * local_ranks.
	 */
	uint64_t ring;
	uint32_t chunk; /* of which a buffer has so many; 0: 8 MiB */
	uint32_t depth; /* at most so many buffers; 0: ring / chunk */
	uint32_t threads; /* that load; 0: as many as CPUs, up to 4 */
	uint32_t local_ranks; /* processes like this one, which share threads */
	const char *engine; /* auto, uring, plain; NULL: auto */
	const char
		*spool; /* a directory for decompressed items; NULL: /var/tmp */
	/*
	 * The program that parses.  NULL: $UNSHARD_PARSER, else unshard-parser
	 * beside the library, else libexec/unshardfs/unshard-parser.
	 */
	const char *helper;
	void *reserved[2]; /* NULL */
} unshard_ctx_opts;

UNSHARD_API unsigned unshard_version(
	void); /* major << 16 | minor << 8 | patch */
UNSHARD_API unsigned unshard_abi(void); /* UNSHARD_ABI of the library */
/* @opts may be NULL. */
UNSHARD_API int unshard_ctx_new(unshard_ctx **out, const unshard_ctx_opts *opts,
				unshard_error *err);
/* What was opened with it stays until it is let go itself. */
UNSHARD_API void unshard_ctx_free(unshard_ctx *ctx);
/*
 * JSON: which engines there are, the parser, and "dtypes": the name of each, the
 * bytes of an element, what safetensors calls it, DLPack's code and bits, and
 * "cast" where it is cast to others that say so.  "devices": kinds that may be
 * here, and by its name why another is not; none is started to find that out.
 * "cufile", once a CUDA device was opened: true, or why not all files are read so.
 * Its length, as snprintf().
 */
UNSHARD_API int unshard_ctx_caps(unshard_ctx *ctx, char *json, size_t room);

/* ---- memory of devices ---- */

/*
 * A device, whose number *nr stays that of its name as long as the context:
 * "cuda:0", looked for when it is first named; "host"; or for tests "simulated",
 * see unshard(3).  -ENODEV: why there is none.
 */
UNSHARD_API int unshard_device_open(unshard_ctx *ctx, const char *name,
				    int32_t *nr, unshard_error *err);
/* -ENOMEM: it has no room.  What is left is let go with the context. */
UNSHARD_API int unshard_device_alloc(unshard_ctx *ctx, int32_t nr, uint64_t len,
				     uint64_t *mem, unshard_error *err);
UNSHARD_API int unshard_device_free(unshard_ctx *ctx, int32_t nr, uint64_t mem,
				    unshard_error *err);
enum { UNSHARD_TO_DEVICE = 0, UNSHARD_FROM_DEVICE = 1 };
/* @len bytes between the device's memory and the host's; the caller waits. */
UNSHARD_API int unshard_device_copy(unshard_ctx *ctx, int32_t nr, int way,
				    uint64_t mem, void *host, uint64_t len,
				    unshard_error *err);

/* ---- a checkpoint ---- */

/* Where bytes that nobody vouches for are parsed. */
enum {
	UNSHARD_HELPER = 0, /* by a program of its own, in a sandbox */
	UNSHARD_IN_PROCESS = 1
};

enum {
	UNSHARD_RESOLVE = 1, /* where every byte lies is found out now */
	UNSHARD_WHOLE = 2 /* -EIO unless every byte is there */
};

typedef struct {
	size_t size;
	const char *options; /* as after unshard ls -o: "verify,layout=F" */
	/*
	 * Of a directory of checkpoints, by name, or "latest".  NULL: the only
	 * one; where there are several -ENODATA, and the line lists them.
	 */
	const char *step;
	int isolation; /* UNSHARD_HELPER, UNSHARD_IN_PROCESS */
	/*
	 * Above 0: what unshard_image() gave for the same path, step and
	 * options; nothing is parsed.  Stays the caller's.
	 */
	int image_fd;
	uint32_t flags; /* UNSHARD_RESOLVE, UNSHARD_WHOLE */
	/*
	 * Above 0: an eventfd or a pipe, the caller's.  Once it is readable, which
	 * a signal handler may bring about, what is under way ends within a
	 * moment: -ECANCELED.
	 */
	int cancel_fd;
} unshard_open_opts;

/* @path may be that of a view, such as CKPT/hf.  @opts may be NULL. */
UNSHARD_API int unshard_open(unshard_ctx *ctx, const char *path,
			     const unshard_open_opts *opts, unshard_ckpt **out,
			     unshard_error *err);
UNSHARD_API unshard_ckpt *unshard_ref(unshard_ckpt *ck);
/* The last one closes it; loads and maps have one of their own. */
UNSHARD_API void unshard_unref(unshard_ckpt *ck);
/*
 * A sealed memfd, the caller's to close, by which other processes of the node
 * open the checkpoint; @digest (may be NULL) tells two apart.
 */
UNSHARD_API int unshard_image(unshard_ckpt *ck, int *fd, uint64_t digest[2],
			      unshard_error *err);
/*
 * The checkpoints of a directory of them, as JSON:
 * [{"name": "step-100", "state": "complete", "latest": true}, ...], or [] where
 * @path is something else.  Each is described, and "unreadable" where it cannot
 * be, "incomplete" where bytes are missing, "several" where it holds more.
 */
UNSHARD_API int unshard_steps(unshard_ctx *ctx, const char *path,
			      const unshard_open_opts *opts, unshard_put put,
			      void *arg, unshard_error *err);

enum { UNSHARD_OK = 0, UNSHARD_TORN = 1, UNSHARD_MISSING = 2 };

typedef struct {
	unshard_str name;
	unshard_str tree; /* of a source that holds several; mostly "" */
	unshard_str dtype; /* NumPy's and ml_dtypes' name: "bfloat16" */
	uint32_t rank, state; /* UNSHARD_OK: all of its bytes are there */
	const uint64_t *shape; /* rank of them */
	uint64_t nbytes;
	uint32_t pieces, itemsize; /* itemsize 0: no whole bytes */
} unshard_tensor;

/* How many.  0 after a fork(): no number is one of the child's. */
UNSHARD_API uint32_t unshard_tensors(const unshard_ckpt *ck);
/* @size: sizeof(*out). */
UNSHARD_API int unshard_tensor_at(const unshard_ckpt *ck, uint32_t i,
				  unshard_tensor *out, size_t size);
/*
 * @tree NULL: any.  UNSHARD_NONE: there is none, or several trees have one, or it
 * is after a fork().
 */
UNSHARD_API uint32_t unshard_find(const unshard_ckpt *ck, const char *tree,
				  const char *name, size_t len);
/*
 * What was saved and is no tensor, as stored: step counters, RNG states.  *len
 * is how much there is; -ENOSPC where that is more than @room, and nothing is
 * read.
 */
UNSHARD_API int unshard_object(unshard_ckpt *ck, const char *name, void *buf,
			       size_t room, size_t *len, unshard_error *err);
/*
 * @what: "catalog", tensors, objects and where their bytes lie; "problems",
 * those found since it was opened too; "metadata", what __metadata__ of
 * safetensors files says; "hf", what hf/ of a mount calls tensors,
 * [{"name": "model.norm.weight", "tensor": 7}, ...]; "paths", where tensors and
 * objects stood in what was saved, [{"name": "a.0", "path": ["a", 0]}, ...], or
 * their names alone; "save", what its writer called this save, {"id": null} where
 * it said nothing; "plan NAME[2:5, :]", which bytes of which files are
 * behind that.
 */
UNSHARD_API int unshard_json(unshard_ckpt *ck, const char *what,
			     unshard_put put, void *arg, unshard_error *err);

/* ---- what to move ---- */

enum { UNSHARD_OPTIONAL = 1 }; /* a missing byte fails the item alone */

typedef struct {
	size_t size; /* of an array: the distance of its items */
	uint32_t tensor, flags;
	const uint64_t *start, *len; /* a box of the shape; NULL: all of it */
	uint64_t mem; /* address of the box's first element */
	/* Elements between neighbours, any sign; NULL: row-major. */
	const int64_t *stride;
	const char *dtype; /* of the memory; NULL: as stored; floats are cast */
	/* -1 or 0: host memory; all items of a load have the same. */
	int32_t device, pad;
	void *tag; /* the caller's */
} unshard_item;

/* Fills mem, stride, dtype and device.  The strides stay the tensor's. */
UNSHARD_API int unshard_item_dlpack(unshard_item *item,
				    const struct DLTensor *from);
/*
 * One, now: the caller waits for it, and nothing ends it before it is done; what
 * may have to be given up is a load of one.
 */
UNSHARD_API int unshard_read(unshard_ckpt *ck, const unshard_item *item,
			     unshard_error *err);

/* ---- which rank holds what ---- */

/*
 * @spec: a mesh in words, "tp=8", or with @file what that file of @len bytes is
 * called: a placement file, a MindSpore strategy, OneFlow's SBP.
 */
UNSHARD_API int unshard_mesh_new(unshard_ckpt *ck, const char *spec,
				 const void *file, size_t len,
				 unshard_mesh **out, unshard_error *err);
/* 0 after a fork(). */
UNSHARD_API uint32_t unshard_mesh_ranks(const unshard_mesh *mesh);
/*
 * What @rank holds of @tensor, and its shape there (@shape, with room for the
 * tensor's rank r; may be NULL): *nr boxes, of each 3 * r numbers: where it
 * starts in the tensor, its lengths, where it starts in the rank's part.  *nr
 * 0: nothing, or zeros.  -ENOSPC where @room numbers are too few; *nr is set.
 * @boxes NULL: only *nr and @shape.
 */
UNSHARD_API int unshard_mesh_boxes(const unshard_mesh *mesh, uint32_t rank,
				   uint32_t tensor, uint64_t *boxes,
				   size_t room, unsigned *nr, uint64_t *shape);
/*
 * 1: @rank holds zeros, in @shape as above, of a partial sum that another rank
 * holds all of.  0: it does not.
 */
UNSHARD_API int unshard_mesh_zeros(const unshard_mesh *mesh, uint32_t rank,
				   uint32_t tensor);
UNSHARD_API void unshard_mesh_free(unshard_mesh *mesh);

/* ---- many at once ---- */

typedef struct {
	size_t size;
	/*
	 * Ten times a second, from a thread of ours; not 0: cancels.  What waits
	 * for a load, or frees one, is -EDEADLK in it.
	 */
	int (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	void *reserved[2]; /* NULL */
	/*
	 * prefault=off: fresh memory is touched by the reads themselves.
	 * cache=direct: past the page cache; cache=drop: what was not in it is
	 * not left there; where either cannot be, unshard_stats.why says so.
	 * cache=auto, and buffered: through it.  cufile=off: files come to a GPU
	 * by way of the host, even where cuFile is the faster.  alone=never: with
	 * a communicator, where a rank is gone.  Several, as "cache=drop,...".
	 */
	const char *options;
	/*
	 * Of the items' device, the caller's (CUDA's CUstream; its default one is
	 * (void *)1): no memory is written before what is in it by now is done, and
	 * the caller does not wait for that.  NULL: memory may be written at once.
	 * An item that is done is there for all streams.
	 */
	void *stream;
	unshard_comm *comm; /* see below; NULL: this process alone */
} unshard_load_opts;

/* @items and what they point to is copied, but for the memory to be filled. */
UNSHARD_API int unshard_load(unshard_ckpt *ck, const unshard_item *items,
			     size_t n, const unshard_load_opts *opts,
			     unshard_req **out, unshard_error *err);
/*
 * The next item that is done, each once: 0, *item is in its memory; 1: there
 * are no more; -ETIMEDOUT; else *item failed, or, UNSHARD_NONE in err->item,
 * the request.  @timeout_ms -1: waits.
 */
UNSHARD_API int unshard_next(unshard_req *req, int timeout_ms, size_t *item,
			     unshard_error *err);
/* All of them; the first failure.  -ETIMEDOUT: still under way. */
UNSHARD_API int unshard_wait(unshard_req *req, int timeout_ms,
			     unshard_error *err);
UNSHARD_API int unshard_fd(unshard_req *req); /* readable: next has one */
/* wait() then gives -ECANCELED, and no byte is written after it. */
UNSHARD_API void unshard_cancel(unshard_req *req);

typedef struct {
	size_t size;
	uint64_t wanted; /* bytes of the items, as stored */
	uint64_t storage, storage_ops; /* bytes and reads of files */
	uint64_t done; /* of wanted */
	uint64_t prefaulted; /* bytes of memory */
	uint64_t alone; /* of done, tensor by tensor: compressed, damaged */
	uint64_t cast; /* elements */
	uint64_t ns_plan, ns_read, ns_copy; /* of all threads together */
	/*
	 * Of storage: found in the page cache, where it was asked, which is for
	 * reads of 64 KiB and more.
	 */
	uint64_t resident;
	uint32_t ring; /* buffers between storage and the device; 0: host */
	uint32_t fallbacks; /* items that were read alone */
	char why[256]; /* why something is not as the options want it; or "" */
	uint64_t direct; /* of storage, past the page cache */
	uint64_t by_device; /* of storage, by the device itself: cuFile */
	/* With a communicator: bytes that another rank has read for this one. */
	uint64_t received;
	uint64_t sent; /* bytes to others; 0 where memory is shared */
	uint64_t ns_comm; /* until they were there */
} unshard_stats;

UNSHARD_API int unshard_req_stats(unshard_req *req, unshard_stats *out);
/*
 * Cancels and waits.  -EDEADLK, and nothing is freed: from a progress().
 */
UNSHARD_API int unshard_req_free(unshard_req *req);

/*
 * Read-only and without a copy, where the item's bytes lie so in one file, else
 * -EXDEV.  A file that is cut while it is mapped is SIGBUS for who touches it:
 * for files that stay.
 */
UNSHARD_API int unshard_map(unshard_ckpt *ck, const unshard_item *item,
			    struct DLManagedTensorVersioned **out,
			    unshard_error *err);

/* ---- a new checkpoint ---- */

typedef struct unshard_save unshard_save; /* one that is written */

enum {
	UNSHARD_ANEW = 1, /* what an earlier try left is thrown away */
	UNSHARD_REPLACE = 2 /* a checkpoint that has the name is, at the end */
};

typedef struct {
	size_t size;
	const char *format; /* "dcp", or NULL; "safetensors" */
	/*
	 * How many processes save it together, each with the same directory, step
	 * and flags, and which of them this is.  0, 0: one alone.
	 */
	uint32_t ranks, rank;
	/* Seconds that the others have to declare what they write; 0: 600. */
	uint32_t timeout;
	/*
	 * UNSHARD_ANEW: of one rank, before another has called
	 * unshard_save_new().
	 */
	uint32_t flags;
	const char *options; /* of who publishes, as after unshard ls -o */
} unshard_save_opts;

/* A box of a tensor, which this rank holds; or an object. */
typedef struct {
	size_t size; /* of an array: the distance of its items */
	const char *name; /* UTF-8 */
	const char *dtype; /* NULL: an object, without shape and box */
	uint32_t rank, pad; /* dimensions */
	const uint64_t *shape; /* of the whole tensor */
	const uint64_t *start, *len; /* NULL: all of it */
	/*
	 * Where it stood in what is saved, as JSON: ["optimizer", 0, "lr"];
	 * NULL: its name.
	 */
	const char *path;
} unshard_slice;

/*
 * Checkpoint @step of the directory @dir, which nobody sees until it is
 * published.  @opts may be NULL.  -EEXIST: there is one of that name.
 */
UNSHARD_API int unshard_save_new(unshard_ctx *ctx, const char *dir,
				 const char *step,
				 const unshard_save_opts *opts,
				 unshard_save **out, unshard_error *err);
/*
 * Before anything is written; numbered from 0 on, over all calls.  Ranks that
 * declare the same box hold copies, and one of them writes it.
 */
UNSHARD_API int unshard_save_declare(unshard_save *save,
				     const unshard_slice *slices, size_t n,
				     unshard_error *err);
/*
 * Of slice number @items[i].tensor the box start, len of the tensor's shape, or
 * all of it, from mem; dtype NULL, or the slice's.  Waits for the other ranks to
 * declare (-ETIMEDOUT names who did not), and until it is written.  -EBADMSG:
 * other bytes of it were written before; the line has tensor, range and rank.
 */
UNSHARD_API int unshard_save_write(unshard_save *save,
				   const unshard_item *items, size_t n,
				   unshard_error *err);
UNSHARD_API int unshard_save_object(unshard_save *save, const char *name,
				    const void *bytes, size_t len,
				    unshard_error *err);
/* What this rank wrote is durable, and other nodes know of it. */
UNSHARD_API int unshard_save_sync(unshard_save *save, unshard_error *err);
/*
 * One process, once all ranks have called unshard_save_sync(); it need not have
 * declared anything.  All of the checkpoint is there, and durable, or nothing.  0 too where it was published before.
 * -ENODATA: which range of which tensor, of which ranks, was not written; after
 * that, and after -ENOSPC, it can be tried again.
 */
UNSHARD_API int unshard_save_publish(unshard_save *save, unshard_error *err);
/* What was not published stays, for another try or unshard gc. */
UNSHARD_API void unshard_save_free(unshard_save *save);

/* ---- ranks that load together ---- */

/*
 * Processes of which each loads what it wants of one checkpoint, at one time, and
 * each byte is read from storage by one of them.  Nothing of what a trainer talks
 * by is used, but for the addresses, which the caller hands around.
 */
typedef struct {
	size_t size;
	/*
	 * "shm": of one user on a node; "tcp"; "nccl": what is read goes from
	 * GPU to GPU by NVIDIA's library, the rest as by tcp.
	 */
	const char *kind;
	const char
		*host; /* not of shm: this node's number, as 10.0.0.1 or ::1 */
	uint32_t rank, ranks;
	/*
	 * How long one answer may take, and who is not there by then is done
	 * without; 0: a minute.
	 */
	uint32_t timeout_ms;
	uint32_t pad;
	/* Of nccl: the GPU of this rank, as "cuda:0"; no two ranks share one. */
	const char *device;
	/* An ncclUniqueId, the same for all ranks; NULL: rank 0 makes it. */
	const void *nccl_id;
} unshard_comm_opts;

UNSHARD_API int unshard_comm_new(unshard_ctx *ctx,
				 const unshard_comm_opts *opts,
				 unshard_comm **out, unshard_error *err);
/*
 * Text for the other ranks: who has all of them may connect, for there is a number
 * at random in each.
 */
UNSHARD_API const char *unshard_comm_address(const unshard_comm *comm);
/* Waits for all.  @addresses: by rank; -ETIMEDOUT names who did not come. */
UNSHARD_API int unshard_comm_connect(unshard_comm *comm,
				     const char *const *addresses,
				     unshard_error *err);
/*
 * Then every rank calls unshard_load() with it, one load at a time (-EBUSY), in the
 * same order, with no items where it wants nothing.  Of another checkpoint: -ESTALE,
 * the same line for all.  A rank that never loads: -ETIMEDOUT.  One that goes, or
 * does not answer later: the others read on alone, as by every load with that
 * communicator from then on; with alone=never -ECONNRESET.  unshard_req_free()
 * waits for ranks that need bytes from this one.
 */
UNSHARD_API void unshard_comm_free(unshard_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
