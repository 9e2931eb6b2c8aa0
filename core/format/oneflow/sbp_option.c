/* SPDX-License-Identifier: Apache-2.0 */
/* sbp_option.c - what -o sbp= says, or unshard-layout.json in the folder */
#include "core/format/oneflow/oneflow.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/parse/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "sbp"
#define LAYOUT "unshard-layout.json"
#define MAX_LAYOUT (UINT64_C(64) << 20)
#define RANK "{rank}"

void ck_oneflow_sbp_free(struct oneflow_sbp *s)
{
	ck_sbp_free(&s->by);
	s->path = NULL;
}

static int take_path(struct oneflow_sbp *s, const json_t *j, struct ck_err *err)
{
	const char *path = json_string_value(json_object_get(j, "path"));

	if (!path || !ck_dir_name_ok(path, strlen(path)))
		return ck_fail(err, EINVAL,
			       "expected \"path\", a name in the checkpoint "
			       "such as model_" RANK);
	s->by.any_rank = !strstr(path, RANK);
	if (s->by.world > 1 && s->by.any_rank)
		return ck_fail(err, EINVAL,
			       "\"path\" is %.200s for each of %" PRIu32
			       " ranks: expected " RANK " in it",
			       path, s->by.world);
	s->path = ck_arena_copy(&s->by.mem, path, strlen(path));
	return s->path ? 0 : ck_no_memory(err);
}

static int parse(struct oneflow_sbp *out, const char *text, size_t len,
		 struct ck_err *err)
{
	ck_auto_json json_t *j = NULL;
	int ret;

	*out = (struct oneflow_sbp){ 0 };
	ret = ck_json_parse(&j, text, len, err);
	if (!ret)
		ret = ck_sbp_head(&out->by, j, true, err);
	if (!ret)
		ret = take_path(out, j, err);
	if (!ret)
		ret = ck_sbp_rules(&out->by, j, err);
	if (ret)
		ck_oneflow_sbp_free(out);
	return ret;
}

static int from_word(struct oneflow_sbp *out, int32_t sbp, struct ck_err *err)
{
	struct ck_sbp_rule *r = ck_arena_alloc(&out->by.mem, sizeof(*r));

	if (!r)
		return ck_no_memory(err);
	*r = (struct ck_sbp_rule){
		.key = "*", .key_len = 1, .axes = 1, .sbp = { sbp }
	};
	out->by.rules = r;
	out->by.nr = 1;
	return 0;
}

int ck_oneflow_sbp_spread(struct oneflow_sbp *s, uint32_t nr,
			  struct ck_err *err)
{
	struct ck_sbp_rule *r = s->by.rules;

	r->place = ck_arena_alloc(&s->by.mem, nr * sizeof(*r->place));
	if (!r->place)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < nr; i++)
		r->place[i] = (struct ck_mesh_place){ i, i };
	r->nr = nr;
	r->size[0] = nr;
	s->by.world = nr;
	return 0;
}

/* Whether that is a file of rules: 1, 0, or -ENOMEM. */
static int is_rules(const char *bytes, size_t len, struct ck_err *err)
{
	ck_auto_json json_t *j = NULL;
	int ret = ck_json_parse(&j, bytes, len, err);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	return json_object_get(json_array_get(json_object_get(j, "rules"), 0),
			       "sbp") != NULL;
}

/* *@text stays NULL where the folder's layout says no SBP, or is none. */
static int read_layout(const struct ck_dir *dir, char **text, size_t *len,
		       struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	int ret;

	if (dir->only)
		return 0;
	ret = ck_dir_slurp(dir, LAYOUT, MAX_LAYOUT, &bytes, len, err);
	if (!ret)
		ret = is_rules(bytes, *len, err);
	if (ret > 0)
		*text = ck_steal(bytes);
	return ret == -ENOMEM ? ret : 0;
}

int ck_oneflow_sbp_in_layout(const struct ck_dir *dir, bool *found,
			     struct ck_err *err)
{
	ck_auto_free char *text = NULL;
	size_t len;
	int ret = read_layout(dir, &text, &len, err);

	*found = text;
	return ret;
}

static int from_layout(struct oneflow_sbp *out, const struct ck_dir *dir,
		       bool *given, struct ck_err *err)
{
	ck_auto_free char *text = NULL;
	size_t len;
	int ret = read_layout(dir, &text, &len, err);

	if (ret || !text)
		return ret;
	*given = true;
	return ck_wrap(err, parse(out, text, len, err), LAYOUT);
}

int ck_oneflow_sbp_get(struct oneflow_sbp *out, const struct ck_dir *dir,
		       bool *given, struct ck_err *err)
{
	const char *value = ck_opts_get(dir->opts, OPTION);
	const char *bytes;
	ck_auto_free char *text = NULL;
	size_t len = 0;
	int32_t sbp;
	int ret;

	*out = (struct oneflow_sbp){ 0 };
	*given = value != NULL;
	if (!value)
		return from_layout(out, dir, given, err);
	if (ck_opts_nth(dir->opts, OPTION, 1))
		return ck_fail(err, EINVAL, "-o sbp= is given twice");
	bytes = ck_opts_bytes(dir->opts, OPTION, 0, &len);
	if (!bytes && ck_sbp_word(value, strlen(value), &sbp))
		return from_word(out, sbp, err);
	if (!bytes) { /* a file of the checkpoint, maybe */
		ret = ck_dir_slurp(dir, value, MAX_LAYOUT, &text, &len, err);
		if (ret)
			return ret == -ENOMEM ?
				       ret :
				       ck_fail(err, EINVAL,
					       "-o sbp=%s: neither a file nor "
					       "an SBP such as split(0)",
					       value);
		bytes = text;
	}
	return ck_wrap(err, parse(out, bytes, len, err), "-o sbp=%s", value);
}

char *ck_oneflow_sbp_path(const struct oneflow_sbp *s, uint32_t rank)
{
	const char *at = strstr(s->path, RANK);
	struct ck_str out = { 0 };

	if (!at)
		return strdup(s->path);
	ck_str_add(&out, s->path, (size_t)(at - s->path));
	ck_str_fmt(&out, "%" PRIu32, rank);
	ck_str_puts(&out, at + strlen(RANK));
	if (out.failed)
		ck_str_free(&out);
	return out.v;
}
