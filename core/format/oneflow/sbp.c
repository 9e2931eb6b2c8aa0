/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbp.c - reads the JSON of -o sbp=FILE
 */
#include "core/format/oneflow/sbp.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/glob.h"
#include "core/base/str.h"
#include "core/parse/json.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "sbp"
#define LAYOUT "unshard-layout.json"
#define MAX_LAYOUT (UINT64_C(64) << 20)
#define RANK "{rank}"

void ck_of_sbp_free(struct ck_of_sbp *s)
{
	for (size_t i = 0; i < s->nr; i++) {
		free(s->rules[i].key);
		free(s->rules[i].ranks);
	}
	free(s->rules);
	free(s->path);
	*s = (struct ck_of_sbp){ 0 };
}

/* @s without case and what stands between words. */
static void letters(const char *s, char out[64])
{
	size_t n = 0;

	for (; *s && n < 63; s++)
		if (!strchr("_- ", *s))
			out[n++] = (char)tolower((unsigned char)*s);
	out[n] = '\0';
}

/* One letter more, fewer or another, or two that changed places. */
static bool misspelt(const char *key, const char *as)
{
	char a[64], b[64];
	size_t i = 0;

	letters(key, a);
	letters(as, b);
	while (a[i] && a[i] == b[i])
		i++;
	if (!a[i] || !b[i])
		return strlen(a + i) + strlen(b + i) <= 1;
	return !strcmp(a + i + 1, b + i) || !strcmp(a + i, b + i + 1) ||
	       !strcmp(a + i + 1, b + i + 1) ||
	       (a[i] == b[i + 1] && a[i + 1] == b[i] &&
		!strcmp(a + i + 2, b + i + 2));
}

/*
 * Texts under other names are notes to people, but for what was to be one of
 * these. Anything else would mean something to whoever wrote it, and what it
 * means is not guessed.
 */
static int check_members(const json_t *j, const char *const known[3],
			 struct ck_err *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)j, key, value)
	{
		const char *meant = NULL;
		bool is_known = false;

		for (unsigned i = 0; i < 3 && known[i]; i++) {
			is_known |= !strcmp(key, known[i]);
			if (misspelt(key, known[i]))
				meant = known[i];
		}
		if (is_known || (json_is_string(value) && !meant))
			continue;
		if (meant)
			return ck_fail(err, EINVAL,
				       "unknown member \"%.60s\": expected "
				       "\"%s\"",
				       key, meant);
		return ck_fail(err, EINVAL,
			       "unknown member \"%.60s\": there are "
			       "%s, %s%s%s, and notes, which are texts",
			       key, known[0], known[1], known[2] ? ", " : "",
			       known[2] ? known[2] : "");
	}
	return 0;
}

static int check_file(const json_t *j, struct ck_err *err)
{
	static const char *const known[3] = { "world_size", "path", "rules" };
	char found[CK_JSON_WHAT];

	if (!json_is_object(j))
		return ck_fail(err, EINVAL,
			       "expected an object {\"world_size\", \"path\", "
			       "\"rules\"}, found %s",
			       ck_json_what(j, found));
	return check_members(j, known, err);
}

static int check_rule(const json_t *j, struct ck_err *err)
{
	static const char *const known[3] = { "key", "placement", "sbp" };

	return check_members(j, known, err);
}

/* One level of nested lists a turn: all of one level are equally long. */
static int hierarchy(const json_t *ranks, struct ck_of_rule *r,
		     struct ck_err *err)
{
	uint64_t nr = 1;

	for (r->nd.axes = 0; json_is_array(ranks); r->nd.axes++) {
		size_t n = json_array_size(ranks);

		if (r->nd.axes == CK_OF_MAX_AXES || !n ||
		    !ck_mul_ok(nr, n, &nr) || nr > CK_OF_MAX_RANKS)
			return ck_fail(err, EINVAL,
				       "\"ranks\" is empty, or has over %d "
				       "ranks or %d axes",
				       CK_OF_MAX_RANKS, CK_OF_MAX_AXES);
		r->nd.size[r->nd.axes] = (uint32_t)n;
		ranks = json_array_get(ranks, 0);
	}
	r->nr = (uint32_t)nr;
	return r->nd.axes ? 0 : ck_fail(err, EINVAL, "\"ranks\" is no list");
}

static int take_rank(const struct ck_of_sbp *s, const struct ck_of_rule *r,
		     const json_t *ranks, uint32_t id, struct ck_err *err)
{
	uint32_t left = r->nr;
	uint64_t rank;

	for (unsigned a = 0; a < r->nd.axes; a++) {
		if (!json_is_array(ranks) ||
		    json_array_size(ranks) != r->nd.size[a])
			return ck_fail(err, EINVAL,
				       "\"ranks\": its lists are not equally "
				       "long");
		left /= r->nd.size[a];
		ranks = json_array_get(ranks, id / left % r->nd.size[a]);
	}
	if (!ck_json_u64(ranks, &rank))
		return ck_fail(err, EINVAL, "\"ranks\" holds what is no rank");
	if (rank >= s->world && (!s->path || strstr(s->path, RANK)))
		return ck_fail(err, EINVAL,
			       "the placement names rank %" PRIu64
			       ", of %" PRIu32 " there are (\"world_size\")",
			       rank, s->world);
	if (rank >= UINT32_MAX)
		return ck_fail(err, EINVAL, "\"ranks\": over 2^32");
	r->ranks[id] = (uint32_t)rank;
	return 0;
}

static int check_placement(const json_t *j, struct ck_err *err)
{
	static const char *const known[3] = { "type", "ranks", NULL };

	return ck_wrap(err, check_members(j, known, err), "\"placement\"");
}

static int by_rank(const void *a, const void *b)
{
	uint32_t ra = *(const uint32_t *)a, rb = *(const uint32_t *)b;

	return (ra > rb) - (ra < rb);
}

/* OneFlow sorts the ranks and keeps the shape: their order means nothing. */
static int placement(const struct ck_of_sbp *s, struct ck_of_rule *r,
		     const json_t *j, struct ck_err *err)
{
	const json_t *ranks =
		json_is_object(j) ? json_object_get(j, "ranks") : j;
	int ret = check_placement(j, err);

	if (!ret)
		ret = hierarchy(ranks, r, err);
	if (ret)
		return ret;
	r->ranks = calloc(r->nr, sizeof(*r->ranks));
	if (!r->ranks)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	for (uint32_t i = 0; !ret && i < r->nr; i++)
		ret = take_rank(s, r, ranks, i, err);
	if (ret)
		return ret;
	qsort(r->ranks, r->nr, sizeof(*r->ranks), by_rank);
	for (uint32_t i = 1; i < r->nr; i++)
		if (r->ranks[i] == r->ranks[i - 1])
			return ck_fail(err, EINVAL,
				       "the placement names rank %" PRIu32
				       " twice",
				       r->ranks[i]);
	return 0;
}

static int sbp_of_axis(struct ck_of_rule *r, unsigned axis, const json_t *j,
		       struct ck_err *err)
{
	const char *text = json_string_value(j);

	if (!text || !ck_of_sbp_word(text, strlen(text), &r->nd.sbp[axis]))
		return ck_fail(err, EINVAL,
			       "\"sbp\": expected split(N), broadcast or "
			       "partial_sum, found %.60s",
			       text ? text : "no text");
	return 0;
}

static int sbps(struct ck_of_rule *r, const json_t *j, struct ck_err *err)
{
	size_t nr = json_is_array(j) ? json_array_size(j) : 1;
	int ret = 0;

	if (nr != r->nd.axes)
		return ck_fail(err, EINVAL,
			       "\"sbp\" has %zu entries, where the placement "
			       "has %u axes",
			       nr, r->nd.axes);
	for (unsigned a = 0; !ret && a < nr; a++)
		ret = sbp_of_axis(
			r, a, json_is_array(j) ? json_array_get(j, a) : j, err);
	return ret;
}

static int take_rule(struct ck_of_sbp *s, const json_t *j, struct ck_err *err)
{
	struct ck_of_rule *r = &s->rules[s->nr++];
	const char *key = json_string_value(json_object_get(j, "key"));
	int ret;

	if (!key)
		return ck_fail(err, EINVAL, "rule %zu has no \"key\"", s->nr);
	r->key = strdup(key);
	r->key_len = strlen(key);
	if (!r->key)
		return ck_fail(err, ENOMEM, "no memory for rules");
	ret = check_rule(j, err);
	if (!ret)
		ret = placement(s, r, json_object_get(j, "placement"), err);
	if (!ret)
		ret = sbps(r, json_object_get(j, "sbp"), err);
	return ck_wrap(err, ret, "rule %zu, key \"%.80s\"", s->nr, key);
}

static int take_rules(struct ck_of_sbp *s, const json_t *rules,
		      struct ck_err *err)
{
	size_t nr = json_array_size(rules);
	int ret = 0;

	if (!nr)
		return ck_fail(err, EINVAL, "expected a list \"rules\"");
	s->rules = calloc(nr, sizeof(*s->rules));
	if (!s->rules)
		return ck_fail(err, ENOMEM, "no memory for rules");
	for (size_t i = 0; !ret && i < nr; i++)
		ret = take_rule(s, json_array_get(rules, i), err);
	return ret;
}

static int take_world(struct ck_of_sbp *s, const json_t *j, struct ck_err *err)
{
	uint64_t world;

	if (!ck_json_u64(j, &world) || !world || world > CK_OF_MAX_RANKS)
		return ck_fail(err, EINVAL, "expected \"world_size\", 1 to %d",
			       CK_OF_MAX_RANKS);
	s->world = (uint32_t)world;
	return 0;
}

static int take_json(struct ck_of_sbp *s, const json_t *j, struct ck_err *err)
{
	const char *path = json_string_value(json_object_get(j, "path"));
	int ret = check_file(j, err);

	if (!ret)
		ret = take_world(s, json_object_get(j, "world_size"), err);
	if (ret)
		return ret;
	if (!path || !ck_dir_name_ok(path, strlen(path)))
		return ck_fail(err, EINVAL,
			       "expected \"path\", a name in the checkpoint "
			       "such as model_" RANK);
	if (s->world > 1 && !strstr(path, RANK))
		return ck_fail(err, EINVAL,
			       "\"path\" is %.200s for each of %" PRIu32
			       " ranks: expected " RANK " in it",
			       path, s->world);
	s->path = strdup(path);
	if (!s->path)
		return ck_fail(err, ENOMEM, "no memory for a path");
	return take_rules(s, json_object_get(j, "rules"), err);
}

int ck_of_sbp_parse(struct ck_of_sbp *out, const char *text, size_t len,
		    struct ck_err *err)
{
	ck_auto_json json_t *j = NULL;
	int ret;

	*out = (struct ck_of_sbp){ 0 };
	ret = ck_json_parse(&j, text, len, err);
	if (!ret)
		ret = take_json(out, j, err);
	if (ret)
		ck_of_sbp_free(out);
	return ret;
}

/* As many ranks as are named, where nothing says it. */
static void count_ranks(struct ck_of_sbp *s)
{
	s->world = 0;
	for (size_t i = 0; i < s->nr; i++) {
		const struct ck_of_rule *r = &s->rules[i];

		s->world = CK_MAX(s->world, r->ranks[r->nr - 1] + 1);
	}
}

int ck_of_sbp_parse_cut(struct ck_of_sbp *out, const json_t *j,
			struct ck_err *err)
{
	const json_t *world = json_object_get(j, "world_size");
	int ret;

	*out = (struct ck_of_sbp){ .world = CK_OF_MAX_RANKS };
	ret = check_file(j, err);
	if (!ret && world)
		ret = take_world(out, world, err);
	if (!ret)
		ret = take_rules(out, json_object_get(j, "rules"), err);
	if (ret)
		ck_of_sbp_free(out);
	else if (!world)
		count_ranks(out);
	return ret;
}

static int from_word(struct ck_of_sbp *out, int32_t sbp, struct ck_err *err)
{
	out->rules = calloc(1, sizeof(*out->rules));
	if (out->rules)
		out->rules->key = strdup("*");
	if (!out->rules || !out->rules->key) {
		free(out->rules);
		out->rules = NULL;
		return ck_fail(err, ENOMEM, "no memory for rules");
	}
	out->nr = 1;
	out->rules->key_len = 1;
	out->rules->nd.axes = 1;
	out->rules->nd.sbp[0] = sbp;
	return 0;
}

int ck_of_sbp_spread(struct ck_of_sbp *s, const uint32_t *ranks, uint32_t nr,
		     struct ck_err *err)
{
	struct ck_of_rule *r = s->rules;

	r->ranks = calloc(nr, sizeof(*r->ranks));
	if (!r->ranks)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	memcpy(r->ranks, ranks, nr * sizeof(*ranks));
	r->nr = nr;
	r->nd.size[0] = nr;
	s->world = ranks[nr - 1] + 1;
	return 0;
}

/* *@text stays NULL where the folder's layout says no SBP, or is none. */
static int read_layout(const struct ck_dir *dir, char **text, size_t *len,
		       struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	ck_auto_json json_t *j = NULL;
	int ret;

	if (dir->only)
		return 0;
	ret = ck_dir_slurp(dir, LAYOUT, MAX_LAYOUT, &bytes, len, err);
	if (!ret)
		ret = ck_json_parse(&j, bytes, *len, err);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	if (json_object_get(json_array_get(json_object_get(j, "rules"), 0),
			    "sbp"))
		*text = ck_steal(bytes);
	return 0;
}

int ck_of_sbp_in_layout(const struct ck_dir *dir, bool *found,
			struct ck_err *err)
{
	ck_auto_free char *text = NULL;
	size_t len;
	int ret = read_layout(dir, &text, &len, err);

	*found = text;
	return ret;
}

static int from_layout(struct ck_of_sbp *out, const struct ck_dir *dir,
		       bool *given, struct ck_err *err)
{
	ck_auto_free char *text = NULL;
	size_t len;
	int ret = read_layout(dir, &text, &len, err);

	if (ret || !text)
		return ret;
	*given = true;
	return ck_wrap(err, ck_of_sbp_parse(out, text, len, err), LAYOUT);
}

int ck_of_sbp_get(struct ck_of_sbp *out, const struct ck_dir *dir, bool *given,
		  struct ck_err *err)
{
	const char *value = ck_opts_get(dir->opts, OPTION);
	const char *bytes;
	ck_auto_free char *text = NULL;
	size_t len = 0;
	int32_t sbp;
	int ret;

	*out = (struct ck_of_sbp){ 0 };
	*given = value != NULL;
	if (!value)
		return from_layout(out, dir, given, err);
	if (ck_opts_nth(dir->opts, OPTION, 1))
		return ck_fail(err, EINVAL, "-o sbp= is given twice");
	bytes = ck_opts_bytes(dir->opts, OPTION, 0, &len);
	if (!bytes && ck_of_sbp_word(value, strlen(value), &sbp))
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
	return ck_wrap(err, ck_of_sbp_parse(out, bytes, len, err), "-o sbp=%s",
		       value);
}

const struct ck_of_rule *ck_of_sbp_rule(const struct ck_of_sbp *s,
					const char *name, size_t len)
{
	for (size_t i = 0; i < s->nr; i++)
		if (ck_glob(s->rules[i].key, s->rules[i].key_len, name, len))
			return &s->rules[i];
	return NULL;
}

char *ck_of_sbp_path(const struct ck_of_sbp *s, uint32_t rank)
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
