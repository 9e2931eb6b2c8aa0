// SPDX-License-Identifier: Apache-2.0
/*
 * json.c - what is checked before and after jansson reads JSON text
 *
 * Before: nesting and memory, by one pass over the bytes.  After: jansson
 * takes no key with a NUL in it, so "\u0000" is read as a private character
 * that the text does not use otherwise, and put back in the parsed value.
 */
#include "core/parse/json.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#define MAX_MEM (UINT64_C(2) << 30) /* of the parsed value */
#define MAX_LEN (UINT64_C(1) << 30) /* jansson counts bytes in an int */

/* What jansson 2.14 and malloc take on x86-64, rounded up. */
#define COST_OBJECT 224
#define COST_ARRAY 128
#define COST_VALUE 48
#define COST_PAIR 24 /* and its value and its key */
#define COST_STRING 64

/* U+F8F0; the escape is as long as the one that it stands in for. */
#define NUL_ESCAPE "\\u0000"
#define MARK_ESCAPE "\\uf8f0"
#define MARK_UTF8 "\xef\xa3\xb0"
#define MARK_LEN 3

struct scan {
	uint64_t cost;
	unsigned depth;
	bool in_string;
	bool nul, mark; /* either is in the text */
};

static bool starts(const char *s, const char *end, const char *what)
{
	size_t len = strlen(what);

	return (size_t)(end - s) >= len && !memcmp(s, what, len);
}

/* Returns how many bytes to go on by. */
static size_t scan_string(struct scan *sc, const char *s, const char *end)
{
	sc->cost++;
	if (*s == '"')
		sc->in_string = false;
	else if (*s == '\xef' && starts(s, end, MARK_UTF8))
		sc->mark = true;
	if (*s != '\\')
		return 1;
	sc->nul |= starts(s, end, NUL_ESCAPE);
	/* Whatever the case of the digits after these. */
	sc->mark |= starts(s, end, "\\uf8") || starts(s, end, "\\uF8");
	return 2;
}

static void scan_other(struct scan *sc, char c)
{
	switch (c) {
	case '"':
		sc->in_string = true;
		sc->cost += COST_STRING;
		break;
	case '{':
		sc->depth++;
		sc->cost += COST_OBJECT;
		break;
	case '[':
		sc->depth++;
		sc->cost += COST_ARRAY;
		break;
	case '}':
	case ']':
		sc->depth -= sc->depth > 0;
		break;
	case ':':
		sc->cost += COST_PAIR;
		break;
	case ',':
		sc->cost += COST_VALUE;
		break;
	}
}

static int prescan(struct scan *sc, const char *bytes, size_t len,
		   struct ck_err *err)
{
	const char *s = bytes, *end = bytes + len;

	while (s < end) {
		if (sc->in_string) {
			s += scan_string(sc, s, end);
			continue;
		}
		scan_other(sc, *s);
		if (sc->depth > CK_MAX_JSON_DEPTH)
			return ck_fail(err, EINVAL,
				       "byte %td: nested deeper than %d",
				       s - bytes, CK_MAX_JSON_DEPTH);
		if (sc->cost > MAX_MEM)
			return ck_fail(err, EINVAL,
				       "byte %td: would need more than %" PRIu64
				       " bytes of memory",
				       s - bytes, MAX_MEM);
		s++;
	}
	return 0;
}

/*
 * Out of memory, jansson's lexer goes on with a string that misses a byte and
 * writes past its end.  So it is never told: the parse is left there and then,
 * and what it had allocated is lost, to a process that is about to end.
 */
static _Thread_local jmp_buf *leave;

static void *malloc_or_leave(size_t size)
{
	void *p = malloc(size);

	if (!p && leave)
		longjmp(*leave, 1);
	return p;
}

static json_t *load(const char *bytes, size_t len, struct ck_err *err)
{
	json_error_t je;
	json_t *j;
	jmp_buf here;

	json_set_alloc_funcs(malloc_or_leave, free);
	if (setjmp(here)) {
		leave = NULL;
		ck_no_memory(err);
		return NULL;
	}
	leave = &here;
	j = json_loadb(
		bytes, len,
		JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
	leave = NULL;
	if (!j)
		ck_fail(err, EINVAL, "byte %d: %s", je.position, je.text);
	return j;
}

/* Copies @s with NUL for each mark; *len shrinks.  free() it. */
static char *with_nul(const char *s, size_t *len)
{
	char *copy = malloc(*len + 1), *to = copy;
	const char *end = s + *len;

	while (copy && s < end) {
		bool hit = starts(s, end, MARK_UTF8);

		*to++ = hit ? '\0' : *s;
		s += hit ? MARK_LEN : 1;
	}
	if (copy)
		*len = (size_t)(to - copy);
	return copy;
}

static int restore_string(json_t *j)
{
	size_t len = json_string_length(j);
	ck_auto_free char *s = with_nul(json_string_value(j), &len);

	return s ? json_string_setn_nocheck(j, s, len) : -1;
}

/* Moves all pairs of @from to the end of @to, in their order. */
static int move_pairs(json_t *to, json_t *from)
{
	void *it;

	for (it = json_object_iter(from); it;
	     it = json_object_iter_next(from, it)) {
		size_t len = json_object_iter_key_len(it);
		ck_auto_free char *key =
			with_nul(json_object_iter_key(it), &len);

		if (!key || json_object_setn_nocheck(
				    to, key, len, json_object_iter_value(it)))
			return -1;
	}
	return json_object_clear(from);
}

static int restore_keys(json_t *object)
{
	ck_auto_json json_t *pairs = json_object();

	if (!pairs || move_pairs(pairs, object))
		return -1;
	return move_pairs(object, pairs);
}

struct level {
	json_t *j;
	void *it; /* of an object */
	size_t i; /* of an array */
};

static json_t *next_child(struct level *l)
{
	json_t *child;

	if (json_is_array(l->j))
		return json_array_get(l->j, l->i++);
	child = l->it ? json_object_iter_value(l->it) : NULL;
	if (l->it)
		l->it = json_object_iter_next(l->j, l->it);
	return child;
}

/* Depth was bounded by prescan(). */
static int restore_nuls(json_t *root)
{
	struct level stack[CK_MAX_JSON_DEPTH + 2];
	unsigned nr = 0;
	json_t *j = root;

	for (;;) {
		if (json_is_string(j) && restore_string(j))
			return -1;
		if (json_is_object(j) && restore_keys(j))
			return -1;
		if (json_is_object(j) || json_is_array(j))
			stack[nr++] =
				(struct level){ .j = j,
						.it = json_object_iter(j) };
		for (j = NULL; !j && nr; nr -= !j)
			j = next_child(&stack[nr - 1]);
		if (!j)
			return 0;
	}
}

static json_t *load_with_nuls(const char *bytes, size_t len,
			      const struct scan *sc, struct ck_err *err)
{
	ck_auto_free char *copy = malloc(len);
	char *at = copy;
	json_t *j;

	if (sc->mark) {
		ck_fail(err, EINVAL, "strings with NUL and with U+F8xx");
		return NULL;
	}
	if (!copy) {
		ck_no_memory(err);
		return NULL;
	}
	memcpy(copy, bytes, len);
	/* An escaped backslash before "u0000" is two bytes to step over. */
	while ((at = memchr(at, '\\', (size_t)(copy + len - at))) &&
	       at + 1 < copy + len) {
		if (starts(at, copy + len, NUL_ESCAPE))
			memcpy(at, MARK_ESCAPE, strlen(MARK_ESCAPE));
		at += 2;
	}
	j = load(copy, len, err);
	if (j && restore_nuls(j)) {
		ck_no_memory(err);
		json_decref(j);
		j = NULL;
	}
	return j;
}

static const struct {
	const char *bytes, *name;
} marks[] = {
	{ "\xef\xbb\xbf", "UTF-8" },
	{ "\xff\xfe", "UTF-16" },
	{ "\xfe\xff", "UTF-16" },
};

static const char *mark_of(const char *bytes, size_t len)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(marks); i++)
		if (starts(bytes, bytes + len, marks[i].bytes))
			return marks[i].name;
	return NULL;
}

bool ck_json_is_text(const char *bytes, size_t len)
{
	return !len || mark_of(bytes, len) || memchr("\t\n\r", bytes[0], 3) ||
	       (bytes[0] >= ' ' && bytes[0] < 0x7f);
}

/* What editors do to a file, of which jansson says too little. */
static int check_begin(const char *bytes, size_t len, struct ck_err *err)
{
	const char *mark = mark_of(bytes, len);
	size_t i = 0;

	if (mark)
		return ck_fail(err, EINVAL,
			       "byte 0: expected JSON, found a byte order mark "
			       "(%s): save it as UTF-8 without one",
			       mark);
	while (i < len && memchr(" \t\n\r", bytes[i], 4))
		i++;
	if (i < len)
		return 0;
	return ck_fail(err, EINVAL, "byte %zu: expected JSON, found %s", i,
		       len ? "white space alone" : "an empty file");
}

int ck_json_parse(json_t **out, const char *bytes, size_t len,
		  struct ck_err *err)
{
	struct scan sc = { .cost = 0 };
	struct ck_err why = { .code = EINVAL };
	int ret;

	if (len > MAX_LEN)
		return ck_fail(err, EINVAL,
			       "%zu bytes of JSON; the limit is %" PRIu64, len,
			       MAX_LEN);
	ret = check_begin(bytes, len, err);
	if (!ret)
		ret = prescan(&sc, bytes, len, err);
	if (ret)
		return ret;
	*out = sc.nul ? load_with_nuls(bytes, len, &sc, &why) :
			load(bytes, len, &why);
	if (!*out)
		return ck_fail(err, why.code, "%s", why.msg);
	return 0;
}

const char *ck_json_what(const json_t *j, char buf[CK_JSON_WHAT])
{
	size_t len = CK_JSON_WHAT;

	if (!j)
		return "nothing";
	switch (json_typeof(j)) {
	case JSON_STRING:
		snprintf(buf, len, "\"%.80s\"", json_string_value(j));
		break;
	case JSON_INTEGER:
		snprintf(buf, len, "%" JSON_INTEGER_FORMAT,
			 json_integer_value(j));
		break;
	case JSON_REAL:
		snprintf(buf, len, "%g", json_real_value(j));
		break;
	case JSON_ARRAY:
		snprintf(buf, len, "a list of %zu", json_array_size(j));
		break;
	case JSON_OBJECT:
		return "an object";
	case JSON_TRUE:
		return "true";
	case JSON_FALSE:
		return "false";
	default:
		return "null";
	}
	return buf;
}

const char *ck_json_text(const json_t *j)
{
	const char *s = json_string_value(j);

	return s && strlen(s) == json_string_length(j) ? s : NULL;
}

bool ck_json_u64(const json_t *j, uint64_t *out)
{
	json_int_t n = json_integer_value(j);

	if (!json_is_integer(j) || n < 0 || (uint64_t)n >= CK_SIZE_MAX)
		return false;
	*out = (uint64_t)n;
	return true;
}

bool ck_json_dims(const json_t *j, uint64_t *out, unsigned max, unsigned *nr)
{
	size_t len = json_array_size(j);

	if (!json_is_array(j) || len > max)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!ck_json_u64(json_array_get(j, i), &out[i]))
			return false;
	*nr = (unsigned)len;
	return true;
}
