/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strategy_json.c - a strategy file in JSON form
 *
 *   {"parallel_layout_item": {NAME: {"dev_matrix": [], "tensor_map": [],
 *     "tensor_shape": [], "field": 0, "opt_weight_shard_size": 0, ...}},
 *    "parallel_strategy_item": {OPERATOR: {"stage": 0, ...}}, ...}
 */
#include "core/mesh/strategy_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/parse/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *read_map(struct ck_strategy_layout *l, const json_t *map)
{
	size_t nr = json_array_size(map);

	if (!json_is_array(map) || nr > CK_STRATEGY_AXES)
		return "its tensor_map is none that is known";
	for (size_t i = 0; i < nr; i++) {
		const json_t *j = json_array_get(map, i);
		json_int_t n = json_integer_value(j);

		if (!json_is_integer(j) || n < -1 || n >= l->nr_dev)
			return "its tensor_map names an axis that the device matrix lacks";
		l->dim[i] = (uint8_t)i;
		l->axis[i] = (int8_t)(n < 0 ? -1 : l->nr_dev - 1 - n);
	}
	l->nr_map = l->nr_dims = (uint8_t)nr;
	return NULL;
}

static const char *read_shape(struct ck_strategy_layout *l, const json_t *shape)
{
	unsigned nr;

	if (!shape)
		return NULL;
	if (!ck_json_dims(shape, l->shape, CK_STRATEGY_AXES, &nr))
		return "its tensor_shape is none that is known";
	l->shape_rank = (uint8_t)nr;
	l->has_shape = true;
	l->expanded = true;
	return nr == l->nr_map ?
		       NULL :
		       "its tensor_shape and tensor_map differ in length";
}

static const char *read_rest(struct ck_strategy_layout *l, const json_t *item)
{
	const json_t *field = json_object_get(item, "field");
	const json_t *shards = json_object_get(item, "opt_weight_shard_size");

	if (field && (!ck_json_u64(field, &l->field) || l->field > INT32_MAX))
		return "its field is no number of rows";
	if (shards && !json_is_integer(shards))
		return "its opt_weight_shard_size is no number";
	l->shards = json_integer_value(shards);
	return NULL;
}

static const char *read_layout(struct ck_strategy_layout *l, const json_t *item)
{
	const char *why;
	unsigned nr;

	if (!ck_json_dims(json_object_get(item, "dev_matrix"), l->dev,
			  CK_STRATEGY_AXES, &nr) ||
	    !nr)
		return "its dev_matrix is none that is known";
	l->nr_dev = (uint8_t)nr;
	why = read_map(l, json_object_get(item, "tensor_map"));
	if (!why)
		why = read_shape(l, json_object_get(item, "tensor_shape"));
	return why ? why : read_rest(l, item);
}

static int read_rows(struct ck_strategy_file *f, struct ck_strategy_said *said,
		     const json_t *item, struct ck_err *err)
{
	const json_t *rows = json_object_get(item, "param_split_shape");
	size_t nr = json_array_size(rows);
	uint64_t *copy;

	if (!nr || said->why)
		return 0;
	if (nr > CK_STRATEGY_ROWS)
		return ck_fail(
			err, EINVAL,
			"param_split_shape of %zu numbers, expected at most %d",
			nr, CK_STRATEGY_ROWS);
	copy = ck_arena_alloc(&f->s->mem, nr * sizeof(*copy));
	if (!copy)
		return ck_no_memory(err);
	for (size_t i = 0; i < nr; i++)
		if (!ck_json_u64(json_array_get(rows, i), &copy[i]) ||
		    copy[i] >= CK_SIZE_MAX) {
			copy[i] = 0;
			said->why = "its param_split_shape is none";
		}
	said->l.rows = copy;
	said->l.nr_rows = (uint32_t)nr;
	return 0;
}

static int read_stage(struct ck_strategy_file *f, const json_t *operators,
		      struct ck_err *err)
{
	const char *name;
	json_t *item;

	json_object_foreach((json_t *)operators, name, item)
	{
		const json_t *stage = json_object_get(item, "stage");

		if (!stage)
			continue;
		if (!ck_json_u64(stage, &f->stage))
			return ck_fail(err, EINVAL,
				       "%s: its stage is no number", name);
		f->has_stage = true;
	}
	return 0;
}

int ck_strategy_json(struct ck_strategy_file *f, const void *bytes, size_t len,
		     struct ck_err *err)
{
	ck_auto_json json_t *json = NULL;
	json_t *layouts, *item;
	char found[CK_JSON_WHAT];
	const char *name;
	int ret = ck_json_parse(&json, bytes, len, err);

	layouts = json_object_get(json, "parallel_layout_item");
	if (!ret && !json_is_object(json))
		ret = ck_fail(err, EINVAL, "expected an object, found %s",
			      ck_json_what(json, found));
	if (!ret && !json_is_object(layouts))
		ret = ck_fail(err, EINVAL,
			      "\"parallel_layout_item\": expected an object, "
			      "found %s",
			      ck_json_what(layouts, found));
	if (!ret)
		ret = read_stage(
			f, json_object_get(json, "parallel_strategy_item"),
			err);
	if (ret)
		return ret;
	json_object_foreach(layouts, name, item)
	{
		struct ck_strategy_said *said = ck_vec_push(&f->said);

		if (!said)
			return ck_no_memory(err);
		*said = (struct ck_strategy_said){ .len = strlen(name) };
		said->name = ck_arena_copy(&f->s->mem, name, said->len);
		if (!said->name)
			return ck_no_memory(err);
		said->why = read_layout(&said->l, item);
		ret = read_rows(f, said, item, err);
		if (ret)
			return ret;
	}
	return 0;
}
