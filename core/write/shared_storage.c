/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_storage.c - stretches of files that chunks lie in, sorted, and which
 * overlap
 *
 * A chunk's stretch goes from its first byte to its last, whatever lies in
 * between: too many tensors in a group cost time, too few a stale page.
 */
#include "core/write/shared_storage.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <stdlib.h>

struct stretch {
	uint64_t from, to;
	uint32_t src, tensor;
};

struct ck_shared_storage {
	uint32_t nr;
	uint32_t group[]; /* by tensor: one of its group, or CK_NONE */
};

static struct stretch stretch_of(const struct ck_catalog *img, uint32_t tensor,
				 uint32_t chunk)
{
	const struct ck_tensor *t = &img->tensors[tensor];
	const struct ck_chunk *c = &img->chunks[chunk];
	const struct ck_layout *l = &img->layouts[c->layout];
	struct stretch s = { c->off, c->off, c->src, tensor };
	uint64_t elem = ck_dtype_info(t->dtype)->size, row = 1, volume = 1;

	if (l->flags & CK_LAYOUT_FLAT) {
		const uint64_t *flat = img->dims + c->corner + t->grid_rank;

		s.to += (flat[1] - flat[0]) * elem;
		return s;
	}
	for (unsigned d = t->grid_rank; d-- > 0;) {
		uint64_t len = img->dims[l->len + d];
		int64_t stride = l->stride == CK_NONE ?
					 (int64_t)row :
					 (int64_t)img->dims[l->stride + d];

		row *= len;
		volume *= len;
		if (len < 2)
			continue;
		if (stride < 0)
			s.from -= (len - 1) * (0 - (uint64_t)stride) * elem;
		else
			s.to += (len - 1) * (uint64_t)stride * elem;
	}
	s.to += volume ? elem : 0;
	return s;
}

static int by_place(const void *a, const void *b)
{
	const struct stretch *x = a, *y = b;

	if (x->src != y->src)
		return x->src < y->src ? -1 : 1;
	return (x->from > y->from) - (x->from < y->from);
}

static size_t gather(const struct ck_catalog *img, struct stretch *v)
{
	size_t nr = 0;

	for (uint32_t t = 0; t < img->nr_tensors; t++) {
		const struct ck_tensor *ten = &img->tensors[t];

		for (uint32_t i = 0; i < ten->nr_all; i++) {
			const struct ck_chunk *c = &img->chunks[ten->first + i];

			if (img->layouts[c->layout].flags &
				    CK_LAYOUT_DEFERRED ||
			    img->srcs[c->src].kind != CK_SRC_FILE)
				continue;
			v[nr++] = stretch_of(img, t, ten->first + i);
		}
	}
	return nr;
}

/* Halves the way as it goes. */
static uint32_t root_of(uint32_t *group, uint32_t t)
{
	while (group[t] != t)
		t = group[t] = group[group[t]];
	return t;
}

/* True when two tensors overlap somewhere. */
static bool join(uint32_t *group, const struct stretch *v, size_t nr)
{
	size_t far = 0; /* of those before, the one that ends last */
	bool any = false;

	for (size_t i = 1; i < nr; i++) {
		if (v[i].src != v[far].src) {
			far = i;
			continue;
		}
		if (v[i].from < v[far].to && v[i].tensor != v[far].tensor) {
			uint32_t a = root_of(group, v[i].tensor);
			uint32_t b = root_of(group, v[far].tensor);

			group[CK_MAX(a, b)] = CK_MIN(a, b);
			any = true;
		}
		if (v[i].to > v[far].to)
			far = i;
	}
	return any;
}

/* Groups of one have no number. */
static void number(struct ck_shared_storage *a, bool *shared)
{
	/* A root is the least of its group, so it is met first. */
	for (uint32_t t = 0; t < a->nr; t++) {
		a->group[t] = a->group[a->group[t]];
		if (a->group[t] != t)
			shared[t] = shared[a->group[t]] = true;
	}
	for (uint32_t t = 0; t < a->nr; t++)
		if (!shared[t])
			a->group[t] = CK_NONE;
}

int ck_shared_storage_new(struct ck_shared_storage **out,
			  const struct ck_catalog *img)
{
	struct stretch *v = malloc((img->nr_chunks + (size_t)1) * sizeof(*v));
	struct ck_shared_storage *a =
		malloc(sizeof(*a) + img->nr_tensors * sizeof(a->group[0]));
	bool *shared = calloc(img->nr_tensors + (size_t)1, sizeof(*shared));
	size_t nr;

	*out = NULL;
	if (!v || !a || !shared) {
		free(v);
		free(a);
		free(shared);
		return -ENOMEM;
	}
	a->nr = img->nr_tensors;
	for (uint32_t t = 0; t < a->nr; t++)
		a->group[t] = t;
	nr = gather(img, v);
	if (nr)
		qsort(v, nr, sizeof(*v), by_place);
	if (join(a->group, v, nr)) {
		number(a, shared);
		*out = a;
	} else {
		free(a);
	}
	free(v);
	free(shared);
	return 0;
}

void ck_shared_storage_free(struct ck_shared_storage *a)
{
	free(a);
}

uint32_t ck_shared_storage_group(const struct ck_shared_storage *a,
				 uint32_t tensor)
{
	return a ? a->group[tensor] : CK_NONE;
}
