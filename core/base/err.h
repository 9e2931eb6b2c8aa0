/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - an error: one code, one line
 *
 * Functions that can fail return 0 or -errno and take the error object last.
 * The line names the file, the byte or line, what was expected and what was
 * there.  It is made where the fault is found; outer layers may put their
 * context before it.  Nothing below the command and fs/kernel/reply.c prints.
 */
#ifndef CK_ERR_H
#define CK_ERR_H

#include <stdint.h>

#define CK_ERR_MAX 1024
#define CK_NOWHERE UINT64_MAX /* no byte is known */

struct ck_err {
	int code; /* errno, 0 while nothing failed */
	char msg[CK_ERR_MAX]; /* no newline; control bytes are escaped */
	/*
	 * Where it is, for programs: who reads the line cannot tell a name in it
	 * from words.  NULL: not known; else as long as the checkpoint is open.
	 */
	const char *file;
	uint64_t off; /* in @file, or CK_NOWHERE; nothing without @file */
};

/* Sets @err (which may be NULL) and returns -@code. */
int ck_fail(struct ck_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

/* The same, of byte @off of @file. */
int ck_fail_at(struct ck_err *err, int code, const char *file, uint64_t off,
	       const char *fmt, ...)
	__attribute__((format(printf, 5, 6), cold));

/* @why once more, with its place; returns -errno. */
int ck_fail_as(struct ck_err *err, const struct ck_err *why)
	__attribute__((cold));

/* Says where it is, unless that was said already by who knew better. */
void ck_err_place(struct ck_err *err, const char *file, uint64_t off);

/* The one line of all that could not be allocated; returns -ENOMEM. */
int ck_no_memory(struct ck_err *err) __attribute__((cold));

/* Puts "context: " before the message, unless @ret is 0; returns @ret. */
int ck_wrap(struct ck_err *err, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

#endif
