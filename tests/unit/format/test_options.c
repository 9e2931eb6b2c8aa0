/* SPDX-License-Identifier: Apache-2.0 */
/* Options of some formats, and such as are given for others. */
#include "core/format/format.h"
#include "core/format/options.h"
#include "core/options/options.h"
#include "tests/unit/catalog/kit.h"

#include <criterion/criterion.h>
#include <string.h>

static bool is_general(const char *name)
{
	for (const struct ck_option *o = ck_options; o->name; o++)
		if (!strcmp(o->name, name))
			return true;
	return false;
}

static const struct ck_format *format(const char *name)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (!strcmp(ck_formats[i]->name, name))
			return ck_formats[i];
	return NULL;
}

/* The only line on @opts that a checkpoint of @f has, for free(); or "". */
static char *reported(const struct ck_opts *opts, const struct ck_format *f)
{
	const struct ck_dir dir = { .opts = opts, .only = "a file" };
	struct kit k = kit_new();
	const struct ck_catalog *img;
	char *line;

	cr_assert_eq(ck_options_report(&dir, f, k.b, &k.err), 0, "%s",
		     k.err.msg);
	img = kit_image(&k);
	cr_assert_leq(img->nr_problems, 1);
	line = strdup(
		img->nr_problems ?
			ck_catalog_str(img, img->problems[0].reason, NULL) :
			"");
	kit_free(&k);
	return line;
}

static void expect_line(const struct ck_opts *opts, const char *name,
			const char *want)
{
	char *line = reported(opts, format(name));

	cr_expect_str_eq(line, want);
	free(line);
}

/* By name, each once, and each read by some format. */
Test(options, in_order_and_of_some_format)
{
	const struct ck_option *o, *before = NULL;

	for (size_t i = 0; (o = ck_format_option(i)); i++) {
		struct ck_opts opts = { 0 };
		bool any = false;

		cr_expect(!before || strcmp(before->name, o->name) < 0);
		cr_expect(!is_general(o->name), "%s: twice", o->name);
		ck_opts_add(&opts, o->name, "x");
		for (size_t k = 0; ck_formats[k]; k++) {
			char *line = reported(&opts, ck_formats[k]);

			any |= !strstr(line, "has no use for it");
			free(line);
		}
		cr_expect(any, "%s", o->name);
		ck_opts_free(&opts);
		before = o;
	}
	cr_expect(before);
}

/* Declared by no format: several read it. */
static bool is_shared(const struct ck_option *o)
{
	for (size_t k = 0; ck_formats[k]; k++)
		for (const struct ck_option *own = ck_formats[k]->options;
		     own && own->name; own++)
			if (own == o)
				return false;
	return true;
}

/* What formats say of it is put in. */
Test(options, help_of_what_several_read)
{
	const struct ck_option *o;
	struct ck_str help = { 0 };

	for (size_t i = 0; (o = ck_format_option(i)); i++)
		if (!strcmp(o->name, "file"))
			ck_option_help(o, &help);
	cr_expect_str_eq(help.v,
			 "Of several indexes, of MindSpore's files in each "
			 "rank's folder, or of nnScaler's files of two kinds, "
			 "the one that is called NAME.");
	ck_str_free(&help);
}

/* Whatever one format alone reads is declared by that. */
Test(options, general_ones_speak_of_no_format)
{
	const struct ck_option *o;
	static const char *const of[] = { "MindSpore's",  "OneFlow's",
					  "ColossalAI's", "DeepSpeed",
					  "nnScaler's",	  "Megatron's" };

	for (o = ck_options; o->name; o++)
		for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
			cr_expect(!strstr(o->help, of[i]) ||
					  !strncmp(o->name, "reshard", 7),
				  "%s", o->name);
	for (size_t k = 0; (o = ck_format_option(k)); k++)
		for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
			cr_expect(!is_shared(o) || !strstr(o->help, of[i]),
				  "%s", o->name);
}

/* Of one that is used wherever it can be. */
static void expect(const char *option, const char *value, const char *name,
		   const char *want)
{
	struct ck_opts opts = { 0 };

	ck_opts_add(&opts, option, value);
	ck_opts_use(&opts, option);
	expect_line(&opts, name, want);
	ck_opts_free(&opts);
}

/* Of its own format, by whether a reader did what it says. */
Test(options, idle_until_somebody_uses_it)
{
	static const char idle[] = "-o fused=7+9: nothing in the checkpoint "
				   "makes use of it";
	struct ck_opts opts = { 0 };

	expect_line(&opts, "colossalai", "");
	ck_opts_add(&opts, "fused", "7+9");
	expect_line(&opts, "colossalai", idle);
	expect_line(&opts, "hf",
		    "-o fused=7+9: the checkpoint is hf, which has no use for "
		    "it; it is for colossalai");
	cr_expect_str_eq(ck_opts_use(&opts, "fused"), "7+9");
	expect_line(&opts, "colossalai", "");
	ck_opts_mark_unused(&opts);
	expect_line(&opts, "colossalai", idle);
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
