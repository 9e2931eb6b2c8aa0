/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted.c - making and ending a mounted checkpoint
 */
#include "fs/tree/behind.h"
#include "fs/tree/mounted_priv.h"
#include "fs/tree/tree.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The root that a mounted checkpoint's files are below. */
static const struct ck_root *root_of(const struct fs_mounted_table *s,
				     const struct fs_mounted *mounted)
{
	if (mounted->steps && !mounted->name)
		return s->root;
	return mounted->ck ? ck_ckpt_root(mounted->ck) : &mounted->root;
}

static uint64_t total_of(const struct ck_catalog *img)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < img->nr_tensors; i++)
		if (!ck_add_ok(total, img->tensors[i].size, &total))
			return CK_SIZE_MAX;
	return total;
}

static int open_views(struct fs_mounted_table *s, struct fs_mounted *mounted,
		      struct ck_err *err)
{
	int ret = 0;

	for (unsigned i = 0; ck_views[i]; i++)
		if (i == FS_MAX_VIEWS)
			return ck_fail(
				err, EOVERFLOW,
				"%s: inode numbers are for %d views, see "
				"FS_MAX_VIEWS",
				ck_views[i]->name, FS_MAX_VIEWS);
	for (unsigned i = 0; !ret && ck_views[i]; i++)
		ret = ck_view_open(&mounted->view[i], ck_views[i], mounted->ck,
				   0, s->in.opts, err);
	/* what is written would have to be forgotten of these too */
	for (unsigned i = 0; !ret && i < FS_MAX_VIEWS; i++)
		if (mounted->view[i] && mounted->view[i]->ops->nests &&
		    !ck_ckpt_is_rw(mounted->ck)) {
			mounted->nested =
				fs_nested_new(mounted->view[i], s->in.opts);
			ret = mounted->nested ? 0 : ck_no_memory(err);
		}
	return ret;
}

/* What stays known of a mounted checkpoint while it sleeps. */
static int learn(struct fs_mounted_table *s, struct fs_mounted *mounted,
		 const struct ck_root *root, struct ck_err *err)
{
	mounted->made_s = ck_now_s();
	if (mounted->img) {
		mounted->whole = ck_run_dir_whole(mounted->img);
		mounted->files = mounted->img->nr_tensors;
		mounted->total = total_of(mounted->img);
		fs_mounted_learn_identity(s, mounted);
		mounted->warnings = mounted->errors = 0;
		for (uint32_t i = 0; i < mounted->img->nr_problems; i++) {
			uint8_t is = mounted->img->problems[i].severity;

			mounted->warnings += is == CK_WARNING;
			mounted->errors += is == CK_ERROR;
		}
	}
	if (fstat(root->fd, &mounted->dir))
		return ck_fail(err, errno, "%s: %s", root->path,
			       strerror(errno));
	return 0;
}

void fs_mounted_settle(const struct fs_mounted *mounted)
{
	for (unsigned i = 0; i < FS_MAX_VIEWS; i++)
		if (mounted->view[i])
			ck_view_find_problems(mounted->view[i]);
}

/* ---- what is a mounted checkpoint of its own beside the views ---- */

/*
 * A save for writing is of one tree: what an overlay keeps of several could
 * not be told apart.
 */
static bool shows_beside(const struct fs_mounted_table *s,
			 const struct fs_mounted *mounted)
{
	const struct ck_opts *o = s->in.opts;
	const char *format = ck_opts_get(o, "format");
	const struct ck_root *root;

	if (!s->root || !mounted->ck || ck_opts_get(o, "rw") ||
	    ck_opts_get(o, "overlay") || (format && strcmp(format, "auto")))
		return false;
	root = ck_ckpt_root(mounted->ck);
	return !root->only && !root->save &&
	       !(mounted->name && strchr(mounted->name, '/'));
}

/* What a view is called is the view. */
static void drop_views(struct fs_mounted *mounted)
{
	size_t kept = 0;

	for (size_t i = 0; i < mounted->beside.nr; i++)
		if (fs_tree_lookup(mounted, FS_INO_ROOT,
				   mounted->beside.v[i].name))
			ck_run_dir_entry_free(&mounted->beside.v[i]);
		else
			mounted->beside.v[kept++] = mounted->beside.v[i];
	mounted->beside.nr = kept;
}

static int list_siblings(struct fs_mounted_table *s, struct fs_mounted *mounted,
			 struct ck_err *err)
{
	int ret;

	if (!shows_beside(s, mounted))
		return 0;
	ret = ck_run_dir_list_siblings(&mounted->beside, s->root,
				       mounted->name ? mounted->name : "",
				       mounted->img, err);
	if (!ret)
		drop_views(mounted);
	return ret;
}

/* ---- making ---- */

int fs_mounted_fill(struct fs_mounted_table *s, struct fs_mounted *mounted,
		    struct ck_err *err)
{
	const struct ck_root *root = root_of(s, mounted);
	const struct fs_virt_in virt = {
		.ck = mounted->ck,
		.kernel = s->in.kernel,
		.sandbox = s->in.sandbox,
		.generation = mounted->nr + 1,
		.mounted = mounted,
		.owner = s,
		.map = s->in.map,
	};
	int ret = 0;

	mounted->serial = ++s->serial;
	mounted->img = mounted->ck ? ck_ckpt_catalog(mounted->ck) : NULL;
	if (mounted->ck)
		ck_ckpt_on_touch(mounted->ck, &s->in.touched);
	if (atomic_load(&mounted->state) == FS_MOUNTED_NEW)
		ret = learn(s, mounted, root, err);
	if (!ret && mounted->ck)
		ret = open_views(s, mounted, err);
	if (mounted->shards)
		fs_shards_move(mounted->shards, root);
	else
		mounted->shards = fs_shards_new(root);
	mounted->virt = fs_virt_new(&virt);
	if (!ret && (!mounted->shards || !mounted->virt))
		ret = ck_no_memory(err);
	if (!ret && atomic_load(&mounted->state) == FS_MOUNTED_NEW)
		ret = list_siblings(s, mounted, err);
	return ret;
}

static int open_entry(struct fs_mounted_table *s, struct fs_mounted *mounted,
		      struct ck_err *err)
{
	ck_auto_fd int catalog = -1;
	int ret;

	ret = ck_run_dir_open(&mounted->root, s->root, mounted->name,
			      s->in.opts, err);
	if (!ret)
		ret = ck_ckpt_describe(&mounted->root, s->in.opts, &catalog,
				       err);
	if (!ret)
		ret = ck_ckpt_serve(&mounted->ck, &mounted->root, s->in.opts,
				    catalog, err);
	return ret;
}

/* No checkpoint itself, but what is in it is. */
static bool is_group(const struct fs_mounted_table *s,
		     const struct fs_mounted *mounted)
{
	struct ck_run_dir all;
	bool any;

	if (strchr(mounted->name, '/') ||
	    ck_run_dir_list_in(&all, s->root, mounted->name, NULL))
		return false;
	any = all.nr;
	ck_run_dir_free(&all);
	return any;
}

static enum fs_mounted_state parse(struct fs_mounted_table *s,
				   struct fs_mounted *mounted,
				   struct ck_err *why)
{
	int ret = open_entry(s, mounted, why);
	struct ck_err err;

	if (ret == -ENODATA && is_group(s, mounted)) {
		*why = (struct ck_err){ 0 };
		ret = 0;
		if (atomic_load(&mounted->state) == FS_MOUNTED_NEW)
			mounted->steps = true;
	}
	if (!ret && !fs_mounted_fill(s, mounted, why))
		return FS_MOUNTED_READY;
	if (!mounted->ck && mounted->root.fd >= 0)
		fs_mounted_fill(s, mounted, &err);
	return FS_MOUNTED_FAILED;
}

/* The kernel holds inodes that must mean the same again. */
static enum fs_mounted_state wake(struct fs_mounted_table *s,
				  struct fs_mounted *mounted)
{
	struct fs_mounted evicted = { 0 };
	enum fs_mounted_state state;
	struct ck_err why;

	/* numbers of folders that were asked for would mean others now */
	if (mounted->asked || !fs_mounted_is_still(s, mounted))
		return FS_MOUNTED_ASLEEP;
	state = parse(s, mounted, &why);
	if (fs_mounted_is_as_before(s, mounted, state))
		return state;
	fs_mounted_sleep(mounted, &evicted);
	fs_mounted_end(s, &evicted);
	return FS_MOUNTED_ASLEEP;
}

enum fs_mounted_state fs_mounted_make(struct fs_mounted_table *s,
				      struct fs_mounted *mounted,
				      struct ck_err *why)
{
	if (atomic_load(&mounted->state) == FS_MOUNTED_ASLEEP)
		return wake(s, mounted);
	mounted->dir = mounted->seen;
	mounted->made_s = ck_now_s();
	fs_mounted_look_first(s, mounted);
	return parse(s, mounted, why);
}

void fs_mounted_sleep(struct fs_mounted *mounted, struct fs_mounted *evicted)
{
	mounted->asked |= fs_views_asked(mounted->view) ||
			  fs_nested_asked(mounted->nested);
	evicted->ck = mounted->ck;
	evicted->virt = mounted->virt;
	evicted->nested = mounted->nested;
	evicted->behind = atomic_exchange(&mounted->behind, NULL);
	evicted->root = mounted->root;
	memcpy(evicted->view, mounted->view, sizeof(evicted->view));
	mounted->ck = NULL;
	mounted->img = NULL;
	mounted->virt = NULL;
	mounted->nested = NULL;
	mounted->root = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
	memset(mounted->view, 0, sizeof(mounted->view));
}

void fs_mounted_end(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	fs_behind_free(atomic_load(&mounted->behind));
	fs_nested_free(mounted->nested);
	for (unsigned i = 0; i < FS_MAX_VIEWS; i++)
		ck_view_close(mounted->view[i]);
	fs_virt_free(mounted->virt);
	if (mounted->ck && mounted->ck != s->in.ck)
		ck_ckpt_close(mounted->ck);
	else if (!mounted->ck && mounted->root.fd >= 0)
		ck_root_close(&mounted->root);
}

void fs_mounted_free(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	fs_mounted_end(s, mounted);
	fs_shards_free(mounted->shards);
	ck_run_dir_free(&mounted->beside);
	free(mounted->unfit);
	free(mounted->name);
	free(mounted);
}
