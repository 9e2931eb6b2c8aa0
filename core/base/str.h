/* SPDX-License-Identifier: Apache-2.0 */
/*
 * str.h - a growing byte string, and the one place that writes JSON text
 *
 * Running out of memory is remembered in @failed and checked once at the end.
 */
#ifndef CK_STR_H
#define CK_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_str {
	char *v; /* NUL-terminated when not NULL; free with ck_str_free() */
	size_t len, room;
	bool failed;
};

void ck_str_free(struct ck_str *s);
void ck_str_add(struct ck_str *s, const void *bytes, size_t len);
void ck_str_puts(struct ck_str *s, const char *text);
void ck_str_fmt(struct ck_str *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void ck_str_u64(struct ck_str *s, uint64_t v); /* decimal */
void ck_str_le32(struct ck_str *s, uint32_t v); /* bytes, little endian */
void ck_str_le64(struct ck_str *s, uint64_t v);
/*
 * For people and terminals, in one line: what is not UTF-8, and what a
 * terminal obeys (see utf8.h), becomes \xNN.
 */
void ck_str_plain(struct ck_str *s, const char *bytes, size_t len);
/*
 * A quoted JSON string.  Bytes that are not UTF-8 become lone low surrogates
 * \udc80..\udcff, the form that Python's surrogateescape gives, so that no
 * name is lost.
 */
void ck_str_json(struct ck_str *s, const char *bytes, size_t len);
/* A JSON list of integers. */
/* NAME="VALUE", as Prometheus' text has it; VALUE as of ck_str_plain(). */
void ck_str_label(struct ck_str *s, const char *name, const char *value);
void ck_str_json_u64(struct ck_str *s, const uint64_t *v, size_t nr);

#define ck_auto_str __attribute__((cleanup(ck_str_free)))

#endif
