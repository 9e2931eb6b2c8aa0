/* SPDX-License-Identifier: Apache-2.0 */
#include "mount-helpers/mount/describe.h"

#include "core/base/auto.h"
#include "core/ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The user's folder for what can be made again; NULL: there is none. */
static char *usual_cache(void)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	ck_auto_free char *in_home = NULL;
	char *dir = NULL;

	if ((!base || *base != '/') && home && *home == '/' &&
	    asprintf(&in_home, "%s/.cache", home) < 0)
		in_home = NULL;
	if (in_home) {
		mkdir(in_home, 0700);
		base = in_home;
	}
	if (!base || *base != '/' || asprintf(&dir, "%s/unshardfs", base) < 0)
		return NULL;
	return dir;
}

int mount_describe(const struct cmd *cmd, const struct ck_root *root,
		   const struct ck_opts *opts, struct ck_catalog *out,
		   struct ck_err *err)
{
	const char *given = ck_opts_get(opts, "index-cache");
	ck_auto_free char *usual = given ? NULL : usual_cache();
	struct ck_index_cache_in in = { .dir = given ? given : usual,
					.slow_only = !given };
	bool none = !in.dir || !strcmp(in.dir, "off");
	int ret =
		ck_ckpt_describe_kept(root, opts, none ? NULL : &in, out, err);

	if (given && *in.why)
		cmd_fail(cmd, 0, "warning: -o index-cache=%s: %s", given,
			 in.why);
	return ret;
}
