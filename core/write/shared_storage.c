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
#include "core/base/search.h"
#include "core/geom/chunk.h"

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

static int by_place(const void *a, const void *b)
{
	const struct stretch *x = a, *y = b;

	return ck_order2(x->src, y->src, x->from, y->from);
}

static size_t gather(const struct ck_catalog *img, struct stretch *v)
{
	size_t nr = 0;

	for (uint32_t t = 0; t < img->nr_tensors; t++) {
		const struct ck_tensor *ten = &img->tensors[t];

		for (uint32_t i = 0; i < ten->nr_all; i++) {
			const struct ck_chunk *c = &img->chunks[ten->first + i];
			struct stretch s = { .src = c->src, .tensor = t };
			struct ck_chunk_at at;

			ck_chunk_at(img, NULL, ten->grid_rank, c, &at);
			if (at.placed &&
			    img->srcs[c->src].kind == CK_SRC_FILE &&
			    ck_chunk_extent(&at, &s.from, &s.to))
				v[nr++] = s;
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
