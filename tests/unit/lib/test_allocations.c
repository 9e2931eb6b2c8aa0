/* SPDX-License-Identifier: Apache-2.0 */
/* test_allocations.c - each call of the library where memory runs out anywhere in it */
#include "core/base/check.h"
#include "core/lib/dlpack.h"
#include "tests/lib/failalloc.h"
#include "tests/unit/lib/kit.h"

static int load_and_wait(unshard_ckpt *ck, const unshard_item *item,
			 unshard_error *err)
{
	unshard_load_opts lo = { .size = sizeof(lo), .options = "cache=drop" };
	unshard_req *req;
	int ret = unshard_load(ck, item, 1, &lo, &req, err);

	if (ret)
		return ret;
	ret = unshard_wait(req, -1, err);
	unshard_req_free(req);
	return ret;
}

static int say_all(unshard_ckpt *ck, unshard_error *err)
{
	static const char *const what[] = { "catalog", "problems", "metadata",
					    "hf",      "paths",	   "save",
					    "plan st" };
	struct ck_str text = { 0 };
	char buf[512];
	size_t len;
	int ret = unshard_object(ck, "obj", buf, sizeof(buf), &len, err);

	for (size_t i = 0; i < CK_ARRAY_LEN(what) && !ret; i++)
		ret = unshard_json(ck, what[i], kit_put, &text, err);
	ck_str_free(&text);
	return ret;
}

/* By the image of one that is open, and a mesh of that. */
static int open_by_image(unshard_ctx *ctx, unshard_ckpt *ck,
			 const unshard_open_opts *oo, unshard_error *err)
{
	unshard_open_opts by = *oo;
	unshard_ckpt *again;
	unshard_mesh *mesh;
	int ret = unshard_image(ck, &by.image_fd, NULL, err);

	if (ret)
		return ret;
	ret = unshard_open(ctx, KIT_DCP, &by, &again, err);
	close(by.image_fd);
	if (ret)
		return ret;
	ret = unshard_mesh_new(again, "dim0=2", NULL, 0, &mesh, err);
	if (!ret)
		unshard_mesh_free(mesh);
	unshard_unref(again);
	return ret;
}

static int map_one(unshard_ctx *ctx, const unshard_open_opts *oo,
		   unshard_error *err)
{
	unshard_item item = { .size = sizeof(item) };
	struct DLManagedTensorVersioned *map;
	unshard_ckpt *ck;
	int ret = unshard_open(ctx, KIT_SAFETENSORS, oo, &ck, err);

	if (ret)
		return ret;
	ret = unshard_map(ck, &item, &map, err);
	if (!ret)
		map->deleter(map);
	unshard_unref(ck);
	return ret;
}

/* One life of a checkpoint; 0, or the first error. */
static int live(int isolation, unshard_error *err)
{
	char options[80];
	unshard_open_opts oo = { .size = sizeof(oo),
				 .options = options,
				 .isolation = isolation,
				 .flags = UNSHARD_RESOLVE };
	struct ck_str text = { 0 };
	unshard_ckpt *ck;
	unshard_ctx *ctx;
	char buf[128];
	int ret;

	snprintf(options, sizeof(options), "%smax-files=9,engine=plain",
		 unconfined_options());
	ret = unshard_ctx_new(&ctx, NULL, err);
	if (ret)
		return ret;
	ret = unshard_open(ctx, KIT_DCP, &oo, &ck, err);
	if (!ret) {
		unshard_item item = { .size = sizeof(item),
				      .tensor = 2,
				      .mem = (uintptr_t)buf };

		ret = unshard_read(ck, &item, err);
		if (!ret)
			ret = load_and_wait(ck, &item, err);
		if (!ret)
			ret = unshard_steps(ctx, KIT_DCP, &oo, kit_put, &text,
					    err);
		if (!ret)
			ret = say_all(ck, err);
		if (!ret)
			ret = open_by_image(ctx, ck, &oo, err);
		if (!ret)
			ret = map_one(ctx, &oo, err);
		unshard_unref(ck);
	}
	unshard_ctx_free(ctx);
	ck_str_free(&text);
	return ret;
}

static void fail_each_allocation(int isolation)
{
	bool more = true;

	for (unsigned long n = 1; more; n++) {
		unshard_error err = { 0 };
		int ret;

		failalloc_arm(n);
		ret = live(isolation, &err);
		more = failalloc_happened();
		cr_expect(!ret || more, "allocation %lu: %s", n, err.text);
		cr_expect(!ret || (err.text[0] && err.code == -ret),
			  "allocation %lu: %d: no line", n, ret);
	}
}

Test(lib, every_allocation_may_fail, .timeout = 120)
{
	fail_each_allocation(UNSHARD_HELPER);
}

Test(lib, every_allocation_of_parsing_may_fail, .timeout = 120)
{
	fail_each_allocation(UNSHARD_IN_PROCESS);
}
