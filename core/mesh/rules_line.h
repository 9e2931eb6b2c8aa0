/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_line.h - what all files NAME.rules are made of: lines of words
 *
 * "#" begins a comment.  A file is built in, or the user's.  One thread.
 */
#ifndef CK_RULES_LINE_H
#define CK_RULES_LINE_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define CK_RULES_WORDS 12 /* of a line, at most */

/* Bytes of the file of rules; not NUL-terminated. */
struct ck_tp_word {
	const char *s;
	size_t len;
};

struct ck_rules_line {
	const char *file; /* what messages call it */
	unsigned nr; /* of the line, from 1 */
	struct ck_tp_word word[CK_RULES_WORDS];
	unsigned nr_words;
};

/* A file that is built in: its name without ".rules", and its text. */
struct ck_rules_builtin {
	const char *name, *text;
};

/*
 * Calls @take with each line of @bytes that has words; ends at the first that
 * does not return 0.  -EINVAL with "FILE: line N: ..." where one has too many.
 */
int ck_rules_lines(const char *file, const char *bytes, size_t len,
		   int (*take)(void *ctx, const struct ck_rules_line *l,
			       struct ck_err *err),
		   void *ctx, struct ck_err *err);
/* -EINVAL with "FILE: line N: WHAT". */
int ck_rules_bad(const struct ck_rules_line *l, const char *what,
		 struct ck_err *err);
bool ck_word_is(struct ck_tp_word w, const char *text);

#endif
