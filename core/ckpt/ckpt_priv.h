/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_priv.h - the parts of ckpt.c */
#ifndef CK_CKPT_PRIV_H
#define CK_CKPT_PRIV_H

#include "core/ckpt/ckpt.h"
#include "core/write/writer.h"

#include <pthread.h>
#include <stdatomic.h>

/* Runtime problems: see ckpt.h.  Any thread. */
#define CK_RUNTIME_PROBLEMS_MAX 1024
#define CK_RUNTIME_PROBLEMS_NOTES 768 /* of views: damage must find room */

struct ck_runtime_problem {
	const char *view; /* lasts; NULL: not about one, but about a chunk */
	uint32_t tensor, chunk; /* tensor CK_NONE: of the chunk's file */
	uint64_t off, len;
	enum ck_view_says says; /* of a view */
	char *reason;
};

struct ck_runtime_problems {
	pthread_mutex_t lock;
	struct ck_runtime_problem *v;
	size_t nr;
	bool full;
	_Atomic uint64_t seq;
};
void ck_runtime_problems_init(struct ck_runtime_problems *l);
void ck_runtime_problems_free(struct ck_runtime_problems *l);
/* Copies @reason; the same view, tensor and chunk once. */
void ck_runtime_problems_add(struct ck_runtime_problems *l,
			     const struct ck_runtime_problem *p);
uint64_t ck_runtime_problems_errors(struct ck_runtime_problems *l);
void ck_runtime_problems_dump(struct ck_runtime_problems *l,
			      const struct ck_catalog *img, bool json,
			      struct ck_str *out);

/* What becomes of an optimizer's float32 copy of a 16-bit weight. */
enum ck_fp32_master_how {
	CK_FP32_MASTER_REFUSE,
	CK_FP32_MASTER_ALSO,
	CK_FP32_MASTER_IGNORE
};
struct ck_fp32_master {
	enum ck_fp32_master_how how;
	bool vector; /* there are copies whose names are not known */
};
void ck_fp32_master_init(struct ck_fp32_master *m, const struct ck_catalog *img,
			 const char *how);
/* -EPERM with a line where a write of @tensor would be undone. */
int ck_fp32_master_may(const struct ck_ckpt *ck, uint32_t tensor,
		       struct ck_err *err);
uint32_t ck_fp32_master_of(const struct ck_ckpt *ck, uint32_t tensor);
/*
 * Bytes [off, off+len) of @tensor were written, which @copy follows.  Elements of
 * the copy that a trainer would cast to what the weight has now stay; where
 * @was is not NULL, so do those of elements that it says the weight had before,
 * its first the one that @off is in.
 */
int ck_fp32_master_follow(struct ck_ckpt *ck, struct ck_edit *e,
			  uint32_t tensor, uint32_t copy,
			  const unsigned char *was, uint64_t len, uint64_t off,
			  struct ck_err *err);
/*
 * The first of the tensors that are the same elements of the same bytes as
 * @tensor, itself where there are no others.
 */
uint32_t ck_fp32_master_same(const struct ck_ckpt *ck, uint32_t tensor);

/* ckpt_partial_writes.c: bytes of which a write failed half-way; any thread */
#define CK_PARTIAL_WRITES_MAX 256

struct ck_partial_writes_part {
	uint32_t tensor;
	uint64_t from, to;
};

struct ck_partial_writes {
	pthread_mutex_t lock;
	struct ck_partial_writes_part v[CK_PARTIAL_WRITES_MAX];
	_Atomic unsigned nr;
};
void ck_partial_writes_init(struct ck_partial_writes *u);
void ck_partial_writes_destroy(struct ck_partial_writes *u);
/* The oldest gives way where there are too many. */
void ck_partial_writes_add(struct ck_partial_writes *u, uint32_t tensor,
			   uint64_t from, uint64_t to);
/* They were written. */
void ck_partial_writes_drop(struct ck_partial_writes *u, uint32_t tensor,
			    uint64_t from, uint64_t to);
/*
 * Makes @was, of [from, to), differ from @buf wherever they were written in
 * part.
 */
void ck_partial_writes_spoil(struct ck_partial_writes *u, uint32_t tensor,
			     uint64_t from, uint64_t to,
			     const unsigned char *buf, unsigned char *was);

/*
 * ckpt_unknown_copies.c: what is missing, and what it held nobody knows;
 * CK_NONE
 */
struct ck_unknown_copies {
	uint32_t problem, tensor;
};
void ck_unknown_copies_init(struct ck_unknown_copies *l,
			    const struct ck_catalog *img);
/* -EIO with a line where a copy of @tensor may be in it. */
int ck_unknown_copies_may(const struct ck_unknown_copies *l,
			  const struct ck_catalog *img, uint32_t tensor,
			  struct ck_err *err);

struct ck_ckpt {
	struct ck_root root;
	bool over; /* its file is below's; root and engine are borrowed */
	struct ck_ckpt_derivation below;
	struct ck_made made; /* its files, for the reader */
	uint32_t *below_file; /* which of them each source is */
	struct ck_catalog img;
	struct ck_resolved *resolved;
	struct ck_reader *reader;
	struct ck_writer *writer; /* NULL: read-only */
	struct ck_fp32_master fp32_master;
	struct ck_unknown_copies unknown_copies;
	struct ck_partial_writes partial_writes;
	pthread_mutex_t newer_lock;
	struct ck_wplan *newer; /* than pages of maps; write_plan.h */
	pthread_mutex_t redo_lock; /* of who replaces */
	_Atomic bool broken; /* a replacement is to be done again first */
	const struct ck_engine_ops *engine;
	char *spool; /* NULL: the default */
	struct ck_runtime_problems problems_found;
	pthread_mutex_t sealed_lock; /* of looking for it */
	bool sealed_sought, watched; /* watched: it follows what is written */
	struct ck_sealed *sealed; /* its manifest; or NULL */
	char *unsealed; /* why it has one that cannot be read; or NULL */
	struct ck_checked *checked; /* -o verify */
	struct ck_overlay *overlay; /* -o overlay=; or NULL */
	pthread_mutex_t writer_lock_mutex; /* of taking it */
	struct ck_writer_lock
		*writer_lock; /* since the first open for writing; or NULL */
	_Atomic bool held;
	bool serves; /* what earlier mounts have left was looked at */
	struct ck_ckpt_touched touched; /* call NULL: nobody asks */
	struct ck_item_finder finder; /* find NULL: this process reads items */
};

/* One with its locks and nothing else, for ck_ckpt_close(); NULL: no memory. */
struct ck_ckpt *ck_ckpt_new(void);

/*
 * A warning of source @src, CK_NONE: of all, for runtime problems; @ctx is the
 * struct ck_ckpt.
 */
void ck_ckpt_said(void *ctx, uint32_t src, const char *line);

/* -EIO with a line where a replacement has to be written to its end first. */
int ck_ckpt_whole(const struct ck_ckpt *ck, struct ck_err *err);

/* What a write of @tensor is refused for, as far as no file has to be opened. */
int ck_ckpt_allows(struct ck_ckpt *ck, uint32_t tensor, struct ck_err *err);
/* Makes the writer, or, not rw, looks what an earlier one has left. */
int ck_ckpt_start_writer(struct ck_ckpt *ck, const struct ck_opts *opts,
			 struct ck_err *err);

/*
 * Writes what a replacement that broke off was to write; or, where this is not
 * to write, -EBUSY while there is one.  ckpt_redo.c
 */
int ck_ckpt_redo_left(struct ck_ckpt *ck, struct ck_err *err);
/*
 * At the beginning: where a mount that died has left something to be made
 * right, unless one that lives is at it.
 */
int ck_ckpt_recover_killed(struct ck_ckpt *ck, struct ck_err *err);

/* Fsync where there is an overlay.  ckpt_overlay.c */
int ck_ckpt_overlay_sync(struct ck_ckpt *ck, struct ck_err *err);
/* For struct ck_sums_found: edited by a mount that died. */
bool ck_ckpt_overlay_unsure(void *ctx, uint32_t src);
/* -o overlay=: fills in->over. */
int ck_ckpt_overlay_open(struct ck_ckpt *ck, const struct ck_opts *opts,
			 struct ck_reader_in *in, struct ck_err *err);
/*
 * For who serves: the manifest, where blocks are to be compared or written.
 * Fills in->checked and in->watch.  ckpt_sealed.c
 */
int ck_ckpt_seal_open(struct ck_ckpt *ck, const struct ck_opts *opts,
		      struct ck_reader_in *in, struct ck_err *err);
void ck_ckpt_seal_close(struct ck_ckpt *ck);
/* -EINVAL with the line of -o verify where there is no manifest. */
int ck_ckpt_unsealed(const struct ck_root *root, struct ck_err *err);
/* -EROFS with a line where its manifest cannot be read, and not be kept. */
int ck_ckpt_seal_may(const struct ck_ckpt *ck, struct ck_err *err);
int ck_ckpt_seal_lock(struct ck_ckpt *ck, struct ck_err *err);
/* For struct ck_sums_found. */
bool ck_ckpt_is_corrupt(void *ctx, uint32_t src, uint64_t off, uint64_t len,
			bool look);
/* After an edit was closed; @last: after what was written is on storage. */
void ck_ckpt_update_manifest(struct ck_ckpt *ck, bool last);

/* Bytes of the chunk's item, as the index says; 0: not deferred. */
uint64_t ck_ckpt_item_len(const struct ck_catalog *img, uint32_t chunk);
/* As in->touched() of the reader; @ctx is the struct ck_ckpt. */
void ck_ckpt_file_touched(void *ctx, uint32_t src);
/* ck_resolve_fn; @ctx is the struct ck_ckpt. */
int ck_ckpt_resolve_chunk(void *ctx, uint32_t chunk, struct ck_err *err);

struct ck_torch_item;
/*
 * Where the elements of a box of @lens are in @item, which must hold exactly
 * them in the same order, however its axes are cut: strides per box axis.
 * False: it does not.
 */
bool ck_item_match_axes(const struct ck_torch_item *item, const uint64_t *lens,
			unsigned rank, int64_t *stride);

#endif
