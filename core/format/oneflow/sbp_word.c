/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbp_word.c - one SBP, as OneFlow prints it and as people write it
 *
 *	split(0)  S(0)  flow.sbp.split(dim=0)  [oneflow.sbp.broadcast()]
 */
#include "core/format/oneflow/sbp.h"

#include "core/base/check.h"
#include "core/base/limits.h"

#include <string.h>

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
	int32_t d = 0;

	trim(&t);
	if (!take_inside(&t, '(', ')'))
		return false;
	if (take(&t, "dim") || take(&t, "axis")) {
		trim(&t);
		if (!take(&t, "="))
			return false;
		trim(&t);
	}
	if (!t.len || t.len > 2)
		return false;
	for (; t.len; skip(&t, 1)) {
		if (t.s[0] < '0' || t.s[0] > '9')
			return false;
		d = 10 * d + (t.s[0] - '0');
	}
	*out = d;
	return d < CK_MAX_RANK;
}

static bool is_empty_call(struct text t)
{
	trim(&t);
	return !t.len || (take_inside(&t, '(', ')') && !t.len);
}

bool ck_of_sbp_word(const char *text, size_t len, int32_t *out)
{
	static const struct {
		const char *word;
		int32_t sbp;
	} words[] = { { "broadcast", CK_OF_BROADCAST },
		      { "B", CK_OF_BROADCAST },
		      { "partial_sum", CK_OF_PARTIAL },
		      { "P", CK_OF_PARTIAL } };
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
