/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.c - "placement" and "boxes" of a tensor
 *
 *	{"tp": {"shard": 0, "sizes": "ceil"}, "dp": "replicate"}
 *	[{"axis": "tp", "shard": 0}, {"axis": "dp", "shard": 0}]
 *
 * As an object, axes cut in the order of the mesh; as a list, in its own.
 */
#include "core/base/check.h"
#include "core/format/layout/json.h"
#include "core/geom/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- placement ---- */

static int parse_sizes(const struct ck_lay_in *in, const json_t *j,
		       struct ck_split *split, size_t *first)
{
	static const char *const names[] = { "even", "ceil", "balanced" };
	struct ck_lay_in at = ck_lay_below(in, "sizes", 0);
	const json_t *v = json_object_get(j, "sizes");

	*first = 0;
	if (!v)
		return 0;
	for (size_t i = 0; json_is_string(v) && i < CK_ARRAY_LEN(names); i++) {
		if (strcmp(json_string_value(v), names[i]) != 0)
			continue;
		split->how = (enum ck_sizes)i;
		return 0;
	}
	if (!json_is_array(v))
		return ck_lay_expected(
			&at, v, "\"even\", \"ceil\", \"balanced\" or a list");
	split->how = CK_SIZES_GIVEN;
	if (json_array_size(v) != split->nr)
		return ck_lay_bad(&at,
				  "expected %" PRIu64 " sizes, as many as the "
				  "axis has, found %zu",
				  split->nr, json_array_size(v));
	for (size_t i = 0; i < split->nr; i++) {
		uint64_t n, *room;

		if (!ck_json_u64(json_array_get(v, i), &n))
			return ck_lay_bad(&at, "expected sizes from 0 to 2^62");
		room = ck_vec_push(&in->doc->dims);
		if (!room)
			return ck_lay_no_memory(in);
		*room = n;
	}
	*first = in->doc->dims.nr - split->nr;
	return 0;
}

static bool is_replicate(const json_t *j)
{
	return json_is_string(j) && !strcmp(json_string_value(j), "replicate");
}

static int push_step(const struct ck_lay_in *in, const struct ck_mesh_step *s,
		     size_t sizes, struct ck_lay_rule *r)
{
	struct ck_lay_doc *d = in->doc;

	if (!ck_vec_reserve(&d->steps, 1) || !ck_vec_reserve(&d->step_sizes, 1))
		return ck_lay_no_memory(in);
	d->steps.v[d->steps.nr++] = *s;
	d->step_sizes.v[d->step_sizes.nr++] = sizes;
	r->nr_steps++;
	return 0;
}

/* Flat comes last, and only the first cut of something can pad it. */
static int check_order(const struct ck_lay_in *in, const struct ck_mesh_step *s,
		       const struct ck_lay_rule *r)
{
	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct ck_mesh_step *o =
			&in->doc->steps.v[r->first_step + i];

		if (o->flat && !s->flat)
			return ck_lay_bad(in,
					  "shards a dimension after %s "
					  "cut the flat order",
					  o->axis_name);
		if (s->padded && o->flat == s->flat &&
		    (s->flat || o->dim == s->dim))
			return ck_lay_bad(in,
					  "\"padded\" belongs to %s, which "
					  "cuts the same first",
					  o->axis_name);
	}
	return 0;
}

static int parse_cut(const struct ck_lay_in *in, const json_t *j,
		     struct ck_mesh_step *s, struct ck_lay_rule *r)
{
	struct ck_lay_in shard = ck_lay_below(in, "shard", 0);
	const json_t *dim = json_object_get(j, "shard");
	uint64_t n = 0;
	size_t sizes;
	int ret = 0;

	if (dim && (!ck_json_u64(dim, &n) || n >= CK_MAX_RANK))
		return ck_lay_expected(&shard, dim, "a dimension from 0 to 63");
	s->dim = (uint8_t)n;
	ret = ck_lay_bool(in, j, "flat", &s->flat);
	if (!ret && s->flat == (dim != NULL))
		return ck_lay_bad(in, "expected \"replicate\", {\"shard\": "
				      "DIM} or {\"flat\": true}");
	if (!ret)
		ret = ck_lay_u64(in, j, "padded", &s->padded);
	if (!ret)
		ret = parse_sizes(in, j, &s->split, &sizes);
	if (!ret)
		ret = check_order(in, s, r);
	return ret ? ret : push_step(in, s, sizes, r);
}

static int parse_one(const struct ck_lay_in *in, const json_t *j, unsigned axis,
		     struct ck_lay_rule *r)
{
	static const char *const names[] = { "axis",  "shard",	   "flat",
					     "sizes", "replicate", "padded",
					     NULL };
	const struct ck_lay_mesh *mesh = &in->doc->mesh;
	struct ck_mesh_step s = {
		.axis = { (uint8_t)axis },
		.nr_axes = 1,
		.axis_name = mesh->axis[axis].name,
		.split.nr = mesh->axis[axis].size,
	};
	bool replicate = false;
	int ret;

	if (r->said & 1u << axis)
		return ck_lay_bad(in, "%s occurs twice", s.axis_name);
	r->said |= 1u << axis;
	if (is_replicate(j))
		return 0;
	if (!json_is_object(j))
		return ck_lay_expected(in, j,
				       "\"replicate\", {\"shard\": DIM} or "
				       "{\"flat\": true}");
	ret = ck_lay_object(in, j, names);
	if (!ret)
		ret = ck_lay_bool(in, j, "replicate", &replicate);
	if (ret || !replicate)
		return ret ? ret : parse_cut(in, j, &s, r);
	if (json_object_get(j, "shard") || json_object_get(j, "flat") ||
	    json_object_get(j, "sizes") || json_object_get(j, "padded"))
		return ck_lay_bad(in, "replicated, and cut too");
	return 0;
}

static int placement_list(const struct ck_lay_in *in, const json_t *j,
			  struct ck_lay_rule *r)
{
	const struct ck_lay_mesh *mesh = &in->doc->mesh;
	int ret = 0;

	for (size_t i = 0; i < json_array_size(j) && !ret; i++) {
		struct ck_lay_in at = ck_lay_below(in, NULL, i);
		const json_t *one = json_array_get(j, i);
		const char *name = NULL;
		unsigned axis;

		if (!json_is_object(one))
			return ck_lay_expected(&at, one, "an object");
		ret = ck_lay_text(&at, one, "axis", &name);
		if (ret)
			return ret;
		axis = name ? ck_lay_axis(mesh, name, strlen(name)) :
			      CK_LAY_AXES;
		if (axis == CK_LAY_AXES)
			return ck_lay_bad(&at,
					  "expected \"axis\", one of the mesh");
		ret = parse_one(&at, one, axis, r);
	}
	return ret;
}

int ck_lay_parse_placement(const struct ck_lay_in *in, const json_t *j,
			   struct ck_lay_rule *r)
{
	const struct ck_lay_mesh *mesh = &in->doc->mesh;
	int ret = 0;
	void *it;

	if (json_is_array(j))
		return placement_list(in, j, r);
	if (!json_is_object(j))
		return ck_lay_expected(in, j, "an object or a list");
	for (it = json_object_iter((json_t *)j); it;
	     it = json_object_iter_next((json_t *)j, it)) {
		const char *name = json_object_iter_key(it);
		struct ck_lay_in at = ck_lay_below(in, name, 0);

		if (ck_lay_axis(mesh, name, strlen(name)) == CK_LAY_AXES)
			return ck_lay_bad(&at, "is no axis of the mesh");
	}
	for (unsigned i = 0; i < mesh->nr && !ret; i++) {
		const json_t *one = json_object_get(j, mesh->axis[i].name);
		struct ck_lay_in at = ck_lay_below(in, mesh->axis[i].name, 0);

		if (one && json_object_get(one, "axis"))
			return ck_lay_bad(&at, "\"axis\" is for lists");
		if (one)
			ret = parse_one(&at, one, i, r);
	}
	return ret;
}

/* ---- boxes ---- */

static int parse_stride(const struct ck_lay_in *in, const json_t *j,
			struct ck_lay_box *b)
{
	struct ck_lay_in at = ck_lay_below(in, "stride", 0);
	const json_t *v = json_object_get(j, "stride");
	struct ck_lay_doc *d = in->doc;

	if (!v)
		return 0;
	if (json_array_size(v) != b->size.rank || !json_is_array(v))
		return ck_lay_expected(&at, v, "as many numbers as \"size\"");
	b->strided = true;
	b->stride = d->strides.nr;
	for (size_t i = 0; i < json_array_size(v); i++) {
		int64_t *room = ck_vec_push(&d->strides);
		const json_t *n = json_array_get(v, i);

		if (!room)
			return ck_lay_no_memory(in);
		if (!json_is_integer(n))
			return ck_lay_expected(&at, n, "numbers");
		*room = json_integer_value(n);
	}
	return 0;
}

static int parse_transform(const struct ck_lay_in *in, const json_t *j,
			   struct ck_lay_box *b)
{
	static const char *const names[] = { [CK_XF_CONJ] = "conj",
					     [CK_XF_NEG] = "neg",
					     [CK_XF_BYTESWAP] = "byteswap" };
	struct ck_lay_in at = ck_lay_below(in, "transform", 0);
	const json_t *v = json_object_get(j, "transform");

	if (!v)
		return 0;
	for (uint8_t i = CK_XF_CONJ; i < CK_ARRAY_LEN(names); i++)
		if (json_is_string(v) &&
		    !strcmp(json_string_value(v), names[i]))
			b->xform = i;
	if (!b->xform)
		return ck_lay_expected(&at, v,
				       "\"conj\", \"neg\" or \"byteswap\"");
	return 0;
}

/* What is said of bytes, and what is said of keys. */
static int check_source(const struct ck_lay_in *in, const json_t *j,
			const struct ck_lay_box *b, bool kind_given)
{
	static const char *const raw[] = {
		"offset",	"stride",    "stored", "zstd",
		"stored_dtype", "transform", NULL
	};
	bool is_raw = b->file && b->kind == CK_LAY_RAW;

	if (b->file && json_object_get(j, "at"))
		return ck_lay_bad(in, "both \"file\" and \"at\"");
	if (!b->file && (kind_given || b->key))
		return ck_lay_bad(in, "\"kind\" and \"key\" need \"file\"");
	if (is_raw && !json_object_get(j, "offset"))
		return ck_lay_bad(in, "expected \"offset\", or \"kind\" and "
				      "\"key\"");
	if (is_raw && (b->key || b->skip))
		return ck_lay_bad(in, "raw files have no \"key\" to \"skip\" "
				      "in");
	for (const char *const *m = raw; !is_raw && *m; m++)
		if (json_object_get(j, *m))
			return ck_lay_bad(in, "\"%s\" is of boxes in raw files",
					  *m);
	return 0;
}

static int check_ranks(const struct ck_lay_in *in, const struct ck_lay_box *b,
		       const struct ck_lay_rule *r)
{
	const struct ck_lay_dims *of = r->view.given ? &r->view : &r->shape;

	if (!b->start.given || !b->size.given)
		return ck_lay_bad(in, "expected \"start\" and \"size\"");
	if (b->start.rank != b->size.rank ||
	    (of->given && of->rank != b->size.rank) ||
	    (b->stored.given && b->stored.rank != b->size.rank))
		return ck_lay_bad(in, "expected as many dimensions of each as "
				      "the tensor has");
	if (b->flat.given && b->flat.rank != 2)
		return ck_lay_bad(in, "expected two numbers in \"flat\"");
	if (b->zstd.given && b->zstd.rank != 2)
		return ck_lay_bad(in, "expected two numbers in \"zstd\"");
	return 0;
}

static int parse_box_dims(const struct ck_lay_in *in, const json_t *j,
			  struct ck_lay_box *b, const struct ck_lay_rule *r)
{
	int ret = ck_lay_dims(in, j, "start", &b->start);

	if (!ret)
		ret = ck_lay_dims(in, j, "size", &b->size);
	if (!ret)
		ret = ck_lay_dims(in, j, "stored", &b->stored);
	if (!ret)
		ret = ck_lay_dims(in, j, "flat", &b->flat);
	if (!ret)
		ret = ck_lay_dims(in, j, "zstd", &b->zstd);
	if (!ret)
		ret = check_ranks(in, b, r);
	return ret ? ret : parse_stride(in, j, b);
}

static int parse_box(const struct ck_lay_in *in, const json_t *j,
		     struct ck_lay_box *b, const struct ck_lay_rule *r)
{
	static const char *const names[] = {
		"file",	  "kind",   "key",	    "skip",
		"at",	  "offset", "start",	    "size",
		"stored", "stride", "stored_dtype", "transform",
		"flat",	  "zstd",   "comment",	    NULL
	};
	bool kind = false;
	int ret = ck_lay_object(in, j, names);

	if (!ret)
		ret = ck_lay_text(in, j, "file", &b->file);
	if (!ret)
		ret = ck_lay_kind(in, j, "kind", &b->kind, &kind);
	if (!ret)
		ret = ck_lay_text(in, j, "key", &b->key);
	if (!ret)
		ret = ck_lay_u64(in, j, "skip", &b->skip);
	b->of_key = json_object_get(j, "skip");
	if (!ret)
		ret = ck_lay_u64(in, j, "offset", &b->off);
	if (!ret)
		ret = ck_lay_at(in, j, "at", b->at, &b->rank);
	if (!ret)
		ret = ck_lay_dtype(in, j, "stored_dtype", &b->stored_dtype);
	if (!ret)
		ret = parse_transform(in, j, b);
	if (!ret)
		ret = check_source(in, j, b, kind);
	return ret ? ret : parse_box_dims(in, j, b, r);
}

int ck_lay_parse_boxes(const struct ck_lay_in *in, const json_t *j,
		       struct ck_lay_rule *r)
{
	int ret = ck_lay_array(in, j);

	for (size_t i = 0; i < json_array_size(j) && !ret; i++) {
		struct ck_lay_in at = ck_lay_below(in, NULL, i);
		struct ck_lay_box *b = ck_vec_push(&in->doc->boxes);

		if (!b)
			return ck_lay_no_memory(in);
		*b = (struct ck_lay_box){ .rank = CK_LAY_FREE };
		for (unsigned a = 0; a < CK_LAY_AXES; a++)
			b->at[a] = CK_LAY_FREE;
		ret = parse_box(&at, json_array_get(j, i), b, r);
		if (!ret && b->file && r->match != CK_LAY_EXACT)
			ret = ck_lay_bad(&at, "\"file\" goes with an exact "
					      "\"name\"");
		if (!ret && !b->file != !in->doc->boxes.v[r->first_box].file)
			ret = ck_lay_bad(&at, "some boxes name files, some "
					      "do not");
		if (!ret && b->file && r->key)
			ret = ck_lay_bad(&at, "\"key\" of the tensor, and "
					      "boxes that name files");
		r->nr_boxes++;
	}
	return ret;
}
