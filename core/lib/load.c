/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - items of callers as one plan, and what comes of them
 *
 * The threads that load are the context's, made with its first load.
 */
#include "core/lib/lib.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/cpus.h"
#include "core/base/match.h"
#include "core/load/load.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 4 /* unless more are asked for */

struct unshard_req {
	unshard_ckpt *ck;
	unshard_comm *comm; /* or NULL */
	struct ck_load *load;
};

static unsigned threads_of(const unshard_ctx *ctx)
{
	unsigned ranks = CK_MAX(ctx->local_ranks, 1u);
	unsigned all = ctx->threads ? ctx->threads : ck_cpus();

	if (!ctx->threads)
		all = CK_MIN(all / ranks, (unsigned)THREADS_MAX);
	else
		all = all / ranks;
	return CK_MAX(all, 1u);
}

static int make_pool(unshard_ctx *ctx, struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&ctx->lock);
	if (!ctx->pool)
		ret = ck_load_pool_new(&ctx->pool, threads_of(ctx), err);
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

/* ---- what callers say ---- */

int ck_lib_item(const unshard_item *item, struct ck_load_item *out,
		struct ck_err *err)
{
	const char *dtype = CK_LIB_GET(item, dtype);

	if (item->size < offsetof(unshard_item, mem) + sizeof(item->mem))
		return ck_fail(err, EINVAL,
			       "an item of %zu bytes: its size is not set",
			       item->size);
	if (item->flags & ~(uint32_t)UNSHARD_OPTIONAL)
		return ck_fail(err, EINVAL,
			       "item flags 0x%x: only 0x%x, UNSHARD_OPTIONAL, "
			       "is known",
			       item->flags, UNSHARD_OPTIONAL);
	*out = (struct ck_load_item){
		.tensor = item->tensor,
		.start = item->start,
		.len = item->len,
		.mem = (void *)(uintptr_t)item->mem,
		.stride = CK_LIB_GET(item, stride),
		.optional = item->flags & UNSHARD_OPTIONAL,
	};
	if (!dtype)
		return 0;
	out->dtype = ck_dtype_by_name(dtype, strlen(dtype));
	return out->dtype != CK_DT_NONE ?
		       0 :
		       ck_fail(err, EINVAL, "there is no dtype \"%s\"", dtype);
}

static bool read_option(const char *text, size_t len, struct ck_load_in *in)
{
	if (ck_text_is(text, len, "prefault=off"))
		in->no_prefault = true;
	else if (ck_text_is(text, len, "prefault=auto"))
		in->no_prefault = false;
	else if (ck_text_is(text, len, "cufile=auto"))
		in->no_dstore = false;
	else if (ck_text_is(text, len, "cufile=off"))
		in->no_dstore = true;
	else if (ck_text_is(text, len, "cache=auto") ||
		 ck_text_is(text, len, "cache=buffered"))
		in->cache = CK_LOAD_CACHED;
	else if (ck_text_is(text, len, "cache=direct"))
		in->cache = CK_LOAD_DIRECT;
	else if (ck_text_is(text, len, "cache=drop"))
		in->cache = CK_LOAD_DROPPED;
	else if (ck_text_is(text, len, "alone=auto"))
		in->never_alone = false;
	else if (ck_text_is(text, len, "alone=never"))
		in->never_alone = true;
	else
		return false;
	return true;
}

static int read_options(const char *text, struct ck_load_in *in,
			struct ck_err *err)
{
	while (text && *text) {
		size_t len = strcspn(text, ",");

		if (!read_option(text, len, in))
			return ck_fail(err, EINVAL,
				       "load option \"%.*s\": expected "
				       "prefault=auto, prefault=off, "
				       "cache=auto, cache=buffered, "
				       "cache=direct, cache=drop, "
				       "cufile=auto, cufile=off, alone=auto or "
				       "alone=never",
				       (int)CK_MIN(len, (size_t)100), text);
		text += len + (text[len] == ',');
	}
	return 0;
}

/* ---- one ---- */

int unshard_read(unshard_ckpt *ck, const unshard_item *item, unshard_error *err)
{
	struct ck_load_item one;
	struct ck_load_in in = { .reader = ck_ckpt_reader(ck->ck),
				 .item = &one,
				 .nr = 1 };
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(ck->ctx, err);

	if (ret)
		return ret;
	ret = ck_lib_item(item, &one, &why);
	if (!ret)
		ret = make_pool(ck->ctx, &why);
	if (!ret)
		ret = ck_lib_ring(ck->ctx, CK_LIB_GET(item, device), &in.ring,
				  &why);
	if (!ret)
		ret = ck_load_read(ck->ctx->pool, &in, &why);
	return ret ? ck_lib_failed_of(err, ret, &why, ck_ckpt_catalog(ck->ck),
				      item->tensor) :
		     0;
}

/* ---- many ---- */

/* The ring of the one device that all items are for. */
static int need_ring(unshard_ctx *ctx, const unshard_item *items, size_t n,
		     size_t *bad, struct ck_ring **out, struct ck_err *err)
{
	int32_t first = n ? CK_LIB_GET(items, device) : 0;

	for (size_t i = 1; i < n; i++) {
		int32_t device = CK_LIB_GET(CK_LIB_AT(items, i), device);

		if (CK_MAX(device, 0) == CK_MAX(first, 0))
			continue;
		*bad = i;
		return ck_fail(err, EINVAL,
			       "an item for device %d among those for device "
			       "%d: of one load all are for one",
			       device, first);
	}
	*bad = n ? 0 : SIZE_MAX;
	return ck_lib_ring(ctx, first, out, err);
}

static int start(unshard_req *req, const unshard_item *items, size_t n,
		 const unshard_load_opts *opts, size_t *bad, struct ck_err *err)
{
	ck_auto_free struct ck_load_item *all = calloc(n + 1, sizeof(*all));
	struct ck_load_in in = { .reader = ck_ckpt_reader(req->ck->ck),
				 .item = all,
				 .nr = n,
				 .progress = CK_LIB_GET(opts, progress),
				 .arg = CK_LIB_GET(opts, arg),
				 .stream = CK_LIB_GET(opts, stream) };
	int ret = read_options(CK_LIB_GET(opts, options), &in, err);

	if (!all)
		return ck_no_memory(err);
	for (size_t i = 0; i < n && !ret; i++) {
		ret = ck_lib_item(CK_LIB_AT(items, i), &all[i], err);
		*bad = ret ? i : SIZE_MAX;
	}
	if (!ret)
		ret = make_pool(req->ck->ctx, err);
	if (!ret)
		ret = need_ring(req->ck->ctx, items, n, bad, &in.ring, err);
	req->comm = CK_LIB_GET(opts, comm);
	if (req->comm)
		ck_lib_join(req->comm, req->ck, &in);
	return ret ? ret :
		     ck_load_start(&req->load, req->ck->ctx->pool, &in, bad,
				   err);
}

/* @tensor: of item number @item, SIZE_MAX: it is about none. */
static int failed(const unshard_ckpt *ck, unshard_error *err, int ret,
		  size_t item, uint32_t tensor, const struct ck_err *why)
{
	ck_lib_failed_of(err, ret, why, ck_ckpt_catalog(ck->ck),
			 item == SIZE_MAX ? UNSHARD_NONE : tensor);
	if (err && item < UNSHARD_NONE)
		err->item = (uint32_t)item;
	return ret;
}

int unshard_load(unshard_ckpt *ck, const unshard_item *items, size_t n,
		 const unshard_load_opts *opts, unshard_req **out,
		 unshard_error *err)
{
	size_t bad = SIZE_MAX;
	struct ck_err why = { 0 };
	unshard_req *req;
	int ret = ck_lib_alive(ck->ctx, err);

	if (ret)
		return ret;
	req = calloc(1, sizeof(*req));
	if (!req)
		return ck_lib_fail(err, ENOMEM, "no memory");
	req->ck = unshard_ref(ck);
	ret = start(req, items, n, opts, &bad, &why);
	if (ret) {
		failed(ck, err, ret, bad,
		       bad == SIZE_MAX ? 0 : CK_LIB_AT(items, bad)->tensor,
		       &why);
		unshard_req_free(req);
		return ret;
	}
	*out = req;
	return 0;
}

int unshard_next(unshard_req *req, int timeout_ms, size_t *item,
		 unshard_error *err)
{
	struct ck_err why = { 0 };
	size_t i = SIZE_MAX;
	int ret = ck_lib_alive(req->ck->ctx, err);

	if (ret)
		return ret;
	ret = ck_load_next(req->load, timeout_ms, &i, &why);
	if (i != SIZE_MAX)
		*item = i;
	return ret < 0 ? failed(req->ck, err, ret, i,
				ck_load_tensor(req->load, i), &why) :
			 ret;
}

int unshard_wait(unshard_req *req, int timeout_ms, unshard_error *err)
{
	struct ck_err why = { 0 };
	size_t i = SIZE_MAX;
	int ret = ck_lib_alive(req->ck->ctx, err);

	if (ret)
		return ret;
	ret = ck_load_wait(req->load, timeout_ms, &i, &why);
	return ret ? failed(req->ck, err, ret, i, ck_load_tensor(req->load, i),
			    &why) :
		     0;
}

int unshard_fd(unshard_req *req)
{
	return ck_lib_is_child(req->ck->ctx) ? -ECHILD : ck_load_fd(req->load);
}

void unshard_cancel(unshard_req *req)
{
	if (!ck_lib_is_child(req->ck->ctx))
		ck_load_cancel(req->load);
}

int unshard_req_stats(unshard_req *req, unshard_stats *out)
{
	size_t size = out->size;
	struct ck_load_stats s;
	unshard_stats all;

	if (ck_lib_is_child(req->ck->ctx))
		return -ECHILD;
	ck_load_stats(req->load, &s);
	all = (unshard_stats){
		.size = size,
		.wanted = s.wanted,
		.storage = s.source_bytes,
		.storage_ops = s.source_ops,
		.done = s.done,
		.prefaulted = s.prefaulted,
		.alone = s.slow,
		.cast = s.cast,
		.ns_plan = s.ns_plan,
		.ns_read = s.ns_read,
		.ns_copy = s.ns_copy,
		.resident = s.resident,
		.direct = s.direct,
		.by_device = s.by_device,
		.received = s.received,
		.sent = s.sent,
		.ns_comm = s.ns_comm,
		.ring = s.ring,
		.fallbacks = (uint32_t)CK_MIN(s.left_to_reader,
					      (uint64_t)UINT32_MAX),
	};
	memcpy(all.why, s.why, sizeof(all.why));
	if (size < sizeof(size))
		return -EINVAL;
	memcpy(out, &all, CK_MIN(size, sizeof(all)));
	return 0;
}

int unshard_req_free(unshard_req *req)
{
	int ret;

	if (!req || ck_lib_is_child(req->ck->ctx))
		return 0;
	ret = ck_load_free(req->load);
	if (ret)
		return ret;
	ck_lib_part(req->comm);
	unshard_unref(req->ck);
	free(req);
	return 0;
}
