/* SPDX-License-Identifier: Apache-2.0 */
/* parser_path.c - where the program that parses is */
#include "core/lib/parser.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "unshard-parser"
#define INSTALLED "/libexec/unshardfs/" NAME

/* The folder of the file that this code was loaded from, into @dir. */
static size_t own_folder(char dir[PATH_MAX])
{
	Dl_info info;
	ck_auto_free char *real = NULL;
	char *slash;

	if (!dladdr(&own_folder, &info) || !info.dli_fname)
		return 0;
	real = realpath(info.dli_fname, NULL);
	if (!real) /* linked into a program, whose name is as it was called */
		real = realpath("/proc/self/exe", NULL);
	slash = real ? strrchr(real, '/') : NULL;
	if (!slash || (size_t)(slash - real) >= PATH_MAX)
		return 0;
	*slash = '\0';
	strcpy(dir, real);
	return strlen(dir);
}

char *ck_parser_path(const char *given)
{
	/* beside it; of PREFIX/lib, and of PREFIX/lib/x86_64-linux-gnu */
	static const char *const below[] = {
		"/" NAME,
		"/../libexec/unshardfs/" NAME,
		"/../../libexec/unshardfs/" NAME,
	};
	const char *env = given ? NULL : secure_getenv("UNSHARD_PARSER");
	char dir[PATH_MAX], path[PATH_MAX + 64];

	if (given || env)
		return strdup(given ? given : env);
	for (size_t i = 0; own_folder(dir) && i < CK_ARRAY_LEN(below); i++) {
		snprintf(path, sizeof(path), "%s%s", dir, below[i]);
		if (!access(path, X_OK))
			return strdup(path);
	}
	if (!access("/usr/local" INSTALLED, X_OK))
		return strdup("/usr/local" INSTALLED);
	return strdup("/usr" INSTALLED);
}
