/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_merge.c - what all ranks declared, as one layout
 *
 * A rank that has several boxes of one tensor is several places of the mesh: its
 * part @k is number @rank + k * ranks.
 */
#include "core/save/save_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/strmap.h"
#include "core/geom/range.h"
#include "core/parse/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct box {
	uint64_t place;
	const json_t *start, *size;
};

struct tensor {
	const char *name;
	const json_t *first; /* who declared it first */
	uint32_t rank; /* and which rank was the last that did */
	uint32_t part; /* boxes that this has had */
	CK_VEC(struct box) boxes;
};

struct merge {
	uint32_t ranks, rank; /* the one that is read */
	uint32_t parts; /* at most so many boxes of a tensor at a rank */
	const char *format;
	struct ck_strmap names;
	CK_VEC(struct tensor) tensors; /* by number of the name */
	CK_VEC(const char *) objects;
	json_t *paths;
	struct ck_err *err;
};

static int fail(const struct merge *m, const char *name, const char *what)
{
	return ck_fail(m->err, EINVAL, "%.300s: %s at rank %" PRIu32, name,
		       what, m->rank);
}

static uint64_t volume(const json_t *dims)
{
	uint64_t v[CK_MAX_RANK], nr = 1;
	unsigned rank;

	return ck_json_dims(dims, v, CK_MAX_RANK, &rank) &&
			       ck_dims_volume(v, rank, &nr) ?
		       nr :
		       UINT64_MAX;
}

/* One without elements is nobody's, unless its tensor has none either. */
static int add_box(struct merge *m, struct tensor *t, const json_t *slice)
{
	const json_t *size = json_object_get(slice, "size");
	struct box *to;

	if (!volume(size) &&
	    (t->boxes.nr || volume(json_object_get(slice, "shape"))))
		return 0;
	if (t->rank != m->rank)
		t->part = 0;
	t->rank = m->rank;
	to = ck_vec_push(&t->boxes);
	if (!to)
		return ck_no_memory(m->err);
	*to = (struct box){ .place = m->rank + (uint64_t)t->part++ * m->ranks,
			    .start = json_object_get(slice, "start"),
			    .size = size };
	m->parts = CK_MAX(m->parts, t->part);
	return 0;
}

static int add_tensor(struct merge *m, const char *name, const json_t *slice)
{
	uint32_t nr = ck_strmap_put(&m->names, name, strlen(name));
	struct tensor *t;

	if (nr == CK_STRMAP_NONE || !ck_vec_reserve(&m->tensors, 1))
		return ck_no_memory(m->err);
	t = &m->tensors.v[nr];
	if (nr == m->tensors.nr) {
		*t = (struct tensor){ .name = name, .first = slice };
		m->tensors.nr++;
	}
	if (!json_equal(json_object_get(slice, "dtype"),
			json_object_get(t->first, "dtype")))
		return fail(m, name, "has another dtype");
	if (!json_equal(json_object_get(slice, "shape"),
			json_object_get(t->first, "shape")))
		return fail(m, name, "has another shape");
	return add_box(m, t, slice);
}

static int add_object(struct merge *m, const char *name)
{
	const char **to = ck_vec_push(&m->objects);

	if (!to)
		return ck_no_memory(m->err);
	*to = name;
	return strcmp(m->format, "dcp") ?
		       fail(m, name,
			    "is no tensor, and files of this format hold "
			    "nothing else: declared") :
		       0;
}

static int add_slice(struct merge *m, const json_t *slice)
{
	const char *name = ck_json_text(json_object_get(slice, "name"));
	json_t *path = json_object_get(slice, "path");
	int ret;

	if (!name)
		return fail(m, "declared", "expected names");
	ret = json_object_get(slice, "dtype") ? add_tensor(m, name, slice) :
						add_object(m, name);
	if (!ret && path && json_object_set(m->paths, name, path))
		ret = ck_no_memory(m->err);
	return ret;
}

static int add_rank(struct merge *m, const json_t *doc)
{
	const char *format = ck_json_text(json_object_get(doc, "format"));
	const json_t *all = json_object_get(doc, "slices");
	uint64_t ranks;
	int ret = 0;

	if (!ck_json_u64(json_object_get(doc, "ranks"), &ranks) ||
	    ranks != m->ranks)
		return fail(m, "declared", "another number of ranks");
	if (!format || strcmp(format, m->format) != 0)
		return fail(m, "declared", "another format");
	for (size_t i = 0; i < json_array_size(all) && !ret; i++)
		ret = add_slice(m, json_array_get(all, i));
	return ret;
}

/* ---- what comes of it ---- */

static void put_dims(struct ck_str *s, const json_t *dims)
{
	uint64_t v[CK_MAX_RANK];
	unsigned rank = 0;

	ck_json_dims(dims, v, CK_MAX_RANK, &rank);
	ck_str_json_u64(s, v, rank);
}

static void put_tensor(const struct tensor *t, struct ck_str *s)
{
	const char *dtype = ck_json_text(json_object_get(t->first, "dtype"));

	ck_str_puts(s, "\n  {\"name\": ");
	ck_str_json(s, t->name, strlen(t->name));
	ck_str_puts(s, ", \"dtype\": ");
	ck_str_json(s, dtype ? dtype : "", dtype ? strlen(dtype) : 0);
	ck_str_puts(s, ", \"shape\": ");
	put_dims(s, json_object_get(t->first, "shape"));
	ck_str_puts(s, ", \"boxes\": [");
	for (size_t i = 0; i < t->boxes.nr; i++) {
		const struct box *b = &t->boxes.v[i];

		ck_str_fmt(s, "%s{\"at\": {\"rank\": %" PRIu64 "}, \"start\": ",
			   i ? ", " : "", b->place);
		put_dims(s, b->start);
		ck_str_puts(s, ", \"size\": ");
		put_dims(s, b->size);
		ck_str_puts(s, "}");
	}
	ck_str_puts(s, "]}");
}

static void put_layout(const struct merge *m, struct ck_str *s)
{
	ck_str_fmt(s,
		   "{\"unshard_layout\": 1,\n \"mesh\": {\"axes\": [{\"name\": "
		   "\"saver\", \"size\": %" PRIu64 "}]},\n \"tensors\": [",
		   (uint64_t)m->ranks * m->parts);
	for (size_t i = 0; i < m->tensors.nr; i++) {
		ck_str_puts(s, i ? "," : "");
		put_tensor(&m->tensors.v[i], s);
	}
	ck_str_puts(s, "],\n \"write\": {\"format\": ");
	ck_str_json(s, m->format, strlen(m->format));
	ck_str_puts(s, "}}\n");
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int put_extras(struct merge *m, struct ck_str *s)
{
	const char *last = NULL;
	char *paths = json_dumps(m->paths, JSON_COMPACT | JSON_SORT_KEYS);
	int ret = 0;

	if (!paths)
		return ck_no_memory(m->err);
	if (m->objects.nr)
		qsort(m->objects.v, m->objects.nr, sizeof(*m->objects.v),
		      by_name);
	ck_str_puts(s, "{\"objects\": [");
	for (size_t i = 0; i < m->objects.nr && !ret; i++) {
		const char *name = m->objects.v[i];

		if (ck_strmap_get(&m->names, name, strlen(name)) !=
		    CK_STRMAP_NONE)
			ret = ck_fail(m->err, EINVAL,
				      "%.300s: declared as a tensor and as an "
				      "object",
				      name);
		if (last && !strcmp(last, name))
			continue;
		ck_str_puts(s, last ? ", " : "");
		ck_str_json(s, name, strlen(name));
		last = name;
	}
	ck_str_fmt(s, "], \"paths\": %s}\n", paths);
	free(paths);
	return ret;
}

static int merge(struct merge *m, const struct ck_save_text *text, json_t **doc)
{
	int ret = 0;

	for (m->rank = 0; m->rank < m->ranks && !ret; m->rank++) {
		const struct ck_save_text *t = &text[m->rank];

		ret = ck_json_parse(&doc[m->rank], t->v, t->len, m->err);
		if (!ret)
			ret = add_rank(m, doc[m->rank]);
		else
			ck_wrap(m->err, ret, "declared/%" PRIu32, m->rank);
	}
	return ret;
}

int ck_save_merge(const struct ck_save_text *text, uint32_t ranks,
		  const char *format, struct ck_str *layout,
		  struct ck_str *extras, struct ck_err *err)
{
	struct merge m = { .ranks = ranks,
			   .parts = 1,
			   .format = format,
			   .paths = json_object(),
			   .err = err };
	ck_auto_free json_t **doc = calloc((size_t)ranks + 1, sizeof(*doc));
	int ret = doc && m.paths ? merge(&m, text, doc) : ck_no_memory(err);

	if (!ret) {
		put_layout(&m, layout);
		ret = put_extras(&m, extras);
	}
	if (!ret && (layout->failed || extras->failed))
		ret = ck_no_memory(err);
	for (size_t i = 0; i < m.tensors.nr; i++)
		free(m.tensors.v[i].boxes.v);
	for (uint32_t i = 0; doc && i < ranks; i++)
		json_decref(doc[i]);
	json_decref(m.paths);
	free(m.tensors.v);
	free(m.objects.v);
	ck_strmap_free(&m.names);
	return ret;
}
