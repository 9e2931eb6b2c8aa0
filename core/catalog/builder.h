/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder.h - a catalog being filled by a reader: the one gate
 *
 * Readers say what the files say; everything is checked here, once.  What is
 * wrong with one tensor (overflow, boxes outside, overlaps that are no
 * replicas, dtype against dtype) refuses that tensor: it is left out and a
 * problem names it.  A part past the end of its file is TORN, one whose file
 * is absent MISSING, and the tensor is served but for those bytes.  Holes
 * likewise.  Functions return 0, or -errno with @err set (no memory, a limit,
 * I/O) and then the load is over.
 *
 * One thread.
 */
#ifndef CK_BUILDER_H
#define CK_BUILDER_H

#include "core/base/err.h"
#include "core/geom/dtype.h"
#include "core/geom/catalog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_builder;
struct stat;

struct ck_part {
	const char *name; /* borrowed; need not end in NUL */
	size_t name_len;
	uint32_t tree; /* 0, or from ck_builder_tree() */
	uint32_t src; /* from ck_builder_file() and others */
	uint8_t dtype, stored; /* logical, as stored; stored 0: the same */
	uint8_t xform, op;
	unsigned rank;
	const uint64_t *shape; /* rank: the full tensor */
	unsigned grid_rank; /* 0 with @grid NULL: the shape is the grid */
	const uint64_t *grid;
	const uint64_t *start, *len; /* grid_rank (or rank); NULL: all of it */
	const uint64_t *full_len; /* stored lengths where padded; NULL: len */
	const int64_t *stride; /* elements; NULL: row-major over full_len */
	const uint64_t *flat; /* NULL, or [lo, hi) of the box's order */
	uint64_t off; /* bytes into src; of element 0 of the box (flat: lo) */
	uint64_t
		item_len; /* not 0: deferred; [off, off+item_len) is the item */
	/*
	 * It may cover elements that other parts cover too without being the
	 * same box: such parts are cut into common cells of replicas.  Only
	 * where all that overlap say so, and none is flat or deferred.
	 */
	bool overlap_ok;
	/*
	 * Nothing but its name says that it is what other parts of the same box
	 * are.  Where some of their bytes differ the tensor is refused, of any
	 * size, and also where copies may differ.
	 */
	bool unlabelled;
};

struct ck_builder *ck_builder_new(struct ck_err *err);
void ck_builder_free(struct ck_builder *b);
static inline void ck_builder_freep(struct ck_builder **b)
{
	ck_builder_free(*b);
}
#define ck_auto_builder __attribute__((cleanup(ck_builder_freep)))

/* A tree of names beside tree 0, whose name is "". The same name, the same. */
int ck_builder_tree(struct ck_builder *b, const char *name, size_t name_len,
		    uint32_t *tree, struct ck_err *err);

/*
 * A source.  The same name gives the same index.  @st NULL: the file does not
 * exist; parts in it are MISSING and one problem names it.
 */
int ck_builder_file(struct ck_builder *b, const char *name,
		    const struct stat *st, uint32_t *src, struct ck_err *err);
/* Likewise a file that is there but cannot be read, for the reason @why. */
int ck_builder_file_lost(struct ck_builder *b, const char *name,
			 const char *why, uint32_t *src, struct ck_err *err);
/*
 * A file that was read: of the index, unless it is given as a source, before or
 * after.
 */
int ck_builder_read(struct ck_builder *b, const char *name,
		    const struct stat *st, struct ck_err *err);
/* Whether a file of that name was given; takes time for each that was. */
bool ck_builder_has_file(const struct ck_builder *b, const char *name);
/*
 * Nothing but its name says that @src is of rank, or file, @unit, and the
 * sources of one unit are said together.  Where all that is alike in two units
 * should differ, ck_builder_finish() warns that one may be a copy.
 */
int ck_builder_unlabelled_rank(struct ck_builder *b, uint32_t src,
			       const char *unit, struct ck_err *err);
/*
 * Likewise where the tensors as they are shown do not tell: bytes of a file
 * that are there once, under number @nr, in each @unit of its kind.  They are
 * looked at even if no tensor is made of them.
 */
struct ck_stretch {
	const char *unit;
	uint32_t src, nr;
	uint64_t off, len;
	uint8_t elem; /* bytes an element */
};
int ck_builder_stretch(struct ck_builder *b, const struct ck_stretch *s,
		       struct ck_err *err);
/* Bytes [off, off+len) of @parent, decoded by @codec as a whole. */
int ck_builder_codec(struct ck_builder *b, uint32_t parent, uint8_t codec,
		     uint64_t off, uint64_t len, uint32_t *src,
		     struct ck_err *err);
/* Bytes that the catalog itself keeps; copied. */
int ck_builder_mem(struct ck_builder *b, const void *bytes, size_t len,
		   uint32_t *src, struct ck_err *err);

/* A tensor may be declared without parts (its bytes were never saved). */
int ck_builder_declare(struct ck_builder *b, const struct ck_part *decl,
		       struct ck_err *err);
int ck_builder_add(struct ck_builder *b, const struct ck_part *part,
		   struct ck_err *err);
/* Leaves the tensor out; the reason is shown to people. */
int ck_builder_refuse(struct ck_builder *b, uint32_t tree, const char *name,
		      size_t name_len, struct ck_err *err, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));

struct ck_object_in {
	const char *name;
	size_t name_len;
	uint32_t tree, src;
	uint8_t enc; /* enum ck_enc */
	uint64_t off, len;
};
int ck_builder_object(struct ck_builder *b, const struct ck_object_in *o,
		      struct ck_err *err);

/*
 * The parts (keys of dicts, positions in lists) that lead to a tensor or an
 * object in the saved structure; index < 0: the part is a string.
 */
struct ck_path_part {
	const char *key;
	size_t key_len;
	int64_t index;
};
int ck_builder_path(struct ck_builder *b, uint32_t tree, const char *name,
		    size_t name_len, const struct ck_path_part *parts,
		    unsigned nr, struct ck_err *err);

/*
 * Its place, 1 and up, among all keys of the saved structure, in the order in
 * which the program had them.
 */
int ck_builder_order(struct ck_builder *b, uint32_t tree, const char *name,
		     size_t name_len, uint32_t order, struct ck_err *err);

/* What the writer called this save, to tell it from others, and where it went. */
int ck_builder_save(struct ck_builder *b, const char *id, size_t len,
		    const char *to, size_t to_len, struct ck_err *err);

struct ck_problem_in {
	enum ck_severity severity;
	const char *tensor;
	size_t tensor_len; /* tensor NULL: not about one */
	const char *file; /* NULL: not about one */
	uint64_t off, len;
};
int ck_builder_problem(struct ck_builder *b, const struct ck_problem_in *p,
		       struct ck_err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The same of @file as a whole, or with NULL of the checkpoint; and of a tensor. */
#define ck_builder_report_file(b, severity_, file_, err, ...)              \
	ck_builder_problem(b,                                              \
			   &(struct ck_problem_in){ .severity = severity_, \
						    .file = file_ },       \
			   err, __VA_ARGS__)
#define ck_builder_report_tensor(b, severity_, name_, len_, file_, err, ...) \
	ck_builder_problem(b,                                                \
			   &(struct ck_problem_in){ .severity = severity_,   \
						    .tensor = name_,         \
						    .tensor_len = len_,      \
						    .file = file_ },         \
			   err, __VA_ARGS__)

/*
 * How bytes of a file that was given are read, to compare units that nothing
 * tells apart, parts of unlabelled ranks, and where @copies says so small
 * replicas: those up to 1 MiB, 64 MiB in all.  Where two of these differ the
 * tensor is refused.  Nothing is compared without it.  @read: -ENOMEM, or any
 * -errno where it cannot.
 */
struct ck_builder_reads {
	int (*read)(void *ctx, const char *file, void *buf, size_t len,
		    uint64_t off, struct ck_err *err);
	void *ctx;
	bool copies;
	uint64_t spent; /* bytes read so far */
};
void ck_builder_compare(struct ck_builder *b,
			const struct ck_builder_reads *reads);

/*
 * Whether copies @x and @y of something hold the same bytes, within the same
 * limits; of each what is stored counts: @shape, @stride, @off.  1: yes, or
 * *@differ is the first byte that is not; 0: they were not compared: too large,
 * not stored alike, or not to be read; or -ENOMEM.
 */
int ck_builder_same(struct ck_builder *b, const struct ck_part *x,
		    const struct ck_part *y, uint64_t *differ,
		    struct ck_err *err);
/* Replicas were compared so: ck_builder_finish() need not. */
void ck_builder_compared(struct ck_builder *b);

/*
 * Checks coverage and overlaps, orders everything and writes the catalog to
 * @fd at offset 0.  The builder is empty afterwards; free it.
 */
int ck_builder_finish(struct ck_builder *b, const char *format, int fd,
		      struct ck_err *err);

#endif
