/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - members of the wanted type, or a line with the JSON path */
#include "core/format/layout/json.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct ck_lay_in ck_lay_below(const struct ck_lay_in *in, const char *key,
			      size_t i)
{
	struct ck_lay_in to = { .doc = in->doc, .err = in->err };
	const char *dot = *in->path ? "." : "";

	if (key)
		snprintf(to.path, sizeof(to.path), "%.120s%s%.60s", in->path,
			 dot, key);
	else
		snprintf(to.path, sizeof(to.path), "%.160s[%zu]", in->path, i);
	return to;
}

int ck_lay_bad(const struct ck_lay_in *in, const char *fmt, ...)
{
	char text[CK_ERR_MAX / 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return ck_fail(in->err, EINVAL, "%s: %s%s%s", in->doc->name, in->path,
		       *in->path ? ": " : "", text);
}

int ck_lay_no_memory(const struct ck_lay_in *in)
{
	return ck_fail(in->err, ENOMEM, "%s: no memory", in->doc->name);
}

int ck_lay_expected(const struct ck_lay_in *in, const json_t *j,
		    const char *what)
{
	char found[CK_JSON_WHAT];

	return ck_lay_bad(in, "expected %s, found %s", what,
			  ck_json_what(j, found));
}

static bool is_named(const char *const *names, const char *key)
{
	for (; *names; names++)
		if (!strcmp(*names, key))
			return true;
	return false;
}

int ck_lay_object(const struct ck_lay_in *in, const json_t *j,
		  const char *const *names)
{
	char all[256] = "";
	size_t n = 0;
	void *it;

	if (!json_is_object(j))
		return ck_lay_expected(in, j, "an object");
	for (it = json_object_iter((json_t *)j); it;
	     it = json_object_iter_next((json_t *)j, it)) {
		const char *key = json_object_iter_key(it);

		if (strlen(key) == json_object_iter_key_len(it) &&
		    is_named(names, key))
			continue;
		for (; *names && n < sizeof(all) - 32; names++)
			n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s",
					      n ? ", " : "", *names);
		return ck_lay_bad(in,
				  "unknown member \"%.80s\" (there are: %s)",
				  key, all);
	}
	return 0;
}

int ck_lay_array(const struct ck_lay_in *in, const json_t *j)
{
	return json_is_array(j) ? 0 : ck_lay_expected(in, j, "a list");
}

/* A tensor may have no name at all. */
static bool is_text(const json_t *j, bool maybe_empty)
{
	return json_is_string(j) && (maybe_empty || json_string_length(j)) &&
	       json_string_length(j) == strlen(json_string_value(j)) &&
	       json_string_length(j) <= CK_MAX_NAME;
}

int ck_lay_text(const struct ck_lay_in *in, const json_t *j, const char *key,
		const char **out)
{
	const json_t *v = json_object_get(j, key);
	struct ck_lay_in at = ck_lay_below(in, key, 0);

	if (!v)
		return 0;
	if (!is_text(v, !strcmp(key, "name")))
		return ck_lay_expected(&at, v, "a text of 1 to 65536 bytes");
	*out = json_string_value(v);
	return 0;
}

int ck_lay_u64(const struct ck_lay_in *in, const json_t *j, const char *key,
	       uint64_t *out)
{
	const json_t *v = json_object_get(j, key);
	struct ck_lay_in at = ck_lay_below(in, key, 0);

	if (!v || ck_json_u64(v, out))
		return 0;
	return ck_lay_expected(&at, v, "a number from 0 to 2^62");
}

int ck_lay_bool(const struct ck_lay_in *in, const json_t *j, const char *key,
		bool *out)
{
	const json_t *v = json_object_get(j, key);
	struct ck_lay_in at = ck_lay_below(in, key, 0);

	if (v && !json_is_boolean(v))
		return ck_lay_expected(&at, v, "true or false");
	if (v)
		*out = json_is_true(v);
	return 0;
}

int ck_lay_dtype(const struct ck_lay_in *in, const json_t *j, const char *key,
		 uint8_t *out)
{
	const json_t *v = json_object_get(j, key);
	struct ck_lay_in at = ck_lay_below(in, key, 0);

	if (!v)
		return 0;
	if (json_is_string(v))
		*out = (uint8_t)ck_dtype_by_name(json_string_value(v),
						 json_string_length(v));
	if (!json_is_string(v) || !*out || !ck_dtype_info(*out)->size)
		return ck_lay_expected(&at, v,
				       "an element type such as \"bfloat16\"");
	return 0;
}

int ck_lay_dims(const struct ck_lay_in *in, const json_t *j, const char *key,
		struct ck_lay_dims *out)
{
	const json_t *v = json_object_get(j, key);
	struct ck_lay_in at = ck_lay_below(in, key, 0);
	uint64_t dims[CK_MAX_RANK];
	struct ck_lay_doc *d = in->doc;

	if (!v)
		return 0;
	if (!ck_json_dims(v, dims, CK_MAX_RANK, &out->rank))
		return ck_lay_expected(&at, v,
				       "a list of at most 64 sizes below 2^62");
	if (!ck_vec_reserve(&d->dims, out->rank + 1))
		return ck_lay_no_memory(in);
	out->given = true;
	out->first = d->dims.nr;
	memcpy(d->dims.v + d->dims.nr, dims, out->rank * sizeof(*dims));
	d->dims.nr += out->rank;
	return 0;
}

int ck_lay_kind(const struct ck_lay_in *in, const json_t *j, const char *key,
		enum ck_lay_kind *out, bool *given)
{
	static const char *const names[] = { "raw", "safetensors", "torch" };
	struct ck_lay_in at = ck_lay_below(in, key, 0);
	const json_t *v = json_object_get(j, key);

	*given = v;
	if (!v)
		return 0;
	for (size_t i = 0; json_is_string(v) && i < CK_ARRAY_LEN(names); i++) {
		if (strcmp(json_string_value(v), names[i]) != 0)
			continue;
		*out = (enum ck_lay_kind)i;
		return 0;
	}
	return ck_lay_expected(&at, v, "\"raw\", \"safetensors\" or \"torch\"");
}

int ck_lay_at(const struct ck_lay_in *in, const json_t *j, const char *key,
	      uint64_t *at, uint64_t *rank)
{
	const struct ck_lay_mesh *mesh = &in->doc->mesh;
	json_t *object = json_object_get(j, key);
	struct ck_lay_in here = ck_lay_below(in, key, 0);
	void *it;

	if (object && !json_is_object(object))
		return ck_lay_expected(&here, object, "an object");
	for (it = json_object_iter(object); it;
	     it = json_object_iter_next(object, it)) {
		const char *name = json_object_iter_key(it);
		struct ck_lay_in one = ck_lay_below(&here, name, 0);
		const json_t *v = json_object_iter_value(it);
		unsigned axis = ck_lay_axis(mesh, name, strlen(name));
		uint64_t n = 0;

		if (axis == CK_LAY_AXES && !(rank && !strcmp(name, "rank")))
			return ck_lay_bad(&one, "is no axis of the mesh");
		if (!ck_json_u64(v, &n))
			return ck_lay_expected(&one, v, "a number");
		if (axis == CK_LAY_AXES)
			*rank = n;
		else if (n >= mesh->axis[axis].size)
			return ck_lay_bad(&one,
					  "expected a number below %" PRIu64
					  ", found %" PRIu64,
					  mesh->axis[axis].size, n);
		else
			at[axis] = n;
	}
	return 0;
}

int ck_lay_check_text(const struct ck_lay_in *in, const char *text,
		      unsigned nr_cap, bool key, uint32_t *used)
{
	ck_auto_str struct ck_str out = { 0 };
	struct ck_lay_vars v = { .mesh = &in->doc->mesh,
				 .nr_cap = nr_cap,
				 .dry = true };
	uint32_t uses = 0;
	struct ck_err why;
	int ret = ck_lay_expand(text, &v, &out, &uses, &why);

	if (ret == -ENOMEM)
		return ck_lay_no_memory(in);
	if (ret)
		return ck_lay_bad(in, "%s", why.msg);
	if (uses & CK_LAY_KEY && !key)
		return ck_lay_bad(in, "{key} means nothing here");
	if (used)
		*used = uses;
	return 0;
}
