/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_check.c - is this a catalog
 *
 * The bytes may come from a process that a hostile file took over, or from a
 * sidecar that anyone wrote.  All that readers of a catalog take for granted is
 * proved here, in time linear in its size.
 *
 * Not proved: that the cells of a tensor are disjoint.  Cells that are not
 * give wrong bytes of the same checkpoint, never bytes of something else.
 */
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/catalog/builder_priv.h"
#include "core/catalog/catalog_priv.h"
#include "core/geom/tiling.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define MAX_PATH_PARTS CK_MAX_JSON_DEPTH

/* ---- references ---- */

static bool is_str(const struct ck_catalog *img, uint64_t ref)
{
	uint32_t len;

	if (img->strs_len < 5 || ref > img->strs_len - 5)
		return false;
	__builtin_memcpy(&len, img->strs + ref, sizeof(len));
	return len <= img->strs_len - 5 - ref && !img->strs[ref + 4 + len];
}

static bool is_str_or_none(const struct ck_catalog *img, uint64_t ref)
{
	return ref == CK_NONE || is_str(img, ref);
}

static bool has_dims(const struct ck_catalog *img, uint32_t ref, uint64_t nr)
{
	return nr <= img->nr_dims && ref <= img->nr_dims - nr;
}

static int check_head(const struct ck_catalog_head *h, size_t size,
		      struct ck_err *err)
{
	if (h->magic != CK_CATALOG_MAGIC)
		return ck_fail(err, EINVAL, "no catalog: its first bytes");
	if (h->version != CK_CATALOG_VERSION)
		return ck_fail(err, EINVAL, "a catalog of version %u, not %u",
			       h->version, CK_CATALOG_VERSION);
	if (h->size != size)
		return ck_fail(err, EINVAL,
			       "a catalog of %llu bytes that has %zu",
			       (unsigned long long)h->size, size);
	for (unsigned i = 0; i < CK_SEC_NR; i++) {
		const struct ck_catalog_sec *s = &h->sec[i];
		uint64_t bytes;

		if (s->elem != ck_catalog_elem(i) || s->off % 8 ||
		    s->nr >= CK_NONE || !ck_mul_ok(s->nr, s->elem, &bytes) ||
		    !ck_range_ok(s->off, bytes, size))
			return ck_fail(
				err, EINVAL,
				"section %u of the catalog is not inside it",
				i);
	}
	return 0;
}

static void place_sections(struct ck_catalog *img,
			   const struct ck_catalog_head *h)
{
	const char *base = img->base;
	const struct ck_catalog_sec *s = h->sec;

#define SECTION(sec) ((const void *)(base + s[CK_SEC_##sec].off))
	img->tensors = SECTION(TENSORS);
	img->chunks = SECTION(CHUNKS);
	img->layouts = SECTION(LAYOUTS);
	img->srcs = SECTION(SRCS);
	img->indexes = SECTION(INDEXES);
	img->objects = SECTION(OBJECTS);
	img->problems = SECTION(PROBLEMS);
	img->trees = SECTION(TREES);
	img->dims = SECTION(DIMS);
	img->strs = SECTION(STRS);
	img->blob = SECTION(BLOB);
#undef SECTION
	img->nr_tensors = (uint32_t)s[CK_SEC_TENSORS].nr;
	img->nr_chunks = (uint32_t)s[CK_SEC_CHUNKS].nr;
	img->nr_layouts = (uint32_t)s[CK_SEC_LAYOUTS].nr;
	img->nr_srcs = (uint32_t)s[CK_SEC_SRCS].nr;
	img->nr_indexes = (uint32_t)s[CK_SEC_INDEXES].nr;
	img->nr_objects = (uint32_t)s[CK_SEC_OBJECTS].nr;
	img->nr_problems = (uint32_t)s[CK_SEC_PROBLEMS].nr;
	img->nr_trees = (uint32_t)s[CK_SEC_TREES].nr;
	img->nr_dims = s[CK_SEC_DIMS].nr;
	img->strs_len = s[CK_SEC_STRS].nr;
	img->blob_len = s[CK_SEC_BLOB].nr;
	img->format = h->format;
	img->save = h->save;
	img->saved_to = h->saved_to;
}

static bool is_path(const struct ck_catalog *img, uint32_t ref)
{
	if (ref == CK_NONE)
		return true;
	if (!has_dims(img, ref, 1) || img->dims[ref] > MAX_PATH_PARTS ||
	    !has_dims(img, ref + 1, img->dims[ref]))
		return false;
	for (uint64_t i = 0; i < img->dims[ref]; i++) {
		uint64_t part = img->dims[ref + 1 + i];

		if (part & CK_PATH_STR && !is_str(img, part & ~CK_PATH_STR))
			return false;
	}
	return true;
}

/* Names are handed to openat(2): they are what they look like. */
static bool is_file_name(const struct ck_catalog *img, uint32_t ref)
{
	size_t len;
	const char *s;

	if (!is_str(img, ref))
		return false;
	s = ck_catalog_str(img, ref, &len);
	return len && len < PATH_MAX && !memchr(s, 0, len);
}

static bool file_ok(const struct ck_catalog *img, const struct ck_src *s)
{
	return is_file_name(img, s->name) && s->state == CK_OK &&
	       s->len == s->id.size && s->len <= CK_SIZE_MAX;
}

static bool codec_ok(const struct ck_catalog *img, uint32_t i)
{
	const struct ck_src *s = &img->srcs[i], *parent;
	uint64_t end;

	if (s->parent >= i || s->codec != CK_CODEC_ZSTD || !s->len ||
	    !ck_add_ok(s->off, s->len, &end))
		return false;
	parent = &img->srcs[s->parent];
	if (parent->kind == CK_SRC_CODEC || s->state < parent->state)
		return false;
	return s->state != CK_OK || end <= parent->len;
}

static bool src_ok(const struct ck_catalog *img, uint32_t i)
{
	const struct ck_src *s = &img->srcs[i];

	if (s->state > CK_MISSING || !is_str(img, s->unit))
		return false;
	switch (s->kind) {
	case CK_SRC_FILE:
		return file_ok(img, s);
	case CK_SRC_MEM:
		return s->state == CK_OK && s->name == CK_NONE &&
		       ck_range_ok(s->off, s->len, img->blob_len);
	case CK_SRC_CODEC:
		return s->name == CK_NONE && codec_ok(img, i);
	case CK_SRC_ABSENT:
		return s->state == CK_MISSING && is_file_name(img, s->name);
	default:
		return false;
	}
}

static int check_srcs(const struct ck_catalog *img, struct ck_err *err)
{
	for (uint32_t i = 0; i < img->nr_srcs; i++)
		if (!src_ok(img, i))
			return ck_fail(err, EINVAL,
				       "source %u of the catalog is wrong", i);
	for (uint32_t i = 0; i < img->nr_indexes; i++)
		if (img->indexes[i].kind != CK_SRC_FILE ||
		    !file_ok(img, &img->indexes[i]))
			return ck_fail(err, EINVAL,
				       "index %u of the catalog is wrong", i);
	return 0;
}

static bool object_ok(const struct ck_catalog *img, const struct ck_object *o)
{
	uint64_t end;

	if (!is_str(img, o->name) || o->tree >= img->nr_trees ||
	    !is_path(img, o->path) || o->src >= img->nr_srcs ||
	    o->enc > CK_ENC_JSON || !ck_add_ok(o->off, o->len, &end))
		return false;
	return img->srcs[o->src].kind != CK_SRC_MEM ||
	       end <= img->srcs[o->src].len;
}

static bool problem_ok(const struct ck_catalog *img, const struct ck_problem *p)
{
	return p->severity <= CK_ERROR && is_str(img, p->reason) &&
	       is_str_or_none(img, p->tensor) && is_str_or_none(img, p->view) &&
	       is_str_or_none(img, p->file);
}

static int check_small(const struct ck_catalog *img, struct ck_err *err)
{
	if (!is_str(img, img->format))
		return ck_fail(err, EINVAL, "the catalog names no format");
	if (!is_str(img, img->save) || !is_str(img, img->saved_to))
		return ck_fail(err, EINVAL,
			       "the catalog says which save it is of by no "
			       "text");
	for (uint32_t i = 0; i < img->nr_trees; i++)
		if (!is_str(img, img->trees[i]))
			return ck_fail(err, EINVAL,
				       "tree %u of the catalog is wrong", i);
	for (uint32_t i = 0; i < img->nr_objects; i++)
		if (!object_ok(img, &img->objects[i]))
			return ck_fail(err, EINVAL,
				       "object %u of the catalog is wrong", i);
	for (uint32_t i = 0; i < img->nr_problems; i++)
		if (!problem_ok(img, &img->problems[i]))
			return ck_fail(err, EINVAL,
				       "problem %u of the catalog is wrong", i);
	return 0;
}

/* ---- tensors, chunks, rings, trees ---- */

struct tensor_check {
	const struct ck_catalog *img;
	const struct ck_tensor *t;
	const uint64_t *shape, *grid;
	uint64_t volume; /* elements */
	uint64_t covered;
	/* Of the last part, if it is deferred and no flat range; or CK_NONE. */
	uint32_t layout;
	uint64_t box; /* elements of it */
	uint8_t elem;
	struct ck_err *err;
};

static int wrong(const struct tensor_check *k, const char *what)
{
	return ck_fail(k->err, EINVAL, "tensor %u of the catalog: %s",
		       (unsigned)(k->t - k->img->tensors), what);
}

static bool file_name_ok(const struct ck_catalog *img, uint32_t ref)
{
	size_t len;
	const char *s;

	if (!is_str(img, ref))
		return false;
	s = ck_catalog_str(img, ref, &len);
	return len && len <= 255 && !memchr(s, 0, len) &&
	       !memchr(s, '/', len) && strcmp(s, ".") && strcmp(s, "..");
}

static int check_names(const struct tensor_check *k)
{
	const struct ck_catalog *img = k->img;
	const struct ck_tensor *t = k->t, *before = t - 1;
	size_t len;

	if (t->tree >= img->nr_trees || !file_name_ok(img, t->file) ||
	    !is_str(img, t->name) || !is_path(img, t->path))
		return wrong(k, "its names");
	ck_catalog_str(img, t->name, &len);
	if (len > CK_MAX_NAME)
		return wrong(k, "the length of its name");
	if (t == img->tensors || before->tree < t->tree)
		return 0;
	if (before->tree > t->tree ||
	    strcmp(ck_catalog_str(img, before->file, NULL),
		   ck_catalog_str(img, t->file, NULL)) >= 0)
		return wrong(k, "its place in the order of names");
	return 0;
}

static int check_shape(struct tensor_check *k)
{
	const struct ck_catalog *img = k->img;
	const struct ck_tensor *t = k->t;
	uint64_t size;

	if (t->rank > CK_MAX_RANK || t->grid_rank > CK_MAX_RANK ||
	    t->dtype >= CK_DT_NR || t->state > CK_MISSING ||
	    !ck_dtype_info(t->dtype)->size ||
	    !has_dims(img, t->shape, t->rank) ||
	    !has_dims(img, t->grid, t->grid_rank))
		return wrong(k, "its rank, dtype or shape");
	k->elem = ck_dtype_info(t->dtype)->size;
	k->shape = img->dims + t->shape;
	k->grid = img->dims + t->grid;
	if (!ck_dims_volume(k->shape, t->rank, &k->volume) ||
	    !ck_mul_ok(k->volume, k->elem, &size) || size >= CK_SIZE_MAX ||
	    size != t->size)
		return wrong(k, "its size");
	if (!ck_grid_refines(k->shape, t->rank, k->grid, t->grid_rank, NULL))
		return wrong(k, "its grid");
	if (t->newest != CK_NONE && t->newest >= img->nr_srcs)
		return wrong(k, "its newest source");
	return 0;
}

/* Where a chunk says it is in its source. */
static bool reach_ok(const struct tensor_check *k, const struct ck_chunk *x)
{
	const struct ck_src *s = &k->img->srcs[x->src];
	struct ck_chunk_at at;
	uint64_t from, to;

	ck_chunk_at(k->img, NULL, k->t->grid_rank, x, &at);
	if (!ck_chunk_extent(&at, &from, &to) || to <= from ||
	    x->state < s->state)
		return false;
	return x->state != CK_OK || to <= ck_src_size(s);
}

static bool box_ok(const struct tensor_check *k, const struct ck_chunk *x,
		   const struct ck_layout *l)
{
	const uint64_t *corner = k->img->dims + x->corner;
	const uint64_t *len = k->img->dims + l->len;
	unsigned r = k->t->grid_rank;
	uint64_t volume = 1;

	for (unsigned d = 0; d < r; d++) {
		if (!len[d] || !ck_range_ok(corner[d], len[d], k->grid[d]))
			return false;
		volume *= len[d]; /* at most the tensor's */
	}
	return !(l->flags & CK_LAYOUT_FLAT) ||
	       (corner[r] < corner[r + 1] && corner[r + 1] <= volume);
}

static bool chunk_ok(const struct tensor_check *k, const struct ck_chunk *x)
{
	const struct ck_catalog *img = k->img;
	unsigned r = k->t->grid_rank;
	const struct ck_layout *l;
	unsigned more;

	if (x->src >= img->nr_srcs || x->layout >= img->nr_layouts ||
	    x->sum != CK_NONE || x->op != CK_OP_SET || x->state > CK_MISSING)
		return false;
	l = &img->layouts[x->layout];
	if (l->flags & ~(CK_LAYOUT_FLAT | CK_LAYOUT_DEFERRED) ||
	    l->dtype >= CK_DT_NR || l->xform > CK_XF_BYTESWAP ||
	    ck_dtype_info(l->dtype)->size != k->elem)
		return false;
	more = (l->flags & CK_LAYOUT_FLAT ? 2 : 0) +
	       (l->flags & CK_LAYOUT_DEFERRED ? 1 : 0);
	return has_dims(img, l->len, r) && has_dims(img, l->stride, r) &&
	       has_dims(img, x->corner, r + more) && box_ok(k, x, l) &&
	       reach_ok(k, x);
}

/* One whose layout is that of the one before: what the layout says was checked. */
static bool like_last_ok(const struct tensor_check *k, const struct ck_chunk *x)
{
	const struct ck_catalog *img = k->img;
	unsigned r = k->t->grid_rank;
	const struct ck_src *s = &img->srcs[x->src];
	uint64_t to;

	return x->src < img->nr_srcs && x->sum == CK_NONE &&
	       x->op == CK_OP_SET && x->state <= CK_MISSING &&
	       x->state >= s->state && has_dims(img, x->corner, r + 1) &&
	       box_ok(k, x, &img->layouts[x->layout]) &&
	       ck_add_ok(x->off, img->dims[x->corner + r], &to) &&
	       to > x->off && (x->state != CK_OK || to <= ck_src_size(s));
}

static bool next_ok(struct tensor_check *k, const struct ck_chunk *x)
{
	if (x->layout == k->layout && k->layout != CK_NONE)
		return like_last_ok(k, x);
	if (!chunk_ok(k, x))
		return false;
	k->layout = CK_NONE;
	k->box = ck_chunk_volume(k->img, x, k->t->grid_rank);
	if (k->img->layouts[x->layout].flags == CK_LAYOUT_DEFERRED)
		k->layout = x->layout;
	return true;
}

static int check_chunks(struct tensor_check *k)
{
	const struct ck_catalog *img = k->img;
	const struct ck_tensor *t = k->t;

	if (t->nr > t->nr_all || (t->nr_all && !t->nr))
		return wrong(k, "its number of cells");
	for (uint32_t i = 0; i < t->nr_all; i++) {
		const struct ck_chunk *x = &img->chunks[t->first + i];

		if (!next_ok(k, x))
			return wrong(k, "one of its parts");
		if (i >= t->nr)
			continue;
		k->covered += k->box;
		if (k->covered > k->volume)
			return wrong(k, "its cells cover more than all of it");
	}
	if (k->covered != t->covered)
		return wrong(k, "how much its cells cover");
	return 0;
}

/* Members of a ring cover the same elements. */
static bool same_elements(const struct tensor_check *k,
			  const struct ck_chunk *x, const struct ck_chunk *y)
{
	const struct ck_catalog *img = k->img;
	const struct ck_layout *lx = &img->layouts[x->layout];
	const struct ck_layout *ly = &img->layouts[y->layout];
	size_t r = k->t->grid_rank;
	unsigned flat = lx->flags & CK_LAYOUT_FLAT;

	return flat == (ly->flags & CK_LAYOUT_FLAT) &&
	       !memcmp(img->dims + lx->len, img->dims + ly->len,
		       r * sizeof(uint64_t)) &&
	       !memcmp(img->dims + x->corner, img->dims + y->corner,
		       (r + (flat ? 2 : 0)) * sizeof(uint64_t));
}

/*
 * From each cell through replicas back to it.  No more steps than there are
 * replicas, and all of them: then each is in one ring, once.
 */
static int check_rings(const struct tensor_check *k)
{
	const struct ck_tensor *t = k->t;
	uint32_t left = t->nr_all - t->nr;

	for (uint32_t i = t->first; i < t->first + t->nr; i++) {
		const struct ck_chunk *cell = &k->img->chunks[i];
		uint32_t at = cell->next;

		if (at == i)
			return wrong(k, "a ring of one");
		while (at != CK_NONE && at != i) {
			const struct ck_chunk *x;

			if (at < t->first + t->nr ||
			    at >= t->first + t->nr_all || !left--)
				return wrong(k, "a ring that leads astray");
			x = &k->img->chunks[at];
			if (x->next == CK_NONE || !same_elements(k, cell, x))
				return wrong(k, "a ring of unequal parts");
			at = x->next;
		}
	}
	return left ? wrong(k, "a replica in no ring") : 0;
}

static bool inside(const uint64_t *node, const uint64_t *start,
		   const uint64_t *end, unsigned r)
{
	for (unsigned d = 0; d < r; d++)
		if (start[d] < node[d] || end[d] > node[r + d])
			return false;
	return true;
}

/* Every node bounds what is under it. */
static bool tree_ok(const struct tensor_check *k, const uint64_t *nodes,
		    const uint32_t *level_nr, unsigned levels)
{
	size_t r = k->t->grid_rank;
	uint64_t start[CK_MAX_RANK], end[CK_MAX_RANK];
	const uint64_t *below = nodes;

	for (uint32_t i = 0; i < k->t->nr; i++) {
		ck_chunk_bounds(k->img, &k->img->chunks[k->t->first + i],
				(unsigned)r, start, end);
		if (!inside(nodes + i / CK_FANOUT * 2 * r, start, end,
			    (unsigned)r))
			return false;
	}
	for (unsigned l = 1; l < levels; l++) {
		const uint64_t *level = below + (size_t)level_nr[l - 1] * 2 * r;

		for (size_t i = 0; i < level_nr[l - 1]; i++)
			if (!inside(level + i / CK_FANOUT * 2 * r,
				    below + i * 2 * r, below + i * 2 * r + r,
				    (unsigned)r))
				return false;
		below = level;
	}
	return true;
}

static int check_tree(const struct tensor_check *k)
{
	uint32_t level_nr[CK_MAX_LEVELS];
	unsigned levels = ck_tiling_levels(k->t->nr, level_nr);
	uint64_t nodes = 0;

	if (!levels)
		return k->t->index == CK_NONE ? 0 : wrong(k, "a needless tree");
	for (unsigned l = 0; l < levels; l++)
		nodes += level_nr[l];
	if (!has_dims(k->img, k->t->index, nodes * 2 * k->t->grid_rank))
		return wrong(k, "its tree");
	if (!tree_ok(k, k->img->dims + k->t->index, level_nr, levels))
		return wrong(k, "the bounds in its tree");
	return 0;
}

static int check_tensor(struct tensor_check *k)
{
	int ret = check_names(k);

	if (!ret)
		ret = check_shape(k);
	if (!ret)
		ret = check_chunks(k);
	if (!ret)
		ret = check_rings(k);
	if (!ret)
		ret = check_tree(k);
	return ret;
}

static int check_tensors(const struct ck_catalog *img, struct ck_err *err)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		struct tensor_check k = { .img = img,
					  .t = &img->tensors[i],
					  .layout = CK_NONE,
					  .err = err };
		int ret;

		if (k.t->first != next || k.t->nr_all > img->nr_chunks - next)
			return wrong(&k, "its place among the parts");
		next += k.t->nr_all;
		ret = check_tensor(&k);
		if (ret)
			return ret;
	}
	if (next != img->nr_chunks)
		return ck_fail(err, EINVAL,
			       "%u parts of the catalog are in no tensor",
			       img->nr_chunks - next);
	return 0;
}

int ck_catalog_check(struct ck_catalog *img, const void *base, size_t size,
		     struct ck_err *err)
{
	const struct ck_catalog_head *h = base;
	int ret = check_head(h, size, err);

	if (ret)
		return ret;
	*img = (struct ck_catalog){ .base = base, .size = size };
	place_sections(img, h);
	ret = check_srcs(img, err);
	if (!ret)
		ret = check_small(img, err);
	if (!ret)
		ret = check_tensors(img, err);
	return ret;
}
