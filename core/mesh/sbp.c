/* SPDX-License-Identifier: Apache-2.0 */
/* sbp.c - one SBP in words, rules in JSON, and what they make of a mesh */
#include "core/mesh/sbp.h"

#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/number.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one SBP ---- */

struct text {
	const char *s;
	size_t len;
};

static void skip(struct text *t, size_t nr)
{
	t->s += nr;
	t->len -= nr;
}

static void trim(struct text *t)
{
	while (t->len && t->s[0] == ' ')
		skip(t, 1);
	while (t->len && t->s[t->len - 1] == ' ')
		t->len--;
}

static bool take(struct text *t, const char *word)
{
	size_t nr = strlen(word);

	if (t->len < nr || memcmp(t->s, word, nr) != 0)
		return false;
	skip(t, nr);
	return true;
}

/* What is between @open and @close, where these are the ends. */
static bool take_inside(struct text *t, char open, char close)
{
	if (t->len < 2 || t->s[0] != open || t->s[t->len - 1] != close)
		return false;
	skip(t, 1);
	t->len--;
	trim(t);
	return true;
}

static void take_list(struct text *t)
{
	if (!take_inside(t, '[', ']') && !take_inside(t, '(', ')'))
		return;
	if (t->len && t->s[t->len - 1] == ',')
		t->len--;
	trim(t);
}

static void take_prefix(struct text *t)
{
	if (!take(t, "oneflow.sbp.") && !take(t, "flow.sbp."))
		take(t, "sbp.");
}

static bool take_dim(struct text t, int32_t *out)
{
	uint64_t d;

	trim(&t);
	if (!take_inside(&t, '(', ')'))
		return false;
	if (take(&t, "dim") || take(&t, "axis")) {
		trim(&t);
		if (!take(&t, "="))
			return false;
		trim(&t);
	}
	if (t.len > 2 || !ck_decimal(t.s, t.len, CK_MAX_RANK - 1, &d))
		return false;
	*out = (int32_t)d;
	return true;
}

static bool is_empty_call(struct text t)
{
	trim(&t);
	return !t.len || (take_inside(&t, '(', ')') && !t.len);
}

bool ck_sbp_word(const char *text, size_t len, int32_t *out)
{
	static const struct {
		const char *word;
		int32_t sbp;
	} words[] = { { "broadcast", CK_SBP_BROADCAST },
		      { "B", CK_SBP_BROADCAST },
		      { "partial_sum", CK_SBP_PARTIAL },
		      { "P", CK_SBP_PARTIAL } };
	struct text t = { text, len };

	trim(&t);
	take_list(&t);
	take_prefix(&t);
	for (size_t i = 0; i < CK_ARRAY_LEN(words); i++) {
		struct text rest = t;

		if (!take(&rest, words[i].word) || !is_empty_call(rest))
			continue;
		*out = words[i].sbp;
		return true;
	}
	return (take(&t, "split") || take(&t, "S")) && take_dim(t, out);
}

/* ---- rules ---- */

void ck_sbp_free(struct ck_sbp *s)
{
	ck_arena_free(&s->mem);
	*s = (struct ck_sbp){ 0 };
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
static int hierarchy(const json_t *ranks, struct ck_sbp_rule *r,
		     struct ck_err *err)
{
	uint64_t nr = 1;

	for (r->axes = 0; json_is_array(ranks); r->axes++) {
		size_t n = json_array_size(ranks);

		if (r->axes == CK_SBP_AXES || !n || !ck_mul_ok(nr, n, &nr) ||
		    nr > CK_SBP_RANKS)
			return ck_fail(err, EINVAL,
				       "\"ranks\" is empty, or has over %d "
				       "ranks or %d axes",
				       CK_SBP_RANKS, CK_SBP_AXES);
		r->size[r->axes] = (uint32_t)n;
		ranks = json_array_get(ranks, 0);
	}
	r->nr = (uint32_t)nr;
	return r->axes ? 0 : ck_fail(err, EINVAL, "\"ranks\" is no list");
}

static int take_rank(const struct ck_sbp *s, const struct ck_sbp_rule *r,
		     const json_t *ranks, uint32_t id, struct ck_err *err)
{
	uint32_t left = r->nr;
	uint64_t rank;

	for (unsigned a = 0; a < r->axes; a++) {
		if (!json_is_array(ranks) ||
		    json_array_size(ranks) != r->size[a])
			return ck_fail(err, EINVAL,
				       "\"ranks\": its lists are not equally "
				       "long");
		left /= r->size[a];
		ranks = json_array_get(ranks, id / left % r->size[a]);
	}
	if (!ck_json_u64(ranks, &rank))
		return ck_fail(err, EINVAL, "\"ranks\" holds what is no rank");
	if (rank >= s->world && !s->any_rank)
		return ck_fail(err, EINVAL,
			       "the placement names rank %" PRIu64
			       ", of %" PRIu32 " there are (\"world_size\")",
			       rank, s->world);
	if (rank >= UINT32_MAX)
		return ck_fail(err, EINVAL, "\"ranks\": over 2^32");
	r->place[id].rank = (uint32_t)rank;
	return 0;
}

static int check_placement(const json_t *j, struct ck_err *err)
{
	static const char *const known[3] = { "type", "ranks", NULL };

	return ck_wrap(err, check_members(j, known, err), "\"placement\"");
}

/* OneFlow sorts the ranks and keeps the shape: their order means nothing. */
static int placement(struct ck_sbp *s, struct ck_sbp_rule *r, const json_t *j,
		     struct ck_err *err)
{
	const json_t *ranks =
		json_is_object(j) ? json_object_get(j, "ranks") : j;
	uint32_t twice;
	int ret = check_placement(j, err);

	if (!ret)
		ret = hierarchy(ranks, r, err);
	if (ret)
		return ret;
	r->place = ck_arena_alloc(&s->mem, r->nr * sizeof(*r->place));
	if (!r->place)
		return ck_no_memory(err);
	for (uint32_t i = 0; !ret && i < r->nr; i++)
		ret = take_rank(s, r, ranks, i, err);
	if (ret)
		return ret;
	if (!ck_mesh_sort(r->place, r->nr, &twice))
		return ck_fail(err, EINVAL,
			       "the placement names rank %" PRIu32 " twice",
			       twice);
	for (uint32_t i = 0; i < r->nr; i++)
		r->place[i].at = i;
	return 0;
}

static int sbp_of_axis(struct ck_sbp_rule *r, unsigned axis, const json_t *j,
		       struct ck_err *err)
{
	const char *text = json_string_value(j);

	if (!text || !ck_sbp_word(text, strlen(text), &r->sbp[axis]))
		return ck_fail(err, EINVAL,
			       "\"sbp\": expected split(N), broadcast or "
			       "partial_sum, found %.60s",
			       text ? text : "no text");
	return 0;
}

static int sbps(struct ck_sbp_rule *r, const json_t *j, struct ck_err *err)
{
	size_t nr = json_is_array(j) ? json_array_size(j) : 1;
	int ret = 0;

	if (nr != r->axes)
		return ck_fail(err, EINVAL,
			       "\"sbp\" has %zu entries, where the placement "
			       "has %u axes",
			       nr, r->axes);
	for (unsigned a = 0; !ret && a < nr; a++)
		ret = sbp_of_axis(
			r, a, json_is_array(j) ? json_array_get(j, a) : j, err);
	return ret;
}

static int take_rule(struct ck_sbp *s, const json_t *j, struct ck_err *err)
{
	struct ck_sbp_rule *r = &s->rules[s->nr++];
	const char *key = json_string_value(json_object_get(j, "key"));
	int ret;

	if (!key)
		return ck_fail(err, EINVAL, "rule %zu has no \"key\"", s->nr);
	r->key_len = strlen(key);
	r->key = ck_arena_copy(&s->mem, key, r->key_len);
	if (!r->key)
		return ck_no_memory(err);
	ret = check_rule(j, err);
	if (!ret)
		ret = placement(s, r, json_object_get(j, "placement"), err);
	if (!ret)
		ret = sbps(r, json_object_get(j, "sbp"), err);
	return ck_wrap(err, ret, "rule %zu, key \"%.80s\"", s->nr, key);
}

static int take_rules(struct ck_sbp *s, const json_t *rules, struct ck_err *err)
{
	size_t nr = json_array_size(rules);
	int ret = 0;

	if (!nr)
		return ck_fail(err, EINVAL, "expected a list \"rules\"");
	s->rules = ck_arena_alloc(&s->mem, nr * sizeof(*s->rules));
	if (!s->rules)
		return ck_no_memory(err);
	for (size_t i = 0; !ret && i < nr; i++)
		ret = take_rule(s, json_array_get(rules, i), err);
	return ret;
}

static int take_world(struct ck_sbp *s, const json_t *j, struct ck_err *err)
{
	uint64_t world;

	if (!ck_json_u64(j, &world) || !world || world > CK_SBP_RANKS)
		return ck_fail(err, EINVAL, "expected \"world_size\", 1 to %d",
			       CK_SBP_RANKS);
	s->world = (uint32_t)world;
	return 0;
}

/* As many ranks as are named, where nothing says it. */
static void count_ranks(struct ck_sbp *s)
{
	s->world = 0;
	for (size_t i = 0; i < s->nr; i++) {
		const struct ck_sbp_rule *r = &s->rules[i];

		s->world = CK_MAX(s->world, r->place[r->nr - 1].rank + 1);
	}
}

int ck_sbp_head(struct ck_sbp *out, const json_t *j, bool saved,
		struct ck_err *err)
{
	const json_t *world = json_object_get(j, "world_size");
	int ret = check_file(j, err);

	*out = (struct ck_sbp){ 0 };
	return !ret && (saved || world) ? take_world(out, world, err) : ret;
}

int ck_sbp_rules(struct ck_sbp *s, const json_t *j, struct ck_err *err)
{
	bool given = s->world;
	int ret;

	if (!given)
		s->world = CK_SBP_RANKS;
	ret = take_rules(s, json_object_get(j, "rules"), err);
	if (ret)
		ck_sbp_free(s);
	else if (!given)
		count_ranks(s);
	return ret;
}

const struct ck_sbp_rule *ck_sbp_rule(const struct ck_sbp *s, const char *name,
				      size_t len)
{
	for (size_t i = 0; i < s->nr; i++)
		if (ck_glob(s->rules[i].key, s->rules[i].key_len, name, len))
			return &s->rules[i];
	return NULL;
}

/* No rule has more axes than a mesh. */
void ck_sbp_placement(const struct ck_sbp_rule *r, struct ck_placement *out)
{
	out->mesh.place = r->place;
	for (unsigned a = 0; a < r->axes; a++) {
		unsigned axis =
			ck_mesh_add_axis(&out->mesh, r->size[a], UINT32_MAX);

		if (r->sbp[a] == CK_SBP_PARTIAL)
			out->partial |= 1u << axis;
		if (r->sbp[a] >= 0)
			ck_placement_shard(out, (unsigned)r->sbp[a], axis,
					   CK_SIZES_BALANCED);
	}
}
