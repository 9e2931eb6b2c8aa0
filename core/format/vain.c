/* SPDX-License-Identifier: Apache-2.0 */
/* vain.c - which options are whose, and the line for one that is nobody's */
#include "core/format/vain.h"

#include "core/base/auto.h"

#include <errno.h>
#include <string.h>

const struct ck_vain ck_vain[] = {
	{ "crc", "mindspore", NULL, false },
	{ "file", "colossalai hf mindspore nnscaler torch", NULL, false },
	{ "fused", "colossalai", NULL, false },
	{ "integrated", "mindspore", NULL, false },
	{ "params", "nnscaler", NULL, false },
	{ "rules", "megatron", "reshard/tp=K", false },
	{ "sbp", "oneflow", NULL, false },
	{ "shards", "hf", NULL, false },
	{ "strategy", "mindspore", NULL, false },
	{ "ties", "deepspeed", NULL, false },
	{ "unflatten", "dcp", NULL, false },
	{ "weights", "deepspeed", NULL, true },
	{ NULL, NULL, NULL, false },
};

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at++)
		if ((at == words || at[-1] == ' ') &&
		    (!at[len] || at[len] == ' '))
			return true;
	return false;
}

bool ck_vain_is(const struct ck_vain *v, const struct ck_opts *opts,
		const char *format)
{
	return ck_opts_get(opts, v->option) && !has_word(v->formats, format);
}

bool ck_vain_is_idle(const struct ck_vain *v, const struct ck_opts *opts,
		     const char *format)
{
	return ck_opts_get(opts, v->option) && has_word(v->formats, format) &&
	       !v->in_views && !ck_opts_used(opts, v->option);
}

void ck_vain_line(const struct ck_vain *v, const struct ck_opts *opts,
		  const char *format, struct ck_str *out)
{
	const char *value = ck_opts_get(opts, v->option);

	ck_str_fmt(out, "-o %s", v->option);
	if (*value) {
		ck_str_puts(out, "=");
		ck_str_plain(out, value, strnlen(value, 200));
	}
	if (has_word(v->formats, format)) {
		ck_str_puts(out, ": nothing in the checkpoint makes use of it");
		return;
	}
	ck_str_fmt(out,
		   ": the checkpoint is %s, which has no use for it; it "
		   "is for ",
		   format);
	for (const char *at = v->formats; *at; at++)
		if (*at == ' ')
			ck_str_puts(out, strchr(at + 1, ' ') ? ", " : " and ");
		else
			ck_str_add(out, at, 1);
	if (v->also)
		ck_str_fmt(out, ", and for %s", v->also);
}

/*
 * A tree beside this one may have a use for what this one has not; folders of
 * formats that have some are its own.
 */
static int may_be_others(const struct ck_dir *dir, const char *format,
			 bool *may, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	bool flat = !dir->only && has_word("hf safetensors torch", format);
	int ret = flat ? ck_dir_list(dir, "", &l, err) : 0;

	*may = dir->entry;
	for (size_t i = 0; i < l.nr && !*may; i++)
		*may = l.v[i].is_dir;
	return ret;
}

static int say(const struct ck_vain *v, const struct ck_dir *dir,
	       const char *format, struct ck_builder *b, struct ck_err *err)
{
	struct ck_problem_in p = { .severity = CK_WARNING };
	ck_auto_str struct ck_str line = { 0 };
	bool others;
	int ret = may_be_others(dir, format, &others, err);

	if (ret)
		return ret;
	if (v->also || others)
		p.severity = CK_NOTE;
	ck_vain_line(v, dir->opts, format, &line);
	return line.failed ? ck_fail(err, ENOMEM, "no memory for a line") :
			     ck_builder_problem(b, &p, err, "%s", line.v);
}

/* Of these formats it names a file of the folder. */
static int say_no_file(const struct ck_dir *dir, const char *format,
		       struct ck_builder *b, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };
	const char *name = ck_opts_get(dir->opts, "file");

	if (name && ck_builder_has_file(b, name))
		ck_opts_use(dir->opts, "file"); /* it is what is shown */
	if (!name || dir->only || !has_word("colossalai hf torch", format) ||
	    (ck_dir_name_ok(name, strlen(name)) && ck_dir_beside(dir, name)))
		return 0;
	ck_opts_use(dir->opts, "file"); /* one line is enough */
	return ck_builder_problem(
		b, &p, err, "-o file=%.200s: there is no such file", name);
}

int ck_vain_say(const struct ck_dir *dir, const char *format,
		struct ck_builder *b, struct ck_err *err)
{
	int ret = say_no_file(dir, format, b, err);

	for (const struct ck_vain *v = ck_vain; v->option && !ret; v++)
		if (ck_vain_is(v, dir->opts, format) ||
		    ck_vain_is_idle(v, dir->opts, format))
			ret = say(v, dir, format, b, err);
	return ret;
}
