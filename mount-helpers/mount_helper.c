/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_helper.c - mount(8)'s way of calling, and of being answered
 *
 * Exit codes are those of mount(8): 1 bad usage, 32 the mount failed.
 */
#include "mount-helpers/mount_helper.h"

#include "core/options/options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOUNT_OK = 0, MOUNT_USAGE = 1, MOUNT_FAILED = 32 };

struct call {
	const char *word[2]; /* SRC, MNT */
	unsigned nr;
	bool fake;
	struct ck_opts opts;
};

static int usage(const char *why)
{
	fprintf(stderr, "mount.unshardfs: %s\n", why);
	return MOUNT_USAGE;
}

static int take_opts(struct call *c, const char *text)
{
	struct ck_err err;

	return ck_options_parse(&c->opts, CK_OPTIONS_FSTAB, text, &err) ?
		       usage(err.msg) :
		       0;
}

/* mount(8) puts the words first; getopt() finds them anywhere. */
static int parse(struct call *c, int argc, char **argv)
{
	int ret = 0, o;

	while (!ret && (o = getopt(argc, argv, "-sfnvwrN:t:o:")) != -1) {
		if (o == 1 && c->nr < 2)
			c->word[c->nr++] = optarg;
		else if (o == 1 || o == '?')
			ret = usage("expected SRC MNT [-o OPTIONS]");
		else if (o == 'f')
			c->fake = true;
		else if (o == 'o')
			ret = take_opts(c, optarg);
	}
	if (!ret && c->nr < 2)
		ret = usage("expected SRC MNT [-o OPTIONS]");
	return ret;
}

int mount_helper_main(int argc, char **argv)
{
	struct call c = { 0 };
	int ret;

	opterr = 0;
	ret = parse(&c, argc, argv);
	if (!ret && !c.fake && mount_run(c.word[0], c.word[1], &c.opts))
		ret = MOUNT_FAILED;
	ck_opts_free(&c.opts);
	return ret;
}
