/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - what a subcommand of `unshard` provides
 *
 * To add one, define cmd_NAME in mount-helpers/cmd_NAME.c and its manual
 * page docs/man/unshard-NAME.1.scd; the Makefile finds both by their names.
 *
 *	static int run(int argc, char **argv)
 *	{
 *		int nr = cmd_parse(&cmd_ls, argc, argv, &opts);
 *
 *		if (nr < 0)
 *			return CMD_USAGE;
 *		... words are argv[1] .. argv[nr]; --json is the option "json"
 */
#ifndef CMD_H
#define CMD_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/ckpt/ckpt.h"
#include "core/options/options.h"

#include <stdbool.h>

/* Exit codes of every subcommand (docs/man/unshard.1.scd). */
enum {
	CMD_OK = 0,
	CMD_BAD_CKPT = 1, /* the checkpoint is wrong or incomplete */
	CMD_USAGE = 2,
	CMD_SYSTEM = 3, /* I/O, mount, memory */
};

/* A flag without a value; all have --help, and most --json. */
struct cmd_flag {
	char letter; /* -l; 0: none */
	const char *
		name; /* --lazy, and the name in the options, see keep_flag() */
	const char *help; /* one line; NULL: taken, and not listed */
};

/* --NAME VALUE or --NAME=VALUE */
struct cmd_valued {
	const char *name, *value; /* value: what it stands for, in --help */
	const char *help; /* one line */
};

/* Where it stands in unshard --help. */
enum cmd_group { CMD_MOUNT, CMD_LOOK, CMD_KEEP, CMD_WRITE, CMD_GROUPS };

struct cmd {
	const char *name;
	enum cmd_group group;
	const char *args; /* "CKPT [NAME]", for the usage line */
	const char *summary; /* one line */
	const char *help; /* more for --help, whole lines; "" if none */
	const struct cmd_flag *flags; /* its own, up to a NULL name; or NULL */
	const struct cmd_valued *valued; /* the same */
	unsigned min_words,
		max_words; /* cmd_parse refuses others; max 0: any */
	bool mounts; /* takes all -o options, not only those for reading */
	bool plain; /* takes neither --json nor -o, unless it mounts */
	/* argv[0] is the subcommand's name. */
	int (*run)(int argc, char **argv);
};

/* --json and --help, as far as it takes them; up to a NULL name. */
const struct cmd_flag *cmd_common_flags(const struct cmd *c);
/* Which -o options it takes, if any. */
enum ck_options_who cmd_options_who(const struct cmd *c);

/* All subcommands, by name, up to a NULL; generated from the cmd_*.c. */
extern const struct cmd *const cmds[];

/* "unshard NAME: message" on stderr, one line; returns @code. */
int cmd_fail(const struct cmd *c, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The exit code for a failed core call, after printing its line. */
int cmd_err(const struct cmd *c, const struct ck_err *err);
/* The same of a failed ck_target_find(). */
int cmd_target_err(const struct cmd *c, const struct ck_err *err);
/*
 * Takes -o NAME[=VALUE],... --json and the command's flags from argv, which
 * may stand before and after words ("--" ends them), into @opts (the caller
 * frees it, also after a failure); moves the words to argv[1] on.  Returns
 * the number of words, or -1 after a line on stderr.  --help prints and exits;
 * --help=all prints every option.
 */
int cmd_parse(const struct cmd *c, int argc, char **argv, struct ck_opts *opts);
/*
 * Opens a checkpoint for a command: what is read after the index, items inside the
 * files too, is read in a sandbox that this process enters and cannot leave.
 * Open what you write to before.  0, or -errno with @err set.
 */
int cmd_open(struct ck_ckpt **out, const char *path, const struct ck_opts *opts,
	     struct ck_err *err);
/*
 * The same where a directory that holds checkpoints is not to be taken for the
 * only one in it: for lists of them, and for names of files in it.
 */
int cmd_open_itself(struct ck_ckpt **out, const char *path,
		    const struct ck_opts *opts, struct ck_err *err);
/*
 * The same for @nr at once, all or none: the sandbox is entered once only.  It
 * lets this process write below @write_dir; NULL: nowhere.
 */
#define CMD_OPEN_MAX 2
int cmd_open_several(struct ck_ckpt **out, const char *const *path, unsigned nr,
		     const char *write_dir, const struct ck_opts *opts,
		     struct ck_err *err);
/*
 * cmd_open_several() or, @itself, cmd_open_itself(), for what only reads: a
 * path may be that of a view, such as CKPT/hf (view_path.h).
 */
int cmd_open_shown(struct ck_ckpt **out, const char *const *path, unsigned nr,
		   bool itself, const struct ck_opts *opts, struct ck_err *err);
/*
 * Makes the directory that option @name says absolute, for another working
 * directory or a sandbox; an exit code.
 */
int cmd_absolute(const struct cmd *c, struct ck_opts *opts, const char *name);
/* Whether stdout took all that was written; else a line and CMD_SYSTEM. */
int cmd_flush(const struct cmd *c);
/* The same after text_flush(), which said by @all whether it could. */
int cmd_written(const struct cmd *c, bool all);

#endif
