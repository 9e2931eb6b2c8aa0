/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.c - finds attributes in the lines of MLIR's text form
 */
#include "core/format/oneflow/oneflow.h"

#include "core/base/number.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define OP "\"oneflow.variable\""

/* The rest of a line. */
struct line {
	char *at, *end;
};

/* Where @word begins in the line; NULL: nowhere. */
static char *find(const struct line *l, const char *word)
{
	return memmem(l->at, (size_t)(l->end - l->at), word, strlen(word));
}

/* What follows "NAME = " among the attributes, which stand in { } */
static bool attribute(const struct line *l, const char *name, struct line *out)
{
	size_t len = strlen(name);
	struct line rest = *l;

	while ((rest.at = find(&rest, name))) {
		char before = rest.at[-1]; /* after OP: never the first */

		rest.at += len;
		if (before != ' ' && before != '{' && before != ',')
			continue;
		while (rest.at < rest.end && *rest.at == ' ')
			rest.at++;
		if (rest.at == rest.end || *rest.at != '=')
			continue;
		rest.at++;
		while (rest.at < rest.end && *rest.at == ' ')
			rest.at++;
		*out = rest;
		return true;
	}
	return false;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A text in quotes, \5C and \\ decoded in place. */
static bool text(struct line l, char **out, size_t *len)
{
	char *to;

	if (l.at == l.end || *l.at++ != '"')
		return false;
	*out = to = l.at;
	for (; l.at < l.end && *l.at != '"'; l.at++) {
		if (*l.at != '\\') {
			*to++ = *l.at;
		} else if (l.end - l.at > 2 && hex(l.at[1]) >= 0 &&
			   hex(l.at[2]) >= 0) {
			*to++ = (char)(hex(l.at[1]) * 16 + hex(l.at[2]));
			l.at += 2;
		} else if (l.end - l.at > 1) {
			*to++ = *++l.at;
		}
	}
	*len = (size_t)(to - *out);
	return l.at < l.end && *len;
}

static bool number(struct line *l, uint64_t *out)
{
	size_t n = ck_digits(l->at, (size_t)(l->end - l->at), out);

	l->at += n;
	return n && *out < UINT64_MAX;
}

/* "[4 : si64, 6 : si64]": the numbers; their types are passed over. */
static bool numbers(struct line l, uint64_t *v, unsigned max, unsigned *nr)
{
	*nr = 0;
	if (l.at == l.end || *l.at++ != '[')
		return false;
	while (l.at < l.end && *l.at != ']') {
		if (*nr == max || !number(&l, &v[*nr]))
			return false;
		++*nr;
		while (l.at < l.end && *l.at != ',' && *l.at != ']')
			l.at++;
		while (l.at < l.end && (*l.at == ',' || *l.at == ' '))
			l.at++;
	}
	return l.at < l.end;
}

/* On one device what is stored is all of it. */
static bool is_alone(const struct line *l)
{
	uint64_t size[CK_MAX_RANK];
	struct line at;
	unsigned nr;

	return attribute(l, "hierarchy", &at) &&
	       numbers(at, size, CK_MAX_RANK, &nr) && nr == 1 && size[0] == 1;
}

static int take(struct oneflow_graph *g, const struct line *l,
		struct ck_err *err)
{
	struct oneflow_variable v = { .type = -1 }, *to;
	struct line at;
	size_t before = g->names.nr, len;
	uint64_t type;
	char *name;

	if (attribute(l, "data_type", &at) && number(&at, &type) && type < 1000)
		v.type = (int)type;
	v.shaped = is_alone(l) && attribute(l, "shape", &at) &&
		   numbers(at, v.shape, CK_MAX_RANK, &v.rank);
	if (!attribute(l, "op_name", &at) || !text(at, &name, &len))
		return 0;
	if (ck_strmap_put(&g->names, name, len) == CK_STRMAP_NONE)
		return ck_no_memory(err);
	to = g->names.nr > before ? ck_vec_push(&g->v) : NULL;
	if (to)
		*to = v;
	return to || g->names.nr == before ? 0 : ck_no_memory(err);
}

int ck_oneflow_graph_read(struct oneflow_graph *g, char *text, size_t len,
			  struct ck_err *err)
{
	char *end = text + len, *next;
	int ret = 0;

	for (char *at = text; !ret && at < end; at = next) {
		struct line l = { at, memchr(at, '\n', (size_t)(end - at)) };

		l.end = l.end ? l.end : end;
		next = l.end + 1;
		l.at = find(&l, OP);
		if (!l.at)
			continue;
		l.at += strlen(OP);
		ret = take(g, &l, err);
	}
	while (end > text && isspace((unsigned char)end[-1]))
		end--;
	g->whole = end > text && end[-1] == '}';
	return ret;
}

const struct oneflow_variable *ck_oneflow_graph_find(
	const struct oneflow_graph *g, const char *name, size_t len)
{
	uint32_t at = ck_strmap_get(&g->names, name, len);

	return at == CK_STRMAP_NONE ? NULL : &g->v.v[at];
}

void ck_oneflow_graph_free(struct oneflow_graph *g)
{
	ck_strmap_free(&g->names);
	free(g->v.v);
	*g = (struct oneflow_graph){ 0 };
}
