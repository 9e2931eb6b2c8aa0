/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog.h - the types that cross the lines of the core
 *
 * A catalog is everything known of one generation of a checkpoint: which
 * tensors there are, and which bytes of which source hold each part.  It is
 * one relocatable, immutable piece of memory, made by catalog/builder.h in a
 * short-lived process and mapped read-only by whoever serves it, so reading
 * takes no lock.  References are 32-bit indices into its sections; CK_NONE is
 * "none".
 *
 *   tensor ──first,nr──> cells, each a chunk: a box of the tensor's grid
 *                          │ next: ring of replicas (same box, other bytes)
 *                          ├─layout─> lengths, strides, stored dtype (shared)
 *                          ├─corner─> start of the box; [lo,hi); item length
 *                          └─src,off> where the bytes are
 *
 * The GRID of a tensor is its shape, or a refinement of it with the same
 * row-major order of elements: [G*(h+2)*d, k] seen as [G, h+2, d, k].  Boxes
 * lie in the grid; all chunks of one tensor share one grid.
 */
#ifndef CK_CATALOG_H
#define CK_CATALOG_H

#include "core/geom/file_id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_NONE UINT32_MAX

enum ck_state { CK_OK, CK_TORN, CK_MISSING };

/* In files that are made for maps, lost bytes share no page with others. */
#define CK_LOST_PAGE UINT64_C(4096)

enum ck_src_kind {
	CK_SRC_FILE, /* a file of the checkpoint, name relative to its root */
	CK_SRC_MEM, /* bytes kept in the catalog: blob[off, off + len) */
	CK_SRC_CODEC, /* off/len of @parent, to be decoded as a whole */
	CK_SRC_TENSOR, /* another tensor (derived views; not used yet) */
	CK_SRC_ABSENT, /* known to exist somewhere, not here */
};

enum ck_codec { CK_CODEC_NONE, CK_CODEC_ZSTD };

struct ck_src {
	uint8_t kind, codec, state, pad;
	uint32_t name; /* string: path relative to the checkpoint's root */
	uint32_t parent; /* CODEC: the source that off and len are in */
	uint32_t mode, uid, gid;
	/*
	 * string: whose it is by nothing but its name: a rank's file, or the
	 * folder of a rank; 0: that does not matter, or it says so itself.
	 */
	uint32_t unit, pad2;
	uint64_t off, len; /* FILE: len is the size found when described */
	struct ck_id id; /* FILE: when it was described */
};

/* What thousands of chunks share; interned. */
enum {
	CK_LAYOUT_FLAT = 1, /* the corner is followed by [lo, hi) */
	CK_LAYOUT_DEFERRED =
		2, /* off is the start of an item; see resolved.h */
};
struct ck_layout {
	uint8_t flags;
	uint8_t dtype; /* as stored */
	uint8_t xform; /* enum ck_xform */
	uint8_t pad;
	uint32_t len; /* dims: box lengths after clipping, grid_rank of them */
	/*
	 * dims, as int64_t: distance in elements between neighbours along each
	 * grid axis in the stored bytes; 0 and negative are allowed.  Ignored
	 * by DEFERRED, whose item says so itself.
	 */
	uint32_t stride;
};

enum ck_xform { CK_XF_NONE, CK_XF_CONJ, CK_XF_NEG, CK_XF_BYTESWAP };
enum ck_op { CK_OP_SET, CK_OP_ADD };

struct ck_chunk {
	uint64_t off; /* of element 0 of the box; DEFERRED: of the item */
	uint32_t src, layout;
	/*
	 * dims: corner of the box in the grid (grid_rank values), then lo, hi
	 * where FLAT (positions in the box's own row-major order; off is then
	 * the address of element lo, strides are ignored), then the item's
	 * length in bytes where DEFERRED.
	 */
	uint32_t corner;
	uint32_t next; /* ring of replicas; CK_NONE: the only copy */
	uint32_t sum; /* region that holds its checksum; CK_NONE */
	uint8_t op, state, pad[2];
};

struct ck_tensor {
	uint64_t size; /* bytes of the full tensor */
	uint64_t covered; /* elements that the cells cover; less: a hole */
	uint32_t name; /* string: the true name */
	uint32_t file; /* string: its file name; often the same as name */
	uint32_t tree; /* trees[]: 0 unless a source holds several */
	/*
	 * dims: how many parts (keys, positions) lead to it, then each:
	 * CK_PATH_STR | string, or a position in a list.  CK_NONE: the name
	 * is the one part.
	 */
	uint32_t path;
	uint32_t shape, grid; /* dims: rank, grid_rank values */
	uint32_t first, nr, nr_all; /* chunks: cells, then the other replicas */
	uint32_t index; /* dims: boxes of the search tree, tiling.h; CK_NONE */
	uint32_t newest; /* source with the latest mtime; CK_NONE: no source */
	uint8_t dtype, rank, grid_rank, state;
	/* its place among all keys in the order of the save; 0: not known */
	uint32_t order, pad;
};

#define CK_PATH_STR (UINT64_C(1) << 63)

/* Something stored that is no tensor: step counters, RNG states. */
enum ck_enc { CK_ENC_RAW, CK_ENC_TORCH_ZIP, CK_ENC_PICKLE, CK_ENC_JSON };
struct ck_object {
	uint64_t off, len;
	uint32_t name, tree, path, src;
	uint32_t order; /* as a tensor's */
	uint8_t enc, pad[3];
};

enum ck_severity { CK_NOTE, CK_WARNING, CK_ERROR };
struct ck_problem {
	uint64_t off, len; /* both 0: not about a byte range */
	uint32_t tensor, view, file, reason; /* strings; CK_NONE: absent */
	uint8_t severity, pad[7];
};

/* The mapped catalog.  Sections lie in one piece of memory at @base. */
struct ck_catalog {
	const void *base;
	size_t size;
	const struct ck_tensor *tensors; /* sorted by tree, then file name */
	const struct ck_chunk *chunks;
	const struct ck_layout *layouts;
	const struct ck_src *srcs;
	/* Files that were read for what they say, and hold no tensor's bytes. */
	const struct ck_src *indexes;
	const struct ck_object *objects; /* sorted by tree, then name */
	const struct ck_problem *problems;
	const uint32_t *trees; /* strings: their names; trees[0] is "" */
	const uint64_t *dims;
	const char *strs; /* a string: u32 length, the bytes, NUL */
	const unsigned char *blob; /* of MEM sources */
	uint32_t nr_tensors, nr_chunks, nr_layouts, nr_srcs, nr_indexes,
		nr_objects, nr_problems, nr_trees;
	uint64_t nr_dims, strs_len, blob_len;
	uint32_t format; /* string: the reader's name */
	/* strings: what its writer called this save, and where it went; mostly "" */
	uint32_t save, saved_to;
};

/* The bytes of string @ref; *len may be NULL.  NUL-terminated. */
static inline const char *ck_catalog_str(const struct ck_catalog *img,
					 uint32_t ref, size_t *len)
{
	uint32_t n;

	__builtin_memcpy(&n, img->strs + ref, sizeof(n));
	if (len)
		*len = n;
	return img->strs + ref + sizeof(n);
}

/* The replica after @at in the ring of @cell; CK_NONE: it was the last. */
static inline uint32_t ck_ring_next(const struct ck_catalog *img, uint32_t cell,
				    uint32_t at)
{
	uint32_t next = img->chunks[at].next;

	return next == cell ? CK_NONE : next;
}

/* The file that source @src is, or lies in; CK_NONE: it is in the index. */
static inline uint32_t ck_catalog_file_of(const struct ck_catalog *img,
					  uint32_t src)
{
	const struct ck_src *s = &img->srcs[src];

	if (s->kind == CK_SRC_CODEC)
		s = &img->srcs[s->parent];
	return s->kind == CK_SRC_MEM ? CK_NONE : s->name;
}

#endif
