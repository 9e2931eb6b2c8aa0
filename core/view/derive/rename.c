/* SPDX-License-Identifier: Apache-2.0 */
/* rename.c - extended regular expressions over names of tensors */
#include "core/view/derive/rename.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/number.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REGEX 1024 /* bytes */
#define MAX_TIMES 1000 /* that groups are repeated by numbers, multiplied */
#define MAX_RULES 256
#define MAX_NAME 4096

struct rule {
	regex_t from;
	const char *to;
	bool fitted;
};

struct ck_rename {
	size_t nr;
	struct rule rule[MAX_RULES];
};

/* A group that is not there would silently be nothing. */
static int check_groups(const struct rule *r, size_t i, struct ck_err *err)
{
	for (const char *p = r->to; *p; p++) {
		if (*p != '\\')
			continue;
		if (!*++p)
			return ck_fail(err, EINVAL,
				       "rename[%zu].to: ends in a backslash",
				       i);
		if (*p >= '0' && *p <= '9' &&
		    (size_t)(*p - '0') > r->from.re_nsub)
			return ck_fail(err, EINVAL,
				       "rename[%zu].to: has \\%c, but \"from\" "
				       "has %zu groups",
				       i, *p, r->from.re_nsub);
	}
	return 0;
}

/*
 * glibc takes minutes for some: it unrolls what is repeated N times, and goes
 * back and forth for \1 in a pattern, which POSIX does not have.
 */
static int check_cost(const char *from, size_t i, struct ck_err *err)
{
	uint64_t times = 1;

	if (strlen(from) > MAX_REGEX)
		return ck_fail(err, EINVAL, "rename[%zu].from: over %d bytes",
			       i, MAX_REGEX);
	for (const char *p = from; *p; p++) {
		uint64_t n = 0, nr;

		if (*p == '\\' && p[1] >= '1' && p[1] <= '9')
			return ck_fail(err, EINVAL,
				       "rename[%zu].from: \\%c is for \"to\" "
				       "only",
				       i, p[1]);
		if (*p == '\\' && p[1]) {
			p++;
			continue;
		}
		if (*p != '{')
			continue;
		for (; *p && *p != '}'; p++)
			if (ck_digits(p, SIZE_MAX, &nr))
				n = CK_MAX(n, nr);
		times *= CK_MIN(CK_MAX(n, 1), (uint64_t)MAX_TIMES + 1);
		if (times > MAX_TIMES)
			return ck_fail(err, EINVAL,
				       "rename[%zu].from: {} repeat over %d "
				       "times in all",
				       i, MAX_TIMES);
		if (!*p)
			break;
	}
	return 0;
}

static int check_members(const json_t *j, size_t i, struct ck_err *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)j, key, value)
	{
		if (strcmp(key, "from") != 0 && strcmp(key, "to") != 0)
			return ck_fail(err, EINVAL,
				       "rename[%zu]: unknown member \"%.60s\"",
				       i, key);
	}
	return 0;
}

static int take(struct ck_rename *r, size_t i, const json_t *j,
		struct ck_err *err)
{
	struct rule *to = &r->rule[i];
	const char *from = ck_json_text(json_object_get(j, "from"));
	char why[128];
	int code;

	to->to = ck_json_text(json_object_get(j, "to"));
	if (check_members(j, i, err))
		return -EINVAL;
	if (!from || !to->to)
		return ck_fail(err, EINVAL,
			       "rename[%zu]: expected {\"from\": REGEX, "
			       "\"to\": TEXT}",
			       i);
	if (check_cost(from, i, err))
		return -EINVAL;
	code = regcomp(&to->from, from, REG_EXTENDED);
	if (code) {
		regerror(code, &to->from, why, sizeof(why));
		return ck_fail(err, EINVAL, "rename[%zu].from: %s", i, why);
	}
	r->nr++;
	return check_groups(to, i, err);
}

int ck_rename_new(struct ck_rename **out, const json_t *rules,
		  struct ck_err *err)
{
	struct ck_rename *r;
	int ret = 0;

	if (rules &&
	    (!json_is_array(rules) || json_array_size(rules) > MAX_RULES))
		return ck_fail(err, EINVAL,
			       "rename: expected a list of up to %d rules",
			       MAX_RULES);
	r = calloc(1, sizeof(*r));
	if (!r)
		return ck_no_memory(err);
	for (size_t i = 0; i < json_array_size(rules) && !ret; i++)
		ret = take(r, i, json_array_get(rules, i), err);
	if (ret)
		ck_rename_free(r);
	else
		*out = r;
	return ret;
}

void ck_rename_free(struct ck_rename *r)
{
	for (size_t i = 0; r && i < r->nr; i++)
		regfree(&r->rule[i].from);
	free(r);
}

/* \0 to \9 are what the parts of the expression fitted. */
static void put_match(struct ck_str *out, const char *name, const char *to,
		      const regmatch_t *m)
{
	for (const char *p = to; *p; p++) {
		if (*p == '\\' && p[1] >= '0' && p[1] <= '9') {
			const regmatch_t *g = &m[*++p - '0'];

			if (g->rm_so >= 0)
				ck_str_add(out, name + g->rm_so,
					   (size_t)(g->rm_eo - g->rm_so));
		} else {
			p += *p == '\\' && p[1];
			ck_str_add(out, p, 1);
		}
	}
}

/* What would name a file outside, for who makes files of names. */
static bool leads_out(const char *name)
{
	if (*name == '/')
		return true;
	for (;;) {
		size_t n = strcspn(name, "/");

		if (n == 2 && !memcmp(name, "..", 2))
			return true;
		if (!name[n])
			return false;
		name += n + 1;
	}
}

static int check(const char *was, const struct ck_str *is, size_t i,
		 struct ck_err *err)
{
	if (!is->len || is->len > MAX_NAME)
		return ck_fail(err, EINVAL,
			       "rename[%zu]: %.200s would have a name of %zu "
			       "bytes, expected 1 to %d",
			       i, was, is->len, MAX_NAME);
	if (leads_out(is->v))
		return ck_fail(err, EINVAL,
			       "rename[%zu]: %.200s would be called %.200s, "
			       "which begins with / or has a part ..",
			       i, was, is->v);
	return 0;
}

int ck_rename_apply(struct ck_rename *r, char **name, bool *changed,
		    struct ck_err *err)
{
	*changed = false;
	for (size_t i = 0; i < r->nr; i++) {
		ck_auto_str struct ck_str s = { 0 };
		regmatch_t m[10];
		int ret;

		if (regexec(&r->rule[i].from, *name, 10, m, 0))
			continue;
		r->rule[i].fitted = *changed = true;
		ck_str_add(&s, *name, (size_t)m[0].rm_so);
		put_match(&s, *name, r->rule[i].to, m);
		ck_str_puts(&s, *name + m[0].rm_eo);
		if (s.failed)
			return ck_no_memory(err);
		ret = check(*name, &s, i, err);
		if (ret)
			return ret;
		free(*name);
		*name = s.v;
		s.v = NULL;
	}
	return 0;
}

void ck_rename_unused(const struct ck_rename *r, struct ck_str *out)
{
	for (size_t i = 0; i < r->nr; i++)
		if (!r->rule[i].fitted)
			ck_str_fmt(out, "%srename[%zu]", out->len ? ", " : "",
				   i);
}
