/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - collects the parts of all ranks, then places them
 */
#include "core/format/oneflow/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/oneflow/file.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void ck_of_set_free(struct ck_of_set *s)
{
	for (size_t i = 0; i < s->items.nr; i++) {
		free(s->items.v[i].name);
		free(s->items.v[i].fault);
	}
	for (size_t i = 0; i < s->parts.nr; i++) {
		free(s->parts.v[i].dims);
		free(s->parts.v[i].file);
		free(s->parts.v[i].bytes);
	}
	for (size_t i = 0; i < s->kept.nr; i++)
		free(s->kept.v[i]);
	free(s->items.v);
	free(s->parts.v);
	free(s->kept.v);
	ck_strmap_free(&s->names);
	ck_strmap_free(&s->objects);
}

static int no_memory(struct ck_err *err)
{
	return ck_fail(err, ENOMEM, "no memory for tensors");
}

static void *copy(const void *bytes, size_t len)
{
	char *out = malloc(len + 1);

	if (out) {
		memcpy(out, bytes, len);
		out[len] = '\0';
	}
	return out;
}

static bool several(const struct ck_of_set *s)
{
	return s->sbp || s->nr_saves > 1;
}

/* A name that is not to be looked at again is taken out by its fault. */
static int set_fault(struct ck_of_set *s, struct ck_of_item *item,
		     const char *why, struct ck_err *err)
{
	struct ck_err line = { 0 };

	if (item->fault)
		return 0;
	if (several(s))
		ck_fail(&line, EINVAL, "rank %" PRIu32 ": %s", s->rank, why);
	else
		ck_fail(&line, EINVAL, "%s", why);
	item->fault = strdup(line.msg);
	return item->fault ? 0 : no_memory(err);
}

static int new_item(struct ck_of_set *s, const struct ck_of_leaf *leaf,
		    uint32_t *index, struct ck_err *err)
{
	struct ck_of_item *item;

	*index = ck_strmap_get(&s->names, leaf->name, leaf->name_len);
	if (*index != CK_STRMAP_NONE)
		return 0;
	item = ck_vec_push(&s->items);
	if (!item)
		return no_memory(err);
	*item = (struct ck_of_item){ .name = copy(leaf->name, leaf->name_len),
				     .len = leaf->name_len,
				     .first = CK_STRMAP_NONE };
	if (!item->name)
		return no_memory(err);
	*index = ck_strmap_put(&s->names, item->name, item->len);
	if (*index == CK_STRMAP_NONE)
		return no_memory(err);
	if (!leaf->path)
		return 0;
	return ck_builder_path(s->b, 0, leaf->name, leaf->name_len, leaf->path,
			       leaf->depth, err);
}

static int new_part(struct ck_of_set *s, const struct ck_of_leaf *leaf,
		    uint64_t size, struct ck_err *err)
{
	struct ck_of_part *p = ck_vec_push(&s->parts);
	size_t n = leaf->rank * sizeof(*leaf->shape);

	if (!p)
		return no_memory(err);
	*p = (struct ck_of_part){ .rank = s->rank,
				  .src = leaf->src,
				  .next = CK_STRMAP_NONE,
				  .dtype = leaf->dtype,
				  .xform = leaf->xform,
				  .whole = leaf->whole,
				  .off = leaf->off };
	p->dims = malloc(2 * n + 1);
	if (leaf->file)
		p->file = strdup(leaf->file);
	else if (leaf->bytes)
		p->bytes = copy(leaf->bytes, size);
	if (!p->dims || (!p->file && !p->bytes))
		return no_memory(err);
	if (n) {
		memcpy(p->dims, leaf->shape, n);
		memcpy(p->dims + leaf->rank, leaf->stride, n);
	}
	return 0;
}

static uint64_t bytes_of(const struct ck_of_leaf *leaf)
{
	uint64_t n = ck_dtype_info((enum ck_dtype)leaf->dtype)->size;

	for (unsigned d = 0; d < leaf->rank; d++)
		n *= leaf->shape[d]; /* checked where the shape was read */
	return n;
}

static int take_tensor(struct ck_of_set *s, const struct ck_of_leaf *leaf,
		       struct ck_err *err)
{
	struct ck_of_item *item;
	uint32_t index;
	int ret = new_item(s, leaf, &index, err);

	if (ret)
		return ret;
	item = &s->items.v[index];
	if (leaf->fault)
		return set_fault(s, item, leaf->fault, err);
	if (item->first != CK_STRMAP_NONE &&
	    s->parts.v[item->last].rank == s->rank)
		return set_fault(s, item, "two tensors have this name", err);
	if (item->first != CK_STRMAP_NONE && item->rank != leaf->rank)
		return set_fault(s, item,
				 "it has not as many dimensions as in the "
				 "ranks before",
				 err);
	item->rank = leaf->rank;
	ret = new_part(s, leaf, bytes_of(leaf), err);
	if (!ret && several(s))
		ret = ck_builder_unlabelled_rank(s->b, leaf->src, s->path, err);
	if (ret)
		return ret;
	index = (uint32_t)s->parts.nr - 1;
	if (item->first == CK_STRMAP_NONE)
		item->first = index;
	else
		s->parts.v[item->last].next = index;
	item->last = index;
	return 0;
}

/* Ranks need not agree on what is no tensor: the first one's is shown. */
static int take_object(struct ck_of_set *s, const struct ck_of_leaf *leaf,
		       struct ck_err *err)
{
	const struct ck_object_in o = { .name = leaf->name,
					.name_len = leaf->name_len,
					.src = leaf->src,
					.enc = leaf->enc,
					.off = leaf->off,
					.len = leaf->len };
	char *name;
	int ret;

	if (ck_strmap_get(&s->objects, leaf->name, leaf->name_len) !=
	    CK_STRMAP_NONE)
		return 0;
	name = copy(leaf->name, leaf->name_len);
	if (!name || !ck_vec_reserve(&s->kept, 1)) {
		free(name);
		return no_memory(err);
	}
	s->kept.v[s->kept.nr++] = name;
	if (ck_strmap_put(&s->objects, name, leaf->name_len) == CK_STRMAP_NONE)
		return no_memory(err);
	ret = ck_builder_object(s->b, &o, err);
	if (ret || !leaf->path)
		return ret;
	return ck_builder_path(s->b, 0, leaf->name, leaf->name_len, leaf->path,
			       leaf->depth, err);
}

static int take_leaf(void *ctx, const struct ck_of_leaf *leaf,
		     struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING,
					 .tensor = leaf->name,
					 .tensor_len = leaf->name_len };
	struct ck_of_set *s = ctx;
	int ret = 0;

	if (leaf->is_tensor)
		return take_tensor(s, leaf, err);
	if (leaf->foreign)
		ret = ck_builder_problem(s->b, &p, err,
					 "it calls %s, which is not run; "
					 "shown as stored",
					 leaf->foreign);
	return ret ? ret : take_object(s, leaf, err);
}

int ck_of_set_read(struct ck_of_set *s, uint32_t rank, const char *path,
		   struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR, .file = path };
	struct ck_err why = { 0 };
	int ret;

	s->rank = rank;
	s->path = path;
	ret = ck_of_load(s->dir, s->b, path, take_leaf, s, &why);
	if (ret == -EINVAL && several(s))
		return ck_builder_problem(s->b, &p, err, "rank %" PRIu32 ": %s",
					  rank, why.msg);
	return ret ? ck_fail(err, -ret, "%s", why.msg) : 0;
}

/* The tensor at hand while it is joined. */
struct join {
	struct ck_of_set *s;
	const struct ck_of_item *item;
	struct ck_placement p;
	const struct ck_of_part **part; /* of each place, or NULL */
	uint32_t *first; /* by part: the first place that has it; or NONE */
	uint64_t shape[CK_MAX_RANK];
};

#define NONE UINT32_MAX

static uint32_t rank_of(const struct join *j, uint32_t at)
{
	return ck_mesh_rank_at(&j->p.mesh, at);
}

/* A rank outside of the placement may have kept a stand-in: all zeros. */
static bool is_stand_in(const struct join *j, const struct ck_of_part *p)
{
	for (unsigned d = 0; d < j->item->rank; d++)
		if (p->dims[d])
			return false;
	return j->item->rank > 0;
}

static int place_parts(struct join *j, struct ck_err *why)
{
	const struct ck_of_set *s = j->s;
	const struct ck_of_part *p, *one = NULL;

	for (uint32_t i = j->item->first; i != CK_STRMAP_NONE; i = p->next) {
		uint32_t at;

		p = &s->parts.v[i];
		if (!ck_mesh_find(&j->p.mesh, p->rank, &at)) {
			if (is_stand_in(j, p))
				continue;
			return ck_fail(why, EINVAL,
				       "rank %" PRIu32 " holds a part of it, "
				       "and is not in the placement given",
				       p->rank);
		}
		if (one && one->dtype != p->dtype)
			return ck_fail(
				why, EINVAL,
				"rank %" PRIu32 " has %s, rank %" PRIu32 " %s",
				one->rank,
				ck_dtype_info((enum ck_dtype)one->dtype)->name,
				p->rank,
				ck_dtype_info((enum ck_dtype)p->dtype)->name);
		one = p;
		j->part[at] = p;
	}
	return 0;
}

/* The step that cuts along @axis, or NULL. */
static const struct ck_mesh_step *step_of(const struct ck_placement *p,
					  unsigned axis)
{
	for (unsigned i = 0; i < p->nr; i++)
		if (p->step[i].axis[0] == axis)
			return &p->step[i];
	return NULL;
}

static int check_sbp(const struct join *j, struct ck_err *why)
{
	const struct ck_mesh *m = &j->p.mesh;

	for (unsigned a = 0; a < m->nr; a++) {
		const struct ck_mesh_step *s = step_of(&j->p, a);

		if (j->p.partial >> a & 1 && m->size[a] > 1)
			return ck_fail(why, EINVAL,
				       "it is partial_sum over %" PRIu32
				       " ranks: it is stored nowhere but as "
				       "terms of a sum",
				       m->size[a]);
		if (s && s->dim >= j->item->rank)
			return ck_fail(why, EINVAL,
				       "split(%d), where it has %u dimensions",
				       s->dim, j->item->rank);
	}
	return 0;
}

/* For each part of @dim, or of the tensor: the first place that is there. */
static uint32_t find_first(struct join *j, int dim)
{
	uint32_t part, nr;

	memset(j->first, 0xff, j->p.mesh.ranks * sizeof(*j->first));
	for (uint32_t at = j->p.mesh.ranks; at-- > 0;) {
		part = ck_placement_part(&j->p, dim, at, &nr);
		if (j->part[at])
			j->first[part] = at;
	}
	return nr;
}

/* The extent of @dim: that of its parts, one after the other. */
static int find_extent(struct join *j, unsigned dim, struct ck_err *why)
{
	uint32_t nr = find_first(j, (int)dim);

	j->shape[dim] = 0;
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t at = j->first[i];

		if (!ck_add_ok(j->shape[dim], j->part[at]->dims[dim],
			       &j->shape[dim]))
			return ck_fail(why, EINVAL,
				       "rank %" PRIu32
				       ": dimension %u overflows with it",
				       rank_of(j, at), dim);
	}
	return 0;
}

static int box_of(const struct join *j, uint32_t at, struct ck_shard *out,
		  struct ck_err *why)
{
	bool zeros;

	return ck_placement_at(&j->p, at, j->shape, j->item->rank, out, &zeros,
			       why);
}

static int check_part(const struct join *j, uint32_t at, struct ck_err *why)
{
	const uint64_t *local = j->part[at]->dims;
	struct ck_shard shard;
	int ret = box_of(j, at, &shard, why);

	for (unsigned d = 0; d < j->item->rank && !ret; d++)
		if (local[d] != shard.box.len[d])
			return ck_fail(why, EINVAL,
				       "rank %" PRIu32 ": it has %" PRIu64
				       " rows of dimension %u, where %" PRIu64
				       " of %" PRIu64 " are its share",
				       rank_of(j, at), local[d], d,
				       shard.box.len[d], j->shape[d]);
	return ret;
}

/* Every part is held by some place, and all are as large as their boxes. */
static int find_shape(struct join *j, struct ck_err *why)
{
	uint32_t nr;
	int ret = 0;

	find_first(j, -1);
	for (uint32_t at = 0; at < j->p.mesh.ranks; at++)
		if (j->first[ck_placement_part(&j->p, -1, at, &nr)] == NONE)
			return ck_fail(why, EINVAL,
				       "rank %" PRIu32 ": it is missing",
				       rank_of(j, at));
	for (unsigned d = 0; !ret && d < j->item->rank; d++)
		ret = find_extent(j, d, why);
	for (uint32_t at = 0; !ret && at < j->p.mesh.ranks; at++)
		if (j->part[at])
			ret = check_part(j, at, why);
	return ret;
}

/* Copies that differ are no copies: which of them is meant is not known. */
static int check_copies(struct join *j, struct ck_err *why, struct ck_err *err)
{
	find_first(j, -1);
	for (uint32_t i = 1; i < j->p.mesh.ranks; i++) {
		const struct ck_of_part *a, *b = j->part[i];
		uint32_t nr, k = j->first[ck_placement_part(&j->p, -1, i, &nr)];
		uint64_t differ;
		bool compared;
		int ret;

		if (!b || k == i)
			continue;
		a = j->part[k];
		ret = ck_of_same_bytes(j->s, j->item, a, b, &compared, &differ,
				       err);
		if (ret)
			return ret;
		if (differ != UINT64_MAX &&
		    !(j->s->sbp && ck_dir_any_copy(j->s->dir)))
			return ck_fail(why, EINVAL,
				       "its copies differ between rank %" PRIu32
				       " and rank %" PRIu32 ", first at byte "
				       "%" PRIu64 "%s",
				       a->rank, b->rank, differ,
				       j->s->sbp ? " (unshard heal)" :
						   ", or are parts: -o sbp= "
						   "says which");
		if (!j->s->sbp && !compared && !b->whole)
			return ck_fail(why, EINVAL,
				       "each file has one, too large to "
				       "compare: give one file");
	}
	return 0;
}

static int add_part(const struct join *j, uint32_t at, struct ck_err *err)
{
	const struct ck_of_part *p = j->part[at];
	unsigned rank = j->item->rank;
	struct ck_shard shard;
	struct ck_part part = {
		.name = j->item->name,
		.name_len = j->item->len,
		.src = p->src,
		.dtype = p->dtype,
		.xform = p->xform,
		.rank = rank,
		.shape = j->shape,
		.start = shard.box.start,
		.len = shard.box.len,
		.stride = (const int64_t *)(p->dims + rank),
		.off = p->off,
	};
	int ret = box_of(j, at, &shard, err);

	if (ret || ck_box_volume(&shard.box))
		return ret ? ret : ck_builder_add(j->s->b, &part, err);
	part.start = part.len = NULL;
	return ck_builder_declare(j->s->b, &part, err);
}

/* -EINVAL with @why: the tensor is refused. */
static int place(struct join *j, struct ck_err *why, struct ck_err *err)
{
	int ret = place_parts(j, why);

	if (!ret)
		ret = check_sbp(j, why);
	if (!ret)
		ret = find_shape(j, why);
	if (!ret)
		ret = check_copies(j, why, err);
	for (uint32_t at = 0; !ret && at < j->p.mesh.ranks; at++)
		if (j->part[at])
			ret = add_part(j, at, err);
	return ret;
}

static int refuse(const struct ck_of_set *s, const struct ck_of_item *item,
		  const char *why, struct ck_err *err)
{
	return ck_builder_refuse(s->b, 0, item->name, item->len, err, "%s",
				 why);
}

static int join_item(struct ck_of_set *s, const struct ck_of_item *item,
		     struct ck_err *err)
{
	ck_auto_free const struct ck_of_part **part = NULL;
	ck_auto_free uint32_t *first = NULL;
	struct join j = { .s = s, .item = item };
	const struct ck_sbp_rule *rule;
	struct ck_err why = { 0 };
	int ret;

	if (item->fault)
		return refuse(s, item, item->fault, err);
	rule = s->sbp ? ck_sbp_rule(&s->sbp->by, item->name, item->len) : NULL;
	if (rule)
		ck_sbp_placement(rule, &j.p);
	else if (s->sbp)
		return refuse(s, item, "no rule of -o sbp= fits its name", err);
	else
		ck_mesh_add_axis(&j.p.mesh, s->nr_saves, UINT32_MAX);
	j.part = part = calloc(j.p.mesh.ranks, sizeof(*part));
	j.first = first = calloc(j.p.mesh.ranks, sizeof(*first));
	if (!part || !first)
		return no_memory(err);
	ret = place(&j, &why, err);
	return ret == -EINVAL && why.code ? refuse(s, item, why.msg, err) : ret;
}

int ck_of_set_join(struct ck_of_set *s, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < s->items.nr; i++)
		ret = join_item(s, &s->items.v[i], err);
	return ret;
}
