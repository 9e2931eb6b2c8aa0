/* SPDX-License-Identifier: Apache-2.0 */
/* rules_line.c - parts a file of rules into lines, and those into words */
#include "core/mesh/rules_line.h"

#include <errno.h>
#include <string.h>

bool ck_word_is(struct ck_tp_word w, const char *text)
{
	return strlen(text) == w.len && !memcmp(w.s, text, w.len);
}

int ck_rules_bad(const struct ck_rules_line *l, const char *what,
		 struct ck_err *err)
{
	return ck_fail(err, EINVAL, "%s: line %u: %s", l->file, l->nr, what);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static bool split_line(struct ck_rules_line *l, const char *s, size_t len)
{
	size_t at = 0;

	l->nr_words = 0;
	while (at < len) {
		size_t from;

		while (at < len && is_blank(s[at]))
			at++;
		if (at == len || s[at] == '#')
			break;
		if (l->nr_words == CK_RULES_WORDS)
			return false;
		from = at;
		while (at < len && !is_blank(s[at]))
			at++;
		l->word[l->nr_words++] =
			(struct ck_tp_word){ s + from, at - from };
	}
	return true;
}

int ck_rules_lines(const char *file, const char *bytes, size_t len,
		   int (*take)(void *ctx, const struct ck_rules_line *l,
			       struct ck_err *err),
		   void *ctx, struct ck_err *err)
{
	struct ck_rules_line l = { .file = file };
	size_t at = 0;
	int ret = 0;

	if (len >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3))
		return ck_fail(
			err, EINVAL,
			"%s: line 1: found a byte order mark: save it as "
			"UTF-8 without one",
			file);
	while (at < len && !ret) {
		const char *end = memchr(bytes + at, '\n', len - at);
		size_t to = end ? (size_t)(end - bytes) : len;

		l.nr++;
		if (!split_line(&l, bytes + at, to - at))
			return ck_rules_bad(&l, "too many words", err);
		if (l.nr_words)
			ret = take(ctx, &l, err);
		at = to + 1;
	}
	return ret;
}
