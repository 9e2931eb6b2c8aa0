/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect.c - which reader fits, and what to say where none or two do
 */
#include "core/format/detect.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/suffix.h"
#include "core/catalog/builder.h"
#include "core/catalog/catalog.h"
#include "core/assemble/copies.h"
#include "core/container/torch_save.h"
#include "core/format/explain.h"
#include "core/format/format.h"
#include "core/format/options.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_FORMATS 32

static const char aside[] = "there are files of %s too, left aside; -o "
			    "format=%s reads those";

struct found {
	const struct ck_format *best[MAX_FORMATS]; /* equally sure */
	size_t nr;
	const struct ck_format *weaker; /* one that is less sure */
	int match;
};

static const struct ck_format *format_named(const char *name)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (!strcmp(ck_formats[i]->name, name))
			return ck_formats[i];
	return NULL;
}

const struct ck_format *ck_format_of(const struct ck_catalog *img)
{
	return format_named(ck_catalog_str(img, img->format, NULL));
}

bool ck_format_is_inner(const char *name)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (ck_formats[i]->inner && !strcmp(ck_formats[i]->inner, name))
			return true;
	return false;
}

void ck_saves_free(struct ck_saves *s)
{
	for (size_t i = 0; i < s->v.nr; i++)
		free(s->v.v[i]);
	free(s->v.v);
	*s = (struct ck_saves){ 0 };
}

const char *ck_format_unfinished(const struct ck_dir *dir)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (ck_formats[i]->unfinished &&
		    ck_dir_siblings(dir, ck_formats[i]->unfinished))
			return ck_formats[i]->unfinished;
	return NULL;
}

bool ck_format_is_claimed(const char *name)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (ck_formats[i]->claims && ck_formats[i]->claims(name))
			return true;
	return false;
}

const char *ck_format_aux(const struct ck_dir *dir, const char *name)
{
	const char *what = NULL;

	for (size_t i = 0; ck_formats[i] && !what; i++)
		if (ck_formats[i]->aux_is)
			what = ck_formats[i]->aux_is(dir, name);
	return what;
}

static int fail_name(const char *name, struct ck_err *err)
{
	ck_auto_str struct ck_str all = { 0 };

	for (size_t i = 0; ck_formats[i]; i++)
		ck_str_fmt(&all, " %s", ck_formats[i]->name);
	return ck_fail(err, EINVAL,
		       "-o format=%s: no such format; there are:%s", name,
		       all.v ? all.v : "");
}

static int probe_all(const struct ck_dir *dir, struct found *f,
		     struct ck_err *err)
{
	for (size_t i = 0; ck_formats[i]; i++) {
		int match = ck_formats[i]->probe(dir, err);

		if (match < 0)
			return match;
		if (match == CK_MATCH_NONE)
			continue;
		if (match > f->match) {
			if (f->nr && f->match > CK_MATCH_ASKED)
				f->weaker = f->best[0];
			f->nr = 0;
			f->match = match;
		}
		if (match < f->match && match == CK_MATCH_ASKED)
			continue;
		if (match < f->match)
			f->weaker = ck_formats[i];
		else if (f->nr < MAX_FORMATS)
			f->best[f->nr++] = ck_formats[i];
	}
	return 0;
}

static bool is_weights(const char *name)
{
	return ck_has_suffix(name, ".safetensors") ||
	       ck_torch_save_is_name(name);
}

/* Whether a file that another reader may have meant was not read. */
static int leaves_aside(const struct ck_dir *dir, const struct ck_builder *b,
			bool *any, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list list = { 0 };
	int ret = ck_dir_list(dir, "", &list, err);

	*any = false;
	for (size_t i = 0; i < list.nr && !ret && !*any; i++)
		*any = !list.v[i].is_dir && is_weights(list.v[i].name) &&
		       !ck_builder_has_file(b, list.v[i].name);
	return ret;
}

static int load_apart(const struct ck_format *fmt, const struct ck_dir *dir,
		      int *fd, struct ck_err *err);

/* What the other reader would have read; only if it can. */
static int say_aside(const struct ck_dir *dir, struct ck_builder *b,
		     const struct ck_format *other, struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	struct ck_err why = { 0 };
	bool any;
	int ret = leaves_aside(dir, b, &any, err);

	if (ret || !any)
		return ret;
	ret = load_apart(other, dir, &fd, &why);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	return ret ? ck_builder_report_file(
			     b, CK_NOTE, NULL, err,
			     "there are files of %s too, left "
			     "aside, which do not read as that: %s",
			     other->name, why.msg) :
		     ck_builder_report_file(b, CK_NOTE, NULL, err, aside,
					    other->name, other->name);
}

/* The catalog is made of what is read from here on. */
struct noted {
	struct ck_builder *b;
	const struct ck_dir_wrap *below; /* or NULL */
	struct ck_dir_wrap wrap;
	struct ck_dir dir;
};

static struct ck_source *note_read(void *ctx, struct ck_source *s)
{
	struct noted *n = ctx;

	if (ck_builder_read(n->b, s->name, &s->st, NULL)) {
		ck_source_close(s);
		return NULL;
	}
	return n->below ? n->below->call(n->below->ctx, s) : s;
}

static const struct ck_dir *noting(struct noted *n, const struct ck_dir *dir,
				   struct ck_builder *b)
{
	*n = (struct noted){ .b = b,
			     .below = dir->wrap,
			     .wrap = { note_read, n },
			     .dir = *dir };
	n->dir.wrap = &n->wrap;
	return &n->dir;
}

/* @note, where it is not NULL, is about the other reader @other. */
static int load(const struct ck_format *fmt, const struct ck_dir *dir, int fd,
		const char *note, const struct ck_format *other,
		struct ck_err *err)
{
	ck_auto_builder struct ck_builder *b = ck_builder_new(err);
	struct ck_copies copies = { .dir = dir };
	struct noted noted;
	int ret;

	if (!b)
		return -ENOMEM;
	ck_builder_compare(b, &(struct ck_builder_reads){
				      .read = ck_copies_read,
				      .ctx = &copies,
				      .copies = !ck_dir_any_copy(dir) });
	ck_opts_mark_unused(dir->opts);
	ret = fmt->load(noting(&noted, dir, b), b, err);
	if (!ret && note == aside) {
		ret = say_aside(dir, b, other, err);
		note = NULL;
	}
	if (!ret && note)
		ret = ck_builder_report_file(b, CK_NOTE, NULL, err, note,
					     other->name, other->name);
	if (!ret)
		ret = ck_explain_beside(dir, fmt, b, err);
	if (!ret)
		ret = ck_options_report(dir, fmt, b, err);
	if (!ret)
		ret = ck_builder_finish(b, fmt->name, fd, err);
	ck_copies_free(&copies);
	return ret;
}

static int load_apart(const struct ck_format *fmt, const struct ck_dir *dir,
		      int *fd, struct ck_err *err)
{
	ck_auto_fd int mem = memfd_create("unshard-compare", MFD_CLOEXEC);
	int ret;

	if (mem < 0)
		return ck_fail(err, errno, "memfd: %s", strerror(errno));
	ret = load(fmt, dir, mem, NULL, NULL, err);
	if (!ret)
		*fd = ck_steal_fd(mem);
	return ret;
}

static int fail_tie(const struct ck_dir *dir, const struct ck_format *a,
		    const struct ck_format *b, const char *how,
		    struct ck_err *err)
{
	if (!dir->only && ck_dir_siblings(dir, ".unshard"))
		return ck_fail(err, EINVAL,
			       "%s: is the mount of a checkpoint: give one of "
			       "its folders, such as dcp or hf",
			       dir->path);
	return ck_fail(err, EINVAL,
		       "%s: can be read as %s and as %s%s; choose "
		       "with -o format=%s or -o format=%s",
		       dir->path, a->name, b->name, how, a->name, b->name);
}

static bool same_tensor(const struct ck_catalog *a, const struct ck_tensor *x,
			const struct ck_catalog *b, const struct ck_tensor *y)
{
	size_t x_len, y_len;
	const char *x_name = ck_catalog_str(a, x->name, &x_len);
	const char *y_name = ck_catalog_str(b, y->name, &y_len);

	return x_len == y_len && !memcmp(x_name, y_name, x_len) &&
	       x->dtype == y->dtype && x->rank == y->rank &&
	       !memcmp(a->dims + x->shape, b->dims + y->shape,
		       x->rank * sizeof(*a->dims));
}

/* Names, shapes and dtypes; tensors of a catalog are sorted by name. */
static bool same_catalogs(const struct ck_catalog *a,
			  const struct ck_catalog *b)
{
	if (a->nr_tensors != b->nr_tensors)
		return false;
	for (uint32_t i = 0; i < a->nr_tensors; i++)
		if (!same_tensor(a, &a->tensors[i], b, &b->tensors[i]))
			return false;
	return true;
}

static int same_tensors(int a_fd, int b_fd, bool *same, struct ck_err *err)
{
	struct ck_catalog a, b;
	int ret;

	ret = ck_catalog_map(&a, a_fd, err);
	if (ret)
		return ret;
	ret = ck_catalog_map(&b, b_fd, err);
	if (!ret) {
		*same = same_catalogs(&a, &b);
		ck_catalog_unmap(&b);
	}
	ck_catalog_unmap(&a);
	return ret;
}

/* Two describe the folder: no choice is needed where they say the same. */
static int settle(const struct ck_dir *dir, const struct ck_format *a,
		  const struct ck_format *b, int fd, struct ck_err *err)
{
	static const char note[] = "also described as %s, with the same names, "
				   "shapes and dtypes; -o format=%s reads that";
	ck_auto_fd int a_fd = -1, b_fd = -1;
	bool same;
	int ret;

	if (!a->preferred && !b->preferred)
		return fail_tie(dir, a, b, "", err);
	ret = load_apart(a, dir, &a_fd, err);
	if (!ret)
		ret = load_apart(b, dir, &b_fd, err);
	if (ret == -EINVAL)
		return fail_tie(dir, a, b, ", and not both are whole", err);
	if (ret)
		return ret;
	ret = same_tensors(a_fd, b_fd, &same, err);
	if (ret)
		return ret;
	if (!same)
		return fail_tie(dir, a, b, ", which hold different tensors",
				err);
	return a->preferred ? load(a, dir, fd, note, b, err) :
			      load(b, dir, fd, note, a, err);
}

/* Each checkpoint of several can be read by itself, as an entry of a directory. */
static int check_one(const struct ck_dir *dir, struct ck_err *err)
{
	int ret = 0;

	if (dir->only || dir->save || ck_opts_get(dir->opts, "file"))
		return 0;
	for (size_t i = 0; ck_formats[i] && !ret; i++)
		if (ck_formats[i]->check_one)
			ret = ck_formats[i]->check_one(dir, err);
	return ret;
}

static bool has_format(const struct found *f, const struct ck_format *fmt)
{
	for (size_t i = 0; i < f->nr; i++)
		if (f->best[i] == fmt)
			return true;
	return false;
}

/* Another format whose ranks an option joins, and that these are of. */
static const struct ck_format *other_ranks(const struct ck_dir *dir,
					   const struct ck_format *fmt)
{
	for (size_t i = 0; ck_formats[i]; i++)
		if (ck_formats[i]->join && ck_formats[i] != fmt &&
		    ck_formats[i]->probe(dir, NULL) > CK_MATCH_NONE)
			return ck_formats[i];
	return NULL;
}

/* Words fit any folder, so that the reader of these takes all. */
static const struct ck_format *instead(const struct ck_dir *dir,
				       const struct found *f,
				       const struct ck_format *fmt)
{
	if (fmt->join->is_words)
		return other_ranks(dir, fmt);
	return has_format(f, fmt) ? NULL : f->best[0];
}

/* How pieces join: who gives the one must not get what needs the other. */
static int refuse_option(const struct ck_dir *dir, const struct found *f,
			 struct ck_err *err)
{
	for (size_t i = 0; ck_formats[i]; i++) {
		const struct ck_format_join *j = ck_formats[i]->join;
		const struct ck_format *is;

		if (!j || !ck_opts_get(dir->opts, j->option) || !f->nr)
			continue;
		is = instead(dir, f, ck_formats[i]);
		if (!is)
			continue;
		if (is->join)
			return ck_fail(
				err, EINVAL,
				"%s: -o %s= says how %s ranks join, and these are %s: -o %s=FILE says how they do",
				dir->path, j->option, j->whose, is->join->whose,
				is->join->option);
		return ck_fail(
			err, EINVAL,
			"%s: -o %s= says how %s ranks join, and this is read as %s, with no such ranks",
			dir->path, j->option, j->whose, is->name);
	}
	return 0;
}

/* An option's file that is nowhere, whatever the folder is. */
static int check_named(const struct ck_dir *dir, const char *option,
		       struct ck_err *err)
{
	const char *name;
	size_t len;

	for (size_t i = 0; (name = ck_opts_nth(dir->opts, option, i)); i++)
		if (*name == '/' && !ck_opts_bytes(dir->opts, option, i, &len))
			return ck_fail(
				err, EINVAL,
				"-o %s=%s: there is no such file, neither here nor in the checkpoint",
				option, name);
	return 0;
}

/* What is wrong with the options, whatever the folder is. */
static int check_options(const struct ck_dir *dir, const char *format,
			 struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; ck_formats[i] && !ret; i++) {
		const struct ck_format *f = ck_formats[i];

		if (f->join && !f->join->is_words)
			ret = check_named(dir, f->join->option, err);
	}
	for (size_t i = 0; ck_formats[i] && !ret; i++) {
		const struct ck_format *f = ck_formats[i];

		if (format && f->asked_by && strcmp(format, f->name) != 0 &&
		    ck_opts_get(dir->opts, f->asked_by))
			ret = ck_fail(err, EINVAL,
				      "-o format=%s and -o %s=: a %s is a "
				      "format of its own",
				      format, f->asked_by, f->name);
	}
	return ret;
}

int ck_detect_load(const struct ck_dir *dir, int fd, struct ck_err *err)
{
	const char *name = ck_opts_get(dir->opts, "format");
	bool named = name && strcmp(name, "auto") != 0;
	struct found f = { 0 };
	int ret = check_options(dir, named ? name : NULL, err);

	if (ret)
		return ret;
	if (named) {
		const struct ck_format *fmt = format_named(name);

		return fmt ? load(fmt, dir, fd, NULL, NULL, err) :
			     fail_name(name, err);
	}
	ret = check_one(dir, err);
	ret = ret ? ret : probe_all(dir, &f, err);
	if (ret)
		return ret;
	/* items of torch.save one behind the other begin as one does */
	if (!f.nr || (dir->only && f.match < CK_MATCH_USER &&
		      ck_explain_is_part(dir->only)))
		return ck_explain_none(dir, err);
	ret = refuse_option(dir, &f, err);
	if (ret)
		return ret;
	if (f.nr == 2)
		return settle(dir, f.best[0], f.best[1], fd, err);
	if (f.nr > 2)
		return fail_tie(dir, f.best[0], f.best[1], " and more", err);
	/* the user may well have spoken of those files */
	if (f.match >= CK_MATCH_USER ||
	    (f.weaker && f.best[0]->covers &&
	     strstr(f.best[0]->covers, f.weaker->name)))
		f.weaker = NULL;
	return load(f.best[0], dir, fd, f.weaker ? aside : NULL, f.weaker, err);
}
