/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - communicators of callers, and what the ranks of a load agree by */
#include "core/lib/lib.h"

#include "core/comm/comm.h"
#include "core/load/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct unshard_comm {
	_Atomic unsigned refs; /* of who made it, and of loads */
	unshard_ctx *ctx;
	struct ck_comm *comm;
};

static void unref(unshard_comm *comm)
{
	if (atomic_fetch_sub(&comm->refs, 1) != 1)
		return;
	ck_comm_free(comm->comm);
	ck_lib_ctx_unref(comm->ctx);
	free(comm);
}

int unshard_comm_new(unshard_ctx *ctx, const unshard_comm_opts *opts,
		     unshard_comm **out, unshard_error *err)
{
	uint32_t timeout = CK_LIB_GET(opts, timeout_ms);
	const struct ck_comm_in in = {
		.kind = CK_LIB_GET(opts, kind),
		.host = CK_LIB_GET(opts, host),
		.device = CK_LIB_GET(opts, device),
		.id = CK_LIB_GET(opts, nccl_id),
		.rank = CK_LIB_GET(opts, rank),
		.ranks = CK_LIB_GET(opts, ranks),
		.timeout_ms = timeout > INT32_MAX ? INT32_MAX : (int)timeout,
	};
	struct ck_err why = { 0 };
	unshard_comm *comm;
	int ret = ck_lib_alive(ctx, err);

	if (ret)
		return ret;
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		return ck_lib_fail(err, ENOMEM, "no memory");
	ret = ck_comm_new(&comm->comm, &in, &why);
	if (ret) {
		free(comm);
		return ck_lib_failed(err, ret, &why);
	}
	atomic_init(&comm->refs, 1);
	atomic_fetch_add(&ctx->refs, 1);
	comm->ctx = ctx;
	*out = comm;
	return 0;
}

const char *unshard_comm_address(const unshard_comm *comm)
{
	return ck_comm_address(comm->comm);
}

int unshard_comm_connect(unshard_comm *comm, const char *const *addresses,
			 unshard_error *err)
{
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(comm->ctx, err);

	if (ret)
		return ret;
	ret = ck_comm_connect(comm->comm, addresses, &why);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}

void unshard_comm_free(unshard_comm *comm)
{
	if (comm && !ck_lib_is_child(comm->ctx))
		unref(comm);
}

void ck_lib_join(unshard_comm *comm, const unshard_ckpt *ck,
		 struct ck_load_in *in)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck->ck);
	XXH128_hash_t sum;

	sum = XXH3_128bits(img->base, img->size);
	in->comm = comm->comm;
	in->digest[0] = sum.low64;
	in->digest[1] = sum.high64;
	atomic_fetch_add(&comm->refs, 1);
}

void ck_lib_part(unshard_comm *comm)
{
	if (comm)
		unref(comm);
}
