/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/imagekit.h"

#include "core/base/auto.h"
#include "core/geom/range.h"
#include "core/geom/tiling.h"

#include <stdlib.h>
#include <string.h>

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

void ik_free(struct imagekit *k)
{
	free(k->dims.v);
	free(k->chunks.v);
	free(k->layouts.v);
	free(k->srcs.v);
	free(k->tensors.v);
	free(k->strs.v);
	*k = (struct imagekit){ 0 };
}

uint32_t ik_dims(struct imagekit *k, const uint64_t *v, unsigned nr)
{
	uint32_t at = (uint32_t)k->dims.nr;

	if (!ck_vec_reserve(&k->dims, nr + 1))
		abort();
	for (unsigned i = 0; i < nr; i++)
		k->dims.v[k->dims.nr++] = v[i];
	return at;
}

uint32_t ik_str(struct imagekit *k, const char *text)
{
	uint32_t at = (uint32_t)k->strs.nr, len = (uint32_t)strlen(text);

	if (!ck_vec_reserve(&k->strs, sizeof(len) + len + 1))
		abort();
	memcpy(k->strs.v + at, &len, sizeof(len));
	memcpy(k->strs.v + at + sizeof(len), text, len + 1);
	k->strs.nr += sizeof(len) + len + 1;
	return at;
}

uint32_t ik_src(struct imagekit *k, enum ck_src_kind kind, const char *name,
		uint64_t len)
{
	struct ck_src *s = must(ck_vec_push(&k->srcs));

	*s = (struct ck_src){ .kind = (uint8_t)kind,
			      .len = len,
			      .parent = CK_NONE };
	s->id.size = len;
	s->name = ik_str(k, name);
	return (uint32_t)k->srcs.nr - 1;
}

static uint32_t add_layout(struct imagekit *k, const struct ik_chunk *in)
{
	struct ck_layout l = { .xform = in->xform, .stride = CK_NONE };
	struct ck_layout *slot;

	if (in->flat)
		l.flags |= CK_LAYOUT_FLAT;
	if (in->item_len)
		l.flags |= CK_LAYOUT_DEFERRED;
	l.len = ik_dims(k, in->len, in->rank);
	if (in->stride)
		l.stride = ik_dims(k, (const uint64_t *)in->stride, in->rank);
	slot = must(ck_vec_push(&k->layouts));
	*slot = l;
	return (uint32_t)k->layouts.nr - 1;
}

uint32_t ik_chunk(struct imagekit *k, const struct ik_chunk *in)
{
	uint32_t layout = add_layout(k, in);
	uint32_t corner = ik_dims(k, in->start, in->rank);
	struct ck_chunk *c = must(ck_vec_push(&k->chunks));

	if (in->flat)
		ik_dims(k, in->flat, 2);
	if (in->item_len)
		ik_dims(k, &in->item_len, 1);
	*c = (struct ck_chunk){ .off = in->off,
				.src = in->src,
				.layout = layout,
				.corner = corner,
				.next = CK_NONE,
				.sum = CK_NONE,
				.op = in->op,
				.state = in->state };
	return (uint32_t)k->chunks.nr - 1;
}

void ik_ring(struct imagekit *k, const uint32_t *chunks, unsigned nr)
{
	for (unsigned i = 0; nr > 1 && i < nr; i++)
		k->chunks.v[chunks[i]].next = chunks[(i + 1) % nr];
}

uint32_t ik_tensor(struct imagekit *k, const struct ik_tensor *in)
{
	uint64_t volume = 0;
	struct ck_tensor t = {
		.covered = in->covered,
		.tree = 0,
		.path = CK_NONE,
		.first = in->first,
		.nr = in->nr,
		.nr_all = in->nr_all,
		.index = CK_NONE,
		.newest = CK_NONE,
		.dtype = (uint8_t)in->dtype,
		.rank = (uint8_t)in->rank,
	};

	if (!ck_dims_volume(in->shape, in->rank, &volume))
		abort();
	t.size = volume * ck_dtype_info(in->dtype)->size;
	t.name = t.file = ik_str(k, in->name ? in->name : "t");
	t.shape = ik_dims(k, in->shape, in->rank);
	t.grid = t.shape;
	t.grid_rank = t.rank;
	if (in->grid) {
		t.grid = ik_dims(k, in->grid, in->grid_rank);
		t.grid_rank = (uint8_t)in->grid_rank;
	}
	for (uint32_t i = t.first; i < t.first + t.nr_all; i++)
		k->layouts.v[k->chunks.v[i].layout].dtype = t.dtype;
	*(struct ck_tensor *)must(ck_vec_push(&k->tensors)) = t;
	return (uint32_t)k->tensors.nr - 1;
}

/* Cells move to their new places, and the rings with them. */
static void reorder(struct imagekit *k, const struct ck_tensor *t,
		    const uint32_t *perm)
{
	size_t nr = t->nr;
	ck_auto_free struct ck_chunk *old = must(malloc(nr * sizeof(*old)));
	ck_auto_free uint32_t *to = must(malloc(nr * sizeof(*to)));

	if (nr)
		memcpy(old, k->chunks.v + t->first, nr * sizeof(*old));
	for (uint32_t i = 0; i < t->nr; i++) {
		k->chunks.v[t->first + i] = old[perm[i]];
		to[perm[i]] = i;
	}
	for (uint32_t i = 0; i < t->nr_all; i++) {
		uint32_t *next = &k->chunks.v[t->first + i].next;

		if (*next != CK_NONE && *next - t->first < t->nr)
			*next = t->first + to[*next - t->first];
	}
}

void ik_index(struct imagekit *k, uint32_t tensor)
{
	struct ck_tensor *t = &k->tensors.v[tensor];
	struct ck_catalog img = ik_image(k);
	size_t rank = t->grid_rank, values = 0;
	uint32_t level_nr[CK_MAX_LEVELS];
	unsigned levels = ck_tiling_levels(t->nr, level_nr);
	ck_auto_free uint64_t *start = must(calloc(t->nr * rank + 1, 8));
	ck_auto_free uint64_t *end = must(calloc(t->nr * rank + 1, 8));
	ck_auto_free uint32_t *perm = must(calloc(t->nr + 1u, 4));
	ck_auto_free uint64_t *nodes = NULL;
	struct ck_tiling_in in = { (unsigned)rank, t->nr, start, end };

	for (unsigned l = 0; l < levels; l++)
		values += 2 * rank * level_nr[l];
	nodes = must(calloc(values + 1, sizeof(*nodes)));
	for (uint32_t i = 0; i < t->nr; i++) {
		struct ck_box box;

		ck_chunk_box(&img, t->grid_rank, &img.chunks[t->first + i],
			     &box);
		for (unsigned d = 0; d < rank; d++) {
			start[i * rank + d] = box.start[d];
			end[i * rank + d] = box.start[d] + box.len[d];
		}
		perm[i] = i;
	}
	ck_tiling_build(&in, perm, nodes);
	reorder(k, t, perm);
	if (levels > 0)
		t->index = ik_dims(k, nodes, (unsigned)values);
}

struct ck_catalog ik_image(const struct imagekit *k)
{
	return (struct ck_catalog){
		.tensors = k->tensors.v,
		.chunks = k->chunks.v,
		.layouts = k->layouts.v,
		.srcs = k->srcs.v,
		.dims = k->dims.v,
		.strs = k->strs.v,
		.nr_tensors = (uint32_t)k->tensors.nr,
		.nr_chunks = (uint32_t)k->chunks.nr,
		.nr_layouts = (uint32_t)k->layouts.nr,
		.nr_srcs = (uint32_t)k->srcs.nr,
		.nr_dims = k->dims.nr,
		.strs_len = k->strs.nr,
	};
}
