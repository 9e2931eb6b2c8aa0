/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc.c - the document: version, mesh, files
 */
#include "core/format/layout/doc.h"

#include "core/base/check.h"
#include "core/format/layout/json.h"
#include "core/geom/dtype.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- mesh ---- */

static bool is_identifier(const char *s)
{
	if (!isalpha((unsigned char)*s) && *s != '_')
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && *s != '_')
			return false;
	return true;
}

static int add_axis(const struct ck_lay_in *in, const json_t *j)
{
	static const char *const names[] = { "name", "size", NULL };
	struct ck_lay_mesh *mesh = &in->doc->mesh;
	const char *name = NULL;
	uint64_t size = 0;
	int ret = ck_lay_object(in, j, names);

	if (!ret)
		ret = ck_lay_text(in, j, "name", &name);
	if (!ret)
		ret = ck_lay_u64(in, j, "size", &size);
	if (ret)
		return ret;
	if (!name || !is_identifier(name) || strlen(name) > 60)
		return ck_lay_bad(in, "expected \"name\", of letters, digits "
				      "and _ and no digit first");
	if (!strcmp(name, "rank") || !strcmp(name, "key"))
		return ck_lay_bad(in, "an axis may not be called %s", name);
	if (ck_lay_axis(mesh, name, strlen(name)) < CK_LAY_AXES)
		return ck_lay_bad(in, "there are two axes called %s", name);
	if (!size || !ck_mul_ok(mesh->nr_ranks, size, &mesh->nr_ranks) ||
	    mesh->nr_ranks > CK_LAY_MAX_RANKS)
		return ck_lay_bad(in,
				  "expected \"size\" from 1, and not more than "
				  "2^20 ranks in all");
	mesh->axis[mesh->nr].name = name;
	mesh->axis[mesh->nr++].size = size;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int check_ranks(const struct ck_lay_in *in, const uint64_t *rank,
		       uint64_t nr)
{
	uint64_t *sorted = reallocarray(NULL, nr, sizeof(*sorted));
	int ret = 0;

	if (!sorted)
		return ck_lay_no_memory(in);
	memcpy(sorted, rank, nr * sizeof(*sorted));
	qsort(sorted, nr, sizeof(*sorted), by_number);
	for (uint64_t i = 1; i < nr && !ret; i++)
		if (sorted[i] == sorted[i - 1])
			ret = ck_lay_bad(in, "rank %" PRIu64 " occurs twice",
					 sorted[i]);
	free(sorted);
	return ret;
}

static int parse_ranks(const struct ck_lay_in *in, const json_t *j)
{
	struct ck_lay_mesh *mesh = &in->doc->mesh;
	int ret = ck_lay_array(in, j);

	if (ret)
		return ret;
	if (json_array_size(j) != mesh->nr_ranks)
		return ck_lay_bad(in,
				  "expected %" PRIu64
				  " ranks, as many as the axes make, found %zu",
				  mesh->nr_ranks, json_array_size(j));
	mesh->rank = reallocarray(NULL, mesh->nr_ranks, sizeof(*mesh->rank));
	if (!mesh->rank)
		return ck_lay_no_memory(in);
	for (size_t i = 0; i < mesh->nr_ranks; i++) {
		struct ck_lay_in at = ck_lay_below(in, NULL, i);

		if (!ck_json_u64(json_array_get(j, i), &mesh->rank[i]))
			return ck_lay_expected(&at, json_array_get(j, i),
					       "a rank");
	}
	return check_ranks(in, mesh->rank, mesh->nr_ranks);
}

static int parse_mesh(const struct ck_lay_in *in, const json_t *j)
{
	static const char *const names[] = { "axes", "ranks", "comment", NULL };
	struct ck_lay_in axes = ck_lay_below(in, "axes", 0);
	struct ck_lay_in ranks = ck_lay_below(in, "ranks", 0);
	const json_t *list;
	int ret = ck_lay_object(in, j, names);

	if (ret)
		return ret;
	list = json_object_get(j, "axes");
	if (!json_is_array(list))
		return ck_lay_bad(&axes, "expected a list of axes");
	if (json_array_size(list) > CK_LAY_AXES)
		return ck_lay_bad(&axes, "%zu axes, of at most %d",
				  json_array_size(list), CK_LAY_AXES);
	for (size_t i = 0; i < json_array_size(list) && !ret; i++) {
		struct ck_lay_in at = ck_lay_below(&axes, NULL, i);

		ret = add_axis(&at, json_array_get(list, i));
	}
	if (!ret && json_object_get(j, "ranks"))
		ret = parse_ranks(&ranks, json_object_get(j, "ranks"));
	return ret;
}

/* ---- files ---- */

/* "offset": a number, or a text that makes one. */
static int parse_offset(const struct ck_lay_in *in, const json_t *j,
			struct ck_lay_item *it)
{
	struct ck_lay_in at = ck_lay_below(in, "offset", 0);
	const json_t *v = json_object_get(j, "offset");

	if (!json_is_string(v))
		return ck_lay_u64(in, j, "offset", &it->offset);
	it->offset_text = json_string_value(v);
	return ck_lay_check_text(&at, it->offset_text, 0, false, NULL);
}

static int parse_item(const struct ck_lay_in *in, const json_t *j)
{
	static const char *const names[] = { "key", "offset", "dtype", "shape",
					     NULL };
	struct ck_lay_item it = { 0 };
	struct ck_lay_item *room;
	int ret = ck_lay_object(in, j, names);

	if (!ret)
		ret = ck_lay_text(in, j, "key", &it.key);
	if (!ret && !it.key)
		ret = ck_lay_bad(in, "expected \"key\"");
	if (!ret && !json_object_get(j, "offset"))
		ret = ck_lay_bad(in, "expected \"offset\"");
	if (!ret)
		ret = parse_offset(in, j, &it);
	if (!ret)
		ret = ck_lay_dtype(in, j, "dtype", &it.dtype);
	if (!ret)
		ret = ck_lay_dims(in, j, "shape", &it.shape);
	if (ret)
		return ret;
	room = ck_vec_push(&in->doc->items);
	if (!room)
		return ck_lay_no_memory(in);
	*room = it;
	return 0;
}

static int parse_items(const struct ck_lay_in *in, const json_t *j,
		       struct ck_lay_files *f)
{
	struct ck_lay_in below = ck_lay_below(in, "items", 0);
	const json_t *list = json_object_get(j, "items");
	int ret = list ? ck_lay_array(&below, list) : 0;

	f->first_item = in->doc->items.nr;
	f->nr_items = json_array_size(list);
	for (size_t i = 0; i < f->nr_items && !ret; i++) {
		struct ck_lay_in at = ck_lay_below(&below, NULL, i);

		ret = parse_item(&at, json_array_get(list, i));
	}
	return ret;
}

static int check_raw(const struct ck_lay_in *in, const json_t *j,
		     const struct ck_lay_files *f)
{
	bool about_bytes =
		json_object_get(j, "offset") || json_object_get(j, "dtype");

	if (f->kind != CK_LAY_RAW && (about_bytes || f->nr_items))
		return ck_lay_bad(in, "\"items\", \"offset\" and \"dtype\" are "
				      "of raw files only");
	if (f->kind != CK_LAY_RAW && f->has_key)
		return ck_lay_bad(in, "{key} in \"path\" is for raw files: "
				      "others say their keys themselves");
	if (f->has_key && f->nr_items)
		return ck_lay_bad(in, "a file with {key} in its path is one "
				      "item: \"items\" does not fit");
	if (!f->has_key && about_bytes)
		return ck_lay_bad(in, "\"offset\" and \"dtype\" go into "
				      "\"items\", unless the path has {key}");
	if (f->kind == CK_LAY_RAW && !f->has_key && !f->nr_items)
		return ck_lay_bad(in, "expected \"items\", or {key} in "
				      "\"path\": raw files say nothing");
	if (f->has_key && f->glob)
		return ck_lay_bad(in, "{key} and wildcards in one path");
	return 0;
}

static int check_path(const struct ck_lay_in *in, struct ck_lay_files *f)
{
	struct ck_lay_in at = ck_lay_below(in, "path", 0);
	uint32_t used = 0;
	int ret;

	if (!f->path)
		return ck_lay_bad(in, "expected \"path\"");
	ret = ck_lay_check_text(&at, f->path, 0, true, &used);
	if (ret)
		return ret;
	f->has_key = used & CK_LAY_KEY;
	f->glob = ck_lay_is_glob(f->path);
	if (f->has_key && strchr(strstr(f->path, "{key}") ?: "", '/'))
		return ck_lay_bad(&at, "{key} in the name of a folder");
	return 0;
}

static int parse_files(const struct ck_lay_in *in, const json_t *j)
{
	static const char *const names[] = { "path",	"kind",	  "at",
					     "items",	"offset", "dtype",
					     "comment", NULL };
	struct ck_lay_files f = { 0 }, *room;
	bool given = false;
	int ret = ck_lay_object(in, j, names);

	for (unsigned i = 0; i < CK_LAY_AXES; i++)
		f.at[i] = CK_LAY_FREE;
	if (!ret)
		ret = ck_lay_text(in, j, "path", &f.path);
	if (!ret)
		ret = check_path(in, &f);
	if (!ret)
		ret = ck_lay_kind(in, j, "kind", &f.kind, &given);
	if (!ret && !given)
		ret = ck_lay_bad(in, "expected \"kind\": \"raw\", "
				     "\"safetensors\" or \"torch\"");
	if (!ret)
		ret = ck_lay_at(in, j, "at", f.at, NULL);
	if (!ret)
		ret = parse_items(in, j, &f);
	if (!ret)
		ret = check_raw(in, j, &f);
	if (!ret)
		ret = parse_offset(in, j, &f.whole);
	if (!ret)
		ret = ck_lay_dtype(in, j, "dtype", &f.whole.dtype);
	if (ret)
		return ret;
	room = ck_vec_push(&in->doc->files);
	if (!room)
		return ck_lay_no_memory(in);
	*room = f;
	return 0;
}

static int parse_all_files(const struct ck_lay_in *in, const json_t *j)
{
	int ret = ck_lay_array(in, j);

	for (size_t i = 0; i < json_array_size(j) && !ret; i++) {
		struct ck_lay_in at = ck_lay_below(in, NULL, i);

		ret = parse_files(&at, json_array_get(j, i));
	}
	return ret;
}

/* ---- the whole ---- */

static int check_version(const struct ck_lay_in *in, const json_t *j)
{
	struct ck_lay_in at = ck_lay_below(in, "unshard_layout", 0);
	const json_t *v = json_object_get(j, "unshard_layout");

	if (!json_is_object(j))
		return ck_lay_expected(in, j, "an object");
	if (!v)
		return ck_lay_bad(in, "expected \"unshard_layout\": %d",
				  CK_LAY_VERSION);
	if (!json_is_integer(v) || json_integer_value(v) != CK_LAY_VERSION)
		return ck_lay_expected(&at, v, "1, the version known here");
	return 0;
}

/* "write" is for saving, which is not this reader's business. */
static int parse_root(const struct ck_lay_in *in, const json_t *j)
{
	static const char *const names[] = { "unshard_layout", "mesh",
					     "files",	       "tensors",
					     "write",	       "comment",
					     "$schema",	       NULL };
	struct ck_lay_in mesh = ck_lay_below(in, "mesh", 0);
	struct ck_lay_in files = ck_lay_below(in, "files", 0);
	struct ck_lay_in tensors = ck_lay_below(in, "tensors", 0);
	int ret = check_version(in, j);

	if (!ret)
		ret = ck_lay_object(in, j, names);
	if (!ret && json_object_get(j, "mesh"))
		ret = parse_mesh(&mesh, json_object_get(j, "mesh"));
	if (!ret && json_object_get(j, "files"))
		ret = parse_all_files(&files, json_object_get(j, "files"));
	if (!ret && !json_object_get(j, "tensors"))
		return ck_lay_bad(in, "expected \"tensors\"");
	if (!ret)
		ret = ck_lay_parse_tensors(&tensors,
					   json_object_get(j, "tensors"));
	return ret;
}

int ck_lay_doc_parse(struct ck_lay_doc *d, const char *name, const char *bytes,
		     size_t len, struct ck_err *err)
{
	struct ck_lay_in in = { .doc = d, .err = err };
	int ret;

	*d = (struct ck_lay_doc){ .name = name, .mesh.nr_ranks = 1 };
	/* what is empty is pointed into, too */
	if (!ck_vec_reserve(&d->dims, 1) || !ck_vec_reserve(&d->steps, 1))
		return ck_fail(err, ENOMEM, "no memory for a layout");
	ret = ck_json_parse(&d->json, bytes, len, err);
	if (ret)
		return ck_wrap(err, ret, "%s", name);
	return parse_root(&in, d->json);
}

void ck_lay_doc_free(struct ck_lay_doc *d)
{
	for (size_t i = 0; i < d->rules.nr; i++)
		if (d->rules.v[i].has_re)
			regfree(&d->rules.v[i].re);
	free(d->mesh.rank);
	free(d->files.v);
	free(d->items.v);
	free(d->rules.v);
	free(d->steps.v);
	free(d->step_sizes.v);
	free(d->coords.v);
	free(d->boxes.v);
	free(d->dims.v);
	free(d->strides.v);
	json_decref(d->json);
	*d = (struct ck_lay_doc){ 0 };
}
