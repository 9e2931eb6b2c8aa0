/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - a program as it was when ABI 1 began, built with the header of
 * then (unshard-0.1.h): it must run with every library of that ABI
 */
#include "tests/abi/unshard-0.1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count(void *arg, const char *text, size_t len)
{
	(void)text;
	*(size_t *)arg += len;
	return 0;
}

static int fail(const char *what, const unshard_error *err)
{
	fprintf(stderr, "%s: %s\n", what, err->text);
	return 1;
}

int main(int argc, char **argv)
{
	unshard_ctx_opts co = { .size = sizeof(co), .threads = 1 };
	unshard_open_opts oo = { .size = sizeof(oo), .flags = UNSHARD_WHOLE };
	unshard_load_opts lo = { .size = sizeof(lo) };
	unshard_item item = { .size = sizeof(item), .device = -1 };
	unshard_stats stats = { .size = sizeof(stats) };
	unshard_error err;
	unshard_ckpt *ck;
	unshard_ctx *ctx;
	unshard_req *req;
	unshard_tensor t;
	size_t text = 0, done;

	if (argc < 3 || unshard_abi() != UNSHARD_ABI)
		return 2;
	if (unshard_ctx_new(&ctx, &co, &err))
		return fail("ctx", &err);
	if (unshard_open(ctx, argv[1], &oo, &ck, &err))
		return fail("open", &err);
	item.tensor = unshard_find(ck, NULL, argv[2], strlen(argv[2]));
	if (unshard_tensor_at(ck, item.tensor, &t, sizeof(t)))
		return 3;
	item.mem = (uintptr_t)calloc(1, t.nbytes);
	if (unshard_load(ck, &item, 1, &lo, &req, &err) ||
	    unshard_next(req, -1, &done, &err) || unshard_wait(req, -1, &err))
		return fail("load", &err);
	if (unshard_req_stats(req, &stats) || stats.wanted != t.nbytes)
		return 4;
	unshard_req_free(req);
	if (unshard_json(ck, "problems", count, &text, &err) || !text)
		return fail("json", &err);
	fwrite((void *)(uintptr_t)item.mem, 1, t.nbytes, stdout);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	return 0;
}
