/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - "write" of a layout, and where each rank's slices are
 *
 *	"write": {"path": "rank-{rank:05}.safetensors", "align": 4096,
 *	          "tensors": [{"name": "w", "dtype": "float32", "shape": [8]}]}
 *
 * Without its "tensors" every exact name of the document's is meant.
 */
#include "core/layout/write.h"

#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/layout/json.h"
#include "core/geom/catalog.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ALIGN_MAX (UINT64_C(1) << 20)

/* ---- which rule, and what it says ---- */

static void target_coords(const struct ck_layout_in *in,
			  struct ck_layout_target *t, unsigned rule,
			  const struct ck_layout_vars *v)
{
	const struct ck_layout_rule *r = t->rule;

	for (size_t i = 0; i < r->nr_coords; i++) {
		unsigned axis = r->coord[i].axis;
		uint64_t n, size = in->doc->mesh.axis[axis].size;
		ck_auto_str struct ck_str text = { 0 };
		struct ck_err why = { 0 };

		if (ck_layout_coord(&r->coord[i], v, &text, &n, &why))
			ck_layout_bad(in, "tensors[%u].at: %s", rule, why.msg);
		else if (n >= size)
			ck_layout_bad(
				in,
				"tensors[%u].at.%s: %" PRIu64 " of %" PRIu64,
				rule, in->doc->mesh.axis[axis].name, n, size);
		t->at[axis] = n;
	}
}

/* What can be read, but says nothing of how to write. */
static void check_target(const struct ck_layout_in *in,
			 const struct ck_layout_target *t, unsigned rule)
{
	const struct ck_layout_rule *r = t->rule;
	const char *what =
		r->ignore ? "ignores it" :
		r->name	  ? "gives it another name" :
		r->key	  ? "gives it another \"key\"" :
		r->tree	  ? "has a \"tree\"" :
		!r->dtype && !t->dtype ?
			  "lacks \"dtype\"" :
		!r->shape.v && !t->shape.v ?
			  "lacks \"shape\"" :
		r->nr_boxes && r->box[0].file ?
			  "has boxes with \"file\"; they need \"at\"" :
			  NULL;

	if (what)
		ck_layout_bad(in, "%.200s: tensors[%u] %s", t->name, rule,
			      what);
	if (ck_begins(t->name, CK_LAYOUT_FILLER))
		ck_layout_bad(in,
			      "%.200s: names that begin with %s are for what "
			      "lies between tensors",
			      t->name, CK_LAYOUT_FILLER);
}

static bool same_dims(const struct ck_layout_dims *a,
		      const struct ck_layout_dims *b)
{
	return a->rank == b->rank &&
	       !memcmp(a->v, b->v, a->rank * sizeof(*a->v));
}

/* Said in both places, they have to be the same. */
static void target_shape(const struct ck_layout_in *in,
			 struct ck_layout_target *t, unsigned rule)
{
	const struct ck_layout_rule *r = t->rule;
	uint64_t nr, bytes;

	if (!t->dtype)
		t->dtype = r->dtype;
	if (!t->shape.v)
		t->shape = r->shape;
	t->grid = ck_layout_grid(r, t->shape);
	if (r->dtype && r->dtype != t->dtype)
		ck_layout_bad(in, "%.200s: tensors[%u] has another dtype",
			      t->name, rule);
	if (r->shape.v && !same_dims(&r->shape, &t->shape))
		ck_layout_bad(in, "%.200s: tensors[%u] has another shape",
			      t->name, rule);
	if (!ck_dims_volume(t->shape.v, t->shape.rank, &nr) ||
	    !ck_mul_ok(nr, ck_dtype_info(t->dtype)->size, &bytes))
		ck_layout_bad(in, "%.200s: is too large", t->name);
}

static void add_target(const struct ck_layout_in *in, struct ck_layout_out *out,
		       struct ck_layout_target *t)
{
	/* a name tells neither a rank nor, without "at", its coordinates */
	struct ck_layout_vars v = { .mesh = &in->doc->mesh,
				    .at = t->at,
				    .rank = CK_LAYOUT_FREE };
	const struct ck_layout_slice name = { t->name, strlen(t->name) };
	struct ck_layout_target *room;
	uint32_t rule;

	for (unsigned a = 0; a < CK_LAYOUT_AXES; a++)
		t->at[a] = CK_LAYOUT_FREE;
	if (ck_layout_index_find(&out->index, name, &v, t->at, &rule)) {
		ck_layout_no_memory(in);
		return;
	}
	if (rule == CK_NONE) {
		ck_layout_bad(in, "no member of \"tensors\" matches %.200s",
			      t->name);
		return;
	}
	t->rule = &in->doc->rules[rule];
	check_target(in, t, rule);
	if (in->doc->failed)
		return;
	target_coords(in, t, rule, &v);
	target_shape(in, t, rule);
	room = ck_vec_push(&out->targets);
	if (room)
		*room = *t;
	else
		ck_layout_no_memory(in);
}

/* ---- the member "write" ---- */

static void parse_target(const struct ck_layout_in *in,
			 struct ck_layout_out *out, const json_t *j)
{
	struct ck_layout_target t = { 0 };

	ck_layout_object(in, j, "name, dtype, shape, comment");
	ck_layout_string(in, j, "name", &t.name);
	if (!t.name)
		ck_layout_bad(in, "expected \"name\"");
	ck_layout_dtype(in, j, "dtype", &t.dtype);
	ck_layout_dims(in, j, "shape", &t.shape);
	if (!in->doc->failed)
		add_target(in, out, &t);
}

static void exact_names(const struct ck_layout_in *in,
			struct ck_layout_out *out)
{
	for (size_t i = 0; i < in->doc->nr_rules && !in->doc->failed; i++) {
		const struct ck_layout_rule *r = &in->doc->rules[i];
		struct ck_layout_target t = { .name = r->pattern };

		if (r->match == CK_LAYOUT_EXACT && !r->ignore)
			add_target(in, out, &t);
	}
}

static void parse_targets(const struct ck_layout_in *in,
			  struct ck_layout_out *out, const json_t *j)
{
	const struct ck_layout_in below = ck_layout_below(in, "tensors", 0);
	const json_t *list = json_object_get(j, "tensors");

	if (!list)
		exact_names(in, out);
	else if (!json_is_array(list))
		ck_layout_expected(&below, list, "a list");
	for (size_t i = 0; i < json_array_size(list) && !in->doc->failed; i++) {
		const struct ck_layout_in at = ck_layout_below(&below, NULL, i);

		parse_target(&at, out, json_array_get(list, i));
	}
	if (!out->targets.nr)
		ck_layout_bad(in, "there is no tensor to write");
}

static void find_form(const struct ck_layout_in *in, struct ck_layout_out *out,
		      const struct ck_layout_form *const *forms,
		      const char *name)
{
	const struct ck_layout_form *const *f = forms;
	ck_auto_str struct ck_str all = { 0 };

	while (*f && name && strcmp((*f)->name, name) != 0)
		f++;
	out->form = *f ? *f : *forms;
	if (*f)
		return;
	for (f = forms; *f; f++)
		ck_str_fmt(&all, "%s\"%s\"", all.len ? " or " : "", (*f)->name);
	ck_layout_bad(in, "expected %s, found \"%.80s\"", all.v ? all.v : "",
		      name);
}

static void parse_path(const struct ck_layout_in *in, const json_t *j,
		       struct ck_layout_out *out,
		       const struct ck_layout_form *const *forms,
		       const char *format)
{
	const struct ck_layout_in path = ck_layout_below(in, "path", 0);
	const struct ck_layout_in of = ck_layout_below(in, "format", 0);

	ck_layout_string(in, j, "path", &out->path);
	ck_layout_string(in, j, "format", &format);
	find_form(&of, out, forms, format);
	if (!out->path)
		out->path = out->form->path;
	if (*out->path == '.' || strchr(out->path, '/') ||
	    ck_layout_is_glob(out->path))
		ck_layout_bad(&path, "expected the name of a file, without "
				     "folders, wildcards or a dot before it");
	if (!ck_has_suffix(out->path, out->form->suffix))
		ck_layout_bad(&path, "expected a name that ends in %s",
			      out->form->suffix);
	ck_layout_template(&path, out->path, 0, false, NULL);
}

static void parse_write(const struct ck_layout_in *in,
			struct ck_layout_out *out, const json_t *j,
			const struct ck_layout_form *const *forms,
			const char *format)
{
	ck_layout_object(in, j, "path, format, align, tensors, comment");
	parse_path(in, j, out, forms, format);
	ck_layout_u64(in, j, "align", &out->align);
	if (!out->align || out->align > ALIGN_MAX ||
	    out->align & (out->align - 1))
		ck_layout_bad(in,
			      "align: expected a power of 2 up to 2^20, found "
			      "%" PRIu64,
			      out->align);
	if (!in->doc->failed)
		parse_targets(in, out, j);
}

static bool has(const char *bytes, size_t len, const char *key)
{
	ck_auto_json json_t *j = NULL;
	struct ck_err err;

	return !ck_json_parse(&j, bytes, len, &err) && json_object_get(j, key);
}

bool ck_layout_out_wanted(const char *bytes, size_t len)
{
	return has(bytes, len, "write");
}

bool ck_layout_out_only(const char *bytes, size_t len)
{
	return has(bytes, len, "write") && !has(bytes, len, "files");
}

int ck_layout_out_parse(struct ck_layout_out *out, const char *name,
			const char *bytes, size_t len,
			const struct ck_layout_form *const *forms,
			const char *format, struct ck_err *err)
{
	struct ck_layout_doc *d = &out->doc;
	const struct ck_layout_in in = { .doc = d };
	const struct ck_layout_in write = ck_layout_below(&in, "write", 0);
	const json_t *j;
	int ret;

	*out = (struct ck_layout_out){ .align = CK_LAYOUT_ALIGN,
				       .index.doc = d };
	ret = ck_layout_doc_parse(d, name, bytes, len, err);
	if (ret)
		return ret;
	j = json_object_get(d->json, "write");
	if (!j)
		ck_layout_bad(&in, "expected a member \"write\": it says which "
				   "tensors will be written");
	for (uint32_t i = 0; i < d->nr_rules && !d->failed; i++) {
		const char *p = d->rules[i].pattern;
		bool exact = d->rules[i].match == CK_LAYOUT_EXACT;

		if (!ck_layout_index_add(&out->index, i, exact ? p : NULL,
					 strlen(p)))
			ck_layout_no_memory(&in);
	}
	if (!d->failed)
		parse_write(&write, out, j, forms, format);
	return d->failed;
}

void ck_layout_out_free(struct ck_layout_out *out)
{
	free(out->targets.v);
	ck_layout_index_free(&out->index);
	ck_layout_doc_free(&out->doc);
	*out = (struct ck_layout_out){ 0 };
}

/* ---- slices ---- */

int ck_layout_out_file(const struct ck_layout_out *out, uint64_t pos,
		       struct ck_str *to, struct ck_err *err)
{
	uint64_t at[CK_LAYOUT_AXES];
	const struct ck_layout_vars v = {
		.mesh = &out->doc.mesh,
		.at = at,
		.rank = ck_layout_rank(&out->doc.mesh, pos),
	};

	ck_layout_coords(&out->doc.mesh, pos, at);
	return ck_layout_expand(out->path, &v, to, NULL, err);
}

uint64_t ck_layout_out_groups(const struct ck_layout_target *t)
{
	uint64_t nr;

	ck_layout_part(t->rule, -1, NULL, &nr);
	return t->rule->boxed ? t->rule->nr_boxes : nr;
}

static bool same_box(const struct ck_layout_box *a,
		     const struct ck_layout_box *b)
{
	return same_dims(&a->start, &b->start) &&
	       same_dims(&a->size, &b->size) && !a->flat.v == !b->flat.v &&
	       (!a->flat.v || same_dims(&a->flat, &b->flat));
}

/* The first that is of this place, as the reader has it. */
static int by_boxes(const struct ck_layout_out *out,
		    const struct ck_layout_target *t, uint64_t rank,
		    const uint64_t *at, struct ck_placed *place,
		    uint64_t *group, struct ck_err *err)
{
	const struct ck_layout_box *b =
		ck_layout_box_at(&out->doc, t->rule, rank, at);

	if (!b)
		return 0;
	if (b->size.rank != t->grid.rank)
		return ck_fail(err, EINVAL,
			       "boxes[%zu]: expected %u dimensions, found %u",
			       (size_t)(b - t->rule->box), t->grid.rank,
			       b->size.rank);
	ck_layout_box_place(b, place);
	for (*group = 0; !same_box(&t->rule->box[*group], b); ++*group)
		;
	return 1;
}

int ck_layout_out_place(const struct ck_layout_out *out,
			const struct ck_layout_target *t, uint64_t pos,
			struct ck_placed *place, uint64_t *group,
			struct ck_err *err)
{
	const struct ck_layout_mesh *mesh = &out->doc.mesh;
	const struct ck_layout_rule *r = t->rule;
	uint64_t at[CK_LAYOUT_AXES], nr;
	int ret;

	ck_layout_coords(mesh, pos, at);
	if (!ck_layout_agree(mesh, t->at, at))
		return 0;
	if (r->boxed)
		return by_boxes(out, t, ck_layout_rank(mesh, pos), at, place,
				group, err);
	*group = ck_layout_part(r, -1, at, &nr);
	ret = ck_mesh_place(r->step, r->nr_steps, at, t->grid.v, t->grid.rank,
			    place, err);
	return ret ? ret : 1;
}
