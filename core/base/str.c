/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/str.h"

#include "core/base/utf8.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ck_str_free(struct ck_str *s)
{
	free(s->v);
	*s = (struct ck_str){ 0 };
}

static bool make_room(struct ck_str *s, size_t more)
{
	size_t want = s->room ? s->room : 64;
	char *grown;

	if (s->failed)
		return false;
	if (s->len + more < s->room)
		return true;
	while (want <= s->len + more)
		want *= 2;
	grown = realloc(s->v, want);
	if (!grown) {
		s->failed = true;
		return false;
	}
	s->v = grown;
	s->room = want;
	return true;
}

void ck_str_add(struct ck_str *s, const void *bytes, size_t len)
{
	if (!make_room(s, len + 1))
		return;
	if (len)
		memcpy(s->v + s->len, bytes, len);
	s->len += len;
	s->v[s->len] = '\0';
}

void ck_str_puts(struct ck_str *s, const char *text)
{
	ck_str_add(s, text, strlen(text));
}

void ck_str_fmt(struct ck_str *s, const char *fmt, ...)
{
	size_t room = s->room - s->len; /* both 0, or len is less */
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(room ? s->v + s->len : NULL, room, fmt, ap);
	va_end(ap);
	if (len < 0 || !make_room(s, (size_t)len + 1)) {
		if (room)
			s->v[s->len] = '\0';
		s->failed = true;
		return;
	}
	if ((size_t)len >= room) {
		va_start(ap, fmt);
		vsnprintf(s->v + s->len, (size_t)len + 1, fmt, ap);
		va_end(ap);
	}
	s->len += (size_t)len;
}

void ck_str_u64(struct ck_str *s, uint64_t v)
{
	char text[20];
	size_t at = sizeof(text);

	do {
		text[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	ck_str_add(s, text + at, sizeof(text) - at);
}

void ck_str_le32(struct ck_str *s, uint32_t v)
{
	v = htole32(v);
	ck_str_add(s, &v, sizeof(v));
}

void ck_str_le64(struct ck_str *s, uint64_t v)
{
	v = htole64(v);
	ck_str_add(s, &v, sizeof(v));
}

void ck_str_plain(struct ck_str *s, const char *bytes, size_t len)
{
	const unsigned char *p = (const unsigned char *)bytes;

	for (size_t i = 0; i < len;) {
		size_t n = ck_utf8_len(p + i, len - i);

		if (n && !ck_utf8_obeyed(p + i, n)) {
			ck_str_add(s, p + i, n);
			i += n;
			continue;
		}
		for (n = n ? n : 1; n > 0; n--)
			ck_str_fmt(s, "\\x%02x", p[i++]);
	}
}

/* How many bytes at @p stand for themselves. */
static size_t plain_len(const unsigned char *p, size_t len)
{
	size_t n = 0;

	while (n < len && p[n] >= 0x20 && p[n] < 0x7f && p[n] != '"' &&
	       p[n] != '\\')
		n++;
	return n;
}

void ck_str_label(struct ck_str *s, const char *name, const char *value)
{
	struct ck_str plain = { 0 };

	ck_str_plain(&plain, value, strlen(value));
	ck_str_fmt(s, "%s=\"", name);
	for (size_t i = 0; i < plain.len; i++) {
		if (plain.v[i] == '\\' || plain.v[i] == '"')
			ck_str_puts(s, "\\");
		ck_str_add(s, &plain.v[i], 1);
	}
	ck_str_puts(s, "\"");
	s->failed |= plain.failed;
	ck_str_free(&plain);
}

void ck_str_json(struct ck_str *s, const char *bytes, size_t len)
{
	const unsigned char *p = (const unsigned char *)bytes;

	ck_str_add(s, "\"", 1);
	while (len) {
		size_t n = plain_len(p, len);

		ck_str_add(s, p, n);
		p += n;
		len -= n;
		if (!len)
			break;
		n = ck_utf8_len(p, len);
		if (!n) {
			ck_str_fmt(s, "\\udc%02x", *p);
			n = 1;
		} else if (*p == '"' || *p == '\\') {
			ck_str_fmt(s, "\\%c", *p);
		} else if (*p < 0x20 || *p == 0x7f) {
			ck_str_fmt(s, "\\u%04x", *p);
		} else {
			ck_str_add(s, p, n);
		}
		p += n;
		len -= n;
	}
	ck_str_add(s, "\"", 1);
}

void ck_str_json_u64(struct ck_str *s, const uint64_t *v, size_t nr)
{
	ck_str_puts(s, "[");
	for (size_t i = 0; i < nr; i++) {
		ck_str_puts(s, i ? ", " : "");
		ck_str_u64(s, v[i]);
	}
	ck_str_puts(s, "]");
}
