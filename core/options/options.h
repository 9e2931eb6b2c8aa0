/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - all -o options: the general table, and what formats declare
 *
 * --help, the manual's option list and the parser all come from them.
 */
#ifndef CK_OPTIONS_OPTIONS_H
#define CK_OPTIONS_OPTIONS_H

#include "core/base/err.h"
#include "core/base/option.h"
#include "core/base/opts.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Those that are for every format; the others are the formats' own. */
extern const struct ck_option ck_options[]; /* up to a NULL name */
extern const char *const ck_option_groups[CK_OPTION_GROUPS]; /* in words */

enum ck_options_who {
	CK_OPTIONS_MOUNT, /* unshard mount */
	CK_OPTIONS_OPEN, /* commands that only read: those with @open */
	CK_OPTIONS_FSTAB, /* mount(8) calls: it adds words of its own, as "rw" */
};

/*
 * One -o argument: NAME[=VALUE],...  Unknown names, those that @who does not
 * take and bad values: -EINVAL.  Words that mount(8) and systemd give to every
 * file system (nodev, noauto, _netdev, x-...) are dropped.  "_" in a name
 * counts as "-": allow_other.
 */
int ck_options_parse(struct ck_opts *out, enum ck_options_who who,
		     const char *text, struct ck_err *err);
/* Adds @name=@value; if that is a file, with what is in it. */
int ck_options_add_file(struct ck_opts *out, const char *name,
			const char *value, struct ck_err *err);
/*
 * What trainers leave beside the checkpoint at @path, and options that are not
 * given would say: adds these.
 */
int ck_options_beside(struct ck_opts *opts, const char *path,
		      struct ck_err *err);
/*
 * Makes the directory that option @name says, if it was given, absolute, for
 * another working directory or a sandbox.  -EINVAL: it is no directory.
 */
int ck_options_absolute(struct ck_opts *opts, const char *name,
			struct ck_err *err);
bool ck_options_is_how(const char *name);
/* Calls @fn for those that @who takes, group by group. */
void ck_options_each(enum ck_options_who who,
		     void (*fn)(const struct ck_option *o, void *ctx),
		     void *ctx);

#endif
