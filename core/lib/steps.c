/* SPDX-License-Identifier: Apache-2.0 */
/* steps.c - the checkpoints of a directory of them */
#include "core/lib/open.h"

#include "core/base/auto.h"
#include "core/catalog/catalog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add_entry(struct ck_str *out, const struct ck_run_dir_entry *e,
		      enum ck_lib_entry state, bool latest)
{
	static const char *const text[] = { "complete", "incomplete",
					    "unreadable", "several" };

	ck_str_puts(out, out->len > 1 ? ",\n {\"name\": " : "{\"name\": ");
	ck_str_json(out, e->name, strlen(e->name));
	if (e->numbered) {
		ck_str_puts(out, ", \"number\": ");
		ck_str_u64(out, e->number);
	}
	ck_str_fmt(out, ", \"state\": \"%s\"%s}", text[state],
		   latest ? ", \"latest\": true" : "");
}

enum ck_lib_entry ck_lib_entry_state(const struct ck_lib_describer *d,
				     const struct ck_root *all,
				     const char *name,
				     const struct ck_opts *opts)
{
	struct ck_lib_describer own = *d;
	const struct ck_describer by = ck_lib_describer(&own);
	ck_auto_fd int fd = -1;
	enum ck_lib_entry state;
	struct ck_catalog img;
	struct ck_root root;
	struct ck_err err;
	int ret = ck_run_dir_open(&root, all, name, opts, &err);

	own.by.stays = NULL;
	if (ret)
		return CK_LIB_UNREADABLE;
	ret = ck_only_ckpt_describe(&by, &root, opts, &fd, &err);
	ck_root_close(&root);
	if (ret)
		return ret == -ENODATA ? CK_LIB_SEVERAL : CK_LIB_UNREADABLE;
	if (ck_catalog_map(&img, fd, &err))
		return CK_LIB_UNREADABLE;
	state = ck_run_dir_whole(&img) ? CK_LIB_COMPLETE : CK_LIB_INCOMPLETE;
	ck_catalog_unmap(&img);
	return state;
}

static void add_all(const struct ck_run_dir *all,
		    const enum ck_lib_entry *state, struct ck_str *out)
{
	const struct ck_run_dir_entry *latest;
	size_t i = 0;

	while ((latest = ck_run_dir_newest(all, i)) &&
	       state[latest - all->v] != CK_LIB_COMPLETE)
		i++;
	for (i = 0; i < all->nr; i++)
		add_entry(out, &all->v[i], state[i], &all->v[i] == latest);
}

static int list(const struct ck_lib_describer *d, const struct ck_root *root,
		const struct ck_opts *opts, struct ck_str *out,
		struct ck_err *err)
{
	ck_auto_free enum ck_lib_entry *state = NULL;
	struct ck_run_dir all;
	int ret = ck_run_dir_list(&all, root, err);

	if (ret)
		return ret;
	state = calloc(all.nr + 1, sizeof(*state));
	for (size_t i = 0; state && i < all.nr; i++)
		state[i] = ck_lib_entry_state(d, root, all.v[i].name, opts);
	if (state)
		add_all(&all, state, out);
	ck_run_dir_free(&all);
	return state ? 0 : ck_no_memory(err);
}

static int steps(const struct ck_lib_describer *d, const char *path,
		 const struct ck_opts *opts, struct ck_str *out,
		 struct ck_err *err)
{
	struct ck_lib_describer first = *d;
	const struct ck_describer by = ck_lib_describer(&first);
	ck_auto_fd int fd = -1;
	struct ck_root root;
	struct ck_err ignored;
	int ret = ck_root_open(&root, path, opts, err);

	if (ret)
		return ret;
	ret = by.describe(by.ctx, &root, opts, &fd, &ignored);
	ck_root_close(&root);
	if (ret != -ENODATA)
		return ret == -ENOMEM ? ck_no_memory(err) : 0;
	ret = ck_lib_open_root(&root, path, opts, err);
	if (ret)
		return ret;
	if (!root.only)
		ret = list(d, &root, opts, out, err);
	ck_root_close(&root);
	return ret;
}

int unshard_steps(unshard_ctx *ctx, const char *path,
		  const unshard_open_opts *opts, unshard_put put, void *arg,
		  unshard_error *err)
{
	const struct ck_lib_describer d = {
		.by = { .program = ctx->parser,
			.cancel_fd = CK_LIB_GET(opts, cancel_fd) },
		.in_process = CK_LIB_GET(opts, isolation) == UNSHARD_IN_PROCESS,
	};
	ck_auto_str struct ck_str out = { 0 };
	struct ck_opts all = { 0 };
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(ctx, err);

	if (ret)
		return ret;
	ck_str_puts(&out, "[");
	ret = ck_lib_opts(&all, ctx, opts, &why);
	if (!ret)
		ret = steps(&d, path, &all, &out, &why);
	if (ck_parser_is_cancelled(d.by.cancel_fd))
		ret = ck_fail(&why, ECANCELED, "%s: cancelled", path);
	ck_opts_free(&all);
	ck_str_puts(&out, "]\n");
	if (!ret && out.failed)
		ret = ck_no_memory(&why);
	return ret ? ck_lib_failed(err, ret, &why) :
		     ck_lib_put_ended(err, put(arg, out.v, out.len));
}
