/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - which options are whose, and the line for one that is nobody's */
#include "core/format/options.h"

#include "core/base/auto.h"
#include "core/base/str.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define FILES "{files}" /* in help: what formats have */

/* Read by several formats, or by what is none. */
static const struct ck_option shared[] = {
	{ .name = "file",
	  .type = CK_OPTION_STRING,
	  .value = "NAME",
	  .fallback = "each of them, as a step",
	  .open = true,
	  .help = "of several indexes" FILES ", the one that is called NAME",
	  .place = 5 },
	{ .name = "rules",
	  .type = CK_OPTION_FILES,
	  .value = "FILE",
	  .fallback = "those that are built in",
	  .open = true,
	  .help = "how tensor-parallel ranks share tensors, by their names, "
		  "where files do not say it, and for reshard/tp=K",
	  .place = 4,
	  .also = "reshard/tp=K" },
	{ .name = NULL },
};

/* The one whose name is the next behind @name; NULL: it was the last. */
static const struct ck_option *next_of(const struct ck_option *o,
				       const char *name,
				       const struct ck_option *best)
{
	for (; o && o->name; o++)
		if (strcmp(o->name, name) > 0 &&
		    (!best || strcmp(o->name, best->name) < 0))
			best = o;
	return best;
}

const struct ck_option *ck_format_option(size_t i)
{
	const struct ck_option *at = NULL;
	const char *name = "";

	do {
		at = next_of(shared, name, NULL);
		for (size_t k = 0; ck_formats[k]; k++)
			at = next_of(ck_formats[k]->options, name, at);
		name = at ? at->name : "";
	} while (at && i--);
	return at;
}

/* ", of A, or of B" */
static void add_files(struct ck_str *out)
{
	const char *last = NULL;

	for (size_t i = 0; ck_formats[i]; i++) {
		if (!ck_formats[i]->files)
			continue;
		if (last)
			ck_str_fmt(out, ", of %s", last);
		last = ck_formats[i]->files;
	}
	if (last)
		ck_str_fmt(out, ", or of %s", last);
}

void ck_option_help(const struct ck_option *o, struct ck_str *out)
{
	const char *at = strstr(o->help, FILES);
	size_t from = out->len;

	ck_str_add(out, o->help, at ? (size_t)(at - o->help) : strlen(o->help));
	if (at) {
		add_files(out);
		ck_str_puts(out, at + strlen(FILES));
	}
	ck_str_puts(out, ".");
	/* "hf/ shows ...": a path stays as it is */
	if (!out->failed && out->v[from + strcspn(out->v + from, " /")] == ' ')
		out->v[from] = (char)toupper((unsigned char)out->v[from]);
}

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at++)
		if ((at == words || at[-1] == ' ') &&
		    (!at[len] || at[len] == ' '))
			return true;
	return false;
}

static bool reads(const struct ck_format *f, const struct ck_option *o)
{
	for (const struct ck_option *own = f->options; own && own->name; own++)
		if (own == o)
			return true;
	return f->reads && has_word(f->reads, o->name);
}

/* Given, and nothing to a checkpoint of @f. */
static bool is_unread(const struct ck_option *o, const struct ck_opts *opts,
		      const struct ck_format *f)
{
	return ck_opts_get(opts, o->name) && !reads(f, o);
}

/* Given, for this format, and nothing made use of it. */
static bool is_unused(const struct ck_option *o, const struct ck_opts *opts,
		      const struct ck_format *f)
{
	return ck_opts_get(opts, o->name) && reads(f, o) && !o->in_views &&
	       !ck_opts_used(opts, o->name);
}

/* "a, b and c": the formats that read it. */
static void add_readers(const struct ck_option *o, struct ck_str *out)
{
	const struct ck_format *last = NULL;
	const char *between = "";

	for (size_t i = 0; ck_formats[i]; i++) {
		if (!reads(ck_formats[i], o))
			continue;
		if (last)
			ck_str_fmt(out, "%s%s", between, last->name);
		between = last ? ", " : "";
		last = ck_formats[i];
	}
	if (last)
		ck_str_fmt(out, "%s%s", *between ? " and " : "", last->name);
}

static void put_line(const struct ck_option *o, const struct ck_opts *opts,
		     const struct ck_format *f, struct ck_str *out)
{
	const char *value = ck_opts_get(opts, o->name);

	ck_str_fmt(out, "-o %s", o->name);
	if (*value) {
		ck_str_puts(out, "=");
		ck_str_plain(out, value, strnlen(value, 200));
	}
	if (reads(f, o)) {
		ck_str_puts(out, ": nothing in the checkpoint makes use of it");
		return;
	}
	ck_str_fmt(out,
		   ": the checkpoint is %s, which has no use for it; it "
		   "is for ",
		   f->name);
	add_readers(o, out);
	if (o->also)
		ck_str_fmt(out, ", and for %s", o->also);
}

/*
 * A tree beside this one may have a use for what this one has not; folders of
 * formats that have some are its own.
 */
static int may_be_others(const struct ck_dir *dir, const struct ck_format *f,
			 bool *may, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = !dir->only && f->flat ? ck_dir_list(dir, "", &l, err) : 0;

	*may = dir->entry;
	for (size_t i = 0; i < l.nr && !*may; i++)
		*may = l.v[i].is_dir;
	return ret;
}

static int report(const struct ck_option *o, const struct ck_dir *dir,
		  const struct ck_format *f, struct ck_builder *b,
		  struct ck_err *err)
{
	ck_auto_str struct ck_str line = { 0 };
	bool others;
	int ret = may_be_others(dir, f, &others, err);

	if (ret)
		return ret;
	put_line(o, dir->opts, f, &line);
	return line.failed ?
		       ck_no_memory(err) :
		       ck_builder_report_file(
			       b, o->also || others ? CK_NOTE : CK_WARNING,
			       NULL, err, "%s", line.v);
}

static int report_no_file(const struct ck_dir *dir, const struct ck_format *f,
			  struct ck_builder *b, struct ck_err *err)
{
	const char *name = ck_opts_get(dir->opts, "file");

	if (name && ck_builder_has_file(b, name))
		ck_opts_use(dir->opts, "file"); /* it is what is shown */
	if (!name || dir->only || !f->names_file ||
	    (ck_dir_name_ok(name, strlen(name)) && ck_dir_siblings(dir, name)))
		return 0;
	ck_opts_use(dir->opts, "file"); /* one line is enough */
	return ck_builder_report_file(b, CK_WARNING, NULL, err,
				      "-o file=%.200s: there is no such file",
				      name);
}

int ck_options_report(const struct ck_dir *dir, const struct ck_format *f,
		      struct ck_builder *b, struct ck_err *err)
{
	int ret = report_no_file(dir, f, b, err);
	const struct ck_option *o;

	for (size_t i = 0; !ret && (o = ck_format_option(i)); i++)
		if (is_unread(o, dir->opts, f) || is_unused(o, dir->opts, f))
			ret = report(o, dir, f, b, err);
	return ret;
}
