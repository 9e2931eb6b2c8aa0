/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog_check.c - is this a catalog: head, sections, sources, names
 *
 * The bytes may come from a process that a hostile file took over, or from a
 * sidecar that anyone wrote.  All that readers of a catalog take for granted is
 * proved here, in time linear in its size.
 */
#include "core/catalog/catalog_check.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/catalog/catalog_priv.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define MAX_PATH_PARTS CK_MAX_JSON_DEPTH

static int check_head(const struct ck_catalog_head *h, size_t size,
		      struct ck_err *err)
{
	if (h->magic != CK_CATALOG_MAGIC)
		return ck_fail(err, EINVAL, "no catalog: its first bytes");
	if (h->version != CK_CATALOG_VERSION)
		return ck_fail(err, EINVAL, "a catalog of version %u, not %u",
			       h->version, CK_CATALOG_VERSION);
	if (h->size != size)
		return ck_fail(err, EINVAL,
			       "a catalog of %llu bytes that has %zu",
			       (unsigned long long)h->size, size);
	for (unsigned i = 0; i < CK_SEC_NR; i++) {
		const struct ck_catalog_sec *s = &h->sec[i];
		uint64_t bytes;

		if (s->elem != ck_catalog_elem(i) || s->off % 8 ||
		    s->nr >= CK_NONE || !ck_mul_ok(s->nr, s->elem, &bytes) ||
		    !ck_range_ok(s->off, bytes, size))
			return ck_fail(
				err, EINVAL,
				"section %u of the catalog is not inside it",
				i);
	}
	return 0;
}

static void place_sections(struct ck_catalog *img,
			   const struct ck_catalog_head *h)
{
	const char *base = img->base;
	const struct ck_catalog_sec *s = h->sec;

#define SECTION(sec) ((const void *)(base + s[CK_SEC_##sec].off))
	img->tensors = SECTION(TENSORS);
	img->chunks = SECTION(CHUNKS);
	img->layouts = SECTION(LAYOUTS);
	img->srcs = SECTION(SRCS);
	img->objects = SECTION(OBJECTS);
	img->problems = SECTION(PROBLEMS);
	img->trees = SECTION(TREES);
	img->dims = SECTION(DIMS);
	img->strs = SECTION(STRS);
	img->blob = SECTION(BLOB);
#undef SECTION
	img->nr_tensors = (uint32_t)s[CK_SEC_TENSORS].nr;
	img->nr_chunks = (uint32_t)s[CK_SEC_CHUNKS].nr;
	img->nr_layouts = (uint32_t)s[CK_SEC_LAYOUTS].nr;
	img->nr_srcs = (uint32_t)s[CK_SEC_SRCS].nr;
	img->nr_objects = (uint32_t)s[CK_SEC_OBJECTS].nr;
	img->nr_problems = (uint32_t)s[CK_SEC_PROBLEMS].nr;
	img->nr_trees = (uint32_t)s[CK_SEC_TREES].nr;
	img->nr_dims = s[CK_SEC_DIMS].nr;
	img->strs_len = s[CK_SEC_STRS].nr;
	img->blob_len = s[CK_SEC_BLOB].nr;
	img->format = h->format;
}

bool ck_ref_is_path(const struct ck_catalog *img, uint32_t ref)
{
	if (ref == CK_NONE)
		return true;
	if (!ck_ref_has_dims(img, ref, 1) || img->dims[ref] > MAX_PATH_PARTS ||
	    !ck_ref_has_dims(img, ref + 1, img->dims[ref]))
		return false;
	for (uint64_t i = 0; i < img->dims[ref]; i++) {
		uint64_t part = img->dims[ref + 1 + i];

		if (part & CK_PATH_STR &&
		    !ck_ref_is_str(img, part & ~CK_PATH_STR))
			return false;
	}
	return true;
}

/* Names are handed to openat(2): they are what they look like. */
static bool is_file_name(const struct ck_catalog *img, uint32_t ref)
{
	size_t len;
	const char *s;

	if (!ck_ref_is_str(img, ref))
		return false;
	s = ck_catalog_str(img, ref, &len);
	return len && len < PATH_MAX && !memchr(s, 0, len);
}

static bool file_ok(const struct ck_catalog *img, const struct ck_src *s)
{
	return is_file_name(img, s->name) && s->state == CK_OK &&
	       s->len == s->id.size && s->len <= CK_SIZE_MAX;
}

static bool codec_ok(const struct ck_catalog *img, uint32_t i)
{
	const struct ck_src *s = &img->srcs[i], *parent;
	uint64_t end;

	if (s->parent >= i || s->codec != CK_CODEC_ZSTD || !s->len ||
	    !ck_add_ok(s->off, s->len, &end))
		return false;
	parent = &img->srcs[s->parent];
	if (parent->kind == CK_SRC_CODEC || s->state < parent->state)
		return false;
	return s->state != CK_OK || end <= parent->len;
}

static bool src_ok(const struct ck_catalog *img, uint32_t i)
{
	const struct ck_src *s = &img->srcs[i];

	if (s->state > CK_MISSING || !ck_ref_is_str(img, s->unit))
		return false;
	switch (s->kind) {
	case CK_SRC_FILE:
		return file_ok(img, s);
	case CK_SRC_MEM:
		return s->state == CK_OK && s->name == CK_NONE &&
		       ck_range_ok(s->off, s->len, img->blob_len);
	case CK_SRC_CODEC:
		return s->name == CK_NONE && codec_ok(img, i);
	case CK_SRC_ABSENT:
		return s->state == CK_MISSING && is_file_name(img, s->name);
	default:
		return false;
	}
}

static int check_srcs(const struct ck_catalog *img, struct ck_err *err)
{
	for (uint32_t i = 0; i < img->nr_srcs; i++)
		if (!src_ok(img, i))
			return ck_fail(err, EINVAL,
				       "source %u of the catalog is wrong", i);
	return 0;
}

static bool object_ok(const struct ck_catalog *img, const struct ck_object *o)
{
	uint64_t end;

	if (!ck_ref_is_str(img, o->name) || o->tree >= img->nr_trees ||
	    !ck_ref_is_path(img, o->path) || o->src >= img->nr_srcs ||
	    o->enc > CK_ENC_JSON || !ck_add_ok(o->off, o->len, &end))
		return false;
	return img->srcs[o->src].kind != CK_SRC_MEM ||
	       end <= img->srcs[o->src].len;
}

static bool problem_ok(const struct ck_catalog *img, const struct ck_problem *p)
{
	return p->severity <= CK_ERROR && ck_ref_is_str(img, p->reason) &&
	       ck_ref_is_str_or_none(img, p->tensor) &&
	       ck_ref_is_str_or_none(img, p->view) &&
	       ck_ref_is_str_or_none(img, p->file);
}

static int check_small(const struct ck_catalog *img, struct ck_err *err)
{
	if (!ck_ref_is_str(img, img->format))
		return ck_fail(err, EINVAL, "the catalog names no format");
	for (uint32_t i = 0; i < img->nr_trees; i++)
		if (!ck_ref_is_str(img, img->trees[i]))
			return ck_fail(err, EINVAL,
				       "tree %u of the catalog is wrong", i);
	for (uint32_t i = 0; i < img->nr_objects; i++)
		if (!object_ok(img, &img->objects[i]))
			return ck_fail(err, EINVAL,
				       "object %u of the catalog is wrong", i);
	for (uint32_t i = 0; i < img->nr_problems; i++)
		if (!problem_ok(img, &img->problems[i]))
			return ck_fail(err, EINVAL,
				       "problem %u of the catalog is wrong", i);
	return 0;
}

int ck_catalog_check(struct ck_catalog *img, const void *base, size_t size,
		     struct ck_err *err)
{
	const struct ck_catalog_head *h = base;
	int ret = check_head(h, size, err);

	if (ret)
		return ret;
	*img = (struct ck_catalog){ .base = base, .size = size };
	place_sections(img, h);
	ret = check_srcs(img, err);
	if (!ret)
		ret = check_small(img, err);
	if (!ret)
		ret = ck_catalog_check_tensors(img, err);
	return ret;
}
