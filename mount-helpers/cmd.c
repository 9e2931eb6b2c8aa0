/* SPDX-License-Identifier: Apache-2.0 */
/* cmd.c - what subcommands share: arguments, error lines, exit codes */
#include "mount-helpers/cmd.h"
#include "mount-helpers/help.h"

#include "core/lib/only_ckpt.h"
#include "core/lib/view_path.h"

#include "core/options/options.h"

#include "core/base/auto.h"
#include "core/format/format.h"
#include "core/sandbox/sandbox.h"
#include "core/view/extras.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct cmd_flag common_flags[] = {
	{ 0, "json", "JSON instead of text for people" },
	{ 'h', "help", "this text; --help=all: with every option" },
	{ 0, NULL, NULL },
};

const struct cmd_flag *cmd_common_flags(const struct cmd *c)
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

int cmd_target_err(const struct cmd *c, const struct ck_err *err)
{
	return cmd_fail(c, err->code == EBADMSG ? CMD_BAD_CKPT : CMD_USAGE,
			"%s", err->msg);
}

enum ck_options_who cmd_options_who(const struct cmd *c)
{
	return c->mounts ? CK_OPTIONS_MOUNT : CK_OPTIONS_OPEN;
}

/* --verify is not -o verify: it is kept as "--verify". */
static int keep_flag(const char *name, struct ck_opts *opts)
{
	char word[48];

	snprintf(word, sizeof(word), "%s%s",
		 ck_options_is_how(name) ? "--" : "", name);
	return ck_opts_add(opts, word, "");
}

/* One flag by letter or name; false: nobody's. */
static bool take_flag(const struct cmd_flag *flags, const char *name,
		      char letter, struct ck_opts *opts)
{
	for (; flags && flags->name; flags++)
		if (name ? !strcmp(flags->name, name) : flags->letter == letter)
			return !keep_flag(flags->name, opts);
	return false;
}

static bool take_any(const struct cmd *c, const char *name, char letter,
		     struct ck_opts *opts)
{
	return take_flag(c->flags, name, letter, opts) ||
	       take_flag(cmd_common_flags(c), name, letter, opts);
}

static void offer_flags(struct ck_nearest *n, const struct cmd_flag *flags)
{
	for (; flags && flags->name; flags++)
		ck_nearest_offer(n, flags->name, strlen(flags->name));
}

/* @arg: "--NAME", perhaps with "=VALUE". */
static int unknown(const struct cmd *c, const char *arg)
{
	struct ck_nearest n;
	char meant[64];

	ck_nearest_begin(&n, arg + 2, strcspn(arg + 2, "="));
	offer_flags(&n, c->flags);
	offer_flags(&n, cmd_common_flags(c));
	for (const struct cmd_valued *v = c->valued; v && v->name; v++)
		ck_nearest_offer(&n, v->name, strlen(v->name));
	return cmd_fail(c, -1, "unknown option %s (%s--help lists them)", arg,
			help_meant(&n, "--", meant));
}

/* "--ranks 8" and "--ranks=8"; 0: it is no such flag. */
static int take_value(const struct cmd *c, int argc, char **argv, int *at,
		      struct ck_opts *opts)
{
	const char *arg = argv[*at] + 2, *value;

	for (const struct cmd_valued *f = c->valued; f && f->name; f++) {
		size_t len = strlen(f->name);

		if (strncmp(arg, f->name, len) != 0 ||
		    (arg[len] && arg[len] != '='))
			continue;
		value = arg[len]       ? arg + len + 1 :
			*at + 1 < argc ? argv[++*at] :
					 NULL;
		if (!value)
			return cmd_fail(c, -1, "--%s: expected %s", f->name,
					f->value);
		if (ck_opts_add(opts, f->name, value))
			return cmd_fail(c, -1, "no memory");
		return 1;
	}
	return 0;
}

static int take_opts(const struct cmd *c, const char *text,
		     struct ck_opts *opts)
{
	struct ck_err err;

	if (!text)
		return cmd_fail(c, -1, "-o: expected NAME[=VALUE],...");
	if (ck_options_parse(opts, cmd_options_who(c), text, &err))
		return cmd_fail(c, -1, "%s", err.msg);
	return 0;
}

/* argv[*at], which begins with "-"; moves *at over a value of its own. */
static int take_dash(const struct cmd *c, int argc, char **argv, int *at,
		     struct ck_opts *opts)
{
	const char *arg = argv[*at];
	int valued = strncmp(arg, "--", 2) != 0 ?
			     0 :
			     take_value(c, argc, argv, at, opts);

	if (valued)
		return valued < 0 ? -1 : 0;
	if (!strncmp(arg, "-o", 2) && (c->mounts || !c->plain)) {
		if (arg[2])
			return take_opts(c, arg + 2, opts);
		*at += 1;
		return take_opts(c, *at < argc ? argv[*at] : NULL, opts);
	}
	if (!strcmp(arg, "--help=all"))
		return ck_opts_add(opts, "help", "all");
	if (!strncmp(arg, "--", 2))
		return take_any(c, arg + 2, 0, opts) ? 0 : unknown(c, arg);
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
	struct ck_err err;
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
		help_cmd(c, *ck_opts_get(opts, "help"));
		exit(cmd_flush(c));
	}
	if ((unsigned)nr < c->min_words ||
	    (c->max_words && (unsigned)nr > c->max_words))
		return cmd_fail(c, -1, "expected %s, found %d argument%s",
				c->args, nr, nr == 1 ? "" : "s");
	for (int i = 1; i <= nr && (c->mounts || !c->plain); i++)
		if (ck_options_beside(opts, argv[i], &err))
			return cmd_fail(c, -1, "%s", err.msg);
	return cmd_absolute(c, opts, "config") ||
			       cmd_absolute(c, opts, "spool") ?
		       -1 :
		       nr;
}

int cmd_absolute(const struct cmd *c, struct ck_opts *opts, const char *name)
{
	struct ck_err err;
	int ret = ck_options_absolute(opts, name, &err);

	if (!ret)
		return CMD_OK;
	return cmd_fail(c, ret == -EINVAL ? CMD_USAGE : CMD_SYSTEM, "%s",
			err.msg);
}

int cmd_flush(const struct cmd *c)
{
	if (fflush(stdout) || ferror(stdout))
		return cmd_fail(c, CMD_SYSTEM, "standard output: %s",
				strerror(errno));
	return CMD_OK;
}

int cmd_written(const struct cmd *c, bool all)
{
	int ret = cmd_flush(c);

	return ret || all ? ret : cmd_fail(c, CMD_SYSTEM, "no memory");
}

/* All of them in one chain, for the sandbox: it allows what it names. */
static void chain(struct ck_root *root, unsigned nr, struct ck_root **end)
{
	for (unsigned i = 0; i < nr; i++) {
		end[i] = &root[i];
		while (end[i]->next)
			end[i] = end[i]->next;
		if (i)
			end[i - 1]->next = &root[i];
	}
}

static int enter_sandbox(struct ck_root *root, unsigned nr,
			 const char *write_dir, const struct ck_opts *opts,
			 struct ck_err *err)
{
	const char *sandbox = ck_opts_get(opts, "sandbox");
	struct ck_sandbox_in in = { .role = CK_SANDBOX_WORKER,
				    .root = root,
				    .write_dir = write_dir };
	const char *overlay = ck_opts_get(opts, "overlay");
	ck_auto_free char *config = ck_extras_folder(root, opts);
	struct ck_root *end[CMD_OPEN_MAX];
	int ret;

	if (sandbox && !strcmp(sandbox, "off"))
		return 0;
	in.spool_dir = ck_opts_get(opts, "spool");
	in.config_dir = config;
	in.writes = ck_opts_get(opts, "rw") && !overlay;
	if (!write_dir)
		in.write_dir = overlay; /* which is only read */
	else if (overlay && !in.config_dir)
		in.config_dir = overlay;
	chain(root, nr, end);
	ret = ck_sandbox_enter(&in, NULL, err);
	for (unsigned i = 0; i < nr; i++)
		end[i]->next = NULL;
	return ret;
}

typedef int describe_fn(const struct ck_describer *by, struct ck_root *root,
			const struct ck_opts *opts, int *catalog_fd,
			struct ck_err *err);

static int open_several(struct ck_ckpt **out, const char *const *path,
			unsigned nr, const char *write_dir,
			const struct ck_opts *opts, describe_fn *describe,
			struct ck_err *err)
{
	struct ck_root root[CMD_OPEN_MAX];
	int catalog_fd[CMD_OPEN_MAX], ret = 0;
	unsigned opened = 0, served = 0;

	while (opened < nr && !ret) {
		catalog_fd[opened] = -1;
		ret = ck_root_open(&root[opened], path[opened], opts, err);
		if (ret)
			break;
		ret = describe(NULL, &root[opened], opts, &catalog_fd[opened],
			       err);
		opened++;
	}
	if (!ret)
		ret = enter_sandbox(root, nr, write_dir, opts, err);
	for (; served < nr && !ret; served += !ret)
		ret = ck_ckpt_serve(&out[served], &root[served], opts,
				    catalog_fd[served], err);
	for (unsigned i = 0; i < opened; i++) {
		if (catalog_fd[i] >= 0)
			close(catalog_fd[i]);
		if (ret && i < served)
			ck_ckpt_close(out[i]);
		else if (ret)
			ck_root_close(&root[i]);
	}
	return ret;
}

int cmd_open_several(struct ck_ckpt **out, const char *const *path, unsigned nr,
		     const char *write_dir, const struct ck_opts *opts,
		     struct ck_err *err)
{
	return open_several(out, path, nr, write_dir, opts,
			    ck_only_ckpt_describe, err);
}

int cmd_open(struct ck_ckpt **out, const char *path, const struct ck_opts *opts,
	     struct ck_err *err)
{
	return cmd_open_several(out, &path, 1, NULL, opts, err);
}

int cmd_open_itself(struct ck_ckpt **out, const char *path,
		    const struct ck_opts *opts, struct ck_err *err)
{
	return open_several(out, &path, 1, NULL, opts, ck_only_ckpt_name, err);
}

int cmd_open_shown(struct ck_ckpt **out, const char *const *path, unsigned nr,
		   bool itself, const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_view_path p[CMD_OPEN_MAX];
	const char *from[CMD_OPEN_MAX];
	int ret;

	for (unsigned i = 0; i < nr; i++) {
		ck_view_path_parse(&p[i], path[i]);
		from[i] = p[i].ckpt;
		itself &= !ck_view_path_is_view(&p[i]);
	}
	ret = open_several(out, from, nr, NULL, opts,
			   itself ? ck_only_ckpt_name : ck_only_ckpt_describe,
			   err);
	if (ret)
		return ret;
	for (unsigned i = 0; i < nr && !ret; i++)
		ret = ck_view_path_enter(&out[i], &p[i], opts, err);
	for (unsigned i = 0; i < nr && ret; i++)
		ck_ckpt_close(out[i]);
	return ret;
}
