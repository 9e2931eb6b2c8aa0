/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.c - "tensors" of the document: names, shapes, what they match
 *
 * Patterns go to the C library, so those are refused here that would make it
 * slow or large: back-references, and repetitions with counts.
 */
#include "core/base/auto.h"
#include "core/format/layout/json.h"

#include <errno.h>
#include <string.h>

#define MAX_PATTERN 1024
#define MAX_STARS 16
#define MAX_GROUPS 32

/* ---- patterns ---- */

static size_t count(const char *s, char c)
{
	size_t n = 0;

	for (; *s; s++)
		n += *s == c;
	return n;
}

static int check_glob(const struct ck_lay_in *in, const char *glob)
{
	if (strlen(glob) > MAX_PATTERN || count(glob, '*') > MAX_STARS)
		return ck_lay_bad(in,
				  "a pattern of more than %d bytes or %d stars",
				  MAX_PATTERN, MAX_STARS);
	return 0;
}

static int check_regex(const struct ck_lay_in *in, const char *re)
{
	bool in_class = false;

	if (strlen(re) > MAX_PATTERN || count(re, '(') > MAX_GROUPS)
		return ck_lay_bad(in,
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
			return ck_lay_bad(in, "repetition with {} is not "
					      "taken; write * + or ?");
		else if (*re == '\\' && re[1] >= '1' && re[1] <= '9')
			return ck_lay_bad(in, "back-references are not taken");
		else if (*re == '\\' && re[1])
			re++;
	}
	return 0;
}

static int compile(const struct ck_lay_in *in, struct ck_lay_rule *r)
{
	struct ck_lay_in at = ck_lay_below(in, "regex", 0);
	int ret = check_regex(&at, r->pattern);
	char why[128];

	if (ret)
		return ret;
	ret = regcomp(&r->re, r->pattern, REG_EXTENDED);
	if (ret == REG_ESPACE)
		return ck_lay_no_memory(in);
	if (ret) {
		regerror(ret, &r->re, why, sizeof(why));
		return ck_lay_bad(&at, "\"%.80s\": %s", r->pattern, why);
	}
	r->has_re = true;
	if (r->re.re_nsub >= CK_LAY_CAPTURES)
		return ck_lay_bad(&at, "%zu groups, of at most %d",
				  r->re.re_nsub, CK_LAY_CAPTURES - 1);
	return 0;
}

/* ---- what is matched, and what it is called ---- */

static int exact(const struct ck_lay_in *in, const json_t *j,
		 struct ck_lay_rule *r)
{
	struct ck_lay_in key = ck_lay_below(in, "key", 0);
	int ret = ck_lay_text(in, j, "name", &r->pattern);

	if (!ret)
		ret = ck_lay_text(in, j, "key", &r->key);
	if (!ret && r->key)
		ret = ck_lay_check_text(&key, r->key, 0, false, &r->key_uses);
	return ret;
}

static int pattern(const struct ck_lay_in *in, const json_t *j,
		   struct ck_lay_rule *r)
{
	struct ck_lay_in name = ck_lay_below(in, "name", 0);
	struct ck_lay_in glob = ck_lay_below(in, "glob", 0);
	unsigned caps = 0;
	int ret;

	if (json_object_get(j, "key"))
		return ck_lay_bad(in, "\"key\" goes with an exact \"name\"; "
				      "patterns are matched with keys");
	r->match = json_object_get(j, "glob") ? CK_LAY_GLOB : CK_LAY_REGEX;
	ret = ck_lay_text(in, j, r->match == CK_LAY_GLOB ? "glob" : "regex",
			  &r->pattern);
	if (!ret && r->match == CK_LAY_GLOB)
		ret = check_glob(&glob, r->pattern);
	if (!ret && r->match == CK_LAY_REGEX)
		ret = compile(in, r);
	if (r->match == CK_LAY_REGEX && r->has_re)
		caps = (unsigned)r->re.re_nsub + 1;
	if (!ret)
		ret = ck_lay_text(in, j, "name", &r->name);
	if (!ret && r->name)
		ret = ck_lay_check_text(&name, r->name, caps, true, NULL);
	return ret;
}

static int parse_match(const struct ck_lay_in *in, const json_t *j,
		       struct ck_lay_rule *r)
{
	if (json_object_get(j, "glob") && json_object_get(j, "regex"))
		return ck_lay_bad(in, "both \"glob\" and \"regex\"");
	if (json_object_get(j, "glob") || json_object_get(j, "regex"))
		return pattern(in, j, r);
	if (!json_object_get(j, "name"))
		return ck_lay_bad(in,
				  "expected \"name\", \"glob\" or \"regex\"");
	return exact(in, j, r);
}

/* ---- coordinates that a key tells ---- */

static int add_coord(const struct ck_lay_in *in, const char *name,
		     const json_t *v, struct ck_lay_rule *r)
{
	const struct ck_lay_mesh *mesh = &in->doc->mesh;
	struct ck_lay_coord c = {
		.axis = ck_lay_axis(mesh, name, strlen(name)),
	};
	unsigned caps = r->has_re ? (unsigned)r->re.re_nsub + 1 : 0;
	struct ck_lay_coord *room;
	int ret = 0;

	if (c.axis == CK_LAY_AXES)
		return ck_lay_bad(in, "is no axis of the mesh");
	if (json_is_string(v)) {
		c.text = json_string_value(v);
		ret = ck_lay_check_text(in, c.text, caps, false, NULL);
	} else if (!ck_json_u64(v, &c.n)) {
		return ck_lay_expected(in, v,
				       "a number, or a text such as "
				       "\"{$1}\"");
	} else if (c.n >= mesh->axis[c.axis].size) {
		return ck_lay_expected(in, v, "a number below the axis's size");
	}
	if (ret)
		return ret;
	room = ck_vec_push(&in->doc->coords);
	if (!room)
		return ck_lay_no_memory(in);
	*room = c;
	r->nr_coords++;
	return 0;
}

static int parse_coords(const struct ck_lay_in *in, const json_t *j,
			struct ck_lay_rule *r)
{
	json_t *object = json_object_get(j, "at");
	struct ck_lay_in here = ck_lay_below(in, "at", 0);
	int ret = 0;
	void *it;

	r->first_coord = in->doc->coords.nr;
	if (object && !json_is_object(object))
		return ck_lay_expected(&here, object, "an object");
	for (it = json_object_iter(object); it && !ret;
	     it = json_object_iter_next(object, it)) {
		const char *name = json_object_iter_key(it);
		struct ck_lay_in at = ck_lay_below(&here, name, 0);

		ret = add_coord(&at, name, json_object_iter_value(it), r);
	}
	return ret;
}

/* ---- what goes with what ---- */

static int check_ignored(const struct ck_lay_in *in, const json_t *j,
			 const struct ck_lay_rule *r)
{
	static const char *const moot[] = { "dtype",	 "shape", "view",
					    "placement", "boxes", "at",
					    "tree",	 NULL };

	for (const char *const *m = moot; r->ignore && *m; m++)
		if (json_object_get(j, *m))
			return ck_lay_bad(in, "\"ignore\" and \"%s\"", *m);
	if (r->ignore && (r->name || r->key))
		return ck_lay_bad(in, "\"ignore\" and another name");
	return 0;
}

static uint64_t volume(const struct ck_lay_doc *d, const struct ck_lay_dims *s)
{
	uint64_t v = 1;

	/* saturated: two that are too large are refused later anyway */
	for (unsigned i = 0; i < s->rank; i++)
		if (__builtin_mul_overflow(v, d->dims.v[s->first + i], &v))
			v = UINT64_MAX;
	return v;
}

static int check_shape(const struct ck_lay_in *in, const struct ck_lay_rule *r)
{
	const struct ck_lay_doc *d = in->doc;
	bool padded = false;

	if (r->view.given && !r->shape.given)
		return ck_lay_bad(in, "\"view\" needs \"shape\"");
	if (r->view.given && volume(d, &r->view) != volume(d, &r->shape))
		return ck_lay_bad(in, "\"view\" has not as many elements as "
				      "\"shape\"");
	for (size_t i = 0; i < r->nr_steps; i++)
		padded |= d->steps.v[r->first_step + i].padded > 0;
	if (padded && !r->shape.given)
		return ck_lay_bad(in, "\"padded\" needs \"shape\"");
	return 0;
}

static int parse_parts(const struct ck_lay_in *in, const json_t *j,
		       struct ck_lay_rule *r)
{
	struct ck_lay_in place = ck_lay_below(in, "placement", 0);
	struct ck_lay_in boxes = ck_lay_below(in, "boxes", 0);
	const json_t *p = json_object_get(j, "placement");
	const json_t *b = json_object_get(j, "boxes");
	int ret = 0;

	r->first_step = in->doc->steps.nr;
	r->first_box = in->doc->boxes.nr;
	if (p && b)
		return ck_lay_bad(in, "both \"placement\" and \"boxes\"");
	if (p)
		ret = ck_lay_parse_placement(&place, p, r);
	r->boxed = b;
	if (b)
		ret = ck_lay_parse_boxes(&boxes, b, r);
	return ret;
}

static int parse_rule(const struct ck_lay_in *in, const json_t *j,
		      struct ck_lay_rule *r)
{
	static const char *const names[] = { "name",	"glob",	  "regex",
					     "key",	"at",	  "dtype",
					     "shape",	"view",	  "placement",
					     "boxes",	"ignore", "tree",
					     "comment", NULL };
	int ret = ck_lay_object(in, j, names);

	if (!ret)
		ret = parse_match(in, j, r);
	if (!ret)
		ret = ck_lay_bool(in, j, "ignore", &r->ignore);
	if (!ret)
		ret = check_ignored(in, j, r);
	if (!ret)
		ret = ck_lay_text(in, j, "tree", &r->tree);
	if (!ret)
		ret = ck_lay_dtype(in, j, "dtype", &r->dtype);
	if (!ret)
		ret = ck_lay_dims(in, j, "shape", &r->shape);
	if (!ret)
		ret = ck_lay_dims(in, j, "view", &r->view);
	if (!ret)
		ret = parse_coords(in, j, r);
	if (!ret)
		ret = parse_parts(in, j, r);
	return ret ? ret : check_shape(in, r);
}

/* dims may move while they grow, so steps point into them at the end only. */
void ck_lay_fix_sizes(struct ck_lay_doc *d)
{
	for (size_t i = 0; i < d->steps.nr; i++)
		if (d->steps.v[i].split.how == CK_SIZES_GIVEN)
			d->steps.v[i].split.given =
				d->dims.v + d->step_sizes.v[i];
}

int ck_lay_parse_tensors(const struct ck_lay_in *in, const json_t *j)
{
	int ret = ck_lay_array(in, j);

	for (size_t i = 0; i < json_array_size(j) && !ret; i++) {
		struct ck_lay_in at = ck_lay_below(in, NULL, i);
		struct ck_lay_rule *room = ck_vec_push(&in->doc->rules);

		if (!room)
			return ck_lay_no_memory(in);
		*room = (struct ck_lay_rule){ 0 };
		ret = parse_rule(&at, json_array_get(j, i), room);
	}
	if (!ret)
		ck_lay_fix_sizes(in->doc);
	return ret;
}
