/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc.c - the document: version, mesh, files
 */
#include "core/layout/doc.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/layout/json.h"

#include <ctype.h>
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

static void parse_axis(const struct ck_layout_in *in, const json_t *j)
{
	struct ck_layout_mesh *mesh = &in->doc->mesh;
	const char *name = "";
	uint64_t size = 0;

	ck_layout_object(in, j, "name, size");
	ck_layout_string(in, j, "name", &name);
	ck_layout_u64(in, j, "size", &size);
	if (!is_identifier(name) || strlen(name) > 60)
		ck_layout_bad(in, "expected \"name\", of letters, digits and _ "
				  "and no digit first");
	if (!strcmp(name, "rank") || !strcmp(name, "key"))
		ck_layout_bad(in, "an axis may not be called %s", name);
	if (ck_layout_axis(mesh, name, strlen(name)) < CK_LAYOUT_AXES)
		ck_layout_bad(in, "there are two axes called %s", name);
	if (!size || !ck_mul_ok(mesh->nr_ranks, size, &mesh->nr_ranks) ||
	    mesh->nr_ranks > CK_LAYOUT_MAX_RANKS)
		ck_layout_bad(in, "expected \"size\" from 1, and not more than "
				  "2^20 ranks in all");
	mesh->axis[mesh->nr].name = name;
	mesh->axis[mesh->nr++].size = size;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void check_ranks(const struct ck_layout_in *in, const uint64_t *rank,
			uint64_t nr)
{
	ck_auto_free uint64_t *sorted = reallocarray(NULL, nr, sizeof(*sorted));

	if (!sorted) {
		ck_layout_no_memory(in);
		return;
	}
	memcpy(sorted, rank, nr * sizeof(*sorted));
	qsort(sorted, nr, sizeof(*sorted), by_number);
	for (uint64_t i = 1; i < nr; i++)
		if (sorted[i] == sorted[i - 1])
			ck_layout_bad(in, "rank %" PRIu64 " occurs twice",
				      sorted[i]);
}

static void parse_ranks(const struct ck_layout_in *in, const json_t *j)
{
	struct ck_layout_mesh *mesh = &in->doc->mesh;
	size_t nr;

	mesh->rank = ck_layout_list(in, j, sizeof(*mesh->rank), &nr);
	if (nr != mesh->nr_ranks)
		ck_layout_bad(in,
			      "expected %" PRIu64
			      " ranks, as many as the axes make, found %zu",
			      mesh->nr_ranks, nr);
	for (size_t i = 0; i < nr && !in->doc->failed; i++) {
		const struct ck_layout_in at = ck_layout_below(in, NULL, i);
		const json_t *v = json_array_get(j, i);

		if (!ck_json_u64(v, &mesh->rank[i]))
			ck_layout_expected(&at, v, "a rank");
	}
	if (!in->doc->failed)
		check_ranks(in, mesh->rank, nr);
}

static void parse_mesh(const struct ck_layout_in *in, const json_t *j)
{
	const struct ck_layout_in axes = ck_layout_below(in, "axes", 0);
	const struct ck_layout_in ranks = ck_layout_below(in, "ranks", 0);
	const json_t *list = json_object_get(j, "axes");

	ck_layout_object(in, j, "axes, ranks, comment");
	if (!json_is_array(list))
		ck_layout_bad(&axes, "expected a list of axes");
	if (json_array_size(list) > CK_LAYOUT_AXES)
		ck_layout_bad(&axes, "%zu axes, of at most %d",
			      json_array_size(list), CK_LAYOUT_AXES);
	for (size_t i = 0; i < json_array_size(list) && !in->doc->failed; i++) {
		const struct ck_layout_in at = ck_layout_below(&axes, NULL, i);

		parse_axis(&at, json_array_get(list, i));
	}
	if (!in->doc->failed && json_object_get(j, "ranks"))
		parse_ranks(&ranks, json_object_get(j, "ranks"));
}

/* ---- files ---- */

/* "offset": a number, or a text that makes one. */
static void parse_offset(const struct ck_layout_in *in, const json_t *j,
			 struct ck_layout_item *it)
{
	const struct ck_layout_in at = ck_layout_below(in, "offset", 0);
	const json_t *v = json_object_get(j, "offset");

	if (!json_is_string(v)) {
		ck_layout_u64(in, j, "offset", &it->offset);
		return;
	}
	it->offset_text = json_string_value(v);
	ck_layout_template(&at, it->offset_text, 0, false, NULL);
}

static void parse_item(const struct ck_layout_in *in, const json_t *j,
		       struct ck_layout_item *it)
{
	ck_layout_object(in, j, "key, offset, dtype, shape");
	ck_layout_string(in, j, "key", &it->key);
	if (!it->key)
		ck_layout_bad(in, "expected \"key\"");
	if (!json_object_get(j, "offset"))
		ck_layout_bad(in, "expected \"offset\"");
	parse_offset(in, j, it);
	ck_layout_dtype(in, j, "dtype", &it->dtype);
	ck_layout_dims(in, j, "shape", &it->shape);
}

static void parse_items(const struct ck_layout_in *in, const json_t *j,
			struct ck_layout_files *f)
{
	const struct ck_layout_in below = ck_layout_below(in, "items", 0);
	const json_t *list = json_object_get(j, "items");

	if (list)
		f->item = ck_layout_list(&below, list, sizeof(*f->item),
					 &f->nr_items);
	for (size_t i = 0; i < f->nr_items && !in->doc->failed; i++) {
		const struct ck_layout_in at = ck_layout_below(&below, NULL, i);

		parse_item(&at, json_array_get(list, i), &f->item[i]);
	}
}

static void check_raw(const struct ck_layout_in *in, const json_t *j,
		      const struct ck_layout_files *f)
{
	bool raw = f->kind == CK_LAYOUT_RAW;
	bool about_bytes =
		json_object_get(j, "offset") || json_object_get(j, "dtype");

	if (!raw && (about_bytes || f->nr_items))
		ck_layout_bad(in, "\"items\", \"offset\" and \"dtype\" are of "
				  "raw files only");
	if (!raw && f->has_key)
		ck_layout_bad(in, "{key} in \"path\" is for raw files: others "
				  "say their keys themselves");
	if (f->has_key && f->nr_items)
		ck_layout_bad(in, "a file with {key} in its path is one item: "
				  "\"items\" does not fit");
	if (!f->has_key && about_bytes)
		ck_layout_bad(in, "\"offset\" and \"dtype\" go into \"items\", "
				  "unless the path has {key}");
	if (raw && !f->has_key && !f->nr_items)
		ck_layout_bad(in, "expected \"items\", or {key} in \"path\": "
				  "raw files say nothing");
	if (f->has_key && f->glob)
		ck_layout_bad(in, "{key} and wildcards in one path");
}

static void check_path(const struct ck_layout_in *in, struct ck_layout_files *f)
{
	const struct ck_layout_in at = ck_layout_below(in, "path", 0);
	uint32_t used = 0;

	if (!f->path) {
		ck_layout_bad(in, "expected \"path\"");
		return;
	}
	ck_layout_template(&at, f->path, 0, true, &used);
	f->has_key = used & CK_LAYOUT_KEY;
	f->glob = ck_layout_is_glob(f->path);
	if (f->has_key && strchr(strstr(f->path, "{key}") ?: "", '/'))
		ck_layout_bad(&at, "{key} in the name of a folder");
}

/* A path with {key} is an item, which the file is as a whole. */
static void parse_whole(const struct ck_layout_in *in, const json_t *j,
			struct ck_layout_files *f)
{
	struct ck_layout_item *it = ck_arena_alloc(&in->doc->mem, sizeof(*it));

	if (!it) {
		ck_layout_no_memory(in);
		return;
	}
	parse_offset(in, j, it);
	ck_layout_dtype(in, j, "dtype", &it->dtype);
	f->item = it;
	f->nr_items = 1;
}

static void parse_files(const struct ck_layout_in *in, const json_t *j,
			struct ck_layout_files *f)
{
	for (unsigned i = 0; i < CK_LAYOUT_AXES; i++)
		f->at[i] = CK_LAYOUT_FREE;
	ck_layout_object(in, j,
			 "path, kind, at, items, offset, dtype, comment");
	ck_layout_string(in, j, "path", &f->path);
	check_path(in, f);
	ck_layout_kind(in, j, &f->kind);
	if (!json_object_get(j, "kind"))
		ck_layout_bad(in, "expected \"kind\": \"raw\", "
				  "\"safetensors\" or \"torch\"");
	ck_layout_at(in, j, f->at, NULL);
	parse_items(in, j, f);
	check_raw(in, j, f);
	if (f->has_key)
		parse_whole(in, j, f);
}

/* ---- the whole ---- */

static void check_version(const struct ck_layout_in *in, const json_t *j)
{
	const struct ck_layout_in at = ck_layout_below(in, "unshard_layout", 0);
	const json_t *v = json_object_get(j, "unshard_layout");

	if (!json_is_object(j))
		ck_layout_expected(in, j, "an object");
	if (!v)
		ck_layout_bad(in, "expected \"unshard_layout\": %d",
			      CK_LAYOUT_VERSION);
	if (!json_is_integer(v) || json_integer_value(v) != CK_LAYOUT_VERSION)
		ck_layout_expected(&at, v, "1, the version known here");
}

/* "write" is for saving, which is not this reader's business. */
static void parse_root(const struct ck_layout_in *in, const json_t *j)
{
	const struct ck_layout_in mesh = ck_layout_below(in, "mesh", 0);
	const struct ck_layout_in files = ck_layout_below(in, "files", 0);
	const struct ck_layout_in tensors = ck_layout_below(in, "tensors", 0);
	const json_t *list = json_object_get(j, "files");
	struct ck_layout_doc *d = in->doc;

	check_version(in, j);
	ck_layout_object(in, j,
			 "unshard_layout, mesh, files, tensors, write, "
			 "comment, $schema");
	if (!d->failed && json_object_get(j, "mesh"))
		parse_mesh(&mesh, json_object_get(j, "mesh"));
	if (!d->failed && list)
		d->files = ck_layout_list(&files, list, sizeof(*d->files),
					  &d->nr_files);
	for (size_t i = 0; i < d->nr_files && !d->failed; i++) {
		const struct ck_layout_in at = ck_layout_below(&files, NULL, i);

		parse_files(&at, json_array_get(list, i), &d->files[i]);
	}
	if (!json_object_get(j, "tensors"))
		ck_layout_bad(in, "expected \"tensors\"");
	if (!d->failed)
		ck_layout_parse_tensors(&tensors,
					json_object_get(j, "tensors"));
}

int ck_layout_doc_parse(struct ck_layout_doc *d, const char *name,
			const char *bytes, size_t len, struct ck_err *err)
{
	const struct ck_layout_in in = { .doc = d };
	int ret;

	*d = (struct ck_layout_doc){ .name = name,
				     .mesh.nr_ranks = 1,
				     .err = err };
	ret = ck_json_parse(&d->json, bytes, len, err);
	if (ret)
		return ck_wrap(err, ret, "%s", name);
	parse_root(&in, d->json);
	return d->failed;
}

void ck_layout_doc_free(struct ck_layout_doc *d)
{
	for (size_t i = 0; i < d->nr_rules; i++)
		if (d->rules[i].has_re)
			regfree(&d->rules[i].re);
	ck_arena_free(&d->mem);
	json_decref(d->json);
	*d = (struct ck_layout_doc){ 0 };
}
