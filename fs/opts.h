/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.h - the one table of -o options
 *
 * --help, the manual's option list and the parser all come from it.
 */
#ifndef FS_OPTS_H
#define FS_OPTS_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>

enum fs_opt_type {
	FS_OPT_FLAG, /* a bare word */
	FS_OPT_STRING,
	FS_OPT_CHOICE, /* one of @choices, separated by | */
	FS_OPT_SIZE, /* bytes, with K M G T */
	FS_OPT_NUMBER,
	FS_OPT_PATH, /* "\," and "\:" escape; may be repeated */
};

struct fs_opt {
	const char *name;
	enum fs_opt_type type;
	const char *choices;
	const char *value; /* what the value stands for, in --help */
	const char *fallback; /* default, in words; NULL: none */
	const char *help; /* one line */
	bool open; /* also taken by ls, inspect, plan, cat */
};

extern const struct fs_opt fs_opts[]; /* up to a NULL name */

/* One -o argument: NAME[=VALUE],...  Unknown names and bad values: -EINVAL. */
int fs_opts_parse(struct ck_opts *out, const char *text, struct ck_err *err);
/* "256M" -> bytes; for values that passed fs_opts_parse(). */
bool fs_opts_size(const char *text, uint64_t *out);
void fs_opts_help(struct ck_str *out); /* text for --help */
void fs_opts_scdoc(struct ck_str *out); /* the manual's list */

#endif
