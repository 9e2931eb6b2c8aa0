/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices - memory of devices by the library's own calls, with the simulated one
 */
#include "core/lib/unshard.h"
#include "tests/lib/loadkit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CKPT "tests/formats/dcp/1.13/in"
#define MAX 64

static unshard_error err;

static void ok(int ret)
{
	if (ret)
		fprintf(stderr, "%d: %s\n", ret, err.text);
	LK_CHECK(!ret);
}

static unshard_ckpt *opened(unshard_ctx *ctx)
{
	unshard_open_opts oo = { .size = sizeof(oo),
				 .options = "sandbox=off",
				 .isolation = UNSHARD_IN_PROCESS };
	unshard_ckpt *ck;

	ok(unshard_open(ctx, CKPT, &oo, &ck, &err));
	LK_CHECK(unshard_tensors(ck) && unshard_tensors(ck) <= MAX);
	return ck;
}

/* All tensors, one after the other in memory of the device. */
static uint64_t items_of(unshard_ckpt *ck, int32_t nr, uint64_t mem,
			 unshard_item *item)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < unshard_tensors(ck); i++) {
		unshard_tensor t;

		ok(unshard_tensor_at(ck, i, &t, sizeof(t)));
		item[i] = (unshard_item){ .size = sizeof(*item),
					  .tensor = i,
					  .mem = mem + at,
					  .device = nr };
		at += t.nbytes;
	}
	return at;
}

static void same_as_host(unshard_ckpt *ck, const unshard_item *item,
			 const unsigned char *got, uint64_t mem)
{
	for (uint32_t i = 0; i < unshard_tensors(ck); i++) {
		unshard_item here = item[i];
		unshard_tensor t;

		ok(unshard_tensor_at(ck, i, &t, sizeof(t)));
		here.mem = (uintptr_t)malloc(t.nbytes + 1);
		here.device = -1;
		ok(unshard_read(ck, &here, &err));
		LK_CHECK(!memcmp((void *)(uintptr_t)here.mem,
				 got + (item[i].mem - mem), t.nbytes));
		free((void *)(uintptr_t)here.mem);
	}
}

static void loads(unshard_ctx *ctx, const char *device)
{
	unshard_ckpt *ck = opened(ctx);
	unshard_stats stats = { .size = sizeof(stats) };
	unshard_item item[MAX];
	uint64_t mem, all = items_of(ck, 0, 0, item);
	unsigned char *got = calloc(1, all);
	unshard_req *req;
	int32_t nr, again;

	LK_CHECK(got);
	ok(unshard_device_open(ctx, device, &nr, &err));
	ok(unshard_device_open(ctx, device, &again, &err));
	LK_CHECK(nr > 0 && nr == again);
	ok(unshard_device_alloc(ctx, nr, all, &mem, &err));
	items_of(ck, nr, mem, item);
	ok(unshard_load(ck, item, unshard_tensors(ck), NULL, &req, &err));
	ok(unshard_wait(req, -1, &err));
	ok(unshard_req_stats(req, &stats));
	LK_CHECK(stats.ring >= 2 && !*stats.why);
	unshard_req_free(req);
	ok(unshard_device_copy(ctx, nr, UNSHARD_FROM_DEVICE, mem, got, all,
			       &err));
	same_as_host(ck, item, got, mem);
	memset(got, 0, all);
	ok(unshard_device_copy(ctx, nr, UNSHARD_TO_DEVICE, mem, got, all,
			       &err));
	ok(unshard_read(ck, &item[0], &err)); /* one, now */
	item[0].device = -1;
	LK_CHECK(unshard_load(ck, item, 2, NULL, &req, &err) == -EINVAL);
	LK_CHECK(err.item == 1 && strstr(err.text, "all are for one"));
	unshard_unref(ck);
	free(got);
	/* its memory goes with the context */
}

static void refused(unshard_ctx *ctx)
{
	unshard_ckpt *ck = opened(ctx);
	unshard_item item[MAX];
	unshard_req *req;
	uint64_t mem;
	int32_t nr;

	LK_CHECK(unshard_device_open(ctx, "abacus:0", &nr, &err) == -ENODEV);
	LK_CHECK(strstr(err.text, "\"abacus:0\": expected cuda"));
	LK_CHECK(unshard_device_alloc(ctx, 60, 1, &mem, &err) == -ENODEV);
	items_of(ck, 60, 4096, item);
	LK_CHECK(unshard_load(ck, item, 1, NULL, &req, &err) == -ENODEV);
	LK_CHECK(unshard_read(ck, item, &err) == -ENODEV);
	ok(unshard_device_open(ctx, "simulated:memory=4K", &nr, &err));
	ok(unshard_device_alloc(ctx, nr, 4000, &mem, &err));
	LK_CHECK(unshard_device_alloc(ctx, nr, 97, &mem, &err) == -ENOMEM);
	ok(unshard_device_free(ctx, nr, mem, &err));
	LK_CHECK(unshard_device_free(ctx, nr, mem, &err) == -EINVAL);
	LK_CHECK(strstr(err.text, "is no memory that"));
	ok(unshard_device_alloc(ctx, nr, 97, &mem, &err));
	LK_CHECK(unshard_device_copy(ctx, nr, 7, mem, &nr, 4, &err) == -EINVAL);
	/* a load past its end: an error, and no more than that */
	items_of(ck, nr, mem + 95, item);
	ok(unshard_load(ck, item, unshard_tensors(ck), NULL, &req, &err));
	LK_CHECK(unshard_wait(req, -1, &err) == -EREMOTEIO);
	LK_CHECK(strstr(err.text, "outside of its memory"));
	unshard_req_free(req);
	unshard_unref(ck);
}

static void unpinned(unshard_ctx *ctx)
{
	unshard_stats stats = { .size = sizeof(stats) };
	unshard_ckpt *ck = opened(ctx);
	unshard_item item[MAX];
	unshard_req *req;
	uint64_t mem;
	int32_t nr;

	ok(unshard_device_open(ctx, "simulated:fail=pin:1:9:12", &nr, &err));
	ok(unshard_device_alloc(ctx, nr, items_of(ck, 0, 0, item), &mem, &err));
	items_of(ck, nr, mem, item);
	ok(unshard_load(ck, item, unshard_tensors(ck), NULL, &req, &err));
	ok(unshard_wait(req, -1, &err));
	ok(unshard_req_stats(req, &stats));
	LK_CHECK(strstr(stats.why, "not pinned: call 1 of pin"));
	unshard_req_free(req);
	unshard_unref(ck);
}

static void forked(unshard_ctx *ctx)
{
	pid_t pid = fork();
	uint64_t mem;
	int32_t nr;
	int status;

	if (!pid)
		_exit(unshard_device_open(ctx, "host", &nr, NULL) != -ECHILD ||
		      unshard_device_alloc(ctx, 1, 1, &mem, NULL) != -ECHILD ||
		      unshard_device_free(ctx, 1, 1, NULL) != -ECHILD ||
		      unshard_device_copy(ctx, 1, 0, 1, NULL, 1, NULL) !=
			      -ECHILD);
	LK_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
}

int main(void)
{
	unshard_ctx_opts opts = { .size = sizeof(opts),
				  .chunk = 256 << 10,
				  .depth = 3,
				  .threads = 2 };
	char caps[16384];
	unshard_ctx *ctx;

	ok(unshard_ctx_new(&ctx, &opts, &err));
	LK_CHECK(unshard_ctx_caps(ctx, caps, sizeof(caps)) > 0);
	LK_CHECK(strstr(caps, "\"devices\": [\"host\", \"simulated\""));
	loads(ctx, "simulated:late=100");
	loads(ctx, "host");
	refused(ctx);
	unpinned(ctx);
	forked(ctx);
	unshard_ctx_free(ctx);
	return 0;
}
