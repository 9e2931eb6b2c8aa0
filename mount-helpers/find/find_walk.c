/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find_walk.c - folders by their names, and what a reader says of some
 *
 * Only names are looked at here; what they say may be a checkpoint is described
 * by a short-lived process, as everywhere.  Links are not followed, other file
 * systems are not entered, and what ranks or the files of a checkpoint make use
 * of is not looked into again.
 */
#include "mount-helpers/find/find.h"
#include "mount-helpers/health.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/format/format.h"
#include "core/mesh/names.h"
#include "core/run/run_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct folder {
	char *path; /* below the root; "": it */
};

struct walk {
	struct find *f;
	const char *top;
	struct ck_root root;
	CK_VEC(struct folder) todo;
};

/* ---- one checkpoint ---- */

static bool is_optimizer(const struct ck_catalog *img,
			 const struct ck_tensor *t, const char *base)
{
	size_t len;
	const char *name = ck_catalog_str(img, t->name, &len);
	size_t tree_len;
	const char *tree = ck_catalog_str(img, img->trees[t->tree], &tree_len);

	return !strncmp(base, "optim", 5) || !strncmp(tree, "optim", 5) ||
	       ck_name_has_word(name, len, ck_names_state);
}

static void count(struct find_part *p, const struct ck_catalog *img)
{
	const char *slash = strrchr(p->path, '/');
	const char *base = slash ? slash + 1 : p->path;

	snprintf(p->format, sizeof(p->format), "%s",
		 ck_catalog_str(img, img->format, NULL));
	p->tensors = img->nr_tensors;
	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];

		*(is_optimizer(img, t, base) ? &p->optimizer : &p->model) +=
			t->size;
	}
	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		const struct ck_src *s = &img->srcs[i];

		if (s->kind != CK_SRC_FILE)
			continue;
		p->files++;
		p->stored += s->id.size;
		p->mtime = CK_MAX(p->mtime, s->id.mtime_ns / 1000000000);
	}
	if (ck_run_dir_whole(img))
		return;
	p->state = FIND_INCOMPLETE;
	p->why = health_counts(img);
}

/* @used: "a/b/", folders that the files of what was described lie in. */
static bool is_used(const struct ck_str *used, const char *name, size_t len)
{
	for (const char *at = used->v; at && *at; at = strchr(at, '/') + 1)
		if (!strncmp(at, name, len) && at[len] == '/')
			return true;
	return false;
}

static int note_used(struct ck_str *used, const struct ck_catalog *img)
{
	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		const struct ck_src *s = &img->srcs[i];
		const char *name, *slash;

		if (s->kind != CK_SRC_FILE && s->kind != CK_SRC_ABSENT)
			continue;
		name = ck_catalog_str(img, s->name, NULL);
		slash = strchr(name, '/');
		if (slash && !is_used(used, name, (size_t)(slash - name)))
			ck_str_add(used, name, (size_t)(slash - name + 1));
	}
	return used->failed ? -ENOMEM : 0;
}

/*
 * Adds the checkpoint @root at @path, if it is one: 0; -ENODATA: it is none.
 * @save: one of several in the folder, or NULL.
 */
static int describe(struct walk *w, const struct ck_root *root,
		    const struct ck_opts *opts, const char *path,
		    const char *save, struct ck_str *used)
{
	ck_auto_fd int fd = -1;
	struct find_part p = { 0 }, *to;
	struct ck_catalog img;
	struct ck_err err;
	int ret = ck_ckpt_describe(root, opts, &fd, &err);

	if (ret == -ENODATA)
		return ret;
	if (!ret)
		ret = ck_catalog_map(&img, fd, &err);
	to = ck_vec_push(&w->f->part);
	if (!to)
		return ck_no_memory(&w->f->err);
	if (asprintf(&p.path, "%s%s%s%s%s", w->top, *path ? "/" : "", path,
		     save ? "/" : "", save ? save : "") < 0)
		p.path = NULL;
	p.open = save ? NULL : strdup(root->path);
	p.save = save ? strdup(p.path) : find_save_of(w->top, p.path);
	if (ret) {
		p.state = FIND_UNREADABLE;
		p.why = strdup(err.msg);
	} else {
		count(&p, &img);
		note_used(used, &img);
		ck_catalog_unmap(&img);
	}
	*to = p;
	return p.path && p.save ? 0 : ck_no_memory(&w->f->err);
}

/* ---- a folder ---- */

static char *join(const char *a, const char *b)
{
	char *out = NULL;

	if (asprintf(&out, "%s%s%s", a, *a ? "/" : "", b) < 0)
		return NULL;
	return out;
}

/* Files that are checkpoints by themselves, and saves in the folders of ranks. */
static int add_entries(struct walk *w, const struct ck_root *root,
		       const struct ck_opts *opts, const char *path,
		       struct ck_str *used)
{
	struct ck_run_dir all;
	int ret = ck_run_dir_list(&all, root, NULL);

	if (ret)
		return 0;
	for (size_t i = 0; i < all.nr && (!ret || ret == -ENODATA); i++) {
		const struct ck_run_dir_entry *e = &all.v[i];
		struct ck_root in;

		if (!e->is_save && !e->is_file)
			continue;
		if (ck_run_dir_open(&in, root, e->name, opts, NULL))
			continue;
		ret = describe(w, &in, opts, path, e->name, used);
		ck_root_close(&in);
	}
	ck_run_dir_free(&all);
	return ret == -ENODATA ? 0 : ret;
}

static int add_folders(struct walk *w, const char *path, bool found,
		       const struct ck_str *used)
{
	ck_auto_dir DIR *d = NULL;
	struct ck_err err = { 0 };
	const struct dirent *e;
	int ret = ck_root_list(&w->root, path, &d, &err);

	if (ret == -EACCES || ret == -EPERM || ret == -EIO)
		cmd_fail(&cmd_find, 0, "%s", err.msg);
	while (d && (e = readdir(d))) {
		struct folder *to;

		if (*e->d_name == '.' ||
		    (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN) ||
		    (found && (ck_run_dir_is_sign(e->d_name) ||
			       is_used(used, e->d_name, strlen(e->d_name)))))
			continue;
		to = ck_vec_push(&w->todo);
		if (!to)
			return ck_no_memory(&w->f->err);
		to->path = join(path, e->d_name);
		if (!to->path)
			return ck_no_memory(&w->f->err);
	}
	return 0;
}

/* With what trainers leave beside it (-o strategy=). */
static int look(struct walk *w, const char *path, struct ck_str *used)
{
	ck_auto_free char *full = join(w->top, path);
	struct ck_opts opts = { 0 };
	struct ck_root root;
	size_t borrowed;
	int ret = 0;

	if (!full || ck_opts_without(&opts, w->f->opts, "json"))
		return ck_no_memory(&w->f->err);
	borrowed = opts.nr;
	ck_options_beside(&opts, *path ? full : w->top, NULL);
	if (!ck_root_open(&root, *path ? full : w->top, &opts, NULL)) {
		ret = describe(w, &root, &opts, path, NULL, used);
		if (ret == -ENODATA)
			ret = add_entries(w, &root, &opts, path, used);
		ck_root_close(&root);
	}
	for (size_t i = borrowed; i < opts.nr; i++) {
		free(opts.v[i].name);
		free(opts.v[i].value);
		free(opts.v[i].bytes);
	}
	ck_opts_let_go(&opts);
	return ret;
}

/*
 * Whether the folder was looked at as one that was given, or by another name of
 * it; from now on it was.
 */
static bool was_done(const struct walk *w, const char *path)
{
	const char *in = w->root.real;
	size_t len = strlen(in);
	bool done = false;

	len -= len == 1; /* "/" */
	for (size_t i = 0; i < w->f->top.nr; i++) {
		struct find_top *t = &w->f->top.v[i];
		const char *rest = t->real;

		if (!rest || strncmp(rest, in, len) != 0)
			continue;
		rest += len;
		if (strcmp(rest + (*rest == '/'), path) != 0 ||
		    (*rest && *rest != '/'))
			continue;
		done |= t->done;
		t->done = true;
	}
	return done;
}

static int visit(struct walk *w, const char *path)
{
	ck_auto_str struct ck_str used = { 0 };
	size_t before = w->f->part.nr;
	int ret = 0;

	if (was_done(w, path))
		return 0;
	w->f->folders++;
	if (ck_run_dir_may_be_one(&w->root, path))
		ret = look(w, path, &used);
	return ret ? ret : add_folders(w, path, w->f->part.nr > before, &used);
}

static int walk(struct find *f, const char *path)
{
	struct walk w = { .f = f, .top = path };
	ck_auto_free char *top = strdup(path);
	int ret;

	for (size_t len = top ? strlen(top) : 0;
	     len > 1 && top[len - 1] == '/';)
		top[--len] = '\0';
	if (!top)
		return ck_no_memory(&f->err);
	w.top = top;
	ret = ck_root_open(&w.root, top, f->opts, &f->err);
	if (ret)
		return ret;
	if (w.root.only) {
		ck_root_close(&w.root);
		return ck_fail(&f->err, ENOTDIR, "%s: expected a folder", path);
	}
	ret = visit(&w, "");
	while (!ret && w.todo.nr) {
		ck_auto_free char *next = w.todo.v[--w.todo.nr].path;

		ret = visit(&w, next);
	}
	for (size_t i = 0; i < w.todo.nr; i++)
		free(w.todo.v[i].path);
	free(w.todo.v);
	ck_root_close(&w.root);
	return ret;
}

int find_add_top(struct find *f, const char *path)
{
	struct find_top *t = ck_vec_push(&f->top);

	if (!t)
		return ck_no_memory(&f->err);
	*t = (struct find_top){ path, realpath(path, NULL), false };
	return 0;
}

int find_walk(struct find *f)
{
	int ret = 0;

	for (size_t i = 0; i < f->top.nr && !ret; i++)
		if (!f->top.v[i].done)
			ret = walk(f, f->top.v[i].path);
	return ret;
}

void find_free(struct find *f)
{
	for (size_t i = 0; i < f->top.nr; i++)
		free(f->top.v[i].real);
	free(f->top.v);
	for (size_t i = 0; i < f->part.nr; i++) {
		free(f->part.v[i].path);
		free(f->part.v[i].open);
		free(f->part.v[i].save);
		free(f->part.v[i].why);
	}
	free(f->part.v);
	free(f->save.v);
}
