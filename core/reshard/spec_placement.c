/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_placement.c - {"mesh": ..., "partition_spec": ..., "placements": ...}
 *
 *	"mesh": {"shape": [2, 2], "axes": ["x", "y"], "device_ids": [0, 1, 2, 3]}
 *	"partition_spec": {"NAME or glob": ["x", null, ["y", "z"]] or null}
 *	"placements": {"NAME or glob": ["shard(0)", "replicate", "strided(0, 2)"]}
 *
 * A partition spec has an entry a dimension, and cuts one over several axes at
 * once, as torch_xla does; placements have an entry an axis of the mesh, and
 * cut one after the other, as DTensor does.  Both in parts of ceil(n / parts).
 */
#include "core/reshard/spec.h"

#include "core/base/check.h"
#include "core/base/match.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPEC "partition_spec"
#define PLACEMENTS "placements"
#define MAX_AXES 16
#define MAX_GLOBS 4096 /* each tensor is compared with each */

struct placement {
	struct ck_reshard_spec base;
	json_t *json;
	struct ck_mesh mesh;
	json_t *unused; /* keys of both tables that no tensor has used yet */
	const char *axis[MAX_AXES]; /* names, or NULL */
	struct ck_mesh_place *place;
};

/* ---- the mesh ---- */

static int take_devices(struct placement *p, const json_t *ids,
			struct ck_err *err)
{
	uint32_t nr = p->mesh.ranks, twice;

	p->base.ranks = nr;
	if (!ids || json_is_null(ids))
		return 0;
	if (!json_is_array(ids) || json_array_size(ids) != nr)
		return ck_fail(err, EINVAL,
			       "mesh.device_ids: expected a list of %" PRIu32
			       " numbers",
			       nr);
	p->place = calloc(nr, sizeof(*p->place));
	if (!p->place)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < nr; i++) {
		uint64_t id;

		if (!ck_json_u64(json_array_get(ids, i), &id) ||
		    id >= CK_RESHARD_MAX_RANKS)
			return ck_fail(err, EINVAL,
				       "mesh.device_ids: expected numbers from "
				       "0 to %d",
				       CK_RESHARD_MAX_RANKS - 1);
		p->place[i] = (struct ck_mesh_place){ (uint32_t)id, i };
	}
	if (!ck_mesh_sort(p->place, nr, &twice))
		return ck_fail(err, EINVAL,
			       "mesh.device_ids: %" PRIu32 " is there twice",
			       twice);
	p->base.ranks = p->place[nr - 1].rank + 1;
	p->mesh.place = p->place;
	return 0;
}

static int take_axes(struct placement *p, const json_t *axes,
		     struct ck_err *err)
{
	if (!axes || json_is_null(axes))
		return 0;
	if (!json_is_array(axes) || json_array_size(axes) != p->mesh.nr)
		return ck_fail(err, EINVAL,
			       "mesh.axes: expected %u names, one an axis",
			       p->mesh.nr);
	for (unsigned i = 0; i < p->mesh.nr; i++) {
		p->axis[i] = json_string_value(json_array_get(axes, i));
		if (!p->axis[i])
			return ck_fail(err, EINVAL,
				       "mesh.axes: expected names");
		for (unsigned k = 0; k < i; k++)
			if (!strcmp(p->axis[i], p->axis[k]))
				return ck_fail(err, EINVAL,
					       "mesh.axes: %.60s is there "
					       "twice",
					       p->axis[i]);
	}
	return 0;
}

static int take_mesh(struct placement *p, const json_t *mesh,
		     struct ck_err *err)
{
	uint64_t dims[MAX_AXES];
	unsigned nr;
	int ret;

	if (!ck_json_dims(json_object_get(mesh, "shape"), dims, MAX_AXES,
			  &nr) ||
	    !nr)
		return ck_fail(err, EINVAL,
			       "mesh.shape: expected a list of up to %d sizes",
			       MAX_AXES);
	for (unsigned i = 0; i < nr; i++)
		if (dims[i] > CK_RESHARD_MAX_RANKS ||
		    ck_mesh_add_axis(&p->mesh, (uint32_t)dims[i],
				     CK_RESHARD_MAX_RANKS) == CK_MESH_AXES)
			return ck_fail(err, EINVAL,
				       "mesh.shape: expected 1 to %d devices",
				       CK_RESHARD_MAX_RANKS);
	ret = take_axes(p, json_object_get(mesh, "axes"), err);
	return ret ? ret :
		     take_devices(p, json_object_get(mesh, "device_ids"), err);
}

/* ---- one tensor ---- */

/* The first glob of table @which that fits; all that do are used. */
static const json_t *by_glob(const struct placement *p, const char *which,
			     const char *name, size_t len)
{
	json_t *table = json_object_get(p->json, which);
	json_t *unused = json_object_get(p->unused, which);
	const json_t *found = NULL;
	const char *key;
	json_t *value;

	json_object_foreach(table, key, value)
	{
		if (!strchr(key, '*') ||
		    (found && !json_object_get(unused, key)) ||
		    !ck_glob(key, strlen(key), name, len))
			continue;
		json_object_del(unused, key);
		found = found ? found : value;
	}
	return found;
}

static const json_t *by_name(const struct placement *p, const char *which,
			     const char *name)
{
	json_object_del(json_object_get(p->unused, which), name);
	return json_object_get(json_object_get(p->json, which), name);
}

/* Often misspelt, and then the tensor that was meant is on every rank. */
static void report_unused(const struct ck_reshard_spec *base,
			  struct ck_str *out)
{
	const struct placement *p = (const struct placement *)base;
	const char *which, *key;
	json_t *keys, *value;
	size_t nr = 0;

	json_object_foreach(p->unused, which, keys)
	{
		json_object_foreach(keys, key, value)
		{
			ck_reshard_note_unused(out, nr++, which, key,
					       strlen(key));
		}
	}
	ck_reshard_note_end(out, nr);
}

static bool unused_options(const struct ck_reshard_spec *base)
{
	const struct placement *p = (const struct placement *)base;
	size_t all = 0, unused = 0;
	const char *which;
	json_t *keys;

	json_object_foreach(p->unused, which, keys)
	{
		all += json_object_size(json_object_get(p->json, which));
		unused += json_object_size(keys);
	}
	return all && unused == all;
}

static unsigned axis_named(const struct placement *p, const json_t *j)
{
	const char *name = json_string_value(j);
	uint64_t n;

	if (ck_json_u64(j, &n))
		return n < p->mesh.nr ? (unsigned)n : MAX_AXES;
	for (unsigned i = 0; name && i < p->mesh.nr; i++)
		if (p->axis[i] && !strcmp(p->axis[i], name))
			return i;
	return MAX_AXES;
}

/* Adds an axis to the step of its dimension. */
static int along(const struct placement *p, const json_t *j, uint32_t *used,
		 struct ck_mesh_step *s, struct ck_err *err)
{
	unsigned a = axis_named(p, j);

	if (a == MAX_AXES)
		return ck_fail(err, EINVAL,
			       "partition_spec: %.60s is no axis of the mesh",
			       json_string_value(j) ?: "an entry");
	if (*used >> a & 1)
		return ck_fail(err, EINVAL,
			       "partition_spec: axis %u cuts two dimensions",
			       a);
	*used |= 1u << a;
	s->split.nr *= p->mesh.size[a];
	s->axis[s->nr_axes++] = (uint8_t)a;
	return 0;
}

static int cut_dim(const struct placement *p, const json_t *j, unsigned dim,
		   uint32_t *used, struct ck_placement *out, struct ck_err *err)
{
	bool list = json_is_array(j);
	size_t nr = list ? json_array_size(j) : 1;
	struct ck_mesh_step *s;
	int ret = 0;

	if (!j || json_is_null(j) || !nr)
		return 0;
	s = ck_placement_shard(out, dim, 0, CK_SIZES_CEIL);
	if (!s)
		return ck_fail(err, EINVAL, "over %d dimensions are cut",
			       CK_MESH_STEPS);
	s->split.nr = 1;
	s->nr_axes = 0;
	for (size_t i = 0; i < nr && !ret; i++)
		ret = along(p, list ? json_array_get(j, i) : j, used, s, err);
	if (!ret && s->split.nr == 1) /* a cut into one */
		memset(s, 0, sizeof(*s));
	if (!ret && !s->split.nr)
		out->nr--;
	return ret;
}

static int cut_spec(const struct placement *p, const json_t *j, unsigned rank,
		    struct ck_placement *out, struct ck_err *err)
{
	uint32_t used = 0;
	int ret = 0;

	if (json_is_null(j))
		return 0;
	if (!json_is_array(j))
		return ck_fail(err, EINVAL,
			       "partition_spec: expected null or a list");
	if (json_array_size(j) > rank)
		return ck_fail(err, EINVAL,
			       "partition_spec: %zu entries, for %u dimensions",
			       json_array_size(j), rank);
	for (unsigned d = 0; d < json_array_size(j) && !ret; d++)
		ret = cut_dim(p, json_array_get(j, d), d, &used, out, err);
	return ret;
}

/* "shard(1)": the numbers in the parentheses after @word, at most @max. */
static bool arguments(const char *text, const char *word, int max, long v[2])
{
	size_t n = strlen(word);
	char *end;

	if (strncasecmp(text, word, n) != 0 || text[n] != '(')
		return false;
	v[1] = 0;
	v[0] = strtol(text + n + 1, &end, 10);
	if (end == text + n + 1)
		return false;
	if (*end == ',' && max > 1)
		v[1] = strtol(end + 1, &end, 10);
	return !strcmp(end, ")");
}

static int place_axis(const char *text, unsigned axis, unsigned rank,
		      struct ck_placement *out, struct ck_err *err)
{
	struct ck_mesh_step *s;
	bool strided;
	long v[2];

	if (text && (!strcasecmp(text, "replicate") || !strcmp(text, "R")))
		return 0;
	strided = text && arguments(text, "strided", 2, v);
	if (!text || (!strided && !arguments(text, "shard", 1, v) &&
		      !arguments(text, "S", 1, v)))
		return ck_fail(err, EINVAL,
			       "placements: expected shard(DIM), replicate or "
			       "strided(DIM, FACTOR), found %.60s",
			       text ? text : "no text");
	if (v[0] < 0)
		v[0] += rank;
	if (v[0] < 0 || v[0] >= (long)rank)
		return ck_fail(err, EINVAL,
			       "placements: %.60s, of %u dimensions", text,
			       rank);
	if (strided && (v[1] < 1 || v[1] > CK_SHARD_RUNS))
		return ck_fail(err, EINVAL,
			       "placements: %.60s: expected a factor from 1 to "
			       "%d",
			       text, CK_SHARD_RUNS);
	s = ck_placement_shard(out, (unsigned)v[0], axis, CK_SIZES_CEIL);
	if (s && strided) {
		s->blocks = (uint64_t)v[1];
		s->block_how = CK_SIZES_CEIL;
	}
	return s ? 0 : ck_fail(err, EINVAL, "placements: too many");
}

static int cut_placements(const struct placement *p, const json_t *j,
			  unsigned rank, struct ck_placement *out,
			  struct ck_err *err)
{
	int ret = 0;

	if (!json_is_array(j) || json_array_size(j) != p->mesh.nr)
		return ck_fail(err, EINVAL,
			       "placements: expected a list of %u, one an axis "
			       "of the mesh",
			       p->mesh.nr);
	for (unsigned i = 0; i < p->mesh.nr && !ret; i++)
		ret = place_axis(json_string_value(json_array_get(j, i)), i,
				 rank, out, err);
	return ret;
}

static int cut(const struct ck_reshard_spec *base, const struct ck_catalog *img,
	       uint32_t tensor, struct ck_placement *out, struct ck_err *err)
{
	const struct placement *p = (const struct placement *)base;
	const struct ck_tensor *t = &img->tensors[tensor];
	size_t len;
	const char *name = ck_catalog_str(img, t->name, &len);
	const json_t *place = by_name(p, PLACEMENTS, name);
	const json_t *spec = by_name(p, SPEC, name);
	bool named = place || spec;
	const json_t *glob_place = by_glob(p, PLACEMENTS, name, len);
	const json_t *glob_spec = by_glob(p, SPEC, name, len);

	memcpy(&out->mesh, &p->mesh, sizeof(out->mesh));
	place = named ? place : glob_place;
	spec = named ? spec : glob_spec;
	if (place && spec)
		return ck_fail(err, EINVAL,
			       "both " SPEC " and " PLACEMENTS
			       " say how to cut "
			       "it");
	if (place)
		return cut_placements(p, place, t->rank, out, err);
	return spec ? cut_spec(p, spec, t->rank, out, err) : 0;
}

static void free_placement(struct ck_reshard_spec *base)
{
	struct placement *p = (struct placement *)base;

	json_decref(p->json);
	json_decref(p->unused);
	free(p->place);
	free(p);
}

/* What stands in the file, for messages. */
struct text {
	const char *v;
	size_t len;
};

static int bad_member(const struct text *text, const char *outer,
		      const char *key, const char *what, struct ck_err *err)
{
	size_t at = ck_json_where(text->v, text->len, outer, key);
	char where[40] = "";

	if (at != SIZE_MAX)
		snprintf(where, sizeof(where), "byte %zu: ", at);
	return ck_fail(err, EINVAL, "%s%s%s\"%.80s\"%s", where,
		       outer ? outer : "", outer ? ": " : "", key, what);
}

static int check_members(const json_t *j, const char *outer,
			 const char *const known[3], const struct text *text,
			 struct ck_err *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)j, key, value)
	{
		unsigned i = 0;
		char what[100];

		while (i < 3 && strcmp(key, known[i]) != 0)
			i++;
		if (i < 3)
			continue;
		snprintf(what, sizeof(what),
			 " is no member: expected %s, %s or %s", known[0],
			 known[1], known[2]);
		return bad_member(text, outer, key, what, err);
	}
	return 0;
}

/* A name or a pattern is in one table only. */
static int check_once(const json_t *j, const struct text *text,
		      struct ck_err *err)
{
	const json_t *spec = json_object_get(j, SPEC);
	const char *key;
	json_t *value;

	json_object_foreach(json_object_get(j, PLACEMENTS), key, value)
	{
		if (json_object_get(spec, key))
			return bad_member(text, PLACEMENTS, key,
					  " is in " SPEC " too", err);
	}
	return 0;
}

static int check_file(const json_t *j, const struct text *text,
		      struct ck_err *err)
{
	static const char *const all[3] = { "mesh", SPEC, PLACEMENTS };
	static const char *const of_mesh[3] = { "shape", "axes", "device_ids" };
	int ret = check_members(j, NULL, all, text, err);

	if (!ret)
		ret = check_members(json_object_get(j, "mesh"), "mesh", of_mesh,
				    text, err);
	return ret ? ret : check_once(j, text, err);
}

static const struct ck_reshard_spec_ops ops = {
	.cut = cut,
	.note = report_unused,
	.unused_options = unused_options,
	.free = free_placement,
};

static int check_table(struct placement *p, const char *key, struct ck_err *err)
{
	json_t *table = json_object_get(p->json, key);
	unsigned globs = 0;
	void *it;

	if (table && !json_is_object(table))
		return ck_fail(err, EINVAL, "%s: expected an object", key);
	for (it = json_object_iter(table); it;
	     it = json_object_iter_next(table, it))
		globs += strchr(json_object_iter_key(it), '*') != NULL;
	if (globs > MAX_GLOBS)
		return ck_fail(err, EINVAL, "%s: over %d patterns", key,
			       MAX_GLOBS);
	return table && json_object_set_new(p->unused, key, json_copy(table)) ?
		       ck_no_memory(err) :
		       0;
}

int ck_reshard_placement(struct ck_reshard_spec **out, json_t *j,
			 const char *bytes, size_t len, struct ck_err *err)
{
	const struct text text = { bytes, len };
	struct placement *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return ck_no_memory(err);
	p->base.ops = &ops;
	p->json = json_incref(j);
	p->unused = json_object();
	ret = take_mesh(p, json_object_get(j, "mesh"), err);
	if (!ret && !json_object_get(j, SPEC) &&
	    !json_object_get(j, PLACEMENTS))
		ret = ck_fail(err, EINVAL,
			      "expected \"" SPEC "\" or \"" PLACEMENTS "\"");
	if (!ret)
		ret = check_table(p, SPEC, err);
	if (!ret)
		ret = check_table(p, PLACEMENTS, err);
	if (!ret)
		ret = check_file(j, &text, err);
	if (ret)
		free_placement(&p->base);
	else
		*out = &p->base;
	return ret;
}
