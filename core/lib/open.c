/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - from a path to a checkpoint, as the command does it
 *
 * What the command's own process may do after it has confined itself, the
 * library leaves to its program: nothing of the files is parsed here, but the
 * header that a view makes.
 */
#include "core/lib/open.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/catalog/catalog.h"
#include "core/ckpt/shared_catalog.h"
#include "core/lib/from_mount.h"
#include "core/lib/handed.h"
#include "core/lib/only_ckpt.h"
#include "core/lib/view_path.h"
#include "core/options/options.h"
#include "core/run/run_dir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_FILES 64 /* so many are looked at, whoever made the image */

/* ---- options ---- */

int ck_lib_opts(struct ck_opts *out, const unshard_ctx *ctx,
		const unshard_open_opts *opts, struct ck_err *err)
{
	const char *text = CK_LIB_GET(opts, options);
	int ret = 0;

	if (ctx->engine && ck_opts_add(out, "engine", ctx->engine))
		ret = ck_no_memory(err);
	if (!ret && ctx->spool && ck_opts_add(out, "spool", ctx->spool))
		ret = ck_no_memory(err);
	if (!ret && text)
		ret = ck_options_parse(out, CK_OPTIONS_OPEN, text, err);
	if (!ret)
		ret = ck_options_absolute(out, "config", err);
	return ret ? ret : ck_options_absolute(out, "spool", err);
}

/* ---- who describes ---- */

static int describe(void *ctx, const struct ck_root *root,
		    const struct ck_opts *opts, int *catalog_fd,
		    struct ck_err *err)
{
	struct ck_lib_describer *d = ctx;
	ck_auto_fd int fd = -1;
	int ret;

	if (d->image) {
		if (d->served || ck_shared_catalog_is_of(d->image, root))
			return ck_shared_catalog_alone(d->image, catalog_fd,
						       err);
		if (d->depth++ < d->image->depth)
			return ck_fail(err, ENODATA, "%s: it is below",
				       root->path);
		return ck_fail(err, ESTALE,
			       "%s: the image is of another checkpoint",
			       root->path);
	}
	if (!d->in_process) {
		ret = ck_parser_describe(&d->by, root, opts, catalog_fd, err);
		d->depth += ret == -ENODATA;
		return ret;
	}
	ret = ck_catalog_file(&fd, err);
	if (!ret)
		ret = ck_ckpt_parse(root, opts, NULL, fd, err);
	if (!ret)
		ret = ck_catalog_seal(fd, err);
	if (!ret)
		*catalog_fd = ck_steal_fd(fd);
	d->depth += ret == -ENODATA;
	return ret;
}

struct ck_describer ck_lib_describer(struct ck_lib_describer *d)
{
	return (struct ck_describer){ describe, d };
}

/* ---- directories of checkpoints ---- */

int ck_lib_open_root(struct ck_root *out, const char *path,
		     const struct ck_opts *opts, struct ck_err *err)
{
	ck_auto_free char *below = NULL;
	struct ck_root in;
	int ret = ck_root_open(out, path, opts, err);

	below = ret ? NULL : ck_run_dir_of_run(out);
	if (ret || !below || ck_root_open(&in, below, opts, NULL))
		return ret;
	ck_root_close(out);
	*out = in;
	return 0;
}

/* The newest of which all is there; NULL: none, or they have no order. */
static const struct ck_run_dir_entry *find_latest(
	const struct ck_lib_describer *d, const struct ck_root *root,
	const struct ck_run_dir *all, const struct ck_opts *opts)
{
	const struct ck_run_dir_entry *e;

	for (size_t i = 0; (e = ck_run_dir_newest(all, i)); i++)
		if (ck_lib_entry_state(d, root, e->name, opts) ==
		    CK_LIB_COMPLETE)
			return e;
	return NULL;
}

static int latest_name(const struct ck_lib_describer *d,
		       const struct ck_root *root, const struct ck_opts *opts,
		       char **name, struct ck_err *err)
{
	const struct ck_run_dir_entry *e;
	struct ck_run_dir all;
	int ret = ck_run_dir_list(&all, root, err);

	if (ret)
		return ret;
	e = find_latest(d, root, &all, opts);
	*name = e ? strdup(e->name) : NULL;
	if (!e)
		ret = ck_fail(err, ENOENT,
			      "%s: none of its %zu checkpoints is the latest: "
			      "none is complete, or they have no order",
			      root->path, all.nr);
	else if (all.marker && !ck_run_dir_is_marked(e, all.marker))
		ret = ck_fail(
			err, ENODATA,
			"%s: the newest that is complete is %s, but the "
			"framework's own marker says \"%.200s\": name one",
			root->path, e->name, all.marker);
	else if (!*name)
		ret = ck_no_memory(err);
	ck_run_dir_free(&all);
	return ret;
}

static bool is_entry(const struct ck_root *root, const char *name)
{
	struct ck_run_dir_entry e;

	if (!ck_run_dir_look(&e, root, name))
		return false;
	ck_run_dir_entry_free(&e);
	return true;
}

/* Names of folders, one below the other: "step-100", "run-2/step-100". */
static bool is_below(const char *step)
{
	for (const char *end; *step; step = end + 1) {
		size_t len = strcspn(step, "/");

		end = step + len;
		if (!len || (len == 1 && *step == '.') ||
		    (len == 2 && !memcmp(step, "..", 2)))
			return false;
		if (!*end)
			return true;
	}
	return false;
}

static int check_opts(const unshard_open_opts *opts, struct ck_err *err)
{
	uint32_t flags = CK_LIB_GET(opts, flags);
	int where = CK_LIB_GET(opts, isolation);

	if (flags & ~(uint32_t)(UNSHARD_RESOLVE | UNSHARD_WHOLE))
		return ck_fail(err, EINVAL,
			       "flags 0x%x: only UNSHARD_RESOLVE and "
			       "UNSHARD_WHOLE, 0x%x, are known",
			       flags, UNSHARD_RESOLVE | UNSHARD_WHOLE);
	if (where != UNSHARD_HELPER && where != UNSHARD_IN_PROCESS)
		return ck_fail(err, EINVAL,
			       "isolation %d: expected UNSHARD_HELPER, 0, or "
			       "UNSHARD_IN_PROCESS, 1",
			       where);
	return 0;
}

/* @root becomes that of checkpoint @step in it. */
static int enter_step(const struct ck_lib_describer *d, struct ck_root *root,
		      const char *step, const struct ck_opts *opts,
		      struct ck_err *err)
{
	ck_auto_free char *latest = NULL;
	struct ck_root in;
	bool newest;
	int ret = 0;

	if (!is_below(step))
		return ck_fail(err, EINVAL,
			       "step \"%s\": expected the name of a checkpoint "
			       "below %s",
			       step, root->path);
	if (root->only)
		return ck_fail(err, ENOTDIR,
			       "%s: it is a file, and holds no %s", root->path,
			       step);
	/* DeepSpeed's "latest" is a file of text, and no checkpoint. */
	newest = !strcmp(step, "latest") && !is_entry(root, step);
	if (newest) {
		ret = latest_name(d, root, opts, &latest, err);
		step = latest;
	}
	if (!ret)
		ret = ck_run_dir_open(&in, root, step, opts, err);
	if (ret == -ENOENT && !newest)
		ck_fail(err, ENOENT, "%s: holds no checkpoint \"%s\"",
			root->path, step);
	if (ret)
		return ret;
	ck_root_close(root);
	*root = in;
	return 0;
}

/* ---- the whole ---- */

static int check_whole(struct ck_ckpt *ck, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);

	if (ck_run_dir_whole(img) && !ck_ckpt_runtime_errors(ck))
		return 0;
	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (img->tensors[i].state != CK_OK)
			return ck_fail(
				err, EIO,
				"%s: not all of it is there: %s is %s",
				ck_ckpt_root(ck)->path,
				ck_catalog_str(img, img->tensors[i].name, NULL),
				img->tensors[i].state == CK_TORN ? "torn" :
								   "missing");
	return ck_fail(err, EIO, "%s: not all of it is there, or can be read",
		       ck_ckpt_root(ck)->path);
}

/* What is found in files after the index, if anything is. */
static int start_items(unshard_ckpt *u, const struct ck_parser_by *by,
		       struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(u->base);
	struct ck_item_finder f = { .find = ck_parser_find_chunk };
	uint32_t i = 0;

	while (i < img->nr_layouts &&
	       !(img->layouts[i].flags & CK_LAYOUT_DEFERRED))
		i++;
	if (i == img->nr_layouts)
		return 0;
	u->items = ck_parser_new(by, u->base, &u->opts, u->catalog_fd);
	if (!u->items)
		return ck_no_memory(err);
	f.ctx = u->items;
	ck_ckpt_find_items_by(u->base, &f);
	return 0;
}

static int resolve_all(unshard_ckpt *u)
{
	struct ck_err ignored;

	/* What cannot be found is a problem, and an error of who reads it. */
	if (u->items)
		return ck_parser_find_all(u->items, &ignored);
	for (uint32_t i = 0; i < ck_ckpt_catalog(u->base)->nr_tensors; i++)
		ck_ckpt_resolve(u->base, i, &ignored);
	return 0;
}

static int enter_view(unshard_ckpt *u, const struct ck_view_path *p,
		      struct ck_err *err)
{
	/* From now on the view owns what is below it. */
	u->ck = u->base;
	return ck_view_path_enter(&u->ck, p, &u->opts, err);
}

/* What a mount serves has no links that lead elsewhere. */
static int open_served(struct ck_root *root, const char *path,
		       const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_opts few;
	int ret = ck_opts_without(&few, opts, "follow");

	if (ret)
		return ck_no_memory(err);
	ret = ck_root_open(root, path, &few, err);
	ck_opts_let_go(&few);
	if (!ret) {
		root->served = true;
		root->own = ck_handed;
	}
	return ret;
}

static int open_at(unshard_ckpt *u, const struct ck_view_path *p,
		   const unshard_open_opts *opts, struct ck_lib_describer *d,
		   struct ck_err *err)
{
	const struct ck_describer by = ck_lib_describer(d);
	const char *step = CK_LIB_GET(opts, step), *path = p->ckpt;
	struct ck_root root;
	int ret;

	if (d->served)
		ret = open_served(&root, path, &u->opts, err);
	else if (step)
		ret = ck_lib_open_root(&root, path, &u->opts, err);
	else
		ret = ck_root_open(&root, path, &u->opts, err);
	if (ret)
		return ret;
	if (step)
		ret = enter_step(d, &root, step, &u->opts, err);
	d->depth = 0;
	if (!ret)
		ret = ck_only_ckpt_describe(&by, &root, &u->opts,
					    &u->catalog_fd, err);
	if (ret == -ENODATA && d->image)
		ret = ck_fail(err, ESTALE,
			      "%s: the image is of another checkpoint", path);
	if (!ret)
		ret = ck_ckpt_serve(&u->base, &root, &u->opts, u->catalog_fd,
				    err);
	if (ret) {
		ck_root_close(&root);
		return ret;
	}
	u->depth = d->depth;
	if (d->image)
		ret = ck_ckpt_same_files(
			u->base, d->every_file ? UINT32_MAX : IMAGE_FILES, err);
	if (!ret && !d->in_process)
		ret = start_items(u, &d->by, err);
	if (!ret && (CK_LIB_GET(opts, flags) & UNSHARD_RESOLVE))
		resolve_all(u);
	if (!ret && (CK_LIB_GET(opts, flags) & UNSHARD_WHOLE))
		ret = check_whole(u->base, err);
	return ret ? ret : enter_view(u, p, err);
}

static void destroy(unshard_ckpt *u)
{
	ck_ckpt_close(u->ck ? u->ck : u->base);
	ck_parser_free(u->items);
	if (u->catalog_fd >= 0)
		close(u->catalog_fd);
	ck_opts_free(&u->opts);
	ck_lib_ctx_unref(u->ctx);
	free(u);
}

/* An image that came from a mount, or 0; else that of @opts. */
struct known {
	int image_fd;
	bool served; /* @path is in the mount */
};

static int open_known(unshard_ckpt *u, const char *path,
		      const struct known *known, const unshard_open_opts *opts,
		      struct ck_err *err)
{
	struct ck_parser_proc *stays = NULL;
	struct ck_lib_describer d = {
		.by = { .program = u->ctx->parser,
			.cancel_fd = CK_LIB_GET(opts, cancel_fd),
			.stays = &stays },
		.in_process = CK_LIB_GET(opts, isolation) == UNSHARD_IN_PROCESS,
		.every_file = known->image_fd > 0,
		.served = known->served,
	};
	struct ck_view_path p;
	int image_fd = known->image_fd > 0 ? known->image_fd :
					     CK_LIB_GET(opts, image_fd);
	int ret = 0;
	struct ck_shared_catalog image;

	ck_view_path_parse(&p, path);
	if (image_fd > 0) {
		ret = ck_shared_catalog_open(&image, image_fd, err);
		d.image = &image;
	}
	if (!ret)
		ret = ck_lib_opts(&u->opts, u->ctx, opts, err);
	if (!ret)
		ret = open_at(u, &p, opts, &d, err);
	ck_parser_proc_free(stays);
	ck_parser_opened(u->items);
	/* Of several that could not be described none is wrong then. */
	return ck_parser_is_cancelled(d.by.cancel_fd) ?
		       ck_fail(err, ECANCELED, "%s: cancelled", path) :
		       ret;
}

/* Whether the checkpoint is where the mount's worker has it. */
static bool is_visible(const struct ck_map *map)
{
	static const struct ck_opts none;
	struct ck_shared_catalog image;
	struct ck_root root;
	bool is;

	if (ck_shared_catalog_open(&image, map->image_fd, NULL) ||
	    ck_root_open(&root, map->path, &none, NULL))
		return false;
	is = ck_shared_catalog_is_of(&image, &root);
	ck_root_close(&root);
	return is;
}

/* As the caller's, but for a step that was taken. */
static unshard_open_opts opts_there(const struct ck_from_mount *m,
				    const unshard_open_opts *opts)
{
	return (unshard_open_opts){
		.size = sizeof(unshard_open_opts),
		.options = CK_LIB_GET(opts, options),
		.isolation = CK_LIB_GET(opts, isolation),
		.flags = CK_LIB_GET(opts, flags),
		.cancel_fd = CK_LIB_GET(opts, cancel_fd),
		.image_fd = CK_LIB_GET(opts, image_fd),
		.step = m->took_step ? NULL : CK_LIB_GET(opts, step),
	};
}

/*
 * What a mount shows of a checkpoint is read from the checkpoint itself; where that
 * is not to be seen, from shards/, whose descriptors the mount exchanges.
 */
static int open_mounted(unshard_ckpt *u, struct ck_from_mount *m,
			const unshard_open_opts *opts, struct ck_err *err)
{
	unshard_open_opts there = opts_there(m, opts);
	const char *own = CK_LIB_GET(opts, options);
	ck_auto_str struct ck_str text = { 0 };
	struct known known = { .served = !is_visible(&m->map) };

	ck_str_puts(&text, m->map.options);
	ck_str_puts(&text, text.len && own && *own ? "," : "");
	ck_str_puts(&text, own ? own : "");
	if (text.failed)
		return ck_no_memory(err);
	there.options = text.len ? text.v : NULL;
	if (there.image_fd <= 0 || known.served) {
		there.image_fd = 0;
		known.image_fd = m->map.image_fd;
	}
	return open_known(u, known.served ? m->served : m->path, &known, &there,
			  err);
}

static int open_path(unshard_ckpt *u, const char *path,
		     const unshard_open_opts *opts, struct ck_err *err)
{
	const struct known none = { 0 };
	unshard_open_opts there;
	struct ck_from_mount m;
	int ret = check_opts(opts, err);

	if (!ret)
		ret = ck_from_mount(&m, path, CK_LIB_GET(opts, step), err);
	if (ret < 0)
		return ret;
	if (!ret && !*m.path)
		return open_known(u, path, &none, opts, err);
	if (!ret) {
		there = opts_there(&m, opts);
		return open_known(u, m.path, &none, &there, err);
	}
	ret = ck_wrap(err, open_mounted(u, &m, opts, err), "%s is a mount",
		      path);
	ck_map_free(&m.map);
	return ret;
}

int unshard_open(unshard_ctx *ctx, const char *path,
		 const unshard_open_opts *opts, unshard_ckpt **out,
		 unshard_error *err)
{
	unshard_ckpt *u;
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(ctx, err);

	if (ret)
		return ret;
	u = calloc(1, sizeof(*u));
	if (!u)
		return ck_lib_fail(err, ENOMEM, "no memory");
	atomic_init(&u->refs, 1);
	atomic_fetch_add(&ctx->refs, 1);
	u->ctx = ctx;
	u->catalog_fd = -1;
	ret = open_path(u, path, opts, &why);
	if (ret) {
		ck_lib_failed(err, ret, &why); /* it names what is closed */
		destroy(u);
		return ret;
	}
	*out = u;
	return 0;
}

unshard_ckpt *unshard_ref(unshard_ckpt *ck)
{
	atomic_fetch_add(&ck->refs, 1);
	return ck;
}

void unshard_unref(unshard_ckpt *ck)
{
	if (ck && !ck_lib_is_child(ck->ctx) &&
	    atomic_fetch_sub(&ck->refs, 1) == 1)
		destroy(ck);
}

int unshard_image(unshard_ckpt *ck, int *fd, uint64_t digest[2],
		  unshard_error *err)
{
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(ck->ctx, err);

	if (ret)
		return ret;
	ret = ck_shared_catalog_make(ck_ckpt_catalog(ck->base),
				     ck_ckpt_root(ck->base), ck->depth, fd,
				     digest, &why);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}
