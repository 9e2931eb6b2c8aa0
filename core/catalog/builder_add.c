/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_add.c - the gate: what a reader says of one part, checked
 *
 * The checks return -EINVAL with the reason, which refuses the tensor; what
 * passes is kept as a chunk, its coordinates already in dims.
 */
#include "core/catalog/builder_priv.h"

#include <inttypes.h>
#include <stdio.h>

/* A part with what it left out filled in. */
struct piece {
	unsigned rank; /* of the grid */
	uint8_t elem, stored, state;
	bool flat;
	uint64_t volume; /* elements of the box */
	uint64_t lo, hi; /* flat */
	uint64_t byte_lo, byte_hi; /* what it reaches of the source */
	const uint64_t *grid;
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
	int64_t stride[CK_MAX_RANK];
};

static const uint64_t *grid_of(const struct ck_part *p, unsigned *rank)
{
	*rank = p->grid ? p->grid_rank : p->rank;
	return p->grid ? p->grid : p->shape;
}

static int bad_dims(struct ck_err *why, const char *what, const uint64_t *a,
		    unsigned a_rank, const char *other, const uint64_t *b,
		    unsigned b_rank)
{
	ck_auto_str struct ck_str at = { 0 }, of = { 0 };

	ck_str_json_u64(&at, a, a_rank);
	if (b)
		ck_str_json_u64(&of, b, b_rank);
	if (at.failed || of.failed)
		return ck_no_memory(why);
	return ck_fail(why, EINVAL, "%s %s%s%s", what, at.v, other,
		       b ? of.v : "");
}

static int check_dtype(const struct ck_part *p, struct ck_err *why)
{
	uint8_t stored = p->stored ? p->stored : p->dtype;
	const struct ck_dtype_info *have, *want;

	if (p->dtype >= CK_DT_NR || stored >= CK_DT_NR)
		return ck_fail(why, EINVAL, "dtype number %u is unknown",
			       p->dtype >= CK_DT_NR ? p->dtype : stored);
	want = ck_dtype_info(p->dtype);
	have = ck_dtype_info(stored);
	if (!want->size)
		return ck_fail(why, EINVAL,
			       "dtype %s has no whole number of bytes",
			       want->name);
	if (have->size != want->size)
		return ck_fail(why, EINVAL,
			       "stored as %s, of %u bytes, where %s has %u",
			       have->name, have->size, want->name, want->size);
	return 0;
}

/* What is said of the tensor as a whole. */
static int check_tensor(const struct ck_part *p, uint64_t *volume,
			struct ck_err *why)
{
	unsigned grid_rank;
	const uint64_t *grid = grid_of(p, &grid_rank);
	uint64_t size;
	int ret = check_dtype(p, why);

	if (ret)
		return ret;
	if (p->rank > CK_MAX_RANK || grid_rank > CK_MAX_RANK)
		return ck_fail(why, EINVAL, "%u dimensions, of at most %u",
			       CK_MAX(p->rank, grid_rank), CK_MAX_RANK);
	if (!ck_dims_volume(p->shape, p->rank, volume) ||
	    !ck_mul_ok(*volume, ck_dtype_info(p->dtype)->size, &size) ||
	    size >= CK_SIZE_MAX)
		return bad_dims(why, "shape", p->shape, p->rank,
				" makes 2^62 bytes or more", NULL, 0);
	if (!ck_grid_refines(p->shape, p->rank, grid, grid_rank, NULL))
		return bad_dims(why, "grid", grid, grid_rank,
				" is no refinement of shape ", p->shape,
				p->rank);
	return 0;
}

/* First sight of a tensor. */
static int define(struct ck_builder *b, uint32_t index, const struct ck_part *p,
		  uint64_t volume, struct ck_err *err)
{
	struct ck_entry *e = &b->entries.v[index];
	unsigned grid_rank;
	const uint64_t *grid = grid_of(p, &grid_rank);
	int ret = ck_intern_dims(&b->in, p->shape, p->rank, &e->shape, err);

	if (!ret)
		ret = ck_intern_dims(&b->in, grid, grid_rank, &e->grid, err);
	if (ret)
		return ret;
	e->volume = volume;
	e->dtype = p->dtype;
	e->rank = (uint8_t)p->rank;
	e->grid_rank = (uint8_t)grid_rank;
	e->flags |= CK_ENTRY_SEEN;
	return 0;
}

static bool dims_equal(const struct ck_builder *b, uint32_t ref, unsigned rank,
		       const uint64_t *v, unsigned nr)
{
	return rank == nr &&
	       (!nr || !memcmp(b->in.dims.v + ref, v, nr * sizeof(*v)));
}

static int differ(const struct ck_builder *b, const struct ck_part *p,
		  const char *what, const uint64_t *said, unsigned nr,
		  uint32_t ref, unsigned rank, struct ck_err *why)
{
	const char *file =
		p->src < b->srcs.nr ? ck_builder_src_name(b, p->src) : "?";
	char text[CK_ERR_MAX / 2];

	snprintf(text, sizeof(text), "%s in %s:", what, file);
	return bad_dims(why, text, said, CK_MIN(nr, CK_MAX_RANK),
			", before: ", b->in.dims.v + ref, rank);
}

/* A later part must say of the tensor what the first one said. */
static int check_same(const struct ck_builder *b, const struct ck_entry *e,
		      const struct ck_part *p, struct ck_err *why)
{
	unsigned grid_rank;
	const uint64_t *grid = grid_of(p, &grid_rank);

	if (p->dtype != e->dtype)
		return ck_fail(
			why, EINVAL, "dtype %s in %s, %s before",
			p->dtype < CK_DT_NR ? ck_dtype_info(p->dtype)->name :
					      "unknown",
			p->src < b->srcs.nr ? ck_builder_src_name(b, p->src) :
					      "?",
			ck_dtype_info(e->dtype)->name);
	if (!dims_equal(b, e->shape, e->rank, p->shape, p->rank))
		return differ(b, p, "shape", p->shape, p->rank, e->shape,
			      e->rank, why);
	if (!dims_equal(b, e->grid, e->grid_rank, grid, grid_rank))
		return differ(b, p, "grid", grid, grid_rank, e->grid,
			      e->grid_rank, why);
	return check_dtype(p, why);
}

static int check_name(const struct ck_part *p, struct ck_err *why)
{
	if (p->name_len > CK_MAX_NAME)
		return ck_fail(why, EINVAL,
			       "its name has %zu bytes, of at most %u",
			       p->name_len, CK_MAX_NAME);
	if (p->name_len && memchr(p->name, 0, p->name_len))
		return ck_fail(why, EINVAL, "its name has a NUL byte in it");
	return 0;
}

/* A tensor that was only declared takes the grid of its first part. */
static bool takes_grid(const struct ck_builder *b, const struct ck_entry *e,
		       const struct ck_part *p)
{
	return !e->nr && p->grid && p->dtype == e->dtype &&
	       e->shape == e->grid && e->rank == e->grid_rank &&
	       dims_equal(b, e->shape, e->rank, p->shape, p->rank);
}

/* *index: CK_NONE where the tensor is refused already or now. */
static int entry_for(struct ck_builder *b, const struct ck_part *p,
		     uint32_t *index, struct ck_err *err)
{
	struct ck_err why;
	struct ck_entry *e;
	uint64_t volume;
	int ret, bad;

	*index = CK_NONE;
	if (check_name(p, &why))
		return ck_builder_refuse(b, p->tree, p->name, p->name_len, err,
					 "%s", why.msg);
	ret = ck_builder_entry(b, p->tree, p->name, p->name_len, index, err);
	if (ret)
		return ret;
	b->last_entry = *index;
	e = &b->entries.v[*index];
	if (e->flags & CK_ENTRY_REFUSED) {
		*index = CK_NONE;
		return 0;
	}
	if (e->flags & CK_ENTRY_SEEN && !takes_grid(b, e, p)) {
		bad = check_same(b, e, p, &why);
	} else {
		bad = check_tensor(p, &volume, &why);
		if (!bad)
			return define(b, *index, p, volume, err);
	}
	if (!bad)
		return 0;
	if (bad == -ENOMEM) /* the reason, not the tensor */
		return ck_no_memory(err);
	*index = CK_NONE;
	return ck_entry_refuse(b, e, why.msg, err);
}

static int check_box(const struct ck_part *p, struct piece *pc,
		     struct ck_err *why)
{
	for (unsigned d = 0; d < pc->rank; d++) {
		uint64_t start = p->start ? p->start[d] : 0;
		uint64_t left = start <= pc->grid[d] ? pc->grid[d] - start : 0;
		uint64_t len = p->len ? p->len[d] : left;

		if (!ck_range_ok(start, len, pc->grid[d]))
			return ck_fail(why, EINVAL,
				       "a part has [%" PRIu64 ", +%" PRIu64
				       ") of axis %u, which has %" PRIu64,
				       start, len, d, pc->grid[d]);
		if (p->full_len && p->full_len[d] < len)
			return ck_fail(why, EINVAL,
				       "a part has %" PRIu64
				       " of axis %u, of which %" PRIu64
				       " are stored",
				       len, d, p->full_len[d]);
		pc->start[d] = start;
		pc->len[d] = len;
	}
	if (!ck_dims_volume(pc->len, pc->rank, &pc->volume))
		return ck_fail(why, EINVAL, "a part has 2^62 elements or more");
	return 0;
}

static int check_flat(const struct ck_part *p, struct piece *pc,
		      struct ck_err *why)
{
	if (!p->flat)
		return 0;
	if (p->flat[0] > p->flat[1] || p->flat[1] > pc->volume)
		return ck_fail(why, EINVAL,
			       "a part has elements [%" PRIu64 ", %" PRIu64
			       ") of a box of %" PRIu64,
			       p->flat[0], p->flat[1], pc->volume);
	pc->flat = true;
	pc->lo = p->flat[0];
	pc->hi = p->flat[1];
	return 0;
}

/* A stretch of a box's order that is itself a box is better said as one. */
static void unflatten(const struct ck_part *p, struct piece *pc)
{
	struct ck_range r;
	struct ck_box box;

	if (!pc->flat || p->item_len)
		return;
	ck_range_init(&r, pc->len, pc->rank, pc->lo, pc->hi);
	if (!ck_range_next(&r, &box) || ck_box_volume(&box) != pc->hi - pc->lo)
		return;
	for (unsigned d = 0; d < pc->rank; d++) {
		pc->start[d] += box.start[d];
		pc->len[d] = box.len[d];
	}
	pc->volume = pc->hi - pc->lo;
	pc->flat = false;
	ck_dims_strides(pc->len, pc->rank, pc->stride);
}

static int check_strides(const struct ck_part *p, struct piece *pc,
			 struct ck_err *why)
{
	if (p->flat || p->item_len) {
		ck_dims_strides(pc->len, pc->rank, pc->stride);
		return 0;
	}
	if (p->stride) {
		for (unsigned d = 0; d < pc->rank; d++)
			pc->stride[d] = p->stride[d];
		return 0;
	}
	if (!ck_dims_strides(p->full_len ? p->full_len : pc->len, pc->rank,
			     pc->stride))
		return ck_fail(why, EINVAL,
			       "a part is stored as 2^62 elements or more");
	return 0;
}

/* Which bytes of its source the part needs: [byte_lo, byte_hi). */
static int check_reach(const struct ck_part *p, struct piece *pc,
		       struct ck_err *why)
{
	int64_t lo = 0, hi = 0;
	uint64_t len = p->item_len;

	if (!p->item_len && pc->flat)
		len = (pc->hi - pc->lo) * pc->elem;
	if (!p->item_len && !pc->flat) {
		if (!ck_stride_extent(pc->len, pc->stride, pc->rank, pc->elem,
				      &lo, &hi))
			return ck_fail(why, EINVAL,
				       "the strides of a part reach past 2^62");
		if ((uint64_t)-lo > p->off)
			return ck_fail(why, EINVAL,
				       "the strides of a part at byte %" PRIu64
				       " reach %" PRIu64
				       " bytes before the file",
				       p->off, (uint64_t)-lo - p->off);
		len = (uint64_t)hi;
	}
	if (p->off > CK_SIZE_MAX || !ck_add_ok(p->off, len, &pc->byte_hi))
		return ck_fail(why, EINVAL,
			       "a part at byte %" PRIu64 " ends past 2^62",
			       p->off);
	pc->byte_lo = p->off - (uint64_t)-lo;
	return 0;
}

static int check_source(const struct ck_builder *b, const struct ck_part *p,
			struct piece *pc, struct ck_err *why)
{
	const struct ck_dtype_info *dt = ck_dtype_info(p->dtype);

	if (p->src >= b->srcs.nr)
		return ck_fail(why, EINVAL, "a part is in no source");
	if (p->op != CK_OP_SET)
		return ck_fail(
			why, EINVAL,
			"it is stored as partial sums, which are not added up");
	if (p->xform > CK_XF_BYTESWAP)
		return ck_fail(why, EINVAL, "transform number %u is unknown",
			       p->xform);
	if (p->xform == CK_XF_CONJ && strncmp(dt->name, "complex", 7))
		return ck_fail(why, EINVAL, "dtype %s has no conjugate",
			       dt->name);
	pc->elem = dt->size;
	pc->stored = p->stored ? p->stored : p->dtype;
	return 0;
}

static int check_part(const struct ck_builder *b, const struct ck_entry *e,
		      const struct ck_part *p, struct piece *pc,
		      struct ck_err *why)
{
	int ret;

	pc->grid = b->in.dims.v ? b->in.dims.v + e->grid : NULL;
	pc->rank = e->grid_rank;
	pc->flat = false;
	ret = check_source(b, p, pc, why);
	if (!ret)
		ret = check_box(p, pc, why);
	if (!ret)
		ret = check_flat(p, pc, why);
	if (ret || !pc->volume || (pc->flat && pc->lo == pc->hi))
		return ret;
	ret = check_strides(p, pc, why);
	if (ret)
		return ret;
	unflatten(p, pc);
	return check_reach(p, pc, why);
}

static int set_state(struct ck_builder *b, const struct ck_part *p,
		     const struct ck_entry *e, struct piece *pc,
		     struct ck_err *err)
{
	const struct ck_src *s = &b->srcs.v[p->src];
	uint64_t size = ck_src_size(s);
	struct ck_problem at = { .severity = CK_ERROR,
				 .off = pc->byte_lo,
				 .len = pc->byte_hi - pc->byte_lo,
				 .tensor = e->name,
				 .view = CK_NONE };

	pc->state = s->state;
	if (s->state != CK_OK || pc->byte_hi <= size)
		return 0;
	pc->state = CK_TORN;
	at.file = ck_srcs_file(b->srcs.v, p->src);
	return ck_builder_report(
		b, &at, err,
		"%" PRIu64
		" bytes are past the end of the file, which has %" PRIu64,
		pc->byte_hi - CK_MAX(size, pc->byte_lo), size);
}

static int add_layout(struct ck_builder *b, const struct ck_part *p,
		      const struct piece *pc, uint32_t *ref, struct ck_err *err)
{
	struct ck_layout l = { .dtype = pc->stored, .xform = p->xform };
	int ret;

	l.flags = (uint8_t)((pc->flat ? CK_LAYOUT_FLAT : 0) |
			    (p->item_len ? CK_LAYOUT_DEFERRED : 0));
	ret = ck_intern_dims(&b->in, pc->len, pc->rank, &l.len, err);
	if (!ret)
		ret = ck_intern_dims(&b->in, (const uint64_t *)pc->stride,
				     pc->rank, &l.stride, err);
	if (!ret)
		ret = ck_intern_layout(&b->in, &l, ref, err);
	return ret;
}

static int add_corner(struct ck_builder *b, const struct ck_part *p,
		      const struct piece *pc, uint32_t *ref, struct ck_err *err)
{
	unsigned nr = pc->rank + (pc->flat ? 2 : 0) + (p->item_len ? 1 : 0);
	uint64_t *at;
	int ret = ck_intern_room(&b->in, nr, ref, &at, err);

	if (ret)
		return ret;
	for (unsigned d = 0; d < pc->rank; d++)
		*at++ = pc->start[d];
	if (pc->flat) {
		*at++ = pc->lo;
		*at++ = pc->hi;
	}
	if (p->item_len)
		*at = p->item_len;
	return 0;
}

static int stage(struct ck_builder *b, struct ck_entry *e,
		 const struct ck_part *p, const struct piece *pc,
		 struct ck_err *err)
{
	struct ck_chunk c = { .off = p->off,
			      .src = p->src,
			      .next = CK_NONE,
			      .sum = CK_NONE,
			      .op = p->op,
			      .state = pc->state };
	uint32_t at = (uint32_t)b->parts.nr;
	int ret = add_layout(b, p, pc, &c.layout, err);

	if (!ret)
		ret = add_corner(b, p, pc, &c.corner, err);
	if (ret)
		return ret;
	if (b->parts.nr >= CK_MAX_CHUNKS)
		return ck_fail(err, E2BIG, "more than %u parts of tensors",
			       CK_MAX_CHUNKS);
	c.pad[0] = (p->overlap_ok ? CK_PART_OVERLAP_OK : 0) |
		   (p->unlabelled ? CK_PART_UNLABELLED : 0);
	if (e->nr++)
		b->parts.v[e->last].next = at;
	else
		e->first = at;
	e->last = at;
	return ck_vec_put(&b->parts, err, c);
}

int ck_builder_add(struct ck_builder *b, const struct ck_part *part,
		   struct ck_err *err)
{
	struct piece pc;
	struct ck_entry *e;
	struct ck_err why;
	uint32_t index;
	int ret = entry_for(b, part, &index, err);

	if (ret || index == CK_NONE)
		return ret;
	e = &b->entries.v[index];
	if (check_part(b, e, part, &pc, &why))
		return ck_entry_refuse(b, e, why.msg, err);
	if (!pc.volume || (pc.flat && pc.lo == pc.hi))
		return 0;
	ret = set_state(b, part, e, &pc, err);
	return ret ? ret : stage(b, e, part, &pc, err);
}

int ck_builder_declare(struct ck_builder *b, const struct ck_part *decl,
		       struct ck_err *err)
{
	uint32_t index;

	return entry_for(b, decl, &index, err);
}
