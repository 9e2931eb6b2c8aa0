/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.c - paths of tensors, part by part
 */
#include "core/view/nest.h"

#include "core/base/check.h"
#include "core/base/match.h"

#include <stdlib.h>
#include <string.h>

unsigned ck_nest_path_depth(const struct ck_catalog *img, uint32_t path)
{
	return path == CK_NONE ? 1 : (unsigned)img->dims[path];
}

struct ck_nest_part ck_nest_path_part(const struct ck_catalog *img,
				      uint32_t path, uint32_t name,
				      unsigned level)
{
	struct ck_nest_part part = { 0 };
	uint64_t raw;

	if (path == CK_NONE) {
		part.key = ck_catalog_str(img, name, &part.len);
		return part;
	}
	if (level >= img->dims[path])
		return part;
	raw = img->dims[path + 1 + level];
	if (raw & CK_PATH_STR)
		part.key = ck_catalog_str(img, (uint32_t)(raw & UINT32_MAX),
					  &part.len);
	else
		part.index = raw;
	return part;
}

static uint32_t path_of(const struct ck_catalog *img, uint32_t ref)
{
	return ref < img->nr_tensors ? img->tensors[ref].path :
				       img->objects[ref - img->nr_tensors].path;
}

static uint32_t name_of(const struct ck_catalog *img, uint32_t ref)
{
	return ref < img->nr_tensors ? img->tensors[ref].name :
				       img->objects[ref - img->nr_tensors].name;
}

unsigned ck_nest_depth(const struct ck_catalog *img, uint32_t tensor)
{
	return ck_nest_path_depth(img, path_of(img, tensor));
}

struct ck_nest_part ck_nest_part(const struct ck_catalog *img, uint32_t tensor,
				 unsigned level)
{
	return ck_nest_path_part(img, path_of(img, tensor),
				 name_of(img, tensor), level);
}

int ck_nest_cmp_part(const struct ck_nest_part *a, const struct ck_nest_part *b)
{
	if (!a->key || !b->key) {
		if (!a->key != !b->key)
			return a->key ? -1 : 1;
		return a->index < b->index ? -1 : a->index > b->index;
	}
	return ck_text_order(a->key, a->len, b->key, b->len);
}

struct ck_nest_path ck_nest_path(const struct ck_catalog *img, uint32_t ref)
{
	return ck_nest_path_of(img, path_of(img, ref), name_of(img, ref));
}

struct ck_nest_path ck_nest_path_of(const struct ck_catalog *img, uint32_t path,
				    uint32_t name)
{
	return (struct ck_nest_path){ .img = img,
				      .path = path,
				      .name = name,
				      .depth = ck_nest_path_depth(img, path) };
}

static struct ck_nest_part part_at(const struct ck_nest_path *p, unsigned level)
{
	return p->own ? p->own[level] :
			ck_nest_path_part(p->img, p->path, p->name, level);
}

unsigned ck_nest_paths_common(const struct ck_nest_path *a,
			      const struct ck_nest_path *b)
{
	unsigned depth = CK_MIN(a->depth, b->depth);

	for (unsigned i = 0; i < depth; i++) {
		struct ck_nest_part pa = part_at(a, i), pb = part_at(b, i);

		if (ck_nest_cmp_part(&pa, &pb))
			return i;
	}
	return depth;
}

int ck_nest_paths_cmp(const struct ck_nest_path *a,
		      const struct ck_nest_path *b)
{
	unsigned at = ck_nest_paths_common(a, b);
	struct ck_nest_part x, y;

	if (at == a->depth || at == b->depth)
		return a->depth < b->depth ? -1 : a->depth > b->depth;
	x = part_at(a, at);
	y = part_at(b, at);
	return ck_nest_cmp_part(&x, &y);
}

unsigned ck_nest_common(const struct ck_catalog *img, uint32_t a, uint32_t b)
{
	struct ck_nest_path pa = ck_nest_path(img, a),
			    pb = ck_nest_path(img, b);

	return ck_nest_paths_common(&pa, &pb);
}

static int path_order(const void *pa, const void *pb, void *ctx)
{
	struct ck_nest_path a = ck_nest_path(ctx, *(const uint32_t *)pa),
			    b = ck_nest_path(ctx, *(const uint32_t *)pb);

	return ck_nest_paths_cmp(&a, &b);
}

void ck_nest_sort(const struct ck_catalog *img, uint32_t *tensors, uint32_t nr)
{
	if (nr)
		qsort_r(tensors, nr, sizeof(*tensors), path_order, (void *)img);
}
