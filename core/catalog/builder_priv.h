/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_priv.h - what the files of the builder share
 *
 *	builder.c        the parts' surroundings: sources, trees, problems
 *	builder_items.c  objects and paths
 *	builder_add.c    the gate: one part checked, kept
 *	builder_names.c  file names, no two alike, and their order
 *	builder_finish.c tensor by tensor into the catalog
 *	builder_cells.c  one tensor: replicas, order, the tree
 *	builder_overlap.c  which cells overlap
 *	builder_cut.c    overlapping boxes into common cells
 *	builder_copies.c small replicas against each other
 *	builder_duplicates.c  ranks that hold the same where they should differ
 *	builder_hole.c   the first element that no cell covers
 *	catalog_write.c    sections to a file
 */
#ifndef CK_BUILDER_PRIV_H
#define CK_BUILDER_PRIV_H

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/str.h"
#include "core/catalog/builder.h"
#include "core/catalog/catalog_priv.h"
#include "core/catalog/intern.h"
#include "core/catalog/duplicate_ranks.h"
#include "core/geom/chunk.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define CK_MAX_PROBLEMS 10000

enum {
	CK_ENTRY_SEEN = 1, /* it is a tensor: shape and dtype are known */
	CK_ENTRY_REFUSED = 2,
};

/* A name of a tree: a tensor, or only a path that was said of it. */
struct ck_entry {
	uint64_t volume; /* elements */
	uint32_t name, file, tree, path;
	uint32_t shape, grid;
	uint32_t first, last, nr; /* kept parts, linked by next */
	uint32_t order; /* 0: not known */
	uint8_t dtype, rank, grid_rank, flags;
};

/* Parts are kept as the chunks that they become, with these in pad[0]. */
#define CK_PART_OVERLAP_OK 1
#define CK_PART_UNLABELLED 2

/* The bytes of a copy that others are compared with; @len 0: none. */
struct ck_last_copy {
	unsigned char *bytes;
	uint64_t off, len;
	uint32_t src;
};

struct ck_builder {
	struct ck_intern in;
	CK_VEC(struct ck_entry) entries;
	CK_VEC(struct ck_chunk) parts;
	CK_VEC(struct ck_src) srcs;
	CK_VEC(struct ck_src) indexes; /* sources too, some of them */
	CK_VEC(struct ck_object) objects;
	CK_VEC(struct ck_problem) problems;
	CK_VEC(uint32_t) trees;
	CK_VEC(unsigned char) blob;
	struct ck_table entry_tab, src_tab;
	struct ck_builder_reads reads; /* NULL in it: compare nothing */
	struct ck_last_copy last_copy;
	struct ck_duplicate_ranks
		duplicates; /* pieces of sources that nothing tells apart */
	uint32_t save, saved_to; /* strings; 0 is "" */
	uint32_t nr_units, last_unit;
	uint32_t last_entry; /* of the last part: the next is likely its too */
	uint64_t more_problems;
	uint8_t worst_more;
	bool spent;
};

/* The entry of that name, made where it is new. */
int ck_builder_entry(struct ck_builder *b, uint32_t tree, const char *name,
		     size_t len, uint32_t *index, struct ck_err *err);
/* The entry of that name, or CK_NONE. */
uint32_t ck_builder_lookup(const struct ck_builder *b, uint32_t tree,
			   const char *name, size_t len);
/* Takes the tensor out; the first reason is kept.  0 or -errno. */
int ck_entry_refuse(struct ck_builder *b, struct ck_entry *e,
		    const char *reason, struct ck_err *err);
int ck_builder_report(struct ck_builder *b, const struct ck_problem *at,
		      struct ck_err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The file whose bytes source @src is made of, as a string; CK_NONE: none. */
uint32_t ck_srcs_file(const struct ck_src *srcs, uint32_t src);
/* For messages; never NULL. */
const char *ck_builder_src_name(const struct ck_builder *b, uint32_t src);
/* The builder's sections as a catalog that is not yet written. */
struct ck_catalog ck_builder_view(const struct ck_builder *b);

/*
 * What is true of a chunk of a catalog is what the gate checks: shared with
 * catalog_map.c.
 */
/* Size of what offsets of parts count in; UINT64_MAX where it is not known. */
uint64_t ck_src_size(const struct ck_src *src);

/*
 * One tensor on its way into the catalog; its memory serves the next one too.
 */
struct ck_cells {
	struct ck_builder *b;
	struct ck_catalog img; /* the builder's sections, for the calls above */
	struct ck_entry *e;
	unsigned rank;
	uint8_t elem;
	CK_VEC(struct ck_chunk) part; /* next: ring as a list, CK_NONE ends */
	CK_VEC(uint32_t) cell; /* first part of each ring */
	CK_VEC(uint32_t) tail; /* last part of each ring */
	CK_VEC(uint64_t) start; /* of each cell's bounding box, rank values */
	CK_VEC(uint64_t) end;
	CK_VEC(uint32_t) perm; /* stored order of the cells */
	CK_VEC(unsigned char) mark; /* cells that overlap others */
	struct ck_table tab;
	uint64_t covered; /* elements */
	uint64_t budget; /* box comparisons left */
	uint32_t index; /* the tree in dims, CK_NONE */
};

/*
 * From the kept parts to rings, order and tree.  Returns 0; -EINVAL where
 * the tensor is to be refused for the reason in @why; other -errno.
 */
int ck_cells_make(struct ck_cells *c, struct ck_builder *b, struct ck_entry *e,
		  struct ck_err *why);
void ck_cells_free(struct ck_cells *c);
/* -EINVAL: cells overlap that must not; else those that do are marked. */
int ck_cells_overlap(struct ck_cells *c, bool *any, struct ck_err *why);
/* -EINVAL: two of them, which hold other elements, lie in the same bytes. */
int ck_cells_bytes(const struct ck_cells *c, struct ck_err *why);
/* Replaces the marked cells by ones that do not overlap. */
int ck_cells_cut(struct ck_cells *c, struct ck_err *why);
/* -EINVAL: small replicas differ, or what may be no replicas. */
int ck_cells_copies(const struct ck_cells *c, struct ck_err *why);
/* Keeps the pieces of the tensor that a rank may have of another; -ENOMEM. */
int ck_cells_duplicates(const struct ck_cells *c, struct ck_err *err);
/* When all tensors were seen: warns of ranks that are alike.  0 or -errno. */
int ck_builder_duplicates(struct ck_builder *b, struct ck_err *err);
/* [*lo, *hi): the first elements of the tensor that no cell covers. */
int ck_cells_hole(const struct ck_cells *c, uint64_t *lo, uint64_t *hi,
		  struct ck_err *err);

/* The catalog's file, written front to back, the head last. */
struct ck_catalog_out {
	int fd;
	uint64_t off; /* where the next byte goes */
	unsigned char *buf;
	size_t fill;
	struct ck_catalog_head head;
};
int ck_catalog_out_begin(struct ck_catalog_out *o, int fd, struct ck_err *err);
/* @records NULL: they follow by ck_catalog_out_put(). */
int ck_catalog_out_section(struct ck_catalog_out *o, unsigned sec,
			   const void *records, size_t nr, struct ck_err *err);
int ck_catalog_out_put(struct ck_catalog_out *o, const void *bytes, size_t len,
		       struct ck_err *err);
int ck_catalog_out_end(struct ck_catalog_out *o, uint32_t format,
		       struct ck_err *err);
void ck_catalog_out_free(struct ck_catalog_out *o);

/*
 * The tensors that are served, by tree and file name: @order has room for all
 * entries.  Gives each its file name, unlike all others of its tree.
 */
int ck_builder_names(struct ck_builder *b, uint32_t *order, uint32_t *nr,
		     struct ck_err *err);

#endif
