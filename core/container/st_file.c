/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_file.c - a safetensors header as a list of parts
 *
 *   base: u64 LE N | N bytes JSON | data; offsets count from base + 8 + N
 */
#include "core/container/st_file.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHARDING_KEY "DCP_SHARDING_INFO"

/* MindSpore keeps int4 as I8, and says so beside: "NAME": "Int4". */
static bool is_int4(const struct ck_st_file *f, const struct ck_st_tensor *t)
{
	const char *format =
		json_string_value(json_object_get(f->h.metadata, "format"));
	const char *type = json_string_value(
		json_object_getn(f->h.metadata, t->name, t->name_len));

	return t->dtype == CK_DT_I8 && format && !strcmp(format, "ms") &&
	       type && !strcmp(type, "Int4");
}

static int keep_entry(struct ck_st_file *f, const struct ck_st_tensor *t)
{
	struct ck_st_entry *e = ck_vec_push(&f->tensors);
	uint64_t *shape;

	if (!e || !ck_vec_reserve(&f->dims, t->rank + 1u))
		return -ENOMEM;
	shape = f->dims.v + f->dims.nr;
	memcpy(shape, t->shape, t->rank * sizeof(*shape));
	*e = (struct ck_st_entry){
		.name = t->name,
		.name_len = t->name_len,
		.dtype_name = t->dtype_name,
		.why = t->why,
		.shape = f->dims.nr,
		.rank = (uint8_t)t->rank,
		.dtype = is_int4(f, t) ? CK_DT_INT4 : (uint8_t)t->dtype,
	};
	f->dims.nr += t->rank;
	if (!ck_add_ok(t->begin, f->base, &e->begin) ||
	    !ck_add_ok(t->end, f->base, &e->end))
		e->why = "its data_offsets are larger than any file";
	return 0;
}

static int by_begin(const void *a, const void *b)
{
	const struct ck_st_entry *x = *(struct ck_st_entry *const *)a;
	const struct ck_st_entry *y = *(struct ck_st_entry *const *)b;

	return ck_order2(x->begin, y->begin, x->end, y->end);
}

/* In this format no byte belongs to two tensors, and none lies inside another. */
static int refuse_overlaps(struct ck_st_file *f)
{
	static const char why[] = "its bytes are another tensor's too";
	static const char inside[] = "it is empty, and lies inside another";
	ck_auto_free struct ck_st_entry **order = NULL;
	struct ck_st_entry *reach = NULL; /* ends last of those seen */
	size_t nr = 0;

	order = reallocarray(NULL, f->tensors.nr + 1,
			     sizeof(struct ck_st_entry *));
	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < f->tensors.nr; i++)
		if (!f->tensors.v[i].why)
			order[nr++] = &f->tensors.v[i];
	if (nr)
		qsort(order, nr, sizeof(struct ck_st_entry *), by_begin);
	for (size_t i = 0; i < nr; i++) {
		if (reach && order[i]->begin < reach->end &&
		    order[i]->begin == order[i]->end)
			order[i]->why = inside;
		else if (reach && order[i]->begin < reach->end)
			reach->why = order[i]->why = why;
		if (!reach || order[i]->end > reach->end)
			reach = order[i];
	}
	return 0;
}

static bool any_nonzero(json_t *sharding)
{
	const char *name;
	json_t *info, *at, *v;
	size_t i;

	json_object_foreach(sharding, name, info)
		json_array_foreach(json_object_get(info, "saved_offsets"), i, v)
	{
		at = v;
		if (!json_is_integer(at) || json_integer_value(at))
			return true;
	}
	return false;
}

static int read_sharding(struct ck_st_file *f, struct ck_err *err)
{
	const json_t *text = json_object_get(f->h.metadata, SHARDING_KEY);
	int ret;

	if (!json_is_string(text))
		return 0;
	ret = ck_json_parse(&f->sharding, json_string_value(text),
			    json_string_length(text), err);
	if (ret)
		return ck_wrap(err, ret, "%s: " SHARDING_KEY, f->name);
	if (!json_is_object(f->sharding))
		return ck_fail(err, EINVAL,
			       "%s: " SHARDING_KEY " is no JSON object",
			       f->name);
	f->moved = any_nonzero(f->sharding);
	return 0;
}

static int read_json(struct ck_st_file *f, struct ck_source *s,
		     struct ck_err *err)
{
	unsigned char first[8];
	uint64_t len;
	int ret;

	if (!ck_range_ok(f->base, sizeof(first), f->size))
		return ck_fail(err, EINVAL,
			       "%s: ends at byte %" PRIu64
			       ", inside the length of its header",
			       f->name, f->size);
	ret = ck_source_read(s, first, sizeof(first), f->base, err);
	if (ret)
		return ret;
	ret = ck_st_header_len(first, f->size - f->base, &len, err);
	if (ret)
		return ck_wrap(err, ret, "%s", f->name);
	f->bytes = malloc(len + 1);
	if (!f->bytes)
		return ck_no_memory(err);
	f->bytes[len] = '\0';
	f->len = len;
	ret = ck_source_read(s, f->bytes, len, f->base + sizeof(first), err);
	if (ret)
		return ret;
	ret = ck_st_header_parse(&f->h, f->bytes, len, err);
	return ret ? ck_wrap(err, ret, "%s", f->name) : 0;
}

static void place_metadata(struct ck_st_file *f)
{
	size_t from, to;

	if (!json_object_size(f->h.metadata) ||
	    !ck_json_value(f->bytes, f->len, "__metadata__", &from, &to))
		return;
	f->meta_off = f->base + 8 + from;
	f->meta_len = to - from;
}

int ck_st_file_read(struct ck_st_file *f, const char *name, uint32_t src,
		    struct ck_source *s, uint64_t base, struct ck_err *err)
{
	struct ck_st_tensor t;
	int ret;

	*f = (struct ck_st_file){
		.name = name,
		.src = src,
		.base = base,
		.size = (uint64_t)s->st.st_size,
	};
	ret = read_json(f, s, err);
	if (ret)
		return ret;
	while (ck_st_next(&f->h, &t))
		if (keep_entry(f, &t))
			return ck_no_memory(err);
	if (refuse_overlaps(f))
		return ck_no_memory(err);
	place_metadata(f);
	return read_sharding(f, err);
}

void ck_st_file_free(struct ck_st_file *f)
{
	json_decref(f->sharding);
	ck_st_header_free(&f->h);
	free(f->bytes);
	free(f->tensors.v);
	free(f->dims.v);
	*f = (struct ck_st_file){ 0 };
}

bool ck_st_file_placed(const struct ck_st_file *f, const struct ck_st_entry *e)
{
	return json_object_get(
		       json_object_getn(f->sharding, e->name, e->name_len),
		       "saved_offsets") != NULL;
}

bool ck_st_file_corner(const struct ck_st_file *f, const struct ck_st_entry *e,
		       uint64_t *at)
{
	const json_t *info, *list;
	unsigned nr;

	memset(at, 0, e->rank * sizeof(*at));
	info = json_object_getn(f->sharding, e->name, e->name_len);
	list = json_object_get(info, "saved_offsets");
	if (!list)
		return true;
	return ck_json_dims(list, at, e->rank, &nr) && nr == e->rank;
}

int ck_st_file_add(const struct ck_st_file *f, const struct ck_st_entry *e,
		   const uint64_t *shape, const uint64_t *at,
		   struct ck_builder *b, struct ck_err *err)
{
	const struct ck_part part = {
		.name = e->name,
		.name_len = e->name_len,
		.src = f->src,
		.dtype = e->dtype,
		.rank = e->rank,
		.shape = shape ? shape : ck_st_file_shape(f, e),
		.start = at,
		.len = at ? ck_st_file_shape(f, e) : NULL,
		.off = e->begin,
	};

	if (e->why)
		return ck_builder_refuse(b, 0, e->name, e->name_len, err,
					 "%s: %s (dtype %s)", f->name, e->why,
					 e->dtype_name);
	return ck_builder_add(b, &part, err);
}

int ck_st_file_add_metadata(const struct ck_st_file *f, const char *name,
			    struct ck_builder *b, struct ck_err *err)
{
	const struct ck_object_in object = {
		.name = name,
		.name_len = strlen(name),
		.src = f->src,
		.enc = CK_ENC_JSON,
		.off = f->meta_off,
		.len = f->meta_len,
	};

	return f->meta_len ? ck_builder_object(b, &object, err) : 0;
}

/* A map of strings by strings, or null: others are served, and said. */
static int say_metadata(const struct ck_st_file *f, struct ck_builder *b,
			struct ck_err *err)
{
	const char *key;
	json_t *value;

	json_object_foreach(f->h.metadata, key, value) if (
		!json_is_string(
			value)) return ck_builder_report_file(b, CK_ERROR,
							      f->name, err,
							      "__metadata__: \"%.80s\" is no string, and the "
							      "safetensors library refuses the file",
							      key);
	return 0;
}

static int say_tail(const struct ck_st_file *f, struct ck_builder *b,
		    struct ck_err *err)
{
	struct ck_problem_in p = { .severity = CK_ERROR, .file = f->name };
	uint64_t end = f->base + 8 + f->len;

	for (size_t i = 0; i < f->tensors.nr; i++)
		end = CK_MAX(end, f->tensors.v[i].end);
	if (end >= f->size)
		return 0;
	p.off = end;
	p.len = f->size - end;
	return ck_builder_problem(
		b, &p, err,
		"it goes on after its last tensor: bytes were added to it, and where is not known");
}

int ck_st_file_say_faults(const struct ck_st_file *f, struct ck_builder *b,
			  struct ck_err *err)
{
	int ret = say_metadata(f, b, err);

	return ret ? ret : say_tail(f, b, err);
}
