/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unconfined.h - sanitizers and valgrind need what the sandbox forbids, and more
 * memory than a parser may have
 */
#ifndef UNCONFINED_H
#define UNCONFINED_H

#include "core/base/opts.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool under_valgrind(void)
{
	const char *loaded = getenv("LD_PRELOAD");

	return loaded && strstr(loaded, "valgrind");
}

/* What goes before other options of an open. */
static inline const char *unconfined_options(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return "sandbox=off,";
#endif
	return under_valgrind() ? "sandbox=off,parse-time=60," : "";
}

static inline void unconfined(struct ck_opts *opts)
{
	if (*unconfined_options())
		ck_opts_add(opts, "sandbox", "off");
	if (under_valgrind())
		ck_opts_add(opts, "parse-time", "60");
}

#endif
