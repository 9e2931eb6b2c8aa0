/* SPDX-License-Identifier: Apache-2.0 */
/* Options that are given for checkpoints of other formats. */
#include "core/format/format.h"
#include "core/format/vain.h"
#include "fs/opts.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct fs_opt *find_option(const char *name)
{
	const struct fs_opt *o = fs_opts;

	while (o->name && strcmp(o->name, name) != 0)
		o++;
	return o->name ? o : NULL;
}

static bool is_format(const char *name, size_t len)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (strlen(ck_formats[i]->name) == len &&
		    !memcmp(ck_formats[i]->name, name, len))
			return true;
	return false;
}

Test(vain, the_table_names_what_there_is)
{
	for (const struct ck_vain *v = ck_vain; v->option; v++) {
		cr_expect(find_option(v->option), "%s", v->option);
		for (const char *at = v->formats; *at;) {
			size_t len = strcspn(at, " ");

			cr_expect(is_format(at, len), "%s: %s", v->option, at);
			at += len + (at[len] == ' ');
		}
	}
}

/* Whoever adds an option whose help speaks of one framework adds a row. */
Test(vain, options_of_one_framework_are_in_the_table)
{
	static const char *const of[] = { "MindSpore's",  "OneFlow's",
					  "ColossalAI's", "DeepSpeed",
					  "nnScaler's",	  "Megatron's" };

	for (const struct fs_opt *o = fs_opts; o->name; o++) {
		const struct ck_vain *v = ck_vain;
		bool one = false;

		for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
			one |= strstr(o->help, of[i]) != NULL;
		while (v->option && strcmp(v->option, o->name) != 0)
			v++;
		if (one && strncmp(o->name, "reshard", 7) != 0)
			cr_expect(v->option, "%s", o->name);
	}
}

static void expect(const char *option, const char *value, const char *format,
		   const char *want)
{
	struct ck_opts opts = { 0 };
	struct ck_str line = { 0 };

	ck_opts_add(&opts, option, value);
	for (const struct ck_vain *v = ck_vain; v->option; v++)
		if (ck_vain_is(v, &opts, format))
			ck_vain_line(v, &opts, format, &line);
	cr_expect_str_eq(line.v ? line.v : "", want);
	ck_str_free(&line);
	ck_opts_free(&opts);
}

/* Of its own format, by whether a reader did what it says. */
Test(vain, idle_until_somebody_uses_it)
{
	struct ck_opts opts = { 0 };
	struct ck_str line = { 0 };
	const struct ck_vain *v = ck_vain;

	while (strcmp(v->option, "fused") != 0)
		v++;
	cr_expect(!ck_vain_is_idle(v, &opts, "colossalai"));
	ck_opts_add(&opts, "fused", "7+9");
	cr_expect(ck_vain_is_idle(v, &opts, "colossalai"));
	cr_expect(!ck_vain_is_idle(v, &opts, "hf"));
	ck_vain_line(v, &opts, "colossalai", &line);
	cr_expect_str_eq(line.v, "-o fused=7+9: nothing in the checkpoint "
				 "makes use of it");
	cr_expect_str_eq(ck_opts_use(&opts, "fused"), "7+9");
	cr_expect(!ck_vain_is_idle(v, &opts, "colossalai"));
	ck_opts_unuse(&opts);
	cr_expect(ck_vain_is_idle(v, &opts, "colossalai"));
	ck_str_free(&line);
	ck_opts_free(&opts);
}

Test(vain, lines)
{
	expect("fused", "3", "hf",
	       "-o fused=3: the checkpoint is hf, which has no use for it; it "
	       "is for colossalai");
	expect("unflatten", "", "torch",
	       "-o unflatten: the checkpoint is torch, which has no use for "
	       "it; it is for dcp");
	expect("file", "a\nb", "dcp",
	       "-o file=a\\x0ab: the checkpoint is dcp, which has no use for it; "
	       "it is for colossalai, hf, mindspore, nnscaler and torch");
	expect("rules", "r", "torch",
	       "-o rules=r: the checkpoint is torch, which has no use for it; "
	       "it is for megatron, and for reshard/tp=K");
	expect("fused", "3", "colossalai", "");
	expect("file", "x", "torch", "");
	expect("cache-mem", "1M", "torch", "");
}
