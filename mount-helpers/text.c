/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - names, shapes and sizes for people */
#include "mount-helpers/text.h"

#include "core/base/check.h"

#include "core/base/match.h"
#include "core/base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void text_ref(struct ck_str *out, const struct ck_catalog *img, uint32_t ref)
{
	size_t len;
	const char *s;

	if (ref == CK_NONE)
		return;
	s = ck_catalog_str(img, ref, &len);
	ck_str_plain(out, s, len);
}

void text_count(struct ck_str *out, uint64_t n, const char *one)
{
	ck_str_fmt(out, "%" PRIu64 " %s%s", n, one, n == 1 ? "" : "s");
}

int text_compare(const struct ck_catalog *a, uint32_t a_ref,
		 const struct ck_catalog *b, uint32_t b_ref)
{
	size_t a_len, b_len;
	const char *x = ck_catalog_str(a, a_ref, &a_len);
	const char *y = ck_catalog_str(b, b_ref, &b_len);

	return ck_text_order(x, a_len, y, b_len);
}

void text_tree(struct ck_str *out, const struct ck_catalog *img, uint32_t tree)
{
	if (tree == 0)
		return;
	text_ref(out, img, img->trees[tree]);
	ck_str_puts(out, "/");
}

void text_dims(struct ck_str *out, const uint64_t *dims, unsigned rank)
{
	ck_str_puts(out, "[");
	for (unsigned d = 0; d < rank; d++)
		ck_str_fmt(out, "%s%" PRIu64, d ? ", " : "", dims[d]);
	ck_str_puts(out, "]");
}

void text_box(struct ck_str *out, const uint64_t *start, const uint64_t *len,
	      unsigned rank)
{
	ck_str_puts(out, "[");
	for (unsigned d = 0; d < rank; d++)
		ck_str_fmt(out, "%s%" PRIu64 ":%" PRIu64, d ? ", " : "",
			   start[d], start[d] + len[d]);
	ck_str_puts(out, "]");
}

void text_size(struct ck_str *out, uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	double size = (double)bytes / 1024;
	unsigned u = 0;

	if (bytes < 1024) {
		ck_str_fmt(out, "%" PRIu64 " bytes", bytes);
		return;
	}
	for (; size >= 1023.95 && units[u + 1]; u++)
		size /= 1024;
	ck_str_fmt(out, "%.1f %ciB", size, units[u]);
}

void text_pad(struct ck_str *out, size_t from, size_t width)
{
	while (!out->failed && out->len - from < width)
		ck_str_puts(out, " ");
}

const char *text_state(uint8_t state)
{
	return state == CK_OK ? "ok" : state == CK_TORN ? "torn" : "missing";
}

const char *text_enc(uint8_t enc)
{
	switch (enc) {
	case CK_ENC_TORCH_ZIP:
		return "torch";
	case CK_ENC_PICKLE:
		return "pickle";
	case CK_ENC_JSON:
		return "json";
	default:
		return "raw";
	}
}

const char *text_colour(const char *colour)
{
	static const char *const on[] = { "\033[0m", "\033[31m", "\033[32m",
					  "\033[33m" };
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	if ((no && *no) || !term || !strcmp(term, "dumb") ||
	    !isatty(STDOUT_FILENO))
		return "";
	return on[*colour == '0' ? 0 : colour[1] - '0'];
}

unsigned text_columns(unsigned otherwise)
{
	const char *text = getenv("COLUMNS");
	struct winsize w = { 0 };
	uint64_t n = 0;

	if (text)
		ck_digits(text, SIZE_MAX, &n);
	if (n >= 20 && n <= 1000)
		return (unsigned)n;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col >= 20)
		return w.ws_col;
	return otherwise;
}

void text_wrap(struct ck_str *out, const char *text, unsigned at,
	       unsigned indent, unsigned columns)
{
	for (const char *sep = ""; *text; sep = " ") {
		size_t len = strcspn(text, " ");

		if (*sep && at + 1 + len > columns) {
			ck_str_fmt(out, "\n%*s", (int)indent, "");
			at = indent;
			sep = "";
		}
		ck_str_puts(out, sep);
		ck_str_add(out, text, len);
		at += (unsigned)(strlen(sep) + len);
		text += len;
		text += strspn(text, " ");
	}
	ck_str_puts(out, "\n");
}

bool text_flush(struct ck_str *s)
{
	bool ok = !s->failed;

	if (ok && s->len)
		ok = fwrite(s->v, 1, s->len, stdout) == s->len;
	s->len = 0;
	return ok;
}
