/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A message is one line: names in it come from untrusted files. */
static void escape_line(char *dst, size_t size, const char *src)
{
	size_t n = 0;

	for (; *src && n + 5 < size; src++) {
		unsigned char c = (unsigned char)*src;

		if (c < 0x20 || c == 0x7f)
			n += (size_t)snprintf(dst + n, size - n, "\\x%02x", c);
		else
			dst[n++] = (char)c;
	}
	dst[n] = '\0';
}

int ck_fail(struct ck_err *err, int code, const char *fmt, ...)
{
	char raw[CK_ERR_MAX];
	va_list ap;

	if (!err)
		return -code;
	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	err->code = code;
	escape_line(err->msg, sizeof(err->msg), raw);
	return -code;
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
