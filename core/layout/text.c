/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - variables and small sums in names; see text.h */
#include "core/layout/text.h"

#include "core/base/match.h"
#include "core/base/number.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_WIDTH 20

struct eval {
	const char *s, *end; /* what is in the braces, not read yet */
	const struct ck_layout_vars *v;
	uint32_t used;
	struct ck_err *err;
};

unsigned ck_layout_axis(const struct ck_layout_mesh *mesh, const char *name,
			size_t len)
{
	for (unsigned i = 0; i < mesh->nr; i++)
		if (ck_text_is(name, len, mesh->axis[i].name))
			return i;
	return CK_LAYOUT_AXES;
}

void ck_layout_coords(const struct ck_layout_mesh *mesh, uint64_t pos,
		      uint64_t *at)
{
	for (unsigned i = mesh->nr; i-- > 0;) {
		at[i] = pos % mesh->axis[i].size;
		pos /= mesh->axis[i].size;
	}
}

uint64_t ck_layout_rank(const struct ck_layout_mesh *mesh, uint64_t pos)
{
	return mesh->rank ? mesh->rank[pos] : pos;
}

bool ck_layout_agree(const struct ck_layout_mesh *mesh, const uint64_t *a,
		     const uint64_t *b)
{
	for (unsigned i = 0; i < mesh->nr; i++)
		if (a[i] != CK_LAYOUT_FREE && b[i] != CK_LAYOUT_FREE &&
		    a[i] != b[i])
			return false;
	return true;
}

static void skip_blanks(struct eval *e)
{
	while (e->s < e->end && *e->s == ' ')
		e->s++;
}

static int read_number(const char *s, size_t len, int64_t *out)
{
	uint64_t n;
	bool ok = ck_decimal(s, len, INT64_MAX, &n);

	*out = (int64_t)n;
	return ok ? 0 : -EINVAL;
}

static int capture(struct eval *e, struct ck_layout_slice *out)
{
	unsigned n;

	if (e->end - e->s < 2 || !isdigit((unsigned char)e->s[1]))
		return ck_fail(e->err, EINVAL, "expected a digit after $");
	n = (unsigned)(e->s[1] - '0');
	if (n >= e->v->nr_cap)
		return ck_fail(e->err, EINVAL,
			       "$%u: there is no such capture here", n);
	e->s += 2;
	*out = e->v->cap[n];
	return 0;
}

static int number_of(struct eval *e, const struct ck_layout_slice *c,
		     int64_t *out)
{
	*out = 1;
	if (e->v->dry || !read_number(c->s, c->len, out))
		return 0;
	return ck_fail(e->err, EINVAL, "\"%.*s\" is not a number",
		       (int)(c->len < 80 ? c->len : 80), c->s ? c->s : "");
}

static int variable(struct eval *e, int64_t *out)
{
	const char *name = e->s;
	uint64_t value;
	unsigned axis;
	size_t len;

	while (e->s < e->end && (isalnum((unsigned char)*e->s) || *e->s == '_'))
		e->s++;
	len = (size_t)(e->s - name);
	axis = ck_layout_axis(e->v->mesh, name, len);
	if (len == 4 && !memcmp(name, "rank", 4)) {
		e->used |= CK_LAYOUT_RANK;
		value = e->v->rank;
	} else if (axis < CK_LAYOUT_AXES) {
		e->used |= 1u << axis;
		value = e->v->dry ? 1 : e->v->at[axis];
	} else {
		return ck_fail(e->err, EINVAL,
			       "\"%.*s\" is no axis of the mesh, nor rank",
			       (int)(len < 80 ? len : 80), name);
	}
	if (!e->v->dry && value == CK_LAYOUT_FREE)
		return ck_fail(e->err, EINVAL, "nothing says which %.*s it is",
			       (int)len, name);
	*out = e->v->dry ? 1 : (int64_t)value;
	return 0;
}

static int factor(struct eval *e, int64_t *out)
{
	struct ck_layout_slice c;
	const char *from;
	int ret;

	skip_blanks(e);
	from = e->s;
	if (e->s == e->end)
		return ck_fail(e->err, EINVAL, "expected a variable or number");
	if (*e->s == '$') {
		ret = capture(e, &c);
		return ret ? ret : number_of(e, &c, out);
	}
	if (isalpha((unsigned char)*e->s) || *e->s == '_')
		return variable(e, out);
	while (e->s < e->end && isdigit((unsigned char)*e->s))
		e->s++;
	if (read_number(from, (size_t)(e->s - from), out))
		return ck_fail(e->err, EINVAL,
			       "expected a variable or number, found \"%c\"",
			       *from);
	return 0;
}

/* One of @ops, or 0. */
static char operator(struct eval *e, const char *ops)
{
	skip_blanks(e);
	if (e->s < e->end && strchr(ops, *e->s))
		return *e->s++;
	return 0;
}

static int apply(struct eval *e, char op, int64_t b, int64_t *a)
{
	bool bad = false;

	switch (op) {
	case '+':
		bad = __builtin_add_overflow(*a, b, a);
		break;
	case '-':
		bad = __builtin_sub_overflow(*a, b, a);
		break;
	case '*':
		bad = __builtin_mul_overflow(*a, b, a);
		break;
	default:
		if (!b || (b == -1 && *a == INT64_MIN))
			return ck_fail(e->err, EINVAL, "division by zero");
		*a = op == '/' ? *a / b : *a % b;
	}
	return bad ? ck_fail(e->err, EINVAL, "the number is too large") : 0;
}

static int product(struct eval *e, int64_t *out)
{
	int ret = factor(e, out);
	char op;

	while (!ret && (op = operator(e, "*/%"))) {
		int64_t b = 1;

		ret = factor(e, &b);
		/* a divisor may be a variable, of which nothing is known yet */
		if (!ret && !(e->v->dry && !b))
			ret = apply(e, op, b, out);
	}
	return ret;
}

static int sum(struct eval *e, int64_t *out)
{
	int ret = product(e, out);
	char op;

	while (!ret && (op = operator(e, "+-"))) {
		int64_t b = 0;

		ret = product(e, &b);
		if (!ret)
			ret = apply(e, op, b, out);
	}
	if (!ret && !e->v->dry && *out < 0)
		return ck_fail(e->err, EINVAL, "%" PRId64 " is below 0", *out);
	return ret;
}

static int put_number(struct eval *e, struct ck_str *out)
{
	int64_t n = 0, width = 0;
	int ret = sum(e, &n);

	if (ret)
		return ret;
	if (e->s < e->end && *e->s == ':') {
		e->s++;
		if (read_number(e->s, (size_t)(e->end - e->s), &width) ||
		    width > MAX_WIDTH || *e->s != '0')
			return ck_fail(e->err, EINVAL,
				       "expected a width such as :05");
		e->s = e->end;
	}
	if (e->s < e->end)
		return ck_fail(e->err, EINVAL,
			       "expected an operator, : or }, found \"%c\"",
			       *e->s);
	ck_str_fmt(out, "%0*" PRId64, (int)width, n);
	return 0;
}

static int put(struct eval *e, struct ck_str *out)
{
	const struct ck_layout_slice *key = &e->v->key;
	struct ck_layout_slice c;
	int ret;

	if (e->end - e->s == 3 && !memcmp(e->s, "key", 3)) {
		e->used |= CK_LAYOUT_KEY;
		if (!key->s && !e->v->dry)
			return ck_fail(e->err, EINVAL, "there is no key here");
		if (key->s)
			ck_str_add(out, key->s, key->len);
		return 0;
	}
	if (e->end - e->s == 2 && *e->s == '$') {
		ret = capture(e, &c);
		if (!ret && c.s)
			ck_str_add(out, c.s, c.len);
		return ret;
	}
	return put_number(e, out);
}

/* At a brace; returns how many bytes to go on by, or -errno. */
static int brace(const char *s, const struct ck_layout_vars *v,
		 struct ck_str *out, uint32_t *used, struct ck_err *err)
{
	struct ck_err why = { 0 };
	struct eval e = { .v = v, .err = &why };
	const char *end = strchr(s, '}');

	if (s[0] == s[1]) {
		ck_str_add(out, s, 1);
		return 2;
	}
	if (*s == '}')
		return ck_fail(err, EINVAL, "} without {; }} is a brace");
	if (!end)
		return ck_fail(err, EINVAL, "{ without }; {{ is a brace");
	e.s = s + 1;
	e.end = end;
	if (put(&e, out))
		return ck_fail(err, EINVAL, "%.*s: %s",
			       (int)(end - s < 80 ? end - s + 1 : 80), s,
			       why.msg);
	if (used)
		*used |= e.used;
	return (int)(end - s) + 1;
}

int ck_layout_expand(const char *text, const struct ck_layout_vars *v,
		     struct ck_str *out, uint32_t *used, struct ck_err *err)
{
	while (*text) {
		size_t plain = strcspn(text, "{}");
		int n;

		ck_str_add(out, text, plain);
		text += plain;
		if (!*text)
			break;
		n = brace(text, v, out, used, err);
		if (n < 0)
			return n;
		text += n;
	}
	ck_str_add(out, "", 0);
	return out->failed ? ck_no_memory(err) : 0;
}

bool ck_layout_is_glob(const char *text)
{
	bool inside = false;

	for (; *text; text++) {
		if (*text == '{')
			inside = true;
		else if (*text == '}')
			inside = false;
		else if (!inside && strchr("*?[", *text))
			return true;
	}
	return false;
}
