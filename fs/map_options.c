/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/map_options.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

static const char *const words[] = {
	"verify",	  "strip-prefix",      "optimizer", "hf-shard-size",
	"dcp-shard-size", "reshard-container", NULL
};
static const char *const files[] = { "config", "names", "views", "reshard",
				     NULL };

static void add(struct ck_str *out, const char *name, const char *value)
{
	ck_str_puts(out, out->len ? "," : "");
	ck_str_puts(out, name);
	if (!*value)
		return;
	ck_str_puts(out, "=");
	ck_str_puts(out, value);
}

bool fs_map_wanted(const struct ck_opts *opts)
{
	const char *how = ck_opts_get(opts, "map");

	return !(how && !strcmp(how, "off")) && !ck_opts_get(opts, "rw");
}

char *fs_map_options(const struct ck_opts *opts, const struct ck_root *root)
{
	struct ck_str out = { 0 };
	const char *value;

	if (!fs_map_wanted(opts))
		return NULL;
	for (unsigned i = 0; words[i]; i++) {
		value = ck_opts_get(opts, words[i]);
		if (value)
			add(&out, words[i], value);
	}
	for (unsigned i = 0; files[i]; i++)
		for (size_t k = 0; (value = ck_opts_nth(opts, files[i], k));
		     k++)
			if (*value == '/')
				add(&out, files[i], value);
	for (unsigned i = 0; i < root->nr_follow; i++)
		add(&out, "follow", root->follow_given[i]);
	ck_str_puts(&out, "");
	if (!out.failed && out.v)
		return out.v;
	ck_str_free(&out);
	return NULL;
}
