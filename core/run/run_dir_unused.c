/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_unused.c - options that none of several checkpoints has a use for
 *
 * Each says so itself, as a problem that begins with the option:
 * format/options.h.
 */
#include "core/run/run_dir.h"

#include "core/format/options.h"

#include <string.h>

static bool says(const struct ck_catalog *img, const char *option)
{
	size_t len = strlen(option);

	for (uint32_t i = 0; i < img->nr_problems; i++) {
		const char *line =
			img->problems[i].reason == CK_NONE ?
				"" :
				ck_catalog_str(img, img->problems[i].reason,
					       NULL);

		if (!strncmp(line, "-o ", 3) &&
		    !strncmp(line + 3, option, len) &&
		    (line[3 + len] == '=' || line[3 + len] == ':'))
			return true;
	}
	return false;
}

uint32_t ck_run_dir_unused(const struct ck_catalog *img)
{
	uint32_t bits = 0;
	const struct ck_option *o;

	for (unsigned i = 0; i < 32 && (o = ck_format_option(i)); i++)
		if (says(img, o->name))
			bits |= UINT32_C(1) << i;
	return bits;
}

bool ck_run_dir_may_be_unused(const struct ck_opts *opts)
{
	const struct ck_option *o;

	for (size_t i = 0; (o = ck_format_option(i)); i++)
		if (ck_opts_get(opts, o->name))
			return true;
	return false;
}

void ck_run_dir_unused_names(uint32_t bits, struct ck_str *out)
{
	const char *between = "";
	const struct ck_option *o;

	for (unsigned i = 0; i < 32 && (o = ck_format_option(i)); i++) {
		if (!(bits >> i & 1))
			continue;
		ck_str_fmt(out, "%s-o %s", between, o->name);
		between = ", ";
	}
}
