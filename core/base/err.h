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

#define CK_ERR_MAX 1024

struct ck_err {
	int code; /* errno, 0 while nothing failed */
	char msg[CK_ERR_MAX]; /* no newline; control bytes are escaped */
};

/* Sets @err (which may be NULL) and returns -@code. */
int ck_fail(struct ck_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

/* The one line of all that could not be allocated; returns -ENOMEM. */
int ck_no_memory(struct ck_err *err) __attribute__((cold));

/* Puts "context: " before the message, unless @ret is 0; returns @ret. */
int ck_wrap(struct ck_err *err, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

#endif
