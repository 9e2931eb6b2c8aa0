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
	FS_OPT_STRING, /* any text without a comma */
	FS_OPT_CHOICE, /* one of @choices, separated by | */
	FS_OPT_FORMAT, /* the name of a reader, core/format/format.h */
	FS_OPT_SIZE, /* bytes, with K M G T */
	FS_OPT_NUMBER, /* 1 .. @max */
	FS_OPT_PATH, /* "\," and "\:" escape; a path that exists wins */
	FS_OPT_PATHS, /* several, with ":" between them or by repeating */
	FS_OPT_FILES, /* the same, of files that are read at once */
};

struct fs_opt {
	const char *name;
	enum fs_opt_type type;
	const char *choices;
	uint64_t max;
	const char *value; /* what the value stands for, in --help */
	const char *fallback; /* default, in words; NULL: none */
	const char *help; /* one line */
	bool open; /* also taken by ls, inspect, plan, cat */
	bool folder; /* FILES: of a folder the .ckpt and .json files in it */
	bool how; /* of those: never changes which bytes are shown */
};

extern const struct fs_opt fs_opts[]; /* up to a NULL name */

enum fs_opts_who {
	FS_OPTS_MOUNT, /* unshard mount */
	FS_OPTS_OPEN, /* commands that only read: those with @open */
	FS_OPTS_FSTAB, /* mount(8) calls: it adds words of its own, as "rw" */
};

/*
 * One -o argument: NAME[=VALUE],...  Unknown names, those that @who does not
 * take and bad values: -EINVAL.  Words that mount(8) and systemd give to every
 * file system (nodev, noauto, _netdev, x-...) are dropped.  "_" in a name
 * counts as "-": allow_other.
 */
int fs_opts_parse(struct ck_opts *out, enum fs_opts_who who, const char *text,
		  struct ck_err *err);
/* Adds @name=@value; if that is a file, with what is in it. */
int fs_opts_add_file(struct ck_opts *out, const char *name, const char *value,
		     struct ck_err *err);
bool fs_opts_is_how(const char *name);
void fs_opts_help(enum fs_opts_who who, struct ck_str *out); /* for --help */
void fs_opts_scdoc(enum fs_opts_who who, struct ck_str *out); /* manual */

#endif
