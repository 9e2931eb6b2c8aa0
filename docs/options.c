/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - fills the generated parts of a manual page, stdin to stdout
 *
 * A line "@options mount@" or "@options open@" becomes the table of -o options
 * that mount, or the commands that only read, take; "@formats@" the readers
 * there are.  Runs while building, and is not installed.
 */
#include "core/options/options.h"

#include "core/base/auto.h"
#include "core/format/format.h"

#include <stdio.h>
#include <string.h>

/* @ctx: the group of the last. */
static void put_option(const struct ck_option *o, void *ctx)
{
	ck_auto_str struct ck_str text = { 0 };
	unsigned *group = ctx;

	if (*group != o->group)
		printf("## %s\n\n", ck_option_groups[o->group]);
	*group = o->group;
	printf("*%s*", o->name);
	if (o->value)
		printf("=_%s_", o->value);
	ck_option_help(o, &text);
	if (text.len)
		printf("\n\t%s", text.v);
	if (o->fallback)
		printf(" Default: %s.", o->fallback);
	printf("\n\n");
}

static void put_options(enum ck_options_who who)
{
	unsigned group = CK_OPTION_GROUPS;

	ck_options_each(who, put_option, &group);
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
			put_options(CK_OPTIONS_MOUNT);
		else if (!strcmp(line, "@options open@\n"))
			put_options(CK_OPTIONS_OPEN);
		else if (!strcmp(line, "@formats@\n"))
			formats();
		else
			fputs(line, stdout);
	}
	return ferror(stdin) || fflush(stdout);
}
