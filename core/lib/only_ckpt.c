/* SPDX-License-Identifier: Apache-2.0 */
/*
 * only_ckpt.c - a directory of checkpoints where one checkpoint is wanted
 *
 * A run that saved once, or whose folder holds "checkpoints" only, means that;
 * of several none is chosen.
 */
#include "core/lib/only_ckpt.h"

#include "core/base/auto.h"
#include "core/ckpt/ckpt.h"
#include "core/run/run_dir.h"

#include <errno.h>

#define MAX_DEPTH 3 /* run/checkpoints/step-1/model */
#define MAX_SHOWN 8

static int report_all(const struct ck_root *root, const struct ck_run_dir *all,
		      struct ck_err *err)
{
	ck_auto_str struct ck_str names = { 0 };
	size_t from = all->nr > MAX_SHOWN ? all->nr - MAX_SHOWN : 0;

	for (size_t i = from; i < all->nr; i++)
		ck_str_fmt(&names, "%s%s", i > from ? ", " : "",
			   all->v[i].name);
	if (names.failed)
		return ck_no_memory(err);
	return ck_fail(
		err, ENODATA,
		all->nr > 1 ?
			"%s: holds %zu checkpoints (%s%s): name one of them" :
			"%s: holds %zu checkpoint (%s%s): name it",
		root->path, all->nr, from ? "..., " : "", names.v);
}

static int become(struct ck_root *root, struct ck_root *by)
{
	ck_root_close(root);
	*root = *by;
	return 0;
}

/* 0: @root is another now. */
static int enter(struct ck_root *root, const struct ck_opts *opts,
		 struct ck_err *err)
{
	ck_auto_free char *below = ck_run_dir_of_run(root);
	struct ck_run_dir all;
	struct ck_root in;
	int ret = -ENODATA;

	if (below && !ck_root_open(&in, below, opts, NULL))
		return become(root, &in);
	if (root->only || ck_run_dir_list(&all, root, NULL))
		return ret;
	if (all.nr == 1 && !ck_run_dir_open(&in, root, all.v->name, opts, NULL))
		ret = become(root, &in);
	else if (all.nr > 1 && !all.v->is_save) /* of these it was said */
		ret = report_all(root, &all, err);
	ck_run_dir_free(&all);
	return ret;
}

static int describe(const struct ck_describer *by, const struct ck_root *root,
		    const struct ck_opts *opts, int *catalog_fd,
		    struct ck_err *err)
{
	return by ? by->describe(by->ctx, root, opts, catalog_fd, err) :
		    ck_ckpt_describe(root, opts, catalog_fd, err);
}

int ck_only_ckpt_describe(const struct ck_describer *by, struct ck_root *root,
			  const struct ck_opts *opts, int *catalog_fd,
			  struct ck_err *err)
{
	int ret = describe(by, root, opts, catalog_fd, err);

	for (unsigned i = 0; i < MAX_DEPTH && ret == -ENODATA; i++) {
		if (enter(root, opts, err))
			return -err->code;
		ret = describe(by, root, opts, catalog_fd, err);
	}
	return ret;
}

int ck_only_ckpt_name(const struct ck_describer *by, struct ck_root *root,
		      const struct ck_opts *opts, int *catalog_fd,
		      struct ck_err *err)
{
	int ret = describe(by, root, opts, catalog_fd, err);
	struct ck_run_dir all;

	if (ret != -ENODATA || root->only || ck_run_dir_list(&all, root, NULL))
		return ret;
	if (all.nr && !all.v->is_save)
		ret = report_all(root, &all, err);
	ck_run_dir_free(&all);
	return ret;
}
