/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.h - all -o options: the general table, and what formats declare
 *
 * --help, the manual's option list and the parser all come from them.
 */
#ifndef FS_OPTS_H
#define FS_OPTS_H

#include "core/base/err.h"
#include "core/base/option.h"
#include "core/base/opts.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Those that are for every format; the others are the formats' own. */
extern const struct ck_option fs_opts[]; /* up to a NULL name */
#define FS_OPTS_READ "follow" /* the last of those that say what is read */

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
