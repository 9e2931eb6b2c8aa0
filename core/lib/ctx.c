/* SPDX-License-Identifier: Apache-2.0 */
/* ctx.c - a context, what the library can do here, errors for callers */
#include "core/lib/lib.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/load/load.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ck_lib_fail(unshard_error *err, int code, const char *fmt, ...)
{
	char text[CK_ERR_MAX];
	struct ck_err line;
	va_list ap;

	if (!err)
		return -code;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ck_fail(&line, code, "%s", text); /* escapes what would break it */
	return ck_lib_failed(err, -code, &line);
}

int ck_lib_failed(unshard_error *err, int ret, const struct ck_err *why)
{
	if (!err)
		return ret;
	*err = (unshard_error){ .code = -ret,
				.item = UNSHARD_NONE,
				.tensor = UNSHARD_NONE,
				.offset = UNSHARD_NOWHERE };
	snprintf(err->text, sizeof(err->text), "%.*s",
		 (int)sizeof(err->text) - 1, why->msg);
	if (why->file) {
		snprintf(err->file, sizeof(err->file), "%s", why->file);
		err->offset = why->off;
	}
	return ret;
}

int ck_lib_failed_of(unshard_error *err, int ret, const struct ck_err *why,
		     const struct ck_catalog *img, uint32_t tensor)
{
	ck_lib_failed(err, ret, why);
	if (!err || tensor >= img->nr_tensors)
		return ret;
	err->tensor = tensor;
	snprintf(err->name, sizeof(err->name), "%s",
		 ck_catalog_str(img, img->tensors[tensor].name, NULL));
	return ret;
}

int ck_lib_put_ended(unshard_error *err, int ret)
{
	if (ret)
		ck_lib_fail(err, ret < 0 ? -ret : ECANCELED,
			    "put(), which is given the text, ended it with %d",
			    ret);
	return ret;
}

bool ck_lib_is_child(const unshard_ctx *ctx)
{
	return ctx->pid != getpid();
}

int ck_lib_alive(const unshard_ctx *ctx, unshard_error *err)
{
	return !ck_lib_is_child(ctx) ?
		       0 :
		       ck_lib_fail(err, ECHILD,
				   "it was made before a fork(), by the parent "
				   "of this process; make another");
}

unsigned unshard_version(void)
{
	unsigned major = 0, minor = 0, patch = 0;

	if (sscanf(UNSHARD_VERSION, "%u.%u.%u", &major, &minor, &patch) < 2)
		return 0;
	return major << 16 | minor << 8 | patch;
}

unsigned unshard_abi(void)
{
	return UNSHARD_ABI;
}

static bool copy_text(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

/* One that there is, and that this machine allows. */
static int check_engine(const char *name, unshard_error *err)
{
	struct ck_err why = { 0 };

	if (!name || ck_engine_choose(name, &why))
		return 0;
	return ck_lib_failed(err, -why.code, &why);
}

static void ctx_destroy(unshard_ctx *ctx)
{
	ck_lib_devices_free(ctx->devices);
	ck_load_pool_free(ctx->pool);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx->engine);
	free(ctx->spool);
	free(ctx->parser);
	free(ctx);
}

int unshard_ctx_new(unshard_ctx **out, const unshard_ctx_opts *opts,
		    unshard_error *err)
{
	unshard_ctx *ctx;
	int ret = check_engine(CK_LIB_GET(opts, engine), err);

	if (ret)
		return ret;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return ck_lib_fail(err, ENOMEM, "no memory");
	atomic_init(&ctx->refs, 1);
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->pid = getpid();
	ctx->threads = CK_LIB_GET(opts, threads);
	ctx->local_ranks = CK_LIB_GET(opts, local_ranks);
	ctx->ring = CK_LIB_GET(opts, ring);
	ctx->chunk = CK_LIB_GET(opts, chunk);
	ctx->depth = CK_LIB_GET(opts, depth);
	ctx->parser = ck_parser_path(CK_LIB_GET(opts, helper));
	if (!ctx->parser ||
	    !copy_text(&ctx->engine, CK_LIB_GET(opts, engine)) ||
	    !copy_text(&ctx->spool, CK_LIB_GET(opts, spool))) {
		ctx_destroy(ctx);
		return ck_lib_fail(err, ENOMEM, "no memory");
	}
	*out = ctx;
	return 0;
}

void ck_lib_ctx_unref(unshard_ctx *ctx)
{
	if (atomic_fetch_sub(&ctx->refs, 1) == 1)
		ctx_destroy(ctx);
}

void unshard_ctx_free(unshard_ctx *ctx)
{
	if (ctx && !ck_lib_is_child(ctx))
		ck_lib_ctx_unref(ctx);
}

int unshard_ctx_caps(unshard_ctx *ctx, char *json, size_t room)
{
	ck_auto_str struct ck_str out = { 0 };
	const struct ck_engine_ops *uring;
	struct ck_err why = { 0 };

	if (ck_lib_is_child(ctx))
		return -ECHILD;
	uring = ck_engine_choose("uring", &why);
	ck_str_fmt(&out, "{\"version\": \"%s\", \"abi\": %d, \"engines\": ",
		   UNSHARD_VERSION, UNSHARD_ABI);
	ck_str_puts(&out, uring ? "[\"uring\", \"plain\"]" : "[\"plain\"]");
	if (!uring) {
		ck_str_puts(&out, ", \"uring\": ");
		ck_str_json(&out, why.msg, strlen(why.msg));
	}
	ck_str_puts(&out, ", \"parser\": ");
	ck_str_json(&out, ctx->parser, strlen(ctx->parser));
	ck_str_fmt(&out, ", \"parser_found\": %s, ",
		   access(ctx->parser, X_OK) ? "false" : "true");
	ck_lib_devices_json(ctx, &out);
	ck_str_puts(&out, ", \"dtypes\": ");
	ck_lib_dtypes(&out);
	ck_str_puts(&out, "}");
	if (out.failed || out.len > INT_MAX)
		return -ENOMEM;
	if (room)
		snprintf(json, room, "%s", out.v);
	return (int)out.len;
}
