/* SPDX-License-Identifier: Apache-2.0 */
/* subscript.c - reads what stands between the brackets of NAME[2:5, :] */
#include "core/lib/subscript.h"

#include "core/base/check.h"
#include "core/base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct item {
	const char *text;
	size_t len;
};

struct parser {
	const uint64_t *shape;
	unsigned rank;
	struct item items[CK_MAX_RANK + 1];
	unsigned nr;
	struct ck_subscript *out;
	struct ck_err *err;
};

static bool is_dots(const struct item *i)
{
	return i->len == 3 && !memcmp(i->text, "...", 3);
}

static struct item trim(const char *text, size_t len)
{
	while (len && (*text == ' ' || *text == '\t')) {
		text++;
		len--;
	}
	while (len && (text[len - 1] == ' ' || text[len - 1] == '\t'))
		len--;
	return (struct item){ text, len };
}

static int bad(const struct parser *p, const struct item *i, const char *why)
{
	return ck_fail(p->err, EINVAL, "slice \"%.*s\": %s", (int)i->len,
		       i->text, why);
}

/* A whole number with a sign, or nothing (then *given is false). */
static bool read_int(const char *text, size_t len, bool *given, bool *minus,
		     uint64_t *out)
{
	struct item i = trim(text, len);
	size_t at = 0;

	*given = i.len > 0;
	*minus = i.len > 0 && i.text[0] == '-';
	*out = 0;
	if (i.len > 0 && (i.text[0] == '-' || i.text[0] == '+'))
		at++;
	return !i.len ||
	       ck_decimal(i.text + at, i.len - at, UINT64_MAX - 1, out);
}

/* One end of a:b, cut to [0, n]. */
static uint64_t clamp(uint64_t n, bool minus, uint64_t value)
{
	if (minus)
		return value < n ? n - value : 0;
	return CK_MIN(value, n);
}

static int read_range(struct parser *p, const struct item *i, const char *colon,
		      unsigned axis)
{
	const char *end = i->text + i->len;
	uint64_t n = p->shape[axis], from, to;
	bool given, minus;

	if (memchr(colon + 1, ':', (size_t)(end - colon - 1)))
		return bad(p, i, "steps are not supported");
	if (!read_int(i->text, (size_t)(colon - i->text), &given, &minus,
		      &from))
		return bad(p, i, "expected whole numbers around the colon");
	from = given ? clamp(n, minus, from) : 0;
	if (!read_int(colon + 1, (size_t)(end - colon - 1), &given, &minus,
		      &to))
		return bad(p, i, "expected whole numbers around the colon");
	to = given ? clamp(n, minus, to) : n;
	p->out->box.start[axis] = from;
	p->out->box.len[axis] = to > from ? to - from : 0;
	p->out->shape[p->out->rank++] = p->out->box.len[axis];
	return 0;
}

static int read_index(struct parser *p, const struct item *i, unsigned axis)
{
	uint64_t n = p->shape[axis], at;
	bool given, minus;

	if (!read_int(i->text, i->len, &given, &minus, &at) || !given)
		return bad(p, i,
			   "expected a whole number, a range a:b or \"...\"");
	if (minus ? at > n || at == 0 : at >= n)
		return ck_fail(p->err, EINVAL,
			       "slice \"%.*s\": axis %u has %" PRIu64
			       " elements",
			       (int)i->len, i->text, axis, n);
	p->out->box.start[axis] = minus ? n - at : at;
	p->out->box.len[axis] = 1;
	return 0;
}

static void take_whole(struct parser *p, unsigned axis)
{
	p->out->box.start[axis] = 0;
	p->out->box.len[axis] = p->shape[axis];
	p->out->shape[p->out->rank++] = p->shape[axis];
}

static int cut_items(struct parser *p, const char *text, size_t len)
{
	const char *end = text + len, *comma;

	if (trim(text, len).len == 0)
		return ck_fail(p->err, EINVAL,
			       "nothing between the brackets ([...] is all)");
	while (text < end) {
		comma = memchr(text, ',', (size_t)(end - text));
		if (p->nr == CK_ARRAY_LEN(p->items))
			return ck_fail(p->err, EINVAL,
				       "slice of more than %d axes",
				       CK_MAX_RANK);
		if (!comma)
			comma = end;
		p->items[p->nr++] = trim(text, (size_t)(comma - text));
		text = comma + 1; /* one comma at the end is allowed */
	}
	return 0;
}

static int check_items(struct parser *p)
{
	unsigned dots = 0;

	for (unsigned i = 0; i < p->nr; i++)
		dots += is_dots(&p->items[i]);
	if (dots > 1)
		return ck_fail(p->err, EINVAL, "slice with two \"...\"");
	if (p->nr - dots > p->rank)
		return ck_fail(p->err, EINVAL,
			       "slice of %u axes of a tensor that has %u",
			       p->nr - dots, p->rank);
	return 0;
}

static int take_items(struct parser *p)
{
	unsigned axis = 0;
	int ret = 0;

	for (unsigned i = 0; i < p->nr && !ret; i++) {
		const struct item *it = &p->items[i];
		const char *colon = memchr(it->text, ':', it->len);

		if (is_dots(it)) {
			while (axis + p->nr - i - 1 < p->rank)
				take_whole(p, axis++);
		} else if (colon) {
			ret = read_range(p, it, colon, axis++);
		} else {
			ret = read_index(p, it, axis++);
		}
	}
	while (axis < p->rank && !ret)
		take_whole(p, axis++);
	return ret;
}

void ck_subscript_whole(const uint64_t *shape, unsigned rank,
			struct ck_subscript *out)
{
	struct parser p = { .shape = shape, .out = out };

	out->rank = 0;
	out->box.rank = rank;
	for (unsigned d = 0; d < rank; d++)
		take_whole(&p, d);
}

int ck_subscript_parse(const uint64_t *shape, unsigned rank, const char *text,
		       size_t len, struct ck_subscript *out, struct ck_err *err)
{
	struct parser p = {
		.shape = shape, .rank = rank, .out = out, .err = err
	};
	int ret = cut_items(&p, text, len);

	out->rank = 0;
	out->box.rank = rank;
	if (!ret)
		ret = check_items(&p);
	return ret ? ret : take_items(&p);
}
