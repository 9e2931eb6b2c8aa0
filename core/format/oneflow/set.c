/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - collects the parts of all ranks, then places them
 */
#include "core/format/oneflow/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
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
	const struct ck_of_rule *rule; /* NULL: there is no rank to name */
	struct ck_of_nd nd;
	uint32_t nr;
	const struct ck_of_part **part; /* of each parallel id, or NULL */
	const uint64_t **local; /* their shapes */
};

static uint32_t rank_of(const struct join *j, uint32_t id)
{
	return j->rule ? j->rule->ranks[id] : id;
}

/* The parallel id of a rank; UINT32_MAX: it is not in the placement. */
static uint32_t id_of(const struct join *j, uint32_t rank)
{
	uint32_t id = CK_FIRST(i, 0, j->nr, rank_of(j, i) >= rank);

	return id < j->nr && rank_of(j, id) == rank ? id : UINT32_MAX;
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
		uint32_t id;

		p = &s->parts.v[i];
		id = id_of(j, p->rank);
		if (id == UINT32_MAX && is_stand_in(j, p))
			continue;
		if (id == UINT32_MAX)
			return ck_fail(why, EINVAL,
				       "rank %" PRIu32 " holds a part of it, "
				       "and is not in the placement given",
				       p->rank);
		if (one && one->dtype != p->dtype)
			return ck_fail(
				why, EINVAL,
				"rank %" PRIu32 " has %s, rank %" PRIu32 " %s",
				one->rank,
				ck_dtype_info((enum ck_dtype)one->dtype)->name,
				p->rank,
				ck_dtype_info((enum ck_dtype)p->dtype)->name);
		one = p;
		j->part[id] = p;
		j->local[id] = p->dims;
	}
	return 0;
}

static int check_sbp(const struct join *j, struct ck_err *why)
{
	for (unsigned a = 0; a < j->nd.axes; a++) {
		if (j->nd.sbp[a] == CK_OF_PARTIAL && j->nd.size[a] > 1)
			return ck_fail(why, EINVAL,
				       "it is partial_sum over %" PRIu32
				       " ranks: it is stored nowhere but as "
				       "terms of a sum",
				       j->nd.size[a]);
		if (j->nd.sbp[a] >= (int32_t)j->item->rank)
			return ck_fail(why, EINVAL,
				       "split(%d), where it has %u dimensions",
				       j->nd.sbp[a], j->item->rank);
	}
	return 0;
}

/* Copies that differ are no copies: which of them is meant is not known. */
static int check_copies(const struct join *j, struct ck_err *why,
			struct ck_err *err)
{
	for (uint32_t i = 1; i < j->nr; i++) {
		uint64_t differ;
		bool compared;
		uint32_t k = 0;
		int ret;

		while (k < i && !(j->part[k] && ck_of_nd_same(&j->nd, i, k)))
			k++;
		if (k == i || !j->part[i])
			continue;
		ret = ck_of_same_bytes(j->s, j->item, j->part[k], j->part[i],
				       &compared, &differ, err);
		if (ret)
			return ret;
		if (differ != UINT64_MAX &&
		    !(j->s->sbp && ck_dir_any_copy(j->s->dir)))
			return ck_fail(why, EINVAL,
				       "its copies differ between rank %" PRIu32
				       " and rank %" PRIu32 ", first at byte "
				       "%" PRIu64 "%s",
				       j->part[k]->rank, j->part[i]->rank,
				       differ,
				       j->s->sbp ? " (unshard heal)" :
						   ", or are parts: -o sbp= "
						   "says which");
		if (!j->s->sbp && !compared && !j->part[i]->whole)
			return ck_fail(why, EINVAL,
				       "each file has one, too large to "
				       "compare: give one file");
	}
	return 0;
}

static int add_part(const struct join *j, uint32_t id, const uint64_t *shape,
		    struct ck_err *err)
{
	const struct ck_of_part *p = j->part[id];
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
	unsigned rank = j->item->rank;
	struct ck_part part = {
		.name = j->item->name,
		.name_len = j->item->len,
		.src = p->src,
		.dtype = p->dtype,
		.xform = p->xform,
		.rank = rank,
		.shape = shape,
		.start = start,
		.len = len,
		.stride = (const int64_t *)(p->dims + rank),
		.off = p->off,
	};
	bool empty = false;

	for (unsigned d = 0; d < rank; d++) {
		ck_of_nd_range(&j->nd, d, shape[d], id, &start[d], &len[d]);
		empty |= !len[d];
	}
	if (empty)
		part.start = part.len = NULL;
	return empty ? ck_builder_declare(j->s->b, &part, err) :
		       ck_builder_add(j->s->b, &part, err);
}

/* -EINVAL with @why: the tensor is refused. */
static int place(struct join *j, struct ck_err *why, struct ck_err *err)
{
	uint64_t shape[CK_MAX_RANK];
	struct ck_err part = { 0 };
	uint32_t id;
	int ret = place_parts(j, why);

	if (!ret)
		ret = check_sbp(j, why);
	if (ret)
		return ret;
	ret = ck_of_nd_shape(&j->nd, j->item->rank, j->local, shape, &id,
			     &part);
	if (ret)
		return ck_fail(why, -ret, "rank %" PRIu32 ": %s",
			       rank_of(j, id), part.msg);
	ret = check_copies(j, why, err);
	for (uint32_t i = 0; !ret && i < j->nr; i++)
		if (j->part[i])
			ret = add_part(j, i, shape, err);
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
	ck_auto_free const uint64_t **local = NULL;
	struct join j = { .s = s, .item = item };
	struct ck_err why = { 0 };
	int ret;

	if (item->fault)
		return refuse(s, item, item->fault, err);
	if (s->sbp) {
		j.rule = ck_of_sbp_rule(s->sbp, item->name, item->len);
		if (!j.rule)
			return refuse(s, item,
				      "no rule of -o sbp= fits its name", err);
		j.nd = j.rule->nd;
	} else {
		j.nd.axes = 1;
		j.nd.size[0] = s->nr_saves;
		j.nd.sbp[0] = CK_OF_BROADCAST;
	}
	j.nr = ck_of_nd_nr(&j.nd);
	j.part = part = calloc(j.nr, sizeof(*part));
	j.local = local = calloc(j.nr, sizeof(*local));
	if (!part || !local)
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
