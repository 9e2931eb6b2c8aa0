/* SPDX-License-Identifier: Apache-2.0 */
/* cmd.c - what subcommands share: arguments, error lines, exit codes */
#include "mount-helpers/cmd.h"

#include "fs/opts.h"

#include "core/base/auto.h"
#include "core/io/sandbox.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cmd_flag common_flags[] = {
	{ 0, "json", "JSON instead of text for people" },
	{ 'h', "help", "this text" },
	{ 0, NULL, NULL },
};

static const struct cmd_flag *common(const struct cmd *c)
{
	return common_flags + (c->plain ? 1 : 0);
}

int cmd_fail(const struct cmd *c, int code, const char *fmt, ...)
{
	char text[2 * CK_ERR_MAX];
	struct ck_err line;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ck_fail(&line, EINVAL, "%s", text); /* escapes what would break it */
	fflush(stdout);
	fprintf(stderr, "unshard %s: %s\n", c->name, line.msg);
	return code;
}

/* What is wrong with the machine rather than with the checkpoint. */
static int exit_code(int code)
{
	switch (code) {
	case ENOMEM:
	case EACCES:
	case EPERM:
	case EMFILE:
	case ENFILE:
	case ENOSPC:
	case EDQUOT:
	case EROFS:
	case EAGAIN:
	case EBUSY:
	case ENODEV:
	case ENXIO:
	case ENOSYS:
	case ENOTCONN:
	case EPIPE:
	case EINTR:
		return CMD_SYSTEM;
	default:
		return CMD_BAD_CKPT;
	}
}

int cmd_err(const struct cmd *c, const struct ck_err *err)
{
	return cmd_fail(c, exit_code(err->code), "%s", err->msg);
}

static void help_flags(const struct cmd_flag *flags)
{
	for (; flags && flags->name; flags++) {
		char word[32];

		snprintf(word, sizeof(word), "%c%c%s--%s",
			 flags->letter ? '-' : ' ',
			 flags->letter ? flags->letter : ' ',
			 flags->letter ? ", " : "  ", flags->name);
		printf("  %-18s %s\n", word, flags->help);
	}
}

static enum fs_opts_who who(const struct cmd *c)
{
	return c->mounts ? FS_OPTS_MOUNT : FS_OPTS_OPEN;
}

static void help(const struct cmd *c)
{
	ck_auto_str struct ck_str opts = { 0 };

	printf("usage: unshard %s %s\n\n%s.\n\n", c->name, c->args, c->summary);
	if (*c->help)
		printf("%s\n", c->help);
	help_flags(c->flags);
	help_flags(common(c));
	if (c->plain && !c->mounts)
		return;
	fs_opts_help(who(c), &opts);
	printf("\n-o NAME[=VALUE],...\n%s", opts.v ? opts.v : "");
}

/* One flag by letter or name; false: nobody's. */
static bool take_flag(const struct cmd_flag *flags, const char *name,
		      char letter, struct ck_opts *opts)
{
	for (; flags && flags->name; flags++)
		if (name ? !strcmp(flags->name, name) : flags->letter == letter)
			return !ck_opts_add(opts, flags->name, "");
	return false;
}

static bool take_any(const struct cmd *c, const char *name, char letter,
		     struct ck_opts *opts)
{
	return take_flag(c->flags, name, letter, opts) ||
	       take_flag(common(c), name, letter, opts);
}

static int take_opts(const struct cmd *c, const char *text,
		     struct ck_opts *opts)
{
	struct ck_err err;

	if (!text)
		return cmd_fail(c, -1, "-o: expected NAME[=VALUE],...");
	if (fs_opts_parse(opts, who(c), text, &err))
		return cmd_fail(c, -1, "%s", err.msg);
	return 0;
}

/* argv[*at], which begins with "-"; moves *at over a value of its own. */
static int take_dash(const struct cmd *c, int argc, char **argv, int *at,
		     struct ck_opts *opts)
{
	const char *arg = argv[*at];

	if (!strncmp(arg, "-o", 2) && (c->mounts || !c->plain)) {
		if (arg[2])
			return take_opts(c, arg + 2, opts);
		*at += 1;
		return take_opts(c, *at < argc ? argv[*at] : NULL, opts);
	}
	if (!strncmp(arg, "--", 2))
		return take_any(c, arg + 2, 0, opts) ?
			       0 :
			       cmd_fail(c, -1,
					"unknown option %s (--help lists them)",
					arg);
	for (const char *p = arg + 1; *p; p++)
		if (!take_any(c, NULL, *p, opts))
			return cmd_fail(c, -1,
					"unknown option -%c (--help "
					"lists them)",
					*p);
	return 0;
}

int cmd_parse(const struct cmd *c, int argc, char **argv, struct ck_opts *opts)
{
	bool words_only = false;
	int nr = 0;

	for (int i = 1; i < argc; i++) {
		if (words_only || argv[i][0] != '-' || !argv[i][1])
			argv[++nr] = argv[i];
		else if (!strcmp(argv[i], "--"))
			words_only = true;
		else if (take_dash(c, argc, argv, &i, opts))
			return -1;
	}
	if (ck_opts_get(opts, "help")) {
		help(c);
		exit(cmd_flush(c));
	}
	if ((unsigned)nr < c->min_words ||
	    (c->max_words && (unsigned)nr > c->max_words))
		return cmd_fail(c, -1, "expected %s, found %d argument%s",
				c->args, nr, nr == 1 ? "" : "s");
	return nr;
}

int cmd_flush(const struct cmd *c)
{
	if (fflush(stdout) || ferror(stdout))
		return cmd_fail(c, CMD_SYSTEM, "standard output: %s",
				strerror(errno));
	return CMD_OK;
}

int cmd_open(struct ck_ckpt **out, const char *path, const struct ck_opts *opts,
	     struct ck_err *err)
{
	const char *sandbox = ck_opts_get(opts, "sandbox");
	struct ck_sandbox_in in = { .role = CK_SANDBOX_WORKER };
	struct ck_root root;
	ck_auto_fd int image_fd = -1;
	int ret;

	ret = ck_root_open(&root, path, opts, err);
	if (ret)
		return ret;
	in.root = &root;
	in.spool_dir = ck_opts_get(opts, "spool");
	ret = ck_ckpt_describe(&root, opts, &image_fd, err);
	if (!ret && (!sandbox || strcmp(sandbox, "off")))
		ret = ck_sandbox_enter(&in, NULL, err);
	if (!ret)
		ret = ck_ckpt_serve(out, &root, opts, image_fd, err);
	if (ret)
		ck_root_close(&root);
	return ret;
}
