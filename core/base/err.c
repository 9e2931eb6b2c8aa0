/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"

#include "core/base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A message is one line: names in it come from untrusted files. */
static void escape_line(char *dst, size_t size, const char *src)
{
	size_t n = 0, obeyed = 0; /* bytes of a character that is */

	for (; *src && n + 5 < size; src++) {
		const unsigned char *c = (const unsigned char *)src;
		size_t len = obeyed ? 0 : ck_utf8_len(c, strnlen(src, 4));

		if (len && ck_utf8_obeyed(c, len))
			obeyed = len;
		if (!obeyed) {
			dst[n++] = *src;
			continue;
		}
		n += (size_t)snprintf(dst + n, size - n, "\\x%02x", *c);
		obeyed--;
	}
	dst[n] = '\0';
}

static void fill(struct ck_err *err, int code, const char *fmt, va_list ap)
{
	char raw[CK_ERR_MAX];

	vsnprintf(raw, sizeof(raw), fmt, ap);
	err->code = code;
	err->file = NULL;
	err->off = CK_NOWHERE;
	escape_line(err->msg, sizeof(err->msg), raw);
}

int ck_fail(struct ck_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -code;
	va_start(ap, fmt);
	fill(err, code, fmt, ap);
	va_end(ap);
	return -code;
}

int ck_fail_at(struct ck_err *err, int code, const char *file, uint64_t off,
	       const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -code;
	va_start(ap, fmt);
	fill(err, code, fmt, ap);
	va_end(ap);
	ck_err_place(err, file, off);
	return -code;
}

int ck_fail_as(struct ck_err *err, const struct ck_err *why)
{
	if (err && err != why)
		*err = *why;
	return -why->code;
}

void ck_err_place(struct ck_err *err, const char *file, uint64_t off)
{
	if (!err->file) {
		err->file = file;
		err->off = CK_NOWHERE;
	}
	if (err->off == CK_NOWHERE)
		err->off = off;
}

int ck_no_memory(struct ck_err *err)
{
	return ck_fail(err, ENOMEM, "no memory");
}

int ck_wrap(struct ck_err *err, int ret, const char *fmt, ...)
{
	char raw[2 * CK_ERR_MAX];
	va_list ap;
	size_t n;

	if (!err || !ret)
		return ret;
	va_start(ap, fmt);
	vsnprintf(raw, CK_ERR_MAX, fmt, ap);
	va_end(ap);
	n = strlen(raw);
	snprintf(raw + n, sizeof(raw) - n, ": %s", err->msg);
	escape_line(err->msg, sizeof(err->msg), raw);
	return ret;
}
