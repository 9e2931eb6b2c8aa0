/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive.c - the members of a view's description, one after the other
 *
 *	part -> include, exclude -> preset -> rename -> rows -> transpose ->
 *	dtype, overflow, keep
 */
#include "core/view/derive/derive.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/geom/cast.h"
#include "core/view/model_names.h"
#include "core/view/derive/rename.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_RULES 256

/* Patterns of a member, and which of them fitted some name. */
struct globs {
	const json_t *v;
	bool fitted[MAX_RULES];
};

enum { INCLUDE, EXCLUDE, KEEP, TRANSPOSE, ROWS, NR_GLOBS };

static const char *const members[NR_GLOBS] = { "include", "exclude", "keep",
					       "transpose", "rows" };

struct derive {
	struct ck_derivation *out;
	const struct ck_view *v;
	const json_t *spec;
	struct globs globs[NR_GLOBS];
	struct ck_rename *rename;
	uint8_t dtype; /* 0: as stored */
	bool saturate;
	struct ck_err *err;
};

void ck_derivation_free(struct ck_derivation *d)
{
	for (size_t i = 0; i < d->v.nr; i++)
		free(d->v.v[i].name);
	free(d->v.v);
	free(d->range.v);
	ck_str_free(&d->unused);
	*d = (struct ck_derivation){ 0 };
}

struct ck_derived *ck_derive_add(struct ck_derivation *d,
				 const struct ck_catalog *img, uint32_t tensor,
				 const char *name)
{
	uint8_t dtype = img->tensors[tensor].dtype;
	struct ck_derived *t = ck_vec_push(&d->v);

	if (!t)
		return NULL;
	*t = (struct ck_derived){ .name = strdup(name),
				  .origin = tensor,
				  .stored = dtype,
				  .dtype = dtype,
				  .first = (uint32_t)d->range.nr };
	return t->name ? t : NULL;
}

bool ck_derive_range(struct ck_derivation *d, uint64_t at, uint64_t len)
{
	struct ck_derived *t = &d->v.v[d->v.nr - 1];
	struct ck_derived_range *r = ck_vec_push(&d->range);

	if (!r)
		return false;
	*r = (struct ck_derived_range){ t->origin, at, len, 0, 0 };
	t->nr++;
	return true;
}

/* What is stored is one matrix, or a stack of them. */
static bool turn(struct ck_derived *t, const struct ck_catalog *img)
{
	const struct ck_tensor *from = &img->tensors[t->origin];
	uint64_t rows = t->shape[0];

	if (t->rank != 2 || t->turned || from->rank < 2 ||
	    img->dims[from->shape + from->rank - 1] != t->shape[1])
		return false;
	t->turned = t->shape[0] = t->shape[1];
	t->shape[1] = rows;
	return true;
}

bool ck_derive_turn(struct ck_derivation *d, const struct ck_catalog *img)
{
	return turn(&d->v.v[d->v.nr - 1], img);
}

/* ---- the document ---- */

static bool fits(struct globs *g, size_t i, const char *glob, size_t glob_len,
		 const char *name, size_t len)
{
	if (!ck_glob(glob, glob_len, name, len))
		return false;
	g->fitted[i] = true;
	return true;
}

/* All are tried, to know which fit nothing. */
static bool has_glob(struct globs *g, const char *name, size_t len)
{
	bool any = false;

	for (size_t i = 0; i < json_array_size(g->v); i++) {
		const json_t *j = json_array_get(g->v, i);

		any |= fits(g, i, json_string_value(j), json_string_length(j),
			    name, len);
	}
	return any;
}

static int check_globs(struct derive *d, unsigned which)
{
	const json_t *globs = json_object_get(d->spec, members[which]);

	d->globs[which].v = globs;
	if (globs &&
	    (!json_is_array(globs) || json_array_size(globs) > MAX_RULES))
		return ck_fail(d->err, EINVAL,
			       "%s: expected a list of up to %d patterns",
			       members[which], MAX_RULES);
	for (size_t i = 0; i < json_array_size(globs); i++)
		if (!ck_json_text(json_array_get(globs, i)))
			return ck_fail(d->err, EINVAL,
				       "%s[%zu]: expected a pattern",
				       members[which], i);
	return 0;
}

static int check_rows(struct derive *d)
{
	json_t *rows = json_object_get(d->spec, members[ROWS]), *value;
	const char *glob;
	uint64_t nr;

	d->globs[ROWS].v = rows;
	if (rows &&
	    (!json_is_object(rows) || json_object_size(rows) > MAX_RULES))
		return ck_fail(d->err, EINVAL,
			       "rows: expected {\"PATTERN\": ROWS}, up to %d",
			       MAX_RULES);
	json_object_foreach(rows, glob, value)
	{
		if (!ck_json_u64(value, &nr))
			return ck_fail(d->err, EINVAL,
				       "rows.%.60s: expected an integer", glob);
	}
	return 0;
}

/* Nobody means that. */
static int check_both(const struct derive *d)
{
	const json_t *in = d->globs[INCLUDE].v, *out = d->globs[EXCLUDE].v;

	for (size_t i = 0; i < json_array_size(in); i++)
		for (size_t k = 0; k < json_array_size(out); k++)
			if (json_equal(json_array_get(in, i),
				       json_array_get(out, k)))
				return ck_fail(d->err, EINVAL,
					       "include[%zu] and exclude[%zu] "
					       "are both \"%.200s\"",
					       i, k,
					       json_string_value(
						       json_array_get(in, i)));
	return 0;
}

static int check_members(struct derive *d)
{
	static const char *const known[] = { "part",	"include", "exclude",
					     "preset",	"rename",  "rows",
					     "dtype",	"keep",	   "transpose",
					     "overflow" };
	const char *key;
	json_t *value;
	int ret = 0;

	if (!json_is_object(d->spec))
		return ck_fail(d->err, EINVAL, "expected an object");
	json_object_foreach((json_t *)d->spec, key, value)
	{
		size_t i = 0;

		while (i < CK_ARRAY_LEN(known) && strcmp(key, known[i]) != 0)
			i++;
		if (i == CK_ARRAY_LEN(known))
			return ck_fail(d->err, EINVAL,
				       "unknown member \"%.60s\"", key);
	}
	for (unsigned i = 0; i < ROWS && !ret; i++)
		ret = check_globs(d, i);
	if (!ret)
		ret = check_rows(d);
	if (!ret)
		ret = check_both(d);
	return ret ? ret :
		     ck_preset_check(json_object_get(d->spec, "preset"),
				     d->err);
}

static int take_dtype(struct derive *d)
{
	const json_t *dtype = json_object_get(d->spec, "dtype");

	if (!dtype)
		return 0;
	if (json_is_string(dtype))
		d->dtype = (uint8_t)ck_dtype_by_name(json_string_value(dtype),
						     json_string_length(dtype));
	if (ck_cast_has(d->dtype, d->dtype))
		return 0;
	return ck_fail(d->err, EINVAL,
		       "dtype: expected float64, float32, float16, bfloat16, "
		       "float8_e4m3fn or float8_e5m2");
}

static int take_overflow(struct derive *d)
{
	const json_t *j = json_object_get(d->spec, "overflow");
	const char *how = j ? ck_json_text(j) : "nan";

	if (!how || (strcmp(how, "nan") && strcmp(how, "saturate")))
		return ck_fail(d->err, EINVAL,
			       "overflow: expected nan or saturate");
	if (j && d->dtype != CK_DT_F8_E4M3FN && d->dtype != CK_DT_F8_E5M2)
		return ck_fail(d->err, EINVAL,
			       "overflow: is for a dtype of float8_e4m3fn or "
			       "float8_e5m2");
	d->saturate = !strcmp(how, "saturate");
	return 0;
}

/* ---- names ---- */

/* What the file cannot hold under the name that it has now: *why, or NULL. */
static int rename_one(const struct derive *d, struct ck_derived *t,
		      const char **why)
{
	bool changed;
	int ret = ck_rename_apply(d->rename, &t->name, &changed, d->err);

	if (ret)
		return ret;
	*why = ck_merged_refuses(d->v->img, t->origin, t->name,
				 strlen(t->name));
	if (!*why || !changed)
		return 0;
	return ck_fail(d->err, EINVAL, "rename: %.200s cannot be called so: %s",
		       ck_catalog_str(d->v->img,
				      d->v->img->tensors[t->origin].name, NULL),
		       *why);
}

static int by_name(const void *pa, const void *pb, void *ctx)
{
	const struct ck_derived *v = ctx;

	return strcmp(v[*(const uint32_t *)pa].name,
		      v[*(const uint32_t *)pb].name);
}

/* Two of one name could not be told apart, nor led back. */
static int check_clashes(const struct derive *d)
{
	const struct ck_catalog *img = d->v->img;
	struct ck_derived *v = d->out->v.v;
	uint32_t nr = (uint32_t)d->out->v.nr;
	ck_auto_free uint32_t *order = calloc(nr + 1, sizeof(*order));

	if (!order)
		return ck_no_memory(d->err);
	for (uint32_t i = 0; i < nr; i++)
		order[i] = i;
	qsort_r(order, nr, sizeof(*order), by_name, v);
	for (uint32_t i = 1; i < nr; i++) {
		const struct ck_derived *a = &v[order[i - 1]];
		const struct ck_derived *b = &v[order[i]];

		if (!strcmp(a->name, b->name))
			return ck_fail(
				d->err, EINVAL,
				"%.200s and %.200s would both be called "
				"%.200s",
				ck_catalog_str(img,
					       img->tensors[a->origin].name,
					       NULL),
				ck_catalog_str(img,
					       img->tensors[b->origin].name,
					       NULL),
				a->name);
	}
	return 0;
}

/* ---- one tensor ---- */

static int add_whole(struct derive *d, uint32_t tensor, const char *name)
{
	const struct ck_tensor *t = &d->v->img->tensors[tensor];
	struct ck_derived *to = ck_derive_add(d->out, d->v->img, tensor, name);

	if (!to)
		return ck_no_memory(d->err);
	to->rank = t->rank;
	memcpy(to->shape, d->v->img->dims + t->shape,
	       t->rank * sizeof(*to->shape));
	if (ck_derive_range(d->out, 0, t->size))
		return 0;
	return ck_no_memory(d->err);
}

static int take_tensor(struct derive *d, uint32_t tensor, const char *name,
		       size_t len)
{
	const json_t *preset = json_object_get(d->spec, "preset");
	bool in =
		!d->globs[INCLUDE].v || has_glob(&d->globs[INCLUDE], name, len);

	if (has_glob(&d->globs[EXCLUDE], name, len) || !in)
		return 0;
	if (strlen(name) != len) {
		ck_view_leave_out(d->v, tensor, "its name contains a NUL");
		return 0;
	}
	return preset ? ck_preset_apply(d->out, d->v, preset, tensor, name,
					d->err) :
			add_whole(d, tensor, name);
}

static int by_tensor(const void *pa, const void *pb)
{
	uint32_t a = ((const struct ck_merged_tensor *)pa)->tensor;
	uint32_t b = ((const struct ck_merged_tensor *)pb)->tensor;

	return (a > b) - (a < b);
}

static int take_stored(struct derive *d, const struct ck_model_names *without)
{
	const struct ck_catalog *img = d->v->img;
	int ret = 0;

	for (uint32_t t = d->v->first; t < d->v->first + d->v->nr && !ret;
	     t++) {
		struct ck_merged_tensor key = { .tensor = t };
		size_t len;
		const char *name =
			ck_catalog_str(img, img->tensors[t].name, &len);

		if (without && bsearch(&key, without->v, without->nr,
				       sizeof(key), by_tensor))
			continue;
		ret = take_tensor(d, t, name, len);
	}
	return ret;
}

static int take_model(struct derive *d, const struct ck_model_names *names)
{
	int ret = 0;

	for (uint32_t i = 0; i < names->nr && !ret; i++) {
		const struct ck_merged_tensor *m = &names->v[i];
		char *name = strndup(m->name, m->name_len);

		ret = name ? take_tensor(d, m->tensor, name, m->name_len) :
			     ck_no_memory(d->err);
		free(name);
	}
	return ret;
}

static int take_part(struct derive *d, const struct ck_opts *opts)
{
	const json_t *j = json_object_get(d->spec, "part");
	const char *part = j ? ck_json_text(j) : "all";
	struct ck_model_names names;
	int ret;

	if (!part || (strcmp(part, "all") && strcmp(part, "model") &&
		      strcmp(part, "optimizer")))
		return ck_fail(d->err, EINVAL,
			       "part: expected model, optimizer or all");
	if (!strcmp(part, "all"))
		return take_stored(d, NULL);
	ret = ck_model_names_make(&names, d->v->img, d->v->first, d->v->nr,
				  opts, d->err);
	if (ret)
		return ret;
	if (names.nr)
		qsort(names.v, names.nr, sizeof(*names.v), by_tensor);
	ret = strcmp(part, "model") ? take_stored(d, &names) :
				      take_model(d, &names);
	ck_model_names_free(&names);
	return ret;
}

/* ---- rows and types ---- */

/* The first @rows rows, of what is one run of them. */
static int trim(const struct derive *d, struct ck_derived *t, uint64_t rows)
{
	struct ck_derived_range *r = &d->out->range.v[t->first];

	if (!t->rank || rows > t->shape[0] || t->nr != 1)
		return ck_fail(d->err, EINVAL,
			       "rows: %.200s has no first %" PRIu64 " of them",
			       t->name, rows);
	r->len = t->shape[0] ? r->len / t->shape[0] * rows : 0;
	t->shape[0] = rows;
	return 0;
}

static int trim_one(struct derive *d, struct ck_derived *t)
{
	struct globs *g = &d->globs[ROWS];
	json_t *value;
	const char *glob;
	uint64_t nr = 0, rows = 0;
	size_t i = 0;
	bool any = false;

	json_object_foreach((json_t *)g->v, glob, value)
	{
		bool hit = fits(g, i++, glob, strlen(glob), t->name,
				strlen(t->name));

		if (hit && !any && ck_json_u64(value, &nr)) {
			rows = nr;
			any = true;
		}
	}
	return any ? trim(d, t, rows) : 0;
}

static int turn_one(struct derive *d, struct ck_derived *t)
{
	if (!has_glob(&d->globs[TRANSPOSE], t->name, strlen(t->name)))
		return 0;
	if (t->turned) { /* a preset's: and back again */
		uint64_t rows = t->shape[1];

		t->shape[1] = t->shape[0];
		t->shape[0] = rows;
		t->turned = 0;
		return 0;
	}
	if (turn(t, d->v->img))
		return 0;
	return ck_fail(d->err, EINVAL,
		       "transpose: %.200s is not a matrix of whole rows",
		       t->name);
}

static void cast_one(struct derive *d, struct ck_derived *t)
{
	bool kept = has_glob(&d->globs[KEEP], t->name, strlen(t->name));

	if (d->dtype && ck_cast_has(t->stored, d->dtype) && !kept)
		t->dtype = d->dtype;
	t->saturate = d->saturate;
}

static int finish_one(struct derive *d, struct ck_derived *t)
{
	int ret = trim_one(d, t);

	if (!ret)
		ret = turn_one(d, t);
	cast_one(d, t);
	return ret;
}

static int finish(struct derive *d)
{
	size_t kept = 0;
	int ret = 0;

	for (size_t i = 0; i < d->out->v.nr && !ret; i++) {
		struct ck_derived *t = &d->out->v.v[i];
		const char *why = NULL;

		ret = rename_one(d, t, &why);
		if (!ret && !why)
			ret = finish_one(d, t);
		if (ret)
			break; /* the view is not made, and says so */
		if (why) {
			ck_view_leave_out(d->v, t->origin, why);
			free(t->name);
			t->name = NULL;
		} else {
			struct ck_derived one = *t;

			t->name = NULL; /* it has one owner */
			d->out->v.v[kept++] = one;
		}
	}
	if (ret)
		return ret;
	d->out->v.nr = kept;
	return check_clashes(d);
}

/* A pattern that fits nothing is often one that is misspelt. */
static void report_unused(const struct derive *d)
{
	struct ck_str *s = &d->out->unused;

	ck_rename_unused(d->rename, s);
	for (unsigned g = 0; g < NR_GLOBS; g++) {
		size_t nr = g == ROWS ? json_object_size(d->globs[g].v) :
					json_array_size(d->globs[g].v);

		for (size_t i = 0; i < nr; i++)
			if (!d->globs[g].fitted[i])
				ck_str_fmt(s, "%s%s[%zu]", s->len ? ", " : "",
					   members[g], i);
	}
}

static int read_spec(struct derive *d)
{
	int ret = check_members(d);

	if (!ret)
		ret = take_dtype(d);
	if (!ret)
		ret = take_overflow(d);
	if (!ret)
		ret = ck_rename_new(&d->rename,
				    json_object_get(d->spec, "rename"), d->err);
	return ret;
}

int ck_derive_check(const json_t *spec, struct ck_err *err)
{
	struct derive *d = calloc(1, sizeof(*d));
	int ret;

	if (!d)
		return ck_no_memory(err);
	*d = (struct derive){ .spec = spec, .err = err };
	ret = read_spec(d);
	ck_rename_free(d->rename);
	free(d);
	return ret;
}

int ck_derive(struct ck_derivation *out, const struct ck_view *v,
	      const json_t *spec, const struct ck_opts *opts,
	      struct ck_err *err)
{
	struct derive *d = calloc(1, sizeof(*d));
	int ret;

	*out = (struct ck_derivation){ 0 };
	if (!d)
		return ck_no_memory(err);
	*d = (struct derive){ .out = out, .v = v, .spec = spec, .err = err };
	ret = read_spec(d);
	if (!ret)
		ret = take_part(d, opts);
	if (!ret)
		ret = finish(d);
	if (!ret)
		report_unused(d);
	ck_rename_free(d->rename);
	free(d);
	if (ret)
		ck_derivation_free(out);
	return ret;
}
