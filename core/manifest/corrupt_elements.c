/* SPDX-License-Identifier: Apache-2.0 */
/*
 * corrupt_elements.c - which tensors, and which elements of them, a file's
 * bytes are
 */
#include "core/manifest/corrupt_elements.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"
#include "core/geom/reverse_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_file(const struct ck_catalog *img, uint32_t src,
		    const char *file)
{
	const struct ck_src *s = &img->srcs[src];

	return s->kind == CK_SRC_FILE &&
	       !strcmp(ck_catalog_str(img, s->name, NULL), file);
}

/* The FILE that source @src lies in, or CK_NONE. */
static uint32_t file_of(const struct ck_catalog *img, uint32_t src)
{
	for (unsigned hops = 0; hops < 4; hops++) {
		if (img->srcs[src].kind == CK_SRC_FILE)
			return src;
		if (img->srcs[src].kind != CK_SRC_CODEC)
			break;
		src = img->srcs[src].parent;
	}
	return CK_NONE;
}

static bool uses(const struct ck_catalog *img, const struct ck_tensor *t,
		 uint32_t src)
{
	for (uint32_t c = t->first; c < t->first + t->nr_all; c++)
		if (file_of(img, img->chunks[c].src) == src)
			return true;
	return false;
}

/* The source called @file, and the tensors that it has parts of. */
static int look_up(struct ck_corrupt_finder *sp, const char *file,
		   struct ck_err *err)
{
	const struct ck_catalog *img = sp->img;

	if (sp->known && sp->src != CK_NONE && is_file(img, sp->src, file))
		return 0;
	if (!sp->tensors)
		sp->tensors = calloc(img->nr_tensors + 1, sizeof(uint32_t));
	if (!sp->tensors)
		return ck_no_memory(err);
	sp->known = true;
	sp->nr_tensors = 0;
	sp->src = 0;
	while (sp->src < img->nr_srcs && !is_file(img, sp->src, file))
		sp->src++;
	if (sp->src == img->nr_srcs)
		sp->src = CK_NONE;
	for (uint32_t i = 0; sp->src != CK_NONE && i < img->nr_tensors; i++)
		if (uses(img, &img->tensors[i], sp->src))
			sp->tensors[sp->nr_tensors++] = i;
	return 0;
}

struct one {
	struct ck_element_ranges gather;
	const struct ck_catalog *img;
	bool lone; /* some part has no replica */
};

static void each(void *ctx, uint32_t chunk, uint64_t off, uint64_t len)
{
	struct one *o = ctx;

	o->lone |= o->img->chunks[chunk].next == CK_NONE;
	ck_element_ranges_add(&o->gather, off, len);
}

static bool tell(struct ck_corrupt_finder *sp, uint32_t t, uint64_t off,
		 uint64_t len)
{
	const struct ck_catalog *img = sp->img;
	struct one o = { .img = img };
	struct ck_reverse_map map = { .img = img,
				      .resolved = sp->resolved,
				      .src = sp->src,
				      .lo = off,
				      .hi = off + len,
				      .elements = sp->elements,
				      .ctx = &o,
				      .each = each };
	struct ck_corrupt_elements out = { .tensor = t };
	bool failed;

	o.gather.elem = ck_dtype_info(img->tensors[t].dtype)->size;
	if (!o.gather.elem)
		o.gather.elem = 1;
	ck_reverse_map_tensor(&map, t);
	ck_element_ranges_end(&o.gather, img, &img->tensors[t], &out);
	out.copies = !o.lone;
	if (out.nr_elements)
		sp->each(sp->ctx, &out);
	failed = o.gather.failed;
	ck_element_ranges_free(&o.gather);
	return !failed;
}

int ck_corrupt_finder_find(struct ck_corrupt_finder *sp, const char *file,
			   uint64_t off, uint64_t len, struct ck_err *err)
{
	int ret = look_up(sp, file, err);

	if (ret || sp->src == CK_NONE)
		return ret;
	for (uint32_t i = 0; i < sp->nr_tensors; i++)
		if (!tell(sp, sp->tensors[i], off, len))
			return ck_no_memory(err);
	return 0;
}

void ck_corrupt_finder_free(struct ck_corrupt_finder *sp)
{
	free(sp->tensors);
	sp->tensors = NULL;
	sp->known = false;
}

bool ck_corrupt_finder_object(const struct ck_catalog *img, uint32_t i,
			      const char *file, uint64_t off, uint64_t len)
{
	const struct ck_object *o = &img->objects[i];
	const struct ck_src *s = &img->srcs[o->src];
	uint32_t src = file_of(img, o->src);
	uint64_t lo = o->off, hi = o->off + o->len;

	if (src == CK_NONE || !is_file(img, src, file))
		return false;
	if (s->kind == CK_SRC_CODEC) {
		lo = s->off;
		hi = s->off + s->len;
	}
	return CK_MAX(lo, off) < CK_MIN(hi, off + len);
}
