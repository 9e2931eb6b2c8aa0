/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - "write" of a layout, and where each rank's slices are
 *
 *	"write": {"path": "rank-{rank:05}.safetensors", "align": 4096,
 *	          "tensors": [{"name": "w", "dtype": "float32", "shape": [8]}]}
 *
 * Without its "tensors" every exact name of the document's is meant.
 */
#include "core/format/layout/write.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/layout/json.h"
#include "core/format/layout/load.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ST_PATH "rank-{rank:05}.safetensors"
#define DCP_PATH "__{rank}_0.distcp"
#define ALIGN_MAX (UINT64_C(1) << 20)

/* ---- which rule, and what it says ---- */

static int index_rules(const struct ck_lay_in *in, struct ck_lay_out *out)
{
	const struct ck_lay_doc *d = in->doc;

	for (uint32_t i = 0; i < d->rules.nr; i++) {
		const struct ck_lay_rule *r = &d->rules.v[i];
		bool exact = r->match == CK_LAY_EXACT;
		uint32_t *room, nr = 0;

		if (exact)
			nr = ck_strmap_put(&out->exact, r->pattern,
					   strlen(r->pattern));
		if (exact && nr < out->exact_rule.nr)
			continue;
		room = exact ? ck_vec_push(&out->exact_rule) :
			       ck_vec_push(&out->patterns);
		if (nr == CK_STRMAP_NONE || !room)
			return ck_lay_no_memory(in);
		*room = i;
	}
	return 0;
}

/* The first that matches. */
static int find_rule(const struct ck_lay_in *in, const struct ck_lay_out *out,
		     struct ck_lay_target *t, struct ck_lay_vars *v)
{
	uint32_t nr = ck_strmap_get(&out->exact, t->name, strlen(t->name));

	t->rule = nr == CK_STRMAP_NONE ? CK_NONE : out->exact_rule.v[nr];
	for (size_t i = 0; i < out->patterns.nr; i++) {
		uint32_t rule = out->patterns.v[i];
		int ret;

		if (rule > t->rule)
			break;
		ret = ck_lay_match(&in->doc->rules.v[rule], t->name, v);
		if (ret < 0)
			return ck_lay_no_memory(in);
		if (ret)
			t->rule = rule;
	}
	return t->rule == CK_NONE ?
		       ck_lay_bad(in, "no member of \"tensors\" matches %.200s",
				  t->name) :
		       0;
}

static int take_coords(const struct ck_lay_in *in, struct ck_lay_target *t,
		       const struct ck_lay_vars *v)
{
	const struct ck_lay_rule *r = &in->doc->rules.v[t->rule];

	for (unsigned a = 0; a < CK_LAY_AXES; a++)
		t->at[a] = CK_LAY_FREE;
	for (size_t i = 0; i < r->nr_coords; i++) {
		const struct ck_lay_coord *c =
			&in->doc->coords.v[r->first_coord + i];
		ck_auto_str struct ck_str text = { 0 };
		struct ck_err why = { 0 };
		uint64_t n = c->n;

		if (c->text && ck_lay_expand(c->text, v, &text, NULL, &why))
			return ck_lay_bad(in, "tensors[%u].at: %s", t->rule,
					  why.msg);
		if (c->text)
			n = strtoull(text.v, NULL, 10);
		if (n >= in->doc->mesh.axis[c->axis].size)
			return ck_lay_bad(
				in,
				"tensors[%u].at.%s: %" PRIu64 " of %" PRIu64,
				t->rule, in->doc->mesh.axis[c->axis].name, n,
				in->doc->mesh.axis[c->axis].size);
		t->at[c->axis] = n;
	}
	return 0;
}

/* What can be read, but says nothing of how to write. */
static int check_rule(const struct ck_lay_in *in, const struct ck_lay_target *t)
{
	const struct ck_lay_rule *r = &in->doc->rules.v[t->rule];
	const char *what = r->ignore		  ? "ignores it" :
			   r->name		  ? "gives it another name" :
			   r->key		  ? "gives it another \"key\"" :
			   r->tree		  ? "has a \"tree\"" :
			   !r->dtype && !t->dtype ? "lacks \"dtype\"" :
			   !r->shape.given && !t->shape.given ?
						    "lacks \"shape\"" :
						    NULL;

	for (size_t i = 0; i < r->nr_boxes && !what; i++)
		if (in->doc->boxes.v[r->first_box + i].file)
			what = "has boxes with \"file\"; they need \"at\"";
	if (what)
		return ck_lay_bad(in, "%.200s: tensors[%u] %s", t->name,
				  t->rule, what);
	if (!strncmp(t->name, CK_LAY_FILLER, strlen(CK_LAY_FILLER)))
		return ck_lay_bad(in,
				  "%.200s: names that begin with %s are "
				  "for what lies between tensors",
				  t->name, CK_LAY_FILLER);
	return 0;
}

static uint64_t volume(const struct ck_lay_doc *d, const struct ck_lay_dims *s)
{
	uint64_t n;

	return ck_dims_volume(d->dims.v + s->first, s->rank, &n) ? n :
								   UINT64_MAX;
}

static bool same_dims(const struct ck_lay_doc *d, const struct ck_lay_dims *a,
		      const struct ck_lay_dims *b)
{
	return a->rank == b->rank &&
	       !memcmp(d->dims.v + a->first, d->dims.v + b->first,
		       a->rank * sizeof(uint64_t));
}

/* Said in both places, they have to be the same. */
static int settle_shape(const struct ck_lay_in *in, struct ck_lay_target *t)
{
	const struct ck_lay_rule *r = &in->doc->rules.v[t->rule];
	uint64_t nr, bytes;

	if (!t->dtype)
		t->dtype = r->dtype;
	if (!t->shape.given)
		t->shape = r->shape;
	if (r->dtype && r->dtype != t->dtype)
		return ck_lay_bad(in, "%.200s: tensors[%u] has another dtype",
				  t->name, t->rule);
	if (r->shape.given && !same_dims(in->doc, &r->shape, &t->shape))
		return ck_lay_bad(in, "%.200s: tensors[%u] has another shape",
				  t->name, t->rule);
	nr = volume(in->doc, &t->shape);
	if (nr == UINT64_MAX ||
	    !ck_mul_ok(nr, ck_dtype_info(t->dtype)->size, &bytes))
		return ck_lay_bad(in, "%.200s: is too large", t->name);
	return 0;
}

static int add(const struct ck_lay_in *in, struct ck_lay_out *out,
	       struct ck_lay_target *t)
{
	struct ck_lay_vars v = { .mesh = &in->doc->mesh };
	struct ck_lay_target *room;
	int ret = find_rule(in, out, t, &v);

	if (!ret)
		ret = check_rule(in, t);
	if (!ret)
		ret = take_coords(in, t, &v);
	if (!ret)
		ret = settle_shape(in, t);
	if (ret)
		return ret;
	room = ck_vec_push(&out->targets);
	if (!room)
		return ck_lay_no_memory(in);
	*room = *t;
	return 0;
}

/* ---- the member "write" ---- */

static int parse_target(const struct ck_lay_in *in, struct ck_lay_out *out,
			const json_t *j)
{
	static const char *const names[] = { "name", "dtype", "shape",
					     "comment", NULL };
	struct ck_lay_target t = { 0 };
	int ret = ck_lay_object(in, j, names);

	if (!ret)
		ret = ck_lay_text(in, j, "name", &t.name);
	if (!ret && !t.name)
		ret = ck_lay_bad(in, "expected \"name\"");
	if (!ret)
		ret = ck_lay_dtype(in, j, "dtype", &t.dtype);
	if (!ret)
		ret = ck_lay_dims(in, j, "shape", &t.shape);
	return ret ? ret : add(in, out, &t);
}

static int exact_names(const struct ck_lay_in *in, struct ck_lay_out *out)
{
	int ret = 0;

	for (uint32_t i = 0; i < in->doc->rules.nr && !ret; i++) {
		const struct ck_lay_rule *r = &in->doc->rules.v[i];
		struct ck_lay_target t = { .name = r->pattern };

		if (r->match == CK_LAY_EXACT && !r->ignore)
			ret = add(in, out, &t);
	}
	return ret;
}

static int parse_targets(const struct ck_lay_in *in, struct ck_lay_out *out,
			 const json_t *j)
{
	struct ck_lay_in below = ck_lay_below(in, "tensors", 0);
	const json_t *list = json_object_get(j, "tensors");
	int ret = list ? ck_lay_array(&below, list) : exact_names(in, out);

	for (size_t i = 0; i < json_array_size(list) && !ret; i++) {
		struct ck_lay_in at = ck_lay_below(&below, NULL, i);

		ret = parse_target(&at, out, json_array_get(list, i));
	}
	if (!ret && !out->targets.nr)
		ret = ck_lay_bad(in, "there is no tensor to write");
	return ret;
}

static int check_path(const struct ck_lay_in *in, const struct ck_lay_out *out)
{
	struct ck_lay_in at = ck_lay_below(in, "path", 0);
	const char *path = out->path,
		   *end = out->dcp ? ".distcp" : ".safetensors";
	size_t len = strlen(path), n = strlen(end);

	if (*path == '.' || strchr(path, '/') || ck_lay_is_glob(path))
		return ck_lay_bad(&at, "expected the name of a file, without "
				       "folders, wildcards or a dot before it");
	if (len < n || strcmp(path + len - n, end) != 0)
		return ck_lay_bad(&at, "expected a name that ends in %s", end);
	return ck_lay_check_text(&at, path, 0, false, NULL);
}

static int take_format(const struct ck_lay_in *in, struct ck_lay_out *out,
		       const char *format)
{
	struct ck_lay_in at = ck_lay_below(in, "format", 0);

	out->dcp = format && !strcmp(format, "dcp");
	if (format && !out->dcp && strcmp(format, "safetensors") != 0)
		return ck_lay_bad(&at,
				  "expected \"safetensors\" or \"dcp\", found "
				  "\"%.80s\"",
				  format);
	if (!out->path)
		out->path = out->dcp ? DCP_PATH : ST_PATH;
	return check_path(in, out);
}

static int take_align(const struct ck_lay_in *in, const json_t *j,
		      struct ck_lay_out *out)
{
	int ret = ck_lay_u64(in, j, "align", &out->align);

	if (!ret && (!out->align || out->align > ALIGN_MAX ||
		     out->align & (out->align - 1)))
		ret = ck_lay_bad(in,
				 "align: expected a power of 2 up to 2^20, "
				 "found %" PRIu64,
				 out->align);
	return ret;
}

static int parse_write(const struct ck_lay_in *in, struct ck_lay_out *out,
		       const json_t *j, const char *format)
{
	static const char *const names[] = { "path",	"format",  "align",
					     "tensors", "comment", NULL };
	int ret = ck_lay_object(in, j, names);

	if (!ret)
		ret = ck_lay_text(in, j, "path", &out->path);
	if (!ret)
		ret = ck_lay_text(in, j, "format", &format);
	if (!ret)
		ret = take_format(in, out, format);
	if (!ret)
		ret = take_align(in, j, out);
	return ret ? ret : parse_targets(in, out, j);
}

static bool has(const char *bytes, size_t len, const char *key)
{
	struct ck_err err;
	json_t *j;
	bool yes;

	if (ck_json_parse(&j, bytes, len, &err))
		return false;
	yes = json_object_get(j, key);
	json_decref(j);
	return yes;
}

bool ck_lay_out_wanted(const char *bytes, size_t len)
{
	return has(bytes, len, "write");
}

bool ck_lay_out_only(const char *bytes, size_t len)
{
	return has(bytes, len, "write") && !has(bytes, len, "files");
}

int ck_lay_out_parse(struct ck_lay_out *out, const char *name,
		     const char *bytes, size_t len, const char *format,
		     struct ck_err *err)
{
	struct ck_lay_in in = { .doc = &out->doc, .err = err };
	struct ck_lay_in write = ck_lay_below(&in, "write", 0);
	const json_t *j;
	int ret;

	*out = (struct ck_lay_out){ .align = CK_LAY_ALIGN };
	ret = ck_lay_doc_parse(&out->doc, name, bytes, len, err);
	if (ret)
		return ret;
	j = json_object_get(out->doc.json, "write");
	if (!j)
		return ck_lay_bad(&in, "expected a member \"write\": it says "
				       "which tensors will be written");
	ret = index_rules(&in, out);
	if (!ret)
		ret = parse_write(&write, out, j, format);
	ck_lay_fix_sizes(&out->doc);
	return ret;
}

void ck_lay_out_free(struct ck_lay_out *out)
{
	free(out->targets.v);
	free(out->exact_rule.v);
	free(out->patterns.v);
	ck_strmap_free(&out->exact);
	ck_lay_doc_free(&out->doc);
	*out = (struct ck_lay_out){ 0 };
}

/* ---- slices ---- */

uint64_t ck_lay_out_rank(const struct ck_lay_out *out, uint64_t pos)
{
	return out->doc.mesh.rank ? out->doc.mesh.rank[pos] : pos;
}

int ck_lay_out_file(const struct ck_lay_out *out, uint64_t pos,
		    struct ck_str *to, struct ck_err *err)
{
	uint64_t at[CK_LAY_AXES];
	const struct ck_lay_vars v = {
		.mesh = &out->doc.mesh,
		.at = at,
		.rank = ck_lay_out_rank(out, pos),
	};

	ck_lay_coords(&out->doc.mesh, pos, at);
	return ck_lay_expand(out->path, &v, to, NULL, err);
}

void ck_lay_out_grid(const struct ck_lay_out *out,
		     const struct ck_lay_target *t, const uint64_t **grid,
		     unsigned *rank)
{
	const struct ck_lay_rule *r = &out->doc.rules.v[t->rule];
	const struct ck_lay_dims *d = r->view.given ? &r->view : &t->shape;

	*grid = out->doc.dims.v + d->first;
	*rank = d->rank;
}

uint64_t ck_lay_out_groups(const struct ck_lay_out *out,
			   const struct ck_lay_target *t)
{
	const struct ck_lay_rule *r = &out->doc.rules.v[t->rule];
	uint64_t nr = 1;

	if (r->boxed)
		return r->nr_boxes;
	/* a divisor of the number of ranks: each axis cuts once */
	for (size_t i = 0; i < r->nr_steps; i++)
		nr *= out->doc.steps.v[r->first_step + i].split.nr;
	return nr;
}

static void place_box(const struct ck_lay_out *out, const struct ck_lay_box *b,
		      struct ck_placed *to)
{
	const uint64_t *dims = out->doc.dims.v;

	for (unsigned d = 0; d < b->size.rank; d++) {
		to->start[d] = dims[b->start.first + d];
		to->len[d] = dims[b->size.first + d];
		to->full[d] = to->len[d];
	}
	to->flat = b->flat.given;
	to->lo = b->flat.given ? dims[b->flat.first] : 0;
	to->hi = b->flat.given ? dims[b->flat.first + 1] : 0;
	to->stored = to->hi - CK_MIN(to->lo, to->hi);
}

static bool same_box(const struct ck_lay_out *out, const struct ck_lay_box *a,
		     const struct ck_lay_box *b)
{
	const struct ck_lay_doc *d = &out->doc;

	return same_dims(d, &a->start, &b->start) &&
	       same_dims(d, &a->size, &b->size) &&
	       a->flat.given == b->flat.given &&
	       (!a->flat.given || same_dims(d, &a->flat, &b->flat));
}

static bool is_at(const struct ck_lay_out *out, const struct ck_lay_box *b,
		  uint64_t rank, const uint64_t *at)
{
	if (b->rank != CK_LAY_FREE && b->rank != rank)
		return false;
	for (unsigned a = 0; a < out->doc.mesh.nr; a++)
		if (b->at[a] != CK_LAY_FREE && b->at[a] != at[a])
			return false;
	return true;
}

/* The first that is of this place, as the reader has it. */
static int by_boxes(const struct ck_lay_out *out, const struct ck_lay_target *t,
		    uint64_t rank, const uint64_t *at, struct ck_placed *place,
		    uint64_t *group, struct ck_err *err)
{
	const struct ck_lay_rule *r = &out->doc.rules.v[t->rule];
	const struct ck_lay_box *v = out->doc.boxes.v + r->first_box;
	const uint64_t *grid;
	unsigned nr;
	size_t i = 0;

	ck_lay_out_grid(out, t, &grid, &nr);
	while (i < r->nr_boxes && !is_at(out, &v[i], rank, at))
		i++;
	if (i == r->nr_boxes)
		return 0;
	if (v[i].size.rank != nr)
		return ck_fail(err, EINVAL,
			       "boxes[%zu]: expected %u dimensions, found %u",
			       i, nr, v[i].size.rank);
	place_box(out, &v[i], place);
	for (*group = 0; !same_box(out, &v[*group], &v[i]); ++*group)
		;
	return 1;
}

int ck_lay_out_place(const struct ck_lay_out *out,
		     const struct ck_lay_target *t, uint64_t pos,
		     struct ck_placed *place, uint64_t *group,
		     struct ck_err *err)
{
	const struct ck_lay_rule *r = &out->doc.rules.v[t->rule];
	const struct ck_mesh_step *steps = out->doc.steps.v + r->first_step;
	uint64_t at[CK_LAY_AXES];
	const uint64_t *grid;
	unsigned rank;
	int ret;

	ck_lay_coords(&out->doc.mesh, pos, at);
	for (unsigned a = 0; a < out->doc.mesh.nr; a++)
		if (t->at[a] != CK_LAY_FREE && t->at[a] != at[a])
			return 0;
	if (r->boxed)
		return by_boxes(out, t, ck_lay_out_rank(out, pos), at, place,
				group, err);
	*group = 0;
	for (size_t i = 0; i < r->nr_steps; i++)
		*group = *group * steps[i].split.nr + at[steps[i].axis[0]];
	ck_lay_out_grid(out, t, &grid, &rank);
	ret = ck_mesh_place(steps, (unsigned)r->nr_steps, at, grid, rank, place,
			    err);
	return ret ? ret : 1;
}
