// SPDX-License-Identifier: Apache-2.0
/*
 * pickle_text.c - operands written as text: what Python 2 and protocol 0 use
 *
 * The text is vm->s[0, vm->len), one line without its newline.  Strings with
 * escapes are decoded into the arena; decoding at most doubles a line.
 */
#include "core/parse/pickle_priv.h"

#include "core/base/check.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define INLINE_INT_MAX (INT64_C(1) << 58)
#define MAX_FLOAT_TEXT 64

int ck_pickle_int(struct pickle_vm *vm, int64_t n, ck_pv *out)
{
	uint64_t at;
	int ret;

	if (n < INLINE_INT_MAX && n >= -INLINE_INT_MAX) {
		*out = pv_make(CK_P_INT, (uint64_t)n);
		return 0;
	}
	ret = ck_pickle_alloc(vm, 1, &at);
	if (ret)
		return ret;
	vm->p->words[at] = (uint64_t)n;
	*out = pv_make_arena(CK_P_INT, at);
	return 0;
}

static int no_number(struct pickle_vm *vm)
{
	return vm_fail(vm, "'%.*s' is no number", (int)CK_MIN(vm->len, 40),
		       vm->s);
}

/* A number of any size, so never converted: only its form is looked at. */
static bool is_decimal(const char *s, size_t len)
{
	if (len && *s == '-') {
		s++;
		len--;
	}
	for (size_t i = 0; i < len; i++)
		if (s[i] < '0' || s[i] > '9')
			return false;
	return len > 0;
}

static bool to_int64(const char *s, size_t len, int64_t *out)
{
	bool negative = *s == '-';
	int64_t n = 0;

	for (size_t i = negative; i < len; i++) {
		int digit = s[i] - '0';

		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, negative ? -digit : digit, &n))
			return false;
	}
	*out = n;
	return true;
}

/* I00 and I01 are how protocols 0 and 1 write False and True. */
int ck_pickle_text_int(struct pickle_vm *vm, ck_pv *out)
{
	bool is_long = vm->p->in[vm->op_at] == 'L';
	int64_t n;

	if (!is_long && vm->len == 2 && vm->s[0] == '0' &&
	    (vm->s[1] == '0' || vm->s[1] == '1')) {
		*out = pv_make(CK_P_BOOL, vm->s[1] == '1');
		return 0;
	}
	if (is_long && vm->len && vm->s[vm->len - 1] == 'L')
		vm->len--;
	if (!is_decimal(vm->s, vm->len))
		return no_number(vm);
	if (to_int64(vm->s, vm->len, &n))
		return ck_pickle_int(vm, n, out);
	*out = pv_make(CK_P_BIGINT, vm->op_at);
	return 0;
}

int ck_pickle_text_float(struct pickle_vm *vm, ck_pv *out)
{
	char text[MAX_FLOAT_TEXT], *end;

	if (!vm->len || vm->len >= sizeof(text))
		return no_number(vm);
	memcpy(text, vm->s, vm->len);
	text[vm->len] = '\0';
	strtod(text, &end);
	if (end != text + vm->len || isspace((unsigned char)*text))
		return no_number(vm);
	*out = pv_make(CK_P_FLOAT, vm->op_at);
	return 0;
}

int ck_pickle_text_index(struct pickle_vm *vm, uint64_t *out)
{
	int64_t n;

	if (!is_decimal(vm->s, vm->len) || *vm->s == '-' ||
	    !to_int64(vm->s, vm->len, &n))
		return no_number(vm);
	*out = (uint64_t)n;
	return 0;
}

/* Room for @max bytes of string; end_string() gives back what is unused. */
static int start_string(struct pickle_vm *vm, size_t max, uint64_t *at,
			char **bytes)
{
	int ret = ck_pickle_alloc(vm, 1 + CK_DIV_UP(max, sizeof(uint64_t)), at);

	/* who folds may keep texts, and this is none of the input */
	ck_pickle_no_fold(vm);

	if (!ret)
		*bytes = (char *)(vm->p->words + *at + 1);
	return ret;
}

static ck_pv end_string(struct pickle_vm *vm, uint64_t at, size_t len)
{
	vm->p->words[at] = len;
	vm->p->used = at + 1 + CK_DIV_UP(len, sizeof(uint64_t));
	return pv_make_arena(CK_P_STR, at);
}

/* @nr hexadecimal digits at @s, or false. */
static bool hex(const char *s, const char *end, unsigned nr, uint32_t *out)
{
	uint32_t n = 0;

	if (end - s < (ptrdiff_t)nr)
		return false;
	for (unsigned i = 0; i < nr; i++) {
		unsigned char c = (unsigned char)s[i];

		if (!isxdigit(c))
			return false;
		n = n << 4 |
		    (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
	}
	*out = n;
	return true;
}

/* One character after a backslash; NULL: no escape that Python writes. */
static const char *unescape(const char *s, const char *end, char *out)
{
	static const char from[] = "\\'\"abfnrtv";
	static const char to[] = "\\'\"\a\b\f\n\r\t\v";
	const char *hit;
	uint32_t n;

	if (s == end)
		return NULL;
	if (*s == 'x') {
		if (!hex(s + 1, end, 2, &n))
			return NULL;
		*out = (char)n;
		return s + 3;
	}
	if (*s >= '0' && *s <= '7') {
		const char *stop = end - s > 3 ? s + 3 : end;

		for (n = 0; s < stop && *s >= '0' && *s <= '7'; s++)
			n = n << 3 | (uint32_t)(*s - '0');
		*out = (char)n;
		return s;
	}
	hit = *s ? strchr(from, *s) : NULL;
	if (!hit)
		return NULL;
	*out = to[hit - from];
	return s + 1;
}

int ck_pickle_text_quoted(struct pickle_vm *vm, ck_pv *out)
{
	const char *s = vm->s + 1, *end = vm->s + vm->len - 1;
	char *to, *start;
	uint64_t at;
	int ret;

	if (vm->len < 2 || *vm->s != *end || (*end != '\'' && *end != '"'))
		return vm_fail(vm, "a string without its quotes");
	ret = start_string(vm, vm->len, &at, &start);
	if (ret)
		return ret;
	for (to = start; s < end; to++) {
		*to = *s++;
		if (*to != '\\')
			continue;
		s = unescape(s, end, to);
		if (!s)
			return vm_fail(
				vm,
				"a string with an escape that Python does not write");
	}
	*out = end_string(vm, at, (size_t)(to - start));
	return 0;
}

/* Any code point below 2^21, surrogates too: Python keeps those apart. */
static char *put_utf8(char *to, uint32_t c)
{
	if (c < 0x80) {
		*to++ = (char)c;
	} else if (c < 0x800) {
		*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		*to++ = (char)(0xe0 | c >> 12);
		*to++ = (char)(0x80 | (c >> 6 & 63));
		*to++ = (char)(0x80 | (c & 63));
	} else {
		*to++ = (char)(0xf0 | c >> 18);
		*to++ = (char)(0x80 | (c >> 12 & 63));
		*to++ = (char)(0x80 | (c >> 6 & 63));
		*to++ = (char)(0x80 | (c & 63));
	}
	return to;
}

/* Latin-1, with \uXXXX and \UXXXXXXXX for the rest. */
int ck_pickle_text_unicode(struct pickle_vm *vm, ck_pv *out)
{
	const char *s = vm->s, *end = vm->s + vm->len;
	char *to, *start;
	uint32_t c;
	uint64_t at;
	int ret = start_string(vm, 2 * vm->len, &at, &start);

	if (ret)
		return ret;
	for (to = start; s < end; to = put_utf8(to, c)) {
		unsigned digits = 0;

		c = (unsigned char)*s++;
		if (c == '\\' && s < end)
			digits = *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
		if (!digits)
			continue;
		if (!hex(s + 1, end, digits, &c) || c > 0x10ffff)
			return vm_fail(vm,
				       "a string with a malformed \\%c escape",
				       *s);
		s += 1 + digits;
	}
	*out = end_string(vm, at, (size_t)(to - start));
	return 0;
}

int ck_pickle_text_plain(struct pickle_vm *vm, ck_pv *out)
{
	uint64_t at;
	char *to;
	int ret = start_string(vm, vm->len, &at, &to);

	if (ret)
		return ret;
	memcpy(to, vm->s, vm->len);
	*out = end_string(vm, at, vm->len);
	return 0;
}
