/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.c - "tensors" of the document: what they match, where it belongs
 *
 *	"placement": {"tp": {"shard": 0, "sizes": "ceil"}, "dp": "replicate"}
 *	"placement": [{"axis": "tp", "shard": 0}, {"axis": "dp", "shard": 0}]
 *	"boxes": [{"file": "a.bin", "offset": 0, "start": [0], "size": [8]}]
 *
 * As an object, axes cut in the order of the mesh; as a list, in its own.
 * Patterns go to the C library, so those are refused here that would make it
 * slow or large: back-references, and repetitions with counts.
 */
#include "core/base/check.h"
#include "core/layout/json.h"
#include "core/geom/catalog.h"

#include <inttypes.h>
#include <string.h>

#define MAX_PATTERN 1024
#define MAX_STARS 16
#define MAX_GROUPS 32

/* ---- placement ---- */

static void given_sizes(const struct ck_layout_in *in, const json_t *v,
			struct ck_split *split)
{
	uint64_t *size;
	size_t nr;

	size = ck_layout_list(in, v, sizeof(*size), &nr);
	split->how = CK_SIZES_GIVEN;
	split->given = size;
	if (nr != split->nr)
		ck_layout_bad(in,
			      "expected %" PRIu64 " sizes, as many as the axis "
			      "has, found %zu",
			      split->nr, nr);
	for (size_t i = 0; i < nr && !in->doc->failed; i++)
		if (!ck_json_u64(json_array_get(v, i), &size[i]))
			ck_layout_bad(in, "expected sizes from 0 to 2^62");
}

static void parse_sizes(const struct ck_layout_in *in, const json_t *j,
			struct ck_split *split)
{
	static const char *const names[] = { "even", "ceil", "balanced" };
	const struct ck_layout_in at = ck_layout_below(in, "sizes", 0);
	const json_t *v = json_object_get(j, "sizes");
	size_t i = ck_layout_choice(v, names, CK_ARRAY_LEN(names));

	if (i < CK_ARRAY_LEN(names))
		split->how = (enum ck_sizes)i;
	else if (json_is_array(v))
		given_sizes(&at, v, split);
	else if (v)
		ck_layout_expected(
			&at, v, "\"even\", \"ceil\", \"balanced\" or a list");
}

/* Flat comes last, and only the first cut of something can pad it. */
static void check_order(const struct ck_layout_in *in,
			const struct ck_mesh_step *s,
			const struct ck_layout_rule *r)
{
	for (const struct ck_mesh_step *o = r->step; o < s; o++) {
		if (o->flat && !s->flat)
			ck_layout_bad(in,
				      "shards a dimension after %s cut the "
				      "flat order",
				      o->axis_name);
		if (s->padded && o->flat == s->flat &&
		    (s->flat || o->dim == s->dim))
			ck_layout_bad(in,
				      "\"padded\" belongs to %s, which cuts "
				      "the same first",
				      o->axis_name);
	}
}

static void parse_step(const struct ck_layout_in *in, const json_t *j,
		       unsigned axis, struct ck_layout_rule *r)
{
	const struct ck_layout_in shard = ck_layout_below(in, "shard", 0);
	const json_t *dim = json_object_get(j, "shard");
	struct ck_mesh_step *s = &r->step[r->nr_steps++];
	uint64_t n = 0;

	*s = (struct ck_mesh_step){
		.axis = { (uint8_t)axis },
		.nr_axes = 1,
		.axis_name = in->doc->mesh.axis[axis].name,
		.split.nr = in->doc->mesh.axis[axis].size,
	};
	if (dim && (!ck_json_u64(dim, &n) || n >= CK_MAX_RANK))
		ck_layout_expected(&shard, dim, "a dimension from 0 to 63");
	s->dim = (uint8_t)n;
	ck_layout_bool(in, j, "flat", &s->flat);
	if (s->flat == (dim != NULL))
		ck_layout_bad(in, "expected \"replicate\", {\"shard\": DIM} or "
				  "{\"flat\": true}");
	ck_layout_u64(in, j, "padded", &s->padded);
	parse_sizes(in, j, &s->split);
	check_order(in, s, r);
}

static void parse_axis(const struct ck_layout_in *in, const json_t *j,
		       unsigned axis, struct ck_layout_rule *r)
{
	bool replicate = false;

	if (r->named & 1u << axis) {
		ck_layout_bad(in, "%s occurs twice",
			      in->doc->mesh.axis[axis].name);
		return;
	}
	r->named |= 1u << axis;
	if (json_is_string(j) && !strcmp(json_string_value(j), "replicate"))
		return;
	if (!json_is_object(j))
		ck_layout_expected(in, j,
				   "\"replicate\", {\"shard\": DIM} or "
				   "{\"flat\": true}");
	ck_layout_object(in, j, "axis, shard, flat, sizes, replicate, padded");
	ck_layout_bool(in, j, "replicate", &replicate);
	if (!replicate)
		parse_step(in, j, axis, r);
	else if (json_object_get(j, "shard") || json_object_get(j, "flat") ||
		 json_object_get(j, "sizes") || json_object_get(j, "padded"))
		ck_layout_bad(in, "replicated, and cut too");
}

static void placement_list(const struct ck_layout_in *in, const json_t *j,
			   struct ck_layout_rule *r)
{
	const struct ck_layout_mesh *mesh = &in->doc->mesh;

	for (size_t i = 0; i < json_array_size(j) && !in->doc->failed; i++) {
		const struct ck_layout_in at = ck_layout_below(in, NULL, i);
		const json_t *one = json_array_get(j, i);
		const char *name = "";
		unsigned axis;

		if (!json_is_object(one))
			ck_layout_expected(&at, one, "an object");
		ck_layout_string(&at, one, "axis", &name);
		axis = ck_layout_axis(mesh, name, strlen(name));
		if (axis == CK_LAYOUT_AXES)
			ck_layout_bad(&at,
				      "expected \"axis\", one of the mesh");
		else
			parse_axis(&at, one, axis, r);
	}
}

static void placement_object(const struct ck_layout_in *in, const json_t *j,
			     struct ck_layout_rule *r)
{
	const struct ck_layout_mesh *mesh = &in->doc->mesh;
	void *it;

	for (it = json_object_iter((json_t *)j); it;
	     it = json_object_iter_next((json_t *)j, it)) {
		const char *name = json_object_iter_key(it);
		const struct ck_layout_in at = ck_layout_below(in, name, 0);

		if (ck_layout_axis(mesh, name, strlen(name)) == CK_LAYOUT_AXES)
			ck_layout_bad(&at, "is no axis of the mesh");
	}
	for (unsigned i = 0; i < mesh->nr && !in->doc->failed; i++) {
		const json_t *one = json_object_get(j, mesh->axis[i].name);
		const struct ck_layout_in at =
			ck_layout_below(in, mesh->axis[i].name, 0);

		if (json_object_get(one, "axis"))
			ck_layout_bad(&at, "\"axis\" is for lists");
		else if (one)
			parse_axis(&at, one, i, r);
	}
}

static void parse_placement(const struct ck_layout_in *in, const json_t *j,
			    struct ck_layout_rule *r)
{
	/* each axis once */
	r->step = ck_arena_alloc(&in->doc->mem,
				 in->doc->mesh.nr * sizeof(*r->step));
	if (!r->step)
		ck_layout_no_memory(in);
	else if (json_is_array(j))
		placement_list(in, j, r);
	else if (json_is_object(j))
		placement_object(in, j, r);
	else
		ck_layout_expected(in, j, "an object or a list");
}

/* ---- boxes ---- */

static void parse_stride(const struct ck_layout_in *in, const json_t *j,
			 struct ck_layout_box *b)
{
	const struct ck_layout_in at = ck_layout_below(in, "stride", 0);
	const json_t *v = json_object_get(j, "stride");
	int64_t *stride;
	size_t nr;

	if (!v)
		return;
	if (json_array_size(v) != b->size.rank || !json_is_array(v))
		ck_layout_expected(&at, v, "as many numbers as \"size\"");
	stride = ck_layout_list(&at, v, sizeof(*stride), &nr);
	b->stride = stride;
	for (size_t i = 0; i < nr && !in->doc->failed; i++) {
		const json_t *n = json_array_get(v, i);

		if (!json_is_integer(n))
			ck_layout_expected(&at, n, "numbers");
		stride[i] = json_integer_value(n);
	}
}

static void parse_transform(const struct ck_layout_in *in, const json_t *j,
			    struct ck_layout_box *b)
{
	static const char *const names[] = { [CK_XF_CONJ] = "conj",
					     [CK_XF_NEG] = "neg",
					     [CK_XF_BYTESWAP] = "byteswap" };
	const struct ck_layout_in at = ck_layout_below(in, "transform", 0);
	const json_t *v = json_object_get(j, "transform");
	size_t i = ck_layout_choice(v, names, CK_ARRAY_LEN(names));

	if (i < CK_ARRAY_LEN(names))
		b->xform = (uint8_t)i;
	else if (v)
		ck_layout_expected(&at, v, "\"conj\", \"neg\" or \"byteswap\"");
}

/* What is said of bytes, and what is said of keys. */
static void check_source(const struct ck_layout_in *in, const json_t *j,
			 const struct ck_layout_box *b)
{
	static const char *const raw[] = {
		"offset", "stride",	  "stored",
		"zstd",	  "stored_dtype", "transform"
	};
	bool is_raw = b->file && b->kind == CK_LAYOUT_RAW;

	if (b->file && json_object_get(j, "at"))
		ck_layout_bad(in, "both \"file\" and \"at\"");
	if (!b->file && (json_object_get(j, "kind") || b->key))
		ck_layout_bad(in, "\"kind\" and \"key\" need \"file\"");
	if (is_raw && !json_object_get(j, "offset"))
		ck_layout_bad(in, "expected \"offset\", or \"kind\" and "
				  "\"key\"");
	if (is_raw && (b->key || b->skip))
		ck_layout_bad(in, "raw files have no \"key\" to \"skip\" in");
	for (size_t i = 0; !is_raw && i < CK_ARRAY_LEN(raw); i++)
		if (json_object_get(j, raw[i]))
			ck_layout_bad(in, "\"%s\" is of boxes in raw files",
				      raw[i]);
}

static void check_box(const struct ck_layout_in *in,
		      const struct ck_layout_box *b,
		      const struct ck_layout_rule *r)
{
	const struct ck_layout_dims of = ck_layout_grid(r, r->shape);
	unsigned rank = b->size.rank;

	if (!b->start.v || !b->size.v)
		ck_layout_bad(in, "expected \"start\" and \"size\"");
	if (b->start.rank != rank || (of.v && of.rank != rank) ||
	    (b->stored.v && b->stored.rank != rank))
		ck_layout_bad(in, "expected as many dimensions of each as the "
				  "tensor has");
	if (b->flat.v && b->flat.rank != 2)
		ck_layout_bad(in, "expected two numbers in \"flat\"");
	if (b->zstd.v && b->zstd.rank != 2)
		ck_layout_bad(in, "expected two numbers in \"zstd\"");
}

static void parse_box(const struct ck_layout_in *in, const json_t *j,
		      struct ck_layout_box *b, struct ck_layout_rule *r)
{
	*b = (struct ck_layout_box){ .rank = CK_LAYOUT_FREE, .rule = r };
	for (unsigned a = 0; a < CK_LAYOUT_AXES; a++)
		b->at[a] = CK_LAYOUT_FREE;
	ck_layout_object(in, j,
			 "file, kind, key, skip, at, offset, start, size, "
			 "stored, stride, stored_dtype, transform, flat, zstd, "
			 "comment");
	ck_layout_string(in, j, "file", &b->file);
	ck_layout_kind(in, j, &b->kind);
	ck_layout_string(in, j, "key", &b->key);
	ck_layout_u64(in, j, "skip", &b->skip);
	b->of_key = json_object_get(j, "skip");
	ck_layout_u64(in, j, "offset", &b->off);
	ck_layout_at(in, j, b->at, &b->rank);
	ck_layout_dtype(in, j, "stored_dtype", &b->stored_dtype);
	parse_transform(in, j, b);
	check_source(in, j, b);
	ck_layout_dims(in, j, "start", &b->start);
	ck_layout_dims(in, j, "size", &b->size);
	ck_layout_dims(in, j, "stored", &b->stored);
	ck_layout_dims(in, j, "flat", &b->flat);
	ck_layout_dims(in, j, "zstd", &b->zstd);
	check_box(in, b, r);
	parse_stride(in, j, b);
	if (b->file && r->match != CK_LAYOUT_EXACT)
		ck_layout_bad(in, "\"file\" goes with an exact \"name\"");
	if (!b->file != !r->box[0].file)
		ck_layout_bad(in, "some boxes name files, some do not");
	if (b->file && r->key)
		ck_layout_bad(in, "\"key\" of the tensor, and boxes that name "
				  "files");
}

static void parse_boxes(const struct ck_layout_in *in, const json_t *j,
			struct ck_layout_rule *r)
{
	r->box = ck_layout_list(in, j, sizeof(*r->box), &r->nr_boxes);
	for (size_t i = 0; i < r->nr_boxes && !in->doc->failed; i++) {
		const struct ck_layout_in at = ck_layout_below(in, NULL, i);

		parse_box(&at, json_array_get(j, i), &r->box[i], r);
	}
}

/* ---- patterns ---- */

static size_t count(const char *s, char c)
{
	size_t n = 0;

	for (; *s; s++)
		n += *s == c;
	return n;
}

static void check_glob(const struct ck_layout_in *in, const char *glob)
{
	if (strlen(glob) > MAX_PATTERN || count(glob, '*') > MAX_STARS)
		ck_layout_bad(in, "a pattern of more than %d bytes or %d stars",
			      MAX_PATTERN, MAX_STARS);
}

static void check_regex(const struct ck_layout_in *in, const char *re)
{
	bool in_class = false;

	if (strlen(re) > MAX_PATTERN || count(re, '(') > MAX_GROUPS)
		ck_layout_bad(in,
			      "an expression of more than %d bytes or %d "
			      "groups",
			      MAX_PATTERN, MAX_GROUPS);
	for (; *re; re++) {
		if (*re == '[')
			in_class = true;
		else if (*re == ']')
			in_class = false;
		else if (in_class)
			continue;
		else if (*re == '{')
			ck_layout_bad(in, "repetition with {} is not taken; "
					  "write * + or ?");
		else if (*re == '\\' && re[1] >= '1' && re[1] <= '9')
			ck_layout_bad(in, "back-references are not taken");
		else if (*re == '\\' && re[1])
			re++;
	}
}

static void compile(const struct ck_layout_in *in, struct ck_layout_rule *r)
{
	char why[128];
	int ret;

	check_regex(in, r->pattern);
	if (in->doc->failed)
		return;
	ret = regcomp(&r->re, r->pattern, REG_EXTENDED);
	r->has_re = !ret;
	if (ret == REG_ESPACE) {
		ck_layout_no_memory(in);
	} else if (ret) {
		regerror(ret, &r->re, why, sizeof(why));
		ck_layout_bad(in, "\"%.80s\": %s", r->pattern, why);
	} else if (r->re.re_nsub >= CK_LAYOUT_CAPTURES) {
		ck_layout_bad(in, "%zu groups, of at most %d", r->re.re_nsub,
			      CK_LAYOUT_CAPTURES - 1);
	}
}

/* ---- what is matched, and what it is called ---- */

static unsigned captures(const struct ck_layout_rule *r)
{
	return r->has_re ? (unsigned)r->re.re_nsub + 1 : 0;
}

static void parse_exact(const struct ck_layout_in *in, const json_t *j,
			struct ck_layout_rule *r)
{
	const struct ck_layout_in key = ck_layout_below(in, "key", 0);

	ck_layout_string(in, j, "name", &r->pattern);
	ck_layout_string(in, j, "key", &r->key);
	if (r->key)
		ck_layout_template(&key, r->key, 0, false, &r->key_uses);
}

static void parse_pattern(const struct ck_layout_in *in, const json_t *j,
			  const char *kind, struct ck_layout_rule *r)
{
	const struct ck_layout_in name = ck_layout_below(in, "name", 0);
	const struct ck_layout_in at = ck_layout_below(in, kind, 0);

	if (json_object_get(j, "key"))
		ck_layout_bad(in, "\"key\" goes with an exact \"name\"; "
				  "patterns are matched with keys");
	ck_layout_string(in, j, kind, &r->pattern);
	if (r->pattern && r->match == CK_LAYOUT_GLOB)
		check_glob(&at, r->pattern);
	else if (r->pattern)
		compile(&at, r);
	ck_layout_string(in, j, "name", &r->name);
	if (r->name)
		ck_layout_template(&name, r->name, captures(r), true, NULL);
}

static void parse_match(const struct ck_layout_in *in, const json_t *j,
			struct ck_layout_rule *r)
{
	bool glob = json_object_get(j, "glob");
	bool regex = json_object_get(j, "regex");

	r->match = glob	 ? CK_LAYOUT_GLOB :
		   regex ? CK_LAYOUT_REGEX :
			   CK_LAYOUT_EXACT;
	if (glob && regex)
		ck_layout_bad(in, "both \"glob\" and \"regex\"");
	if (glob || regex)
		parse_pattern(in, j, glob ? "glob" : "regex", r);
	else if (json_object_get(j, "name"))
		parse_exact(in, j, r);
	else
		ck_layout_bad(in, "expected \"name\", \"glob\" or \"regex\"");
}

/* ---- coordinates that a key tells ---- */

static void parse_coord(const struct ck_layout_in *in, const json_t *v,
			struct ck_layout_rule *r)
{
	const struct ck_layout_mesh *mesh = &in->doc->mesh;
	struct ck_layout_coord c = {
		.axis = ck_layout_axis(mesh, in->key, strlen(in->key)),
		.text = json_string_value(v),
	};

	if (c.axis == CK_LAYOUT_AXES) {
		ck_layout_bad(in, "is no axis of the mesh");
		return;
	}
	if (c.text)
		ck_layout_template(in, c.text, captures(r), false, NULL);
	else if (!ck_json_u64(v, &c.n))
		ck_layout_expected(in, v,
				   "a number, or a text such as "
				   "\"{$1}\"");
	else if (c.n >= mesh->axis[c.axis].size)
		ck_layout_expected(in, v, "a number below the axis's size");
	r->coord[r->nr_coords++] = c;
}

static void parse_coords(const struct ck_layout_in *in, const json_t *j,
			 struct ck_layout_rule *r)
{
	json_t *object = json_object_get(j, "at");
	const struct ck_layout_in here = ck_layout_below(in, "at", 0);
	void *it;

	if (!object)
		return;
	if (!json_is_object(object))
		ck_layout_expected(&here, object, "an object");
	r->coord = ck_arena_alloc(&in->doc->mem,
				  json_object_size(object) * sizeof(*r->coord));
	if (!r->coord)
		ck_layout_no_memory(in);
	for (it = json_object_iter(object); it && !in->doc->failed;
	     it = json_object_iter_next(object, it)) {
		const struct ck_layout_in at =
			ck_layout_below(&here, json_object_iter_key(it), 0);

		parse_coord(&at, json_object_iter_value(it), r);
	}
}

/* ---- what goes with what ---- */

static void check_ignored(const struct ck_layout_in *in, const json_t *j,
			  const struct ck_layout_rule *r)
{
	static const char *const moot[] = { "dtype",	 "shape", "view",
					    "placement", "boxes", "at",
					    "tree" };

	for (size_t i = 0; r->ignore && i < CK_ARRAY_LEN(moot); i++)
		if (json_object_get(j, moot[i]))
			ck_layout_bad(in, "\"ignore\" and \"%s\"", moot[i]);
	if (r->ignore && (r->name || r->key))
		ck_layout_bad(in, "\"ignore\" and another name");
}

static uint64_t saturated_volume(const struct ck_layout_dims *s)
{
	uint64_t v = 1;

	/* saturated: two that are too large are refused later anyway */
	for (unsigned i = 0; i < s->rank; i++)
		if (__builtin_mul_overflow(v, s->v[i], &v))
			v = UINT64_MAX;
	return v;
}

static void check_shape(const struct ck_layout_in *in,
			const struct ck_layout_rule *r)
{
	bool padded = false;

	if (r->view.v && !r->shape.v)
		ck_layout_bad(in, "\"view\" needs \"shape\"");
	if (r->view.v &&
	    saturated_volume(&r->view) != saturated_volume(&r->shape))
		ck_layout_bad(in, "\"view\" has not as many elements as "
				  "\"shape\"");
	for (size_t i = 0; i < r->nr_steps; i++)
		padded |= r->step[i].padded > 0;
	if (padded && !r->shape.v)
		ck_layout_bad(in, "\"padded\" needs \"shape\"");
}

static void parse_rule(const struct ck_layout_in *in, const json_t *j,
		       struct ck_layout_rule *r)
{
	const struct ck_layout_in place = ck_layout_below(in, "placement", 0);
	const struct ck_layout_in boxes = ck_layout_below(in, "boxes", 0);
	const json_t *p = json_object_get(j, "placement");
	const json_t *b = json_object_get(j, "boxes");

	ck_layout_object(in, j,
			 "name, glob, regex, key, at, dtype, shape, view, "
			 "placement, boxes, ignore, tree, comment");
	parse_match(in, j, r);
	ck_layout_bool(in, j, "ignore", &r->ignore);
	check_ignored(in, j, r);
	ck_layout_string(in, j, "tree", &r->tree);
	ck_layout_dtype(in, j, "dtype", &r->dtype);
	ck_layout_dims(in, j, "shape", &r->shape);
	ck_layout_dims(in, j, "view", &r->view);
	parse_coords(in, j, r);
	if (p && b)
		ck_layout_bad(in, "both \"placement\" and \"boxes\"");
	r->boxed = b;
	if (p && !in->doc->failed)
		parse_placement(&place, p, r);
	if (b && !in->doc->failed)
		parse_boxes(&boxes, b, r);
	check_shape(in, r);
}

void ck_layout_parse_tensors(const struct ck_layout_in *in, const json_t *j)
{
	struct ck_layout_doc *d = in->doc;

	d->rules = ck_layout_list(in, j, sizeof(*d->rules), &d->nr_rules);
	for (size_t i = 0; i < d->nr_rules && !d->failed; i++) {
		const struct ck_layout_in at = ck_layout_below(in, NULL, i);

		parse_rule(&at, json_array_get(j, i), &d->rules[i]);
	}
}
