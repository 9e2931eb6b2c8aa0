/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - members of the wanted type, or a line with the JSON path */
#include "core/layout/json.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- faults ---- */

/* Written from its end; a document is at most 6 deep where one reads it. */
static const char *path_of(const struct ck_layout_in *in, char text[640])
{
	char *to = text + 639, part[80];

	*to = '\0';
	for (; in->up && to - text > 80; in = in->up) {
		int n = in->key ? snprintf(part, sizeof(part), "%s%.60s",
					   in->up->up ? "." : "", in->key) :
				  snprintf(part, sizeof(part), "[%zu]", in->i);

		to -= n;
		memcpy(to, part, (size_t)n);
	}
	return to;
}

void ck_layout_bad(const struct ck_layout_in *in, const char *fmt, ...)
{
	char text[CK_ERR_MAX / 2], buf[640];
	const char *path = path_of(in, buf);
	va_list ap;

	if (in->doc->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	in->doc->failed = ck_fail(in->doc->err, EINVAL, "%s: %s%s%s",
				  in->doc->name, path, *path ? ": " : "", text);
}

void ck_layout_no_memory(const struct ck_layout_in *in)
{
	if (!in->doc->failed)
		in->doc->failed = ck_no_memory(in->doc->err);
}

void ck_layout_expected(const struct ck_layout_in *in, const json_t *j,
			const char *what)
{
	char found[CK_JSON_WHAT];

	ck_layout_bad(in, "expected %s, found %s", what,
		      ck_json_what(j, found));
}

/* ---- what holds members ---- */

static bool is_named(const char *names, const char *key, size_t len)
{
	for (; *names; names += strspn(names, ", ")) {
		size_t n = strcspn(names, ",");

		if (n == len && !memcmp(names, key, n))
			return true;
		names += n;
	}
	return false;
}

void ck_layout_object(const struct ck_layout_in *in, const json_t *j,
		      const char *names)
{
	void *it;

	if (!json_is_object(j))
		ck_layout_expected(in, j, "an object");
	for (it = json_object_iter((json_t *)j); it && !in->doc->failed;
	     it = json_object_iter_next((json_t *)j, it)) {
		const char *key = json_object_iter_key(it);

		if (!is_named(names, key, json_object_iter_key_len(it)))
			ck_layout_bad(
				in, "unknown member \"%.80s\" (there are: %s)",
				key, names);
	}
}

void *ck_layout_list(const struct ck_layout_in *in, const json_t *j,
		     size_t size, size_t *nr)
{
	void *room;

	*nr = json_array_size(j);
	if (!json_is_array(j))
		ck_layout_expected(in, j, "a list");
	room = ck_arena_alloc(&in->doc->mem, *nr * size);
	if (!room) {
		*nr = 0;
		ck_layout_no_memory(in);
	}
	return room;
}

/* ---- members ---- */

/* A tensor may have no name at all. */
static bool is_text(const json_t *j, bool maybe_empty)
{
	return json_is_string(j) && (maybe_empty || json_string_length(j)) &&
	       json_string_length(j) == strlen(json_string_value(j)) &&
	       json_string_length(j) <= CK_MAX_NAME;
}

void ck_layout_string(const struct ck_layout_in *in, const json_t *j,
		      const char *key, const char **out)
{
	const struct ck_layout_in at = ck_layout_below(in, key, 0);
	const json_t *v = json_object_get(j, key);

	if (v && is_text(v, !strcmp(key, "name")))
		*out = json_string_value(v);
	else if (v)
		ck_layout_expected(&at, v, "a text of 1 to 65536 bytes");
}

void ck_layout_u64(const struct ck_layout_in *in, const json_t *j,
		   const char *key, uint64_t *out)
{
	const struct ck_layout_in at = ck_layout_below(in, key, 0);
	const json_t *v = json_object_get(j, key);

	if (v && !ck_json_u64(v, out))
		ck_layout_expected(&at, v, "a number from 0 to 2^62");
}

void ck_layout_bool(const struct ck_layout_in *in, const json_t *j,
		    const char *key, bool *out)
{
	const struct ck_layout_in at = ck_layout_below(in, key, 0);
	const json_t *v = json_object_get(j, key);

	if (json_is_boolean(v))
		*out = json_is_true(v);
	else if (v)
		ck_layout_expected(&at, v, "true or false");
}

void ck_layout_dtype(const struct ck_layout_in *in, const json_t *j,
		     const char *key, uint8_t *out)
{
	const struct ck_layout_in at = ck_layout_below(in, key, 0);
	const json_t *v = json_object_get(j, key);

	if (json_is_string(v))
		*out = (uint8_t)ck_dtype_by_name(json_string_value(v),
						 json_string_length(v));
	if (v && (!json_is_string(v) || !*out || !ck_dtype_info(*out)->size))
		ck_layout_expected(&at, v,
				   "an element type such as \"bfloat16\"");
}

void ck_layout_dims(const struct ck_layout_in *in, const json_t *j,
		    const char *key, struct ck_layout_dims *out)
{
	const struct ck_layout_in at = ck_layout_below(in, key, 0);
	const json_t *v = json_object_get(j, key);
	uint64_t dims[CK_MAX_RANK];

	if (!v)
		return;
	if (!ck_json_dims(v, dims, CK_MAX_RANK, &out->rank)) {
		out->rank = 0;
		ck_layout_expected(&at, v,
				   "a list of at most 64 sizes below 2^62");
	}
	out->v = ck_arena_copy(&in->doc->mem, dims, out->rank * sizeof(*dims));
	if (!out->v) {
		out->rank = 0;
		ck_layout_no_memory(in);
	}
}

size_t ck_layout_choice(const json_t *v, const char *const *names, size_t nr)
{
	size_t i = 0;

	if (!json_is_string(v))
		return nr;
	while (i < nr && (!names[i] || strcmp(json_string_value(v), names[i])))
		i++;
	return i;
}

void ck_layout_kind(const struct ck_layout_in *in, const json_t *j,
		    enum ck_layout_kind *out)
{
	static const char *const names[] = { "raw", "safetensors", "torch" };
	const struct ck_layout_in at = ck_layout_below(in, "kind", 0);
	const json_t *v = json_object_get(j, "kind");
	size_t i = ck_layout_choice(v, names, CK_ARRAY_LEN(names));

	if (i < CK_ARRAY_LEN(names))
		*out = (enum ck_layout_kind)i;
	else if (v)
		ck_layout_expected(&at, v,
				   "\"raw\", \"safetensors\" or \"torch\"");
}

void ck_layout_at(const struct ck_layout_in *in, const json_t *j, uint64_t *at,
		  uint64_t *rank)
{
	const struct ck_layout_mesh *mesh = &in->doc->mesh;
	const struct ck_layout_in here = ck_layout_below(in, "at", 0);
	json_t *object = json_object_get(j, "at");
	void *it;

	if (object && !json_is_object(object))
		ck_layout_expected(&here, object, "an object");
	for (it = json_object_iter(object); it && !in->doc->failed;
	     it = json_object_iter_next(object, it)) {
		const char *name = json_object_iter_key(it);
		const struct ck_layout_in one = ck_layout_below(&here, name, 0);
		const json_t *v = json_object_iter_value(it);
		unsigned axis = ck_layout_axis(mesh, name, strlen(name));
		uint64_t n = 0;

		if (axis == CK_LAYOUT_AXES && !(rank && !strcmp(name, "rank")))
			ck_layout_bad(&one, "is no axis of the mesh");
		else if (!ck_json_u64(v, &n))
			ck_layout_expected(&one, v, "a number");
		else if (axis == CK_LAYOUT_AXES)
			*rank = n;
		else if (n >= mesh->axis[axis].size)
			ck_layout_bad(&one,
				      "expected a number below %" PRIu64
				      ", found %" PRIu64,
				      mesh->axis[axis].size, n);
		else
			at[axis] = n;
	}
}

void ck_layout_template(const struct ck_layout_in *in, const char *text,
			unsigned nr_cap, bool key, uint32_t *used)
{
	ck_auto_str struct ck_str out = { 0 };
	const struct ck_layout_vars v = { .mesh = &in->doc->mesh,
					  .nr_cap = nr_cap,
					  .dry = true };
	uint32_t uses = 0;
	struct ck_err why;
	int ret = ck_layout_expand(text, &v, &out, &uses, &why);

	if (ret == -ENOMEM)
		ck_layout_no_memory(in);
	else if (ret)
		ck_layout_bad(in, "%s", why.msg);
	else if (uses & CK_LAYOUT_KEY && !key)
		ck_layout_bad(in, "{key} means nothing here");
	if (used)
		*used = uses;
}
