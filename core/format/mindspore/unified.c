/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unified.c - what unified_safetensors writes: whole tensors
 *
 *   param_name_map.json       {"metadata": .., "weight_map": {NAME: FILE}},
 *                             up to 2.5 {NAME: FILE}
 *   part0.safetensors ..      the tensors
 *   hyper_param.safetensors   the rest, which the map does not name
 */
#include "core/format/mindspore/mindspore.h"

#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/container/container.h"
#include "core/parse/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAP "param_name_map.json"
#define REST "hyper_param.safetensors"

struct unified {
	const struct ck_dir *dir;
	struct ck_builder *b;
	json_t *json;
	const json_t *map;
	struct ck_strmap seen; /* files */
	json_t *found; /* names that a file had */
};

static int read_map(struct unified *u, struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	const char *name;
	json_t *file;
	size_t len;
	int ret = ck_dir_slurp(u->dir, MAP, CK_MAX_HEADER, &bytes, &len, err);

	if (ret)
		return ret;
	ret = ck_json_parse(&u->json, bytes, len, err);
	if (ret)
		return ck_wrap(err, ret, MAP);
	u->map = json_object_get(u->json, "weight_map");
	if (!u->map)
		u->map = u->json;
	if (!json_is_object(u->map))
		return ck_fail(err, EINVAL,
			       MAP ": expected an object of names and files");
	json_object_foreach((json_t *)u->map, name, file)
	{
		if (!json_is_string(file) || !json_string_length(file))
			return ck_fail(err, EINVAL,
				       MAP ": %s: expected a file's name",
				       name);
	}
	return 0;
}

static int add_entry(struct unified *u, const struct ck_st_file *f,
		     const struct ck_st_entry *e, bool rest, struct ck_err *err)
{
	const char *says = json_string_value(
		json_object_getn(u->map, e->name, e->name_len));
	ck_auto_json json_t *mark = json_true();
	int ret;

	if (says && strcmp(says, f->name))
		return ck_builder_report_tensor(
			u->b, CK_WARNING, e->name, e->name_len, f->name, err,
			"left aside: " MAP " says that it is in %s", says);
	if (!says && !rest) {
		ret = ck_builder_report_tensor(u->b, CK_WARNING, e->name,
					       e->name_len, f->name, err,
					       MAP " does not name it");
		if (ret)
			return ret;
	}
	if (json_object_getn(u->found, e->name, e->name_len))
		return ck_builder_refuse(u->b, 0, e->name, e->name_len, err,
					 "two files hold it, and " MAP
					 " does not say which counts");
	if (json_object_setn_nocheck(u->found, e->name, e->name_len, mark))
		return ck_no_memory(err);
	return ck_st_file_add(f, e, NULL, NULL, u->b, err);
}

/* Once, whoever names it. */
static int read_file(struct unified *u, const char *name, struct ck_err *err)
{
	ck_auto_container struct ck_container c = { 0 };
	bool rest = !strcmp(name, REST), ok;
	size_t before = u->seen.nr;
	struct ck_err why;
	int ret;

	if (ck_strmap_put(&u->seen, name, strlen(name)) == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (u->seen.nr == before)
		return 0;
	ret = ck_container_open_as(&c, u->dir, u->b, name, true, &ok, &why,
				   err);
	if (ret || !c.t.s)
		return ret;
	if (!ok)
		return ck_builder_report_file(u->b, CK_ERROR, name, err, "%s",
					      why.msg);
	for (size_t i = 0; i < c.st.tensors.nr && !ret; i++)
		ret = add_entry(u, &c.st, &c.st.tensors.v[i], rest, err);
	return ret ? ret : ck_st_file_say_faults(&c.st, u->b, err);
}

/* Parameters of no dimension and the like; a net may have none. */
static int read_all(struct unified *u, struct ck_err *err)
{
	const char *name;
	json_t *file;
	int ret;

	json_object_foreach((json_t *)u->map, name, file)
	{
		ret = read_file(u, json_string_value(file), err);
		if (ret)
			return ret;
	}
	if (ck_dir_has(u->dir, REST))
		return read_file(u, REST, err);
	return ck_builder_report_file(u->b, CK_NOTE, NULL, err,
				      "no " REST " is beside " MAP
				      ", which does not name what is in it: if "
				      "there was one, it is lost");
}

static int report_lost(struct unified *u, struct ck_err *err)
{
	const char *name;
	json_t *file;

	json_object_foreach((json_t *)u->map, name, file)
	{
		int ret =
			json_object_get(u->found, name) ?
				0 :
				ck_builder_refuse(
					u->b, 0, name, strlen(name), err,
					MAP
					" says that it is in %s, which does not hold it",
					json_string_value(file));

		if (ret)
			return ret;
	}
	return 0;
}

int ck_mindspore_unified(const struct ck_dir *dir, struct ck_builder *b,
			 struct ck_err *err)
{
	struct unified u = { .dir = dir, .b = b, .found = json_object() };
	int ret = u.found ? read_map(&u, err) : ck_no_memory(err);

	if (!ret)
		ret = read_all(&u, err);
	if (!ret)
		ret = report_lost(&u, err);
	json_decref(u.json);
	json_decref(u.found);
	ck_strmap_free(&u.seen);
	return ret;
}
