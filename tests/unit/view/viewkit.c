/* SPDX-License-Identifier: Apache-2.0 */
/* viewkit.c - see the header */
#include "tests/unit/view/viewkit.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

void vk_init(struct viewkit *k)
{
	*k = (struct viewkit){ .kit = kit_new() };
	ck_runtime_problems_init(&k->ck.problems_found);
	k->src = kit_file(&k->kit, "f", UINT64_C(1) << 40);
}

void vk_free(struct viewkit *k)
{
	ck_runtime_problems_free(&k->ck.problems_found);
	kit_free(&k->kit);
}

static uint64_t size_of(enum ck_dtype dtype, unsigned rank,
			const uint64_t *shape)
{
	uint64_t size = ck_dtype_info(dtype)->size;

	for (unsigned d = 0; d < rank; d++)
		size *= shape[d];
	return size;
}

static void add(struct viewkit *k, const char *name, enum ck_dtype dtype,
		unsigned rank, const uint64_t *shape, uint64_t off)
{
	struct ck_part p = kit_part(name, k->src);

	p.dtype = (uint8_t)dtype;
	p.rank = rank;
	p.shape = shape;
	p.off = off;
	kit_add(&k->kit, &p);
}

void vk_tensor(struct viewkit *k, const char *name, enum ck_dtype dtype,
	       unsigned rank, const uint64_t *shape)
{
	add(k, name, dtype, rank, shape, k->at);
	k->at += CK_DIV_UP(size_of(dtype, rank, shape) + 1, 64) * 64;
}

void vk_lose(struct viewkit *k)
{
	k->src = kit_missing(&k->kit, "gone");
}

void vk_twin(struct viewkit *k, const char *name, enum ck_dtype dtype,
	     unsigned rank, const uint64_t *shape)
{
	uint64_t step = CK_DIV_UP(size_of(dtype, rank, shape) + 1, 64) * 64;

	add(k, name, dtype, rank, shape, k->at - step);
}

void vk_nested(struct viewkit *k, const char *path)
{
	vk_nested_of(k, path, CK_DT_F32, 1, DIMS(2));
}

void vk_nested_of(struct viewkit *k, const char *path, enum ck_dtype dtype,
		  unsigned rank, const uint64_t *shape)
{
	struct ck_path_part part[40];
	char name[512] = "", *copy = strdup(path), *save, *word;
	unsigned nr = 0;

	for (word = strtok_r(copy, "/", &save); word;
	     word = strtok_r(NULL, "/", &save)) {
		bool index = *word == '#';

		part[nr++] = (struct ck_path_part){
			.key = index ? NULL : word,
			.key_len = index ? 0 : strlen(word),
			.index = index ? atol(word + 1) : -1,
		};
		strcat(strcat(name, *name ? "." : ""), word + index);
	}
	vk_tensor(k, name, dtype, rank, shape);
	cr_assert_eq(ck_builder_path(k->kit.b, 0, name, strlen(name), part, nr,
				     &k->kit.err),
		     0, "%s", k->kit.err.msg);
	free(copy);
}

const struct ck_catalog *vk_image(struct viewkit *k)
{
	k->ck.img = *kit_image(&k->kit);
	return &k->ck.img;
}

struct ck_view *vk_open(struct viewkit *k, const struct ck_view_ops *ops,
			const struct ck_opts *opts)
{
	static const struct ck_opts none;
	struct ck_err err = { 0 };
	struct ck_view *v;

	vk_image(k);
	cr_assert_eq(
		ck_view_open(&v, ops, &k->ck, 0, opts ? opts : &none, &err), 0,
		"%s", err.msg);
	return v;
}

/* Byte @off of what a span that is not made is of. */
static unsigned char span_byte(const struct ck_catalog *img,
			       const struct ck_span *s, uint64_t off)
{
	const struct ck_tensor *t;
	uint64_t at[CK_MAX_RANK], elem;

	if (s->kind == CK_SPAN_ZEROS)
		return 0;
	if (s->kind == CK_SPAN_TENSOR)
		return vk_byte(s->ref, off);
	t = &img->tensors[s->ref];
	elem = ck_dtype_info(t->dtype)->size;
	ck_dims_coords(s->box.len, t->rank, off / elem, at);
	for (unsigned d = 0; d < t->rank; d++) {
		at[d] += s->box.start[d];
		cr_assert_lt(at[d], img->dims[t->shape + d]);
	}
	return vk_byte(s->ref,
		       ck_dims_index(img->dims + t->shape, t->rank, at) * elem +
			       off % elem);
}

unsigned char *vk_bytes(struct ck_view *v, uint32_t i, uint64_t *len)
{
	struct ck_vfile f;
	unsigned char *all;
	uint64_t step = 1;

	cr_assert(v->ops->file(v, i, &f));
	*len = f.size;
	all = malloc(f.size + 1);
	for (uint64_t off = 0; off < f.size; step = step % 977 + 13) {
		struct ck_span s;
		uint64_t n;

		v->ops->at(v, i, off, &s);
		cr_assert(s.len && s.len <= f.size - off);
		n = CK_MIN(s.len, step);
		if (s.kind == CK_SPAN_MADE)
			cr_assert_eq(
				v->ops->made(v, i, all + off, n, s.off, NULL),
				0);
		else
			for (uint64_t b = 0; b < n; b++)
				all[off + b] = span_byte(v->img, &s, s.off + b);
		off += n;
	}
	return all;
}

uint32_t vk_file(struct ck_view *v, const char *name)
{
	uint32_t i = v->ops->find(v, name, strlen(name));

	cr_assert_neq(i, CK_NONE, "no file %s", name);
	return i;
}

char *vk_problems(struct viewkit *k)
{
	struct ck_str s = { 0 };

	ck_str_puts(&s, "");
	ck_runtime_problems_dump(&k->ck.problems_found, &k->ck.img, false, &s);
	return s.v;
}
