/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - a new checkpoint from a process's memory
 *
 * What is written goes to a draft as a mount's does (core/save/save.h).  A publish
 * reads all of it with our own reader, and so is the work of a program of its own.
 */
#include "core/lib/lib.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/cpus.h"
#include "core/draft/draft.h"
#include "core/geom/dtype.h"
#include "core/options/options.h"
#include "core/publish/recover.h"
#include "core/save/save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT 600
#define MAX_THREADS 4
#define NEW ".new" /* of the draft of what replaces another */

struct unshard_save {
	unshard_ctx *ctx;
	struct ck_root root;
	struct ck_save *save;
	struct ck_opts opts;
	char draft[NAME_MAX + 1];
	char as[NAME_MAX + 1]; /* ""; or what it replaces */
};

static unsigned threads_of(const unshard_ctx *ctx)
{
	unsigned nr = CK_MIN(ck_cpus(), (unsigned)MAX_THREADS);

	if (ctx->threads)
		return ctx->threads;
	return CK_MAX(nr / CK_MAX(ctx->local_ranks, 1u), 1u);
}

static int read_opts(unshard_save *s, const char *step,
		     const unshard_save_opts *opts, struct ck_save_in *in,
		     struct ck_err *err)
{
	bool replace = CK_LIB_GET(opts, flags) & UNSHARD_REPLACE;
	int n = snprintf(s->draft, sizeof(s->draft), "%s%s", step,
			 replace ? NEW : "");

	*in = (struct ck_save_in){
		.root = &s->root,
		.name = s->draft,
		.format = CK_LIB_GET(opts, format),
		.ranks = CK_LIB_GET(opts, ranks),
		.rank = CK_LIB_GET(opts, rank),
		.seconds = CK_LIB_GET(opts, timeout),
		.threads = threads_of(s->ctx),
	};
	if (!in->format)
		in->format = "dcp";
	if (!in->ranks && !in->rank)
		in->ranks = 1;
	if (!in->seconds)
		in->seconds = TIMEOUT;
	if (n >= (int)sizeof(s->draft) || !ck_draft_name_ok(s->draft))
		return ck_fail(err, EINVAL,
			       "%.300s: not the name of a checkpoint", step);
	if (replace)
		snprintf(s->as, sizeof(s->as), "%s", step);
	if (strcmp(in->format, "dcp") && strcmp(in->format, "safetensors"))
		return ck_fail(err, EINVAL,
			       "format \"%.100s\": expected \"dcp\" or "
			       "\"safetensors\"",
			       in->format);
	return 0;
}

static int open_save(unshard_save *s, const char *dir, const char *step,
		     const unshard_save_opts *opts, struct ck_err *err)
{
	const char *options = CK_LIB_GET(opts, options);
	struct ck_save_in in;
	int ret = read_opts(s, step, opts, &in, err);

	if (!ret && options)
		ret = ck_options_parse(&s->opts, CK_OPTIONS_OPEN, options, err);
	if (!ret)
		ret = ck_root_open(&s->root, dir, &s->opts, err);
	if (ret)
		return ret;
	if (CK_LIB_GET(opts, flags) & UNSHARD_ANEW) {
		ret = ck_recover_gc(&s->root, s->draft, 0, err);
		if (ret == -ENOENT)
			ret = 0;
	}
	return ret ? ret : ck_save_open(&s->save, &in, err);
}

int unshard_save_new(unshard_ctx *ctx, const char *dir, const char *step,
		     const unshard_save_opts *opts, unshard_save **out,
		     unshard_error *err)
{
	struct ck_err why = { 0 };
	unshard_save *s;
	int ret = ck_lib_alive(ctx, err);

	if (ret)
		return ret;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ck_lib_fail(err, ENOMEM, "no memory");
	s->ctx = ctx;
	s->root = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
	atomic_fetch_add(&ctx->refs, 1);
	ret = open_save(s, dir, step, opts, &why);
	if (ret) {
		unshard_save_free(s);
		return ck_lib_failed(err, ret, &why);
	}
	*out = s;
	return 0;
}

void unshard_save_free(unshard_save *s)
{
	if (!s || ck_lib_is_child(s->ctx))
		return;
	if (s->save)
		ck_save_close(s->save);
	ck_root_close(&s->root);
	ck_opts_free(&s->opts);
	ck_lib_ctx_unref(s->ctx);
	free(s);
}

/* ---- declaring ---- */

static int failed_at(unshard_error *err, int ret, size_t item, const char *name,
		     const struct ck_err *why)
{
	ck_lib_failed(err, ret, why);
	if (err && item < UNSHARD_NONE)
		err->item = (uint32_t)item;
	if (err && name)
		snprintf(err->name, sizeof(err->name), "%s", name);
	return ret;
}

static int take_slice(const unshard_slice *v, struct ck_save_slice *out,
		      uint64_t nothing[CK_MAX_RANK], struct ck_err *err)
{
	const char *dtype = CK_LIB_GET(v, dtype);

	*out = (struct ck_save_slice){
		.name = CK_LIB_GET(v, name),
		.path = CK_LIB_GET(v, path),
		.rank = CK_LIB_GET(v, rank),
		.shape = CK_LIB_GET(v, shape),
		.start = CK_LIB_GET(v, start),
		.len = CK_LIB_GET(v, len),
	};
	if (!dtype)
		return 0;
	out->dtype = (uint8_t)ck_dtype_by_name(dtype, strlen(dtype));
	if (out->dtype == CK_DT_NONE)
		return ck_fail(err, EINVAL, "there is no dtype \"%s\"", dtype);
	if (!out->shape && out->rank)
		return ck_fail(err, EINVAL, "%.300s: a slice without a shape",
			       out->name ? out->name : "");
	if (!out->shape)
		out->shape = nothing;
	if (!out->start || !out->len) {
		out->start = nothing;
		out->len = out->shape;
	}
	return 0;
}

int unshard_save_declare(unshard_save *s, const unshard_slice *slices, size_t n,
			 unshard_error *err)
{
	uint64_t nothing[CK_MAX_RANK] = { 0 };
	struct ck_err why = { 0 };
	struct ck_save_slice one = { 0 };
	size_t bad;
	int ret = ck_lib_alive(s->ctx, err);

	if (ret)
		return ret;
	for (size_t i = 0; i < n; i++) {
		ret = take_slice(CK_LIB_AT(slices, i), &one, nothing, &why);
		if (!ret)
			ret = ck_save_declare(s->save, &one, 1, &bad, &why);
		if (ret)
			return failed_at(err, ret, i, one.name, &why);
	}
	return 0;
}

/* ---- writing ---- */

static int take_item(const unshard_save *s, const unshard_item *item,
		     struct ck_save_item *out, struct ck_err *err)
{
	const char *dtype = CK_LIB_GET(item, dtype);

	*out = (struct ck_save_item){
		.slice = item->tensor,
		.start = item->start,
		.len = item->len,
		.mem = item->mem,
		.stride = CK_LIB_GET(item, stride),
	};
	if (!out->start != !out->len)
		return ck_fail(err, EINVAL, "a box has a start and a length");
	if (dtype &&
	    !ck_save_is_dtype(s->save, out->slice,
			      (uint8_t)ck_dtype_by_name(dtype, strlen(dtype))))
		return ck_fail(err, EINVAL,
			       "memory of %.100s: a save casts nothing", dtype);
	return ck_lib_device(s->ctx, CK_LIB_GET(item, device), &out->dev, err);
}

int unshard_save_write(unshard_save *s, const unshard_item *items, size_t n,
		       unshard_error *err)
{
	ck_auto_free struct ck_save_item *v = calloc(n + 1, sizeof(*v));
	struct ck_err why = { 0 };
	size_t bad = SIZE_MAX;
	int ret = ck_lib_alive(s->ctx, err);

	if (ret)
		return ret;
	if (!v)
		return ck_lib_fail(err, ENOMEM, "no memory");
	for (size_t i = 0; i < n && !ret; i++) {
		ret = take_item(s, CK_LIB_AT(items, i), &v[i], &why);
		bad = ret ? i : SIZE_MAX;
	}
	if (!ret)
		ret = ck_save_write(s->save, v, n, &bad, &why);
	return ret ? failed_at(err, ret, bad,
			       bad == SIZE_MAX ?
				       NULL :
				       ck_save_name(s->save, v[bad].slice),
			       &why) :
		     0;
}

int unshard_save_object(unshard_save *s, const char *name, const void *bytes,
			size_t len, unshard_error *err)
{
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(s->ctx, err);

	if (ret)
		return ret;
	ret = ck_save_object(s->save, name, bytes, len, &why);
	return ret ? failed_at(err, ret, SIZE_MAX, name, &why) : 0;
}

int unshard_save_sync(unshard_save *s, unshard_error *err)
{
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(s->ctx, err);

	if (ret)
		return ret;
	ret = ck_save_sync(s->save, &why);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}

int unshard_save_publish(unshard_save *s, unshard_error *err)
{
	const struct ck_parser_by by = { .program = s->ctx->parser };
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(s->ctx, err);

	if (ret)
		return ret;
	ret = ck_save_publishable(s->save, &why);
	if (!ret)
		ret = ck_parser_publish(&by, &s->root, &s->opts, s->draft,
					*s->as ? s->as : NULL, &why);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}
