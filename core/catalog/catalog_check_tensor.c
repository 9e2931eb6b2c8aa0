/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_check_tensor.c - is this a catalog: tensors, chunks, rings, trees
 *
 * Not proved: that the cells of a tensor are disjoint.  Cells that are not
 * give wrong bytes of the same checkpoint, never bytes of something else.
 */
#include "core/catalog/builder_priv.h"
#include "core/catalog/catalog_check.h"
#include "core/geom/tiling.h"

struct tensor_check {
	const struct ck_catalog *img;
	const struct ck_tensor *t;
	const uint64_t *shape, *grid;
	uint64_t volume; /* elements */
	uint64_t covered;
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

	if (!ck_ref_is_str(img, ref))
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
	    !ck_ref_is_str(img, t->name) || !ck_ref_is_path(img, t->path))
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
	    !ck_ref_has_dims(img, t->shape, t->rank) ||
	    !ck_ref_has_dims(img, t->grid, t->grid_rank))
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
static bool reach_ok(const struct tensor_check *k, const struct ck_chunk *x,
		     const struct ck_layout *l)
{
	const uint64_t *corner = k->img->dims + x->corner;
	const struct ck_src *s = &k->img->srcs[x->src];
	unsigned r = k->t->grid_rank;
	bool flat = l->flags & CK_LAYOUT_FLAT;
	int64_t lo = 0, hi = 0;
	uint64_t len, end;

	if (l->flags & CK_LAYOUT_DEFERRED) {
		len = corner[r + (flat ? 2 : 0)];
		if (!len)
			return false;
	} else if (flat) {
		len = (corner[r + 1] - corner[r]) * k->elem;
	} else {
		if (!ck_stride_extent(k->img->dims + l->len,
				      (const int64_t *)k->img->dims + l->stride,
				      r, k->elem, &lo, &hi) ||
		    (uint64_t)-lo > x->off)
			return false;
		len = (uint64_t)hi;
	}
	if (!ck_add_ok(x->off, len, &end) || x->state < s->state)
		return false;
	return x->state != CK_OK || end <= ck_src_size(s);
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
	return ck_ref_has_dims(img, l->len, r) &&
	       ck_ref_has_dims(img, l->stride, r) &&
	       ck_ref_has_dims(img, x->corner, r + more) && box_ok(k, x, l) &&
	       reach_ok(k, x, l);
}

static int check_chunks(struct tensor_check *k)
{
	const struct ck_catalog *img = k->img;
	const struct ck_tensor *t = k->t;

	if (t->nr > t->nr_all || (t->nr_all && !t->nr))
		return wrong(k, "its number of cells");
	for (uint32_t i = 0; i < t->nr_all; i++) {
		const struct ck_chunk *x = &img->chunks[t->first + i];

		if (!chunk_ok(k, x))
			return wrong(k, "one of its parts");
		if (i >= t->nr)
			continue;
		k->covered += ck_chunk_volume(img, x, t->grid_rank);
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
	if (!ck_ref_has_dims(k->img, k->t->index, nodes * 2 * k->t->grid_rank))
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

int ck_catalog_check_tensors(const struct ck_catalog *img, struct ck_err *err)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		struct tensor_check k = { .img = img,
					  .t = &img->tensors[i],
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
