/* SPDX-License-Identifier: Apache-2.0 */
/* Options of some formats, and such as are given for others. */
#include "core/format/format.h"
#include "core/format/options.h"
#include "fs/opts.h"

#include <criterion/criterion.h>
#include <string.h>

static bool is_general(const char *name)
{
	for (const struct ck_option *o = fs_opts; o->name; o++)
		if (!strcmp(o->name, name))
			return true;
	return false;
}

/* By name, each once, and each read by some format. */
Test(options, in_order_and_of_some_format)
{
	const struct ck_option *o, *before = NULL;
	struct ck_opts opts = { 0 };

	for (size_t i = 0; (o = ck_format_option(i)); i++) {
		bool any = false;

		cr_expect(!before || strcmp(before->name, o->name) < 0);
		cr_expect(!is_general(o->name), "%s: twice", o->name);
		ck_opts_add(&opts, o->name, "x");
		for (size_t k = 0; ck_formats[k]; k++)
			any |= !ck_option_unread(o, &opts, ck_formats[k]);
		cr_expect(any, "%s", o->name);
		before = o;
	}
	cr_expect(before);
	ck_opts_free(&opts);
}

/* Whatever one format alone reads is declared by that. */
Test(options, general_ones_speak_of_no_format)
{
	static const char *const of[] = { "MindSpore's",  "OneFlow's",
					  "ColossalAI's", "DeepSpeed",
					  "nnScaler's",	  "Megatron's" };

	for (const struct ck_option *o = fs_opts; o->name; o++)
		for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
			cr_expect(!strstr(o->help, of[i]) ||
					  !strncmp(o->name, "reshard", 7),
				  "%s", o->name);
}

static void expect(const char *option, const char *value, const char *format,
		   const char *want)
{
	struct ck_opts opts = { 0 };
	struct ck_str line = { 0 };
	const struct ck_format *f = ck_format_named(format);
	const struct ck_option *o;

	ck_opts_add(&opts, option, value);
	for (size_t i = 0; (o = ck_format_option(i)); i++)
		if (ck_option_unread(o, &opts, f))
			ck_option_line(o, &opts, f, &line);
	cr_expect_str_eq(line.v ? line.v : "", want);
	ck_str_free(&line);
	ck_opts_free(&opts);
}

/* Of its own format, by whether a reader did what it says. */
Test(options, idle_until_somebody_uses_it)
{
	struct ck_opts opts = { 0 };
	struct ck_str line = { 0 };
	const struct ck_format *f = ck_format_named("colossalai");
	const struct ck_option *o = f->options;

	cr_expect(!ck_option_unused(o, &opts, f));
	ck_opts_add(&opts, "fused", "7+9");
	cr_expect(ck_option_unused(o, &opts, f));
	cr_expect(!ck_option_unused(o, &opts, ck_format_named("hf")));
	ck_option_line(o, &opts, f, &line);
	cr_expect_str_eq(line.v, "-o fused=7+9: nothing in the checkpoint "
				 "makes use of it");
	cr_expect_str_eq(ck_opts_use(&opts, "fused"), "7+9");
	cr_expect(!ck_option_unused(o, &opts, f));
	ck_opts_mark_unused(&opts);
	cr_expect(ck_option_unused(o, &opts, f));
	ck_str_free(&line);
	ck_opts_free(&opts);
}

Test(options, lines)
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
