/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - fills the generated parts of a manual page, stdin to stdout
 *
 * A line "@options mount@" or "@options open@" becomes the table of -o options
 * that mount, or the commands that only read, take; "@formats@" the readers
 * there are.  Runs while building, and is not installed.
 */
#include "fs/opts.h"

#include "core/base/auto.h"
#include "core/format/format.h"

#include <stdio.h>
#include <string.h>

static int options(enum fs_opts_who who)
{
	ck_auto_str struct ck_str text = { 0 };

	fs_opts_scdoc(who, &text);
	return fputs(text.v ? text.v : "", stdout);
}

static int formats(void)
{
	for (const struct ck_format *const *f = ck_formats; *f; f++)
		printf("*%s*\n\t%s\n\n", (*f)->name, (*f)->summary);
	return 0;
}

int main(void)
{
	char line[4096];

	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "@options mount@\n"))
			options(FS_OPTS_MOUNT);
		else if (!strcmp(line, "@options open@\n"))
			options(FS_OPTS_OPEN);
		else if (!strcmp(line, "@formats@\n"))
			formats();
		else
			fputs(line, stdout);
	}
	return ferror(stdin) || fflush(stdout);
}
