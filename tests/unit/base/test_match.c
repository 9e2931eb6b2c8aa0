/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several names was meant. */
#include "core/base/match.h"

#include <criterion/criterion.h>
#include <string.h>

static const char *near(const char *text, const char *const *names)
{
	static char out[300];
	struct ck_nearest n;

	ck_nearest_begin(&n, text, strlen(text));
	for (; *names; names++)
		ck_nearest_offer(&n, *names, strlen(*names));
	if (!n.name)
		return "";
	memcpy(out, n.name, n.name_len);
	out[n.name_len] = '\0';
	return out;
}

Test(match, nearest_by_letters)
{
	const char *const names[] = {
		"mount", "umount", "ls", "inspect", "model.layers.11.w",
		"cat",	 NULL
	};

	cr_expect_str_eq(near("moutn", names), "mount");
	cr_expect_str_eq(near("moun", names), "mount");
	cr_expect_str_eq(near("unmount", names), "umount");
	cr_expect_str_eq(near("inpsect", names), "inspect");
	cr_expect_str_eq(near("inspector", names), "inspect");
	cr_expect_str_eq(near("model.layer.11.w", names), "model.layers.11.w");
	cr_expect_str_eq(near("lss", names), "ls");
	cr_expect_str_eq(near("frobnicate", names), "");
	cr_expect_str_eq(near("mt", names), "");
	cr_expect_str_eq(near("", names), "");
}

Test(match, nearest_by_whole_words)
{
	const char *const names[] = { "model.lm_head.weight",
				      "model.norm.weight", NULL };
	char longest[600];
	const char *const both[] = { longest, "b", NULL };

	cr_expect_str_eq(near("lm_head.weight", names), "model.lm_head.weight");
	cr_expect_str_eq(near("module.model.norm.weight", names),
			 "model.norm.weight");
	cr_expect_str_eq(near("weight", names), "", "a third of it");
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	cr_expect_str_eq(near(longest + 1, both), "", "longer than is looked");
	cr_expect_str_eq(near("lm_hed.weight", names), "model.lm_head.weight");
	cr_expect_str_eq(near("module.model.nrom.weigth", names),
			 "model.norm.weight");
	cr_expect_str_eq(near("lm_hed.wieghts.", names), "", "four letters");
	longest[256] = '\0';
	cr_expect_str_eq(near(longest + 2, both), longest);
}
