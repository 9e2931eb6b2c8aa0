/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - --help in two levels, in groups, as wide as the terminal */
#include "mount-helpers/help.h"

#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/format.h"
#include "core/options/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 80
#define MAX_WIDTH 100
#define FLAG_INDENT 20
#define OPTION_INDENT 21

static const char *const groups[CMD_GROUPS] = {
	[CMD_MOUNT] = "Mount",
	[CMD_LOOK] = "Find, list, compare",
	[CMD_KEEP] = "Copy, check, mend",
	[CMD_WRITE] = "Checkpoints that are being written or edited",
};

/* "  WORD   Text of so many words." */
static void put(struct ck_str *out, const char *word, unsigned indent,
		const char *text)
{
	unsigned columns = CK_MIN(text_columns(WIDTH), MAX_WIDTH);
	size_t from = out->len;

	ck_str_fmt(out, "  %s ", word);
	text_pad(out, from, indent);
	text_wrap(out, text, (unsigned)(out->len - from), indent, columns);
}

static void put_sentence(struct ck_str *out, const char *word, const char *help)
{
	ck_auto_str struct ck_str text = { 0 };

	ck_str_fmt(&text, "%c%s.", toupper((unsigned char)*help), help + 1);
	if (!text.failed)
		put(out, word, FLAG_INDENT, text.v);
}

static bool has_letter(const struct cmd_flag *flags, char letter)
{
	for (; flags && flags->name; flags++)
		if (flags->letter == letter)
			return true;
	return false;
}

/* Without the letters that flags of @before took. */
static void put_flags(struct ck_str *out, const struct cmd_flag *flags,
		      const struct cmd_flag *before)
{
	for (; flags && flags->name; flags++) {
		char letter =
			has_letter(before, flags->letter) ? 0 : flags->letter;
		char word[32];

		if (!flags->help)
			continue;
		snprintf(word, sizeof(word), "%c%c%s--%s", letter ? '-' : ' ',
			 letter ? letter : ' ', letter ? ", " : "  ",
			 flags->name);
		put_sentence(out, word, flags->help);
	}
}

static void put_valued(struct ck_str *out, const struct cmd_valued *v)
{
	for (; v && v->name; v++) {
		char word[48];

		snprintf(word, sizeof(word), "    --%s %s", v->name, v->value);
		put_sentence(out, word, v->help);
	}
}

struct options {
	struct ck_str *out;
	bool all;
	unsigned group, nr;
};

static void put_option(const struct ck_option *o, void *ctx)
{
	ck_auto_str struct ck_str word = { 0 }, text = { 0 };
	struct options *l = ctx;

	l->nr++;
	if (!l->all && !o->common)
		return;
	if (l->group != o->group)
		ck_str_fmt(l->out, "%s%s\n", l->all ? "\n" : "",
			   ck_option_groups[o->group]);
	l->group = o->group;
	ck_str_fmt(&word, "%s%s%s", o->name, o->value ? "=" : "",
		   o->value ? o->value : "");
	ck_option_help(o, &text);
	if (l->all && o->fallback)
		ck_str_fmt(&text, " [%s]", o->fallback);
	if (!word.failed && !text.failed)
		put(l->out, word.v, OPTION_INDENT, text.v);
}

static void count_option(const struct ck_option *o, void *ctx)
{
	(void)o;
	++*(unsigned *)ctx;
}

static void put_options(struct ck_str *out, const struct cmd *c, bool all)
{
	struct options l = { out, all, CK_OPTION_GROUPS, 0 };
	unsigned nr = 0;

	ck_options_each(cmd_options_who(c), count_option, &nr);
	if (all)
		ck_str_puts(out, "\n-o NAME[=VALUE],...\n");
	else
		ck_str_fmt(out, "\n-o NAME[=VALUE],...  (all %u: --help=all)\n",
			   nr);
	if (all || c->mounts)
		ck_options_each(cmd_options_who(c), put_option, &l);
}

void help_cmd(const struct cmd *c, bool all)
{
	ck_auto_str struct ck_str out = { 0 };
	bool opens = c->mounts || !c->plain;

	ck_str_fmt(&out, "usage: unshard %s %s\n\n%c%s.\n", c->name, c->args,
		   toupper((unsigned char)*c->summary), c->summary + 1);
	if (*c->help)
		ck_str_fmt(&out, "\n%s", c->help);
	ck_str_puts(&out, "\n");
	put_flags(&out, c->flags, NULL);
	put_valued(&out, c->valued);
	put_flags(&out, cmd_common_flags(c), c->flags);
	if (opens)
		put_options(&out, c, all);
	text_flush(&out);
}

void help_unshard(FILE *to)
{
	fprintf(to, "usage: unshard COMMAND [ARGUMENTS]\n\n"
		    "Shows the tensors of a sharded checkpoint as plain "
		    "files.\n");
	for (unsigned g = 0; g < CMD_GROUPS; g++) {
		fprintf(to, "\n%s\n", groups[g]);
		for (const struct cmd *const *c = cmds; *c; c++)
			if ((*c)->group == g)
				fprintf(to, "  %-10s %s\n", (*c)->name,
					(*c)->summary);
	}
	fprintf(to, "\n  --formats  what can be read\n"
		    "  --version\n\n"
		    "unshard COMMAND --help says more, as do the manual pages "
		    "unshard(1),\nunshard-COMMAND(1).\n");
}

const char *help_meant(const struct ck_nearest *n, const char *before,
		       char text[64])
{
	text[0] = '\0';
	if (n->name)
		snprintf(text, 64, "did you mean %s%.*s? ", before,
			 (int)CK_MIN(n->name_len, 40), n->name);
	return text;
}
