/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c - how large each struct of unshard.h is, and where its members are */
#include "core/lib/unshard.h"

#include <stdio.h>

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type));
#define AT(type, member) \
	printf("%s.%s %zu\n", #type, #member, offsetof(type, member));

static void saves(void)
{
	SIZE(unshard_save_opts)
	AT(unshard_save_opts, ranks)
	AT(unshard_save_opts, timeout)
	AT(unshard_save_opts, flags)
	AT(unshard_save_opts, options)
	SIZE(unshard_slice)
	AT(unshard_slice, dtype)
	AT(unshard_slice, shape)
	AT(unshard_slice, path)
}

static void comms(void)
{
	SIZE(unshard_comm_opts)
	AT(unshard_comm_opts, kind)
	AT(unshard_comm_opts, rank)
	AT(unshard_comm_opts, ranks)
	AT(unshard_comm_opts, timeout_ms)
	AT(unshard_comm_opts, device)
	AT(unshard_comm_opts, nccl_id)
}

int main(void)
{
	printf("abi %d\n", UNSHARD_ABI);
	SIZE(unshard_error)
	AT(unshard_error, item)
	AT(unshard_error, offset)
	AT(unshard_error, text)
	AT(unshard_error, tensor)
	AT(unshard_error, name)
	AT(unshard_error, file)
	SIZE(unshard_str)
	SIZE(unshard_ctx_opts)
	AT(unshard_ctx_opts, threads)
	AT(unshard_ctx_opts, local_ranks)
	AT(unshard_ctx_opts, engine)
	AT(unshard_ctx_opts, spool)
	AT(unshard_ctx_opts, helper)
	SIZE(unshard_open_opts)
	AT(unshard_open_opts, options)
	AT(unshard_open_opts, step)
	AT(unshard_open_opts, isolation)
	AT(unshard_open_opts, image_fd)
	AT(unshard_open_opts, flags)
	AT(unshard_open_opts, cancel_fd)
	SIZE(unshard_tensor)
	AT(unshard_tensor, tree)
	AT(unshard_tensor, dtype)
	AT(unshard_tensor, rank)
	AT(unshard_tensor, state)
	AT(unshard_tensor, shape)
	AT(unshard_tensor, nbytes)
	AT(unshard_tensor, pieces)
	AT(unshard_tensor, itemsize)
	SIZE(unshard_item)
	AT(unshard_item, tensor)
	AT(unshard_item, flags)
	AT(unshard_item, start)
	AT(unshard_item, len)
	AT(unshard_item, mem)
	AT(unshard_item, stride)
	AT(unshard_item, dtype)
	AT(unshard_item, device)
	AT(unshard_item, tag)
	SIZE(unshard_load_opts)
	AT(unshard_load_opts, progress)
	AT(unshard_load_opts, arg)
	AT(unshard_load_opts, options)
	AT(unshard_load_opts, comm)
	comms();
	SIZE(unshard_stats)
	AT(unshard_stats, done)
	AT(unshard_stats, ns_plan)
	AT(unshard_stats, fallbacks)
	AT(unshard_stats, why)
	saves();
	return 0;
}
