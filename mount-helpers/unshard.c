/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unshard.c - the command: finds the subcommand and runs it
 *
 * Called as mount.unshardfs (by mount -t unshardfs) or unshardfs (by mount -t
 * fuse.unshardfs), it is `unshard mount` with mount(8)'s way of calling.
 */
#include "mount-helpers/cmd.h"
#include "mount-helpers/help.h"
#include "mount-helpers/mount_helper.h"

#include "core/format/format.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef UNSHARD_VERSION
#define UNSHARD_VERSION "0.1.0"
#endif

static int usage(FILE *to)
{
	help_unshard(to);
	return to == stdout ? CMD_OK : CMD_USAGE;
}

static int formats(void)
{
	for (const struct ck_format *const *f = ck_formats; *f; f++)
		printf("%-14s %s\n", (*f)->name, (*f)->summary);
	return CMD_OK;
}

static const struct cmd *find(const char *name)
{
	for (const struct cmd *const *c = cmds; *c; c++)
		if (!strcmp((*c)->name, name))
			return *c;
	return NULL;
}

/* unshard CKPT MNT */
static int meant_mount(char **arg)
{
	fprintf(stderr,
		"unshard: no command \"%s\", but there is such a path: unshard "
		"mount %s %s\n",
		arg[0], arg[0], arg[1] ? arg[1] : "MNT");
	return CMD_USAGE;
}

static int general(char **argv)
{
	const char *arg = argv[0];
	struct ck_nearest n;
	char meant[64];

	if (!strcmp(arg, "--help") || !strcmp(arg, "-h") ||
	    !strcmp(arg, "help"))
		return usage(stdout);
	if (!strcmp(arg, "--formats"))
		return formats();
	if (!strcmp(arg, "--version") || !strcmp(arg, "-V") ||
	    !strcmp(arg, "version"))
		return printf("unshard %s\n", UNSHARD_VERSION) < 0;
	if (!access(arg, F_OK))
		return meant_mount(argv);
	ck_nearest_begin(&n, arg, strlen(arg));
	for (const struct cmd *const *c = cmds; *c; c++)
		ck_nearest_offer(&n, (*c)->name, strlen((*c)->name));
	fprintf(stderr,
		"unshard: no command \"%s\" (%sunshard --help lists them)\n",
		arg, help_meant(&n, "", meant));
	return CMD_USAGE;
}

/* help NAME: NAME --help */
static int command(int nr, char **argv)
{
	char help[] = "--help";
	char *asked[] = { argv[nr > 1], help, NULL };
	const struct cmd *c;

	if (nr == 2 && !strcmp(argv[0], "help"))
		argv = asked;
	c = find(argv[0]);
	return c ? c->run(nr, argv) : general(argv);
}

/*
 * A caller may have closed some of 0, 1 and 2, and a file opened in their
 * place would be taken for a standard one by every process started here.
 * Opened the wrong way round, so that using them still fails.
 */
static bool standard_files_are_open(void)
{
	int fd;

	for (int i = 0; i <= 2; i++) {
		if (fcntl(i, F_GETFD) >= 0)
			continue;
		fd = open("/dev/null", i ? O_RDONLY : O_WRONLY);
		if (fd != i)
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	const char *self = argc ? strrchr(argv[0], '/') : NULL;
	int ret;

	if (!standard_files_are_open())
		return CMD_SYSTEM;
	signal(SIGXFSZ, SIG_IGN); /* a line, and what there is stays */
	self = self ? self + 1 : argc ? argv[0] : "";
	if (!strcmp(self, "mount.unshardfs") || !strcmp(self, "unshardfs"))
		return mount_helper_main(argc, argv);
	if (argc < 2)
		return usage(stderr);
	ret = command(argc - 1, argv + 1);
	if (fflush(stdout) && ret == CMD_OK) {
		fprintf(stderr, "unshard: standard output: %m\n");
		ret = CMD_SYSTEM;
	}
	return ret;
}
