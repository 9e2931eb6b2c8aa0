/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - what a subcommand of `unshard` provides
 *
 * To add one, define cmd_NAME in mount-helpers/cmd_NAME.c and its manual
 * page docs/man/unshard-NAME.1.scd; the Makefile finds both by their names.
 */
#ifndef CMD_H
#define CMD_H

#include "core/base/err.h"
#include "core/base/opts.h"

/* Exit codes of every subcommand (docs/man/unshard.1.scd). */
enum {
	CMD_OK = 0,
	CMD_BAD_CKPT = 1, /* the checkpoint is wrong or incomplete */
	CMD_USAGE = 2,
	CMD_SYSTEM = 3, /* I/O, mount, memory */
};

struct cmd {
	const char *name;
	const char *args; /* "CKPT [NAME]", for the usage line */
	const char *summary; /* one line */
	const char *help; /* the options, a line each; "" if none of its own */
	/* argv[0] is the subcommand's name. */
	int (*run)(int argc, char **argv);
};

/* All subcommands, by name, up to a NULL; generated from the cmd_*.c. */
extern const struct cmd *const cmds[];

/* "unshard NAME: message" on stderr, one line; returns @code. */
int cmd_fail(const struct cmd *c, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The exit code for a failed core call, after printing its line. */
int cmd_err(const struct cmd *c, const struct ck_err *err);
/*
 * Takes -o NAME[=VALUE],... --json --help and the like from argv, leaving the
 * words; fills @opts.  Returns the number of words, or -1 after a line.
 */
int cmd_parse(const struct cmd *c, int argc, char **argv, struct ck_opts *opts);

#endif
