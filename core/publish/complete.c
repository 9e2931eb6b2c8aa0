/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.c - opens a directory with our own reader, and looks at all of it
 *
 * The catalog is made by the parser, as for a mount; items that a mount
 * resolves at first touch are resolved here, in another process, for a hostile
 * file must not bring the publisher down.  Accelerate's folders, a checkpoint
 * each in one directory, must all be whole.
 */
#include "core/publish/complete.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/ckpt/ckpt.h"
#include "core/format/format.h"
#include "core/publish/sparse_check.h"
#include "core/publish/ranks.h"
#include "core/run/run_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESOLVE_SECONDS 3600

/* How the files are to be read. */
struct how {
	const struct ck_opts *opts;
	bool holes; /* are meant */
};

/* What our reader made of the files. */
struct seen {
	const struct ck_format *format; /* NULL: they cannot be read together */
	bool cut; /* some tensor is in parts, which are known to be all */
};

static const char *text_of(const struct ck_catalog *img, uint32_t ref)
{
	return ref == CK_NONE ? NULL : ck_catalog_str(img, ref, NULL);
}

/* The first that is wrong with it. */
static int fault_of(const struct ck_catalog *img, struct ck_err *err)
{
	static const char *const state[] = { "", "a file of it is too short",
					     "a file of it is missing" };

	for (uint32_t i = 0; i < img->nr_problems; i++) {
		const struct ck_problem *p = &img->problems[i];
		const char *who = text_of(img, p->tensor);
		const char *why = text_of(img, p->reason);

		if (p->severity != CK_ERROR)
			continue;
		if (!who)
			who = text_of(img, p->file);
		return ck_fail(err, ENODATA, "%s%s%s", who ? who : "",
			       who ? ": " : "", why ? why : "refused");
	}
	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];

		if (t->state != CK_OK)
			return ck_fail(err, ENODATA, "%s: %s",
				       ck_catalog_str(img, t->name, NULL),
				       state[t->state == CK_TORN ? 1 : 2]);
	}
	if (!img->nr_tensors && !img->nr_objects)
		return ck_fail(err, ENODATA, "there is no tensor in it");
	return 0;
}

/* The first that was found while items were resolved. */
static int runtime_fault(struct ck_ckpt *ck, struct ck_err *err)
{
	ck_auto_str struct ck_str text = { 0 };

	ck_ckpt_runtime_problems(ck, false, &text);
	if (!text.len)
		return 0;
	return ck_fail(err, ENODATA, "%.*s", (int)strcspn(text.v, "\n"),
		       text.v);
}

/* In the child. */
static int look(struct ck_ckpt *ck, void *ctx, struct ck_err *err)
{
	const struct how *how = ctx;
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	int ret = fault_of(img, err);

	for (uint32_t i = 0; !ret && i < img->nr_tensors; i++)
		ret = ck_ckpt_resolve(ck, i, err);
	if (!ret)
		ret = runtime_fault(ck, err);
	if (!ret && !how->holes)
		ret = ck_sparse_check(ck, err);
	if (ret)
		err->code = ENODATA;
	return ret ? -ENODATA : 0;
}

/* Whether nothing in the files says how many ranks there were. */
static bool is_silent(const struct seen *seen)
{
	switch (seen->format->ranks) {
	case CK_TELLS_NOTHING:
		return true;
	case CK_TELLS_BY_PIECES:
		return !seen->cut;
	default:
		return false;
	}
}

/* An option says it, but not words, which are of as many as there happen to be. */
static bool says_ranks(const struct ck_format *f, const struct ck_opts *opts)
{
	const struct ck_format_join *j = f->join;

	return (f->asked_by && ck_opts_get(opts, f->asked_by)) ||
	       (j && ck_opts_get(opts, j->option) &&
		!(j->is_words && j->is_words(opts)));
}

/* What else says it: a strategy, rules, a layout. */
static bool is_described(const struct ck_dir_tree *files,
			 const struct ck_opts *opts)
{
	for (size_t i = 0; ck_formats[i]; i++) {
		const struct ck_format *f = ck_formats[i];

		if (says_ranks(f, opts))
			return true;
		for (size_t k = 0; f->ranks_file && k < files->nr; k++)
			if (strstr(files->v[k].path, f->ranks_file))
				return true;
	}
	return false;
}

static bool is_any(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (!strcmp(*names, name))
			return true;
	return false;
}

/*
 * Some write a folder a tensor, and then what says that there are no more; the
 * folders alone may look like a save of another kind.
 */
static int check_end(const struct ck_dir_tree *files, const struct ck_format *f,
		     struct ck_err *err)
{
	bool begun = false;

	if (!f || !f->ends)
		return 0;
	for (size_t i = 0; i < files->nr; i++) {
		const char *slash = strrchr(files->v[i].path, '/');
		const char *name = slash ? slash + 1 : files->v[i].path;

		begun |= slash && !strcmp(name, f->begun);
		if (is_any(name, f->ends))
			return 0;
	}
	if (!begun)
		return 0;
	return ck_fail(err, ENODATA,
		       "the save did not finish: neither %s nor %s is there",
		       f->ends[0], f->ends[1]);
}

static int ask(const struct ck_ranks *found, struct ck_err *err)
{
	const struct ck_rank *r = &found->v[0];

	if (found->nr_ranks > 1)
		return ck_fail(err, ENODATA,
			       "files of %" PRIu64 " ranks are there, and none "
			       "of them says how many there are: unshard "
			       "publish --ranks N",
			       found->nr_ranks);
	return ck_fail(err, ENODATA,
		       "%.*s may be of one rank of several, and nothing says "
		       "how many there are: unshard publish --ranks N (1 if it "
		       "is all)",
		       (int)r->len, r->path);
}

static int check_ranks(const struct ck_ranks *found,
		       const struct ck_dir_tree *files, const struct seen *seen,
		       const struct how *how, uint64_t ranks,
		       struct ck_err *err)
{
	if (ranks)
		return ck_ranks_are(found, ranks, err);
	if (!found->nr || found->told || is_described(files, how->opts))
		return 0;
	return found->saves || (seen->format && is_silent(seen)) ?
		       ask(found, err) :
		       0;
}

static int see(int catalog_fd, struct seen *seen, struct ck_err *err)
{
	struct ck_catalog img;
	int ret = ck_catalog_map(&img, catalog_fd, err);

	if (ret)
		return ret;
	seen->format = ck_format_of(&img);
	for (uint32_t i = 0; i < img.nr_tensors; i++)
		seen->cut |= img.tensors[i].nr > 1;
	ck_catalog_unmap(&img);
	return 0;
}

/* One checkpoint; @seen is filled in where it can be read at all. */
static int look_at(struct ck_root *root, const struct how *how,
		   struct seen *seen, struct ck_err *err)
{
	ck_auto_fd int catalog = -1;
	struct ck_ckpt_apart apart = { .root = root,
				       .opts = how->opts,
				       .out = -1,
				       .seconds = RESOLVE_SECONDS,
				       .run = look,
				       .ctx = (void *)how };
	int ret = ck_ckpt_describe(root, how->opts, &catalog, err);

	apart.catalog_fd = catalog;
	if (!ret)
		ret = see(catalog, seen, err);
	return ret ? ret : ck_ckpt_run_apart(&apart, err);
}

/* A directory of checkpoints: each of its folders. */
static int look_in_folders(const struct ck_root *root, const struct how *how,
			   struct seen *seen, struct ck_err *err)
{
	struct ck_run_dir all;
	int ret = ck_run_dir_list(&all, root, err);
	bool any = false;

	for (size_t i = 0; !ret && i < all.nr; i++) {
		struct ck_root in;

		if (all.v[i].is_file)
			continue;
		any = true;
		ret = ck_run_dir_open(&in, root, all.v[i].name, how->opts, err);
		if (!ret) {
			ret = look_at(&in, how, seen, err);
			ck_root_close(&in);
		}
		if (ret)
			ck_wrap(err, ret, "%s", all.v[i].name);
	}
	ck_run_dir_free(&all);
	if (!ret && !any)
		return -ENODATA;
	return ret;
}

/* A run: those in its folder of checkpoints.  -ENODATA as above. */
static int look_in_run(const struct ck_root *root, const struct how *how,
		       struct seen *seen, struct ck_err *err)
{
	ck_auto_free char *path = ck_run_dir_of_run(root);
	struct ck_root in;
	int ret;

	if (!path)
		return look_in_folders(root, how, seen, err);
	ret = ck_root_open(&in, path, how->opts, err);
	if (ret)
		return ret;
	ret = look_in_folders(&in, how, seen, err);
	ck_root_close(&in);
	return ck_wrap(err, ret, "%s", strrchr(path, '/') + 1);
}

/* One file or folder of @path, by itself. */
static int look_at_name(const char *path, const char *name, size_t len,
			const struct how *how, struct ck_err *err)
{
	char whole[PATH_MAX];
	struct seen seen = { 0 };
	struct ck_root root;
	int ret;

	if (snprintf(whole, sizeof(whole), "%s/%.*s", path, (int)len, name) >=
	    (int)sizeof(whole))
		return ck_fail(err, ENAMETOOLONG, "%s: too long", name);
	ret = ck_root_open(&root, whole, how->opts, err);
	if (ret)
		return ret;
	ret = look_at(&root, how, &seen, err);
	ck_root_close(&root);
	return ret;
}

/* Every file below the folder of @r is whole by itself. */
static int look_at_files_of(const char *path, const struct ck_rank *r,
			    const struct ck_dir_tree *files,
			    const struct how *how, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < files->nr; i++) {
		const struct ck_dir_tree_file *f = &files->v[i];

		if (S_ISREG(f->st.st_mode) &&
		    !strncmp(f->path, r->path, r->len) &&
		    f->path[r->len] == '/')
			ret = look_at_name(path, f->path, strlen(f->path), how,
					   err);
	}
	return ret;
}

/*
 * Pieces of which nothing says how they join: whole as far as can be known,
 * where each rank's folder, or else each file in it, can be read by itself.
 */
static int look_at_ranks(const char *path, const struct ck_ranks *found,
			 const struct ck_dir_tree *files, const struct how *how,
			 struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < found->nr; i++) {
		const struct ck_rank *r = &found->v[i];

		ret = look_at_name(path, r->path, r->len, how, err);
		if (ret && r->is_dir)
			ret = look_at_files_of(path, r, files, how, err);
	}
	return ret;
}

/* What the reader says in @ret and @err, and what the names of files do. */
static int count(const char *path, const struct ck_dir_tree *files,
		 const struct seen *seen, const struct how *how, uint64_t ranks,
		 int ret, struct ck_err *err)
{
	struct ck_err counted = { 0 };
	struct ck_ranks found;
	enum ck_ranks_by by = CK_RANKS_WORDS;
	int nr;

	if (ranks && (!seen->format || is_silent(seen)))
		by = CK_RANKS_ANY;
	else if (seen->format && seen->format->ranks_are_files)
		by = CK_RANKS_FILES;
	nr = ck_ranks_find(&found, files, by, &counted);
	if (!nr)
		nr = check_ranks(&found, files, seen, how, ranks, &counted);
	if (nr && ret && !ranks) {
		/* both of them lack */
		struct ck_err read = *err;

		ret = ck_fail(err, read.code, "%s; %s", read.msg, counted.msg);
	} else if (nr) {
		ret = ck_fail(err, counted.code, "%s", counted.msg);
	} else if (ret && ranks && !is_described(files, how->opts)) {
		ret = look_at_ranks(path, &found, files, how, err);
	}
	ck_ranks_free(&found);
	return ret;
}

int ck_complete(const char *path, const struct ck_dir_tree *files,
		const struct ck_opts *opts, uint64_t ranks, bool holes,
		struct ck_err *err)
{
	const struct how in = { opts, holes }, *how = &in;
	struct ck_err inner = { 0 };
	struct seen seen = { 0 };
	struct ck_root root;
	int ret = ck_root_open(&root, path, how->opts, err);

	if (ret)
		return ret;
	ret = look_at(&root, how, &seen, err);
	if (ret == -ENODATA && !seen.format) {
		int below = look_in_run(&root, how, &seen, &inner);

		if (!below)
			ret = 0;
		else if (inner.code)
			ret = ck_fail(err, inner.code, "%s", inner.msg);
	}
	ck_root_close(&root);
	if (!ret)
		ret = check_end(files, seen.format, err);
	/* whatever the reader says of the files: it is they that lack */
	if (!ret || ret == -EINVAL || ret == -ENOENT || ret == -ENODATA)
		ret = count(path, files, &seen, how, ranks, ret, err);
	if (ret == -EINVAL || ret == -ENOENT)
		ret = -ENODATA;
	return ret;
}
