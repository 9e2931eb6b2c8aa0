/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - into memory of any strides, dtype and owner; and maps */
#include "core/lib/dlpack.h"
#include "tests/unit/lib/kit.h"

#include <errno.h>
#include <semaphore.h>

static void expect_floats(const float *got, const void *whole)
{
	float want[8 * 4];

	memcpy(want, whole, sizeof(want));
	for (unsigned r = 0; r < 2; r++)
		for (unsigned c = 0; c < 3; c++)
			cr_expect_eq(got[7 - 4 * r - c],
				     want[(4 + r) * 4 + 1 + c]);
}

/* Backwards, with room between the rows. */
Test(lib_memory, memory_of_any_strides)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	const uint64_t start[2] = { 4, 1 }, len[2] = { 2, 3 };
	const int64_t stride[2] = { -4, -1 };
	float buf[8] = { 0 };
	double wide[8] = { 0 };
	unshard_item item = { .size = sizeof(item),
			      .tensor = unshard_find(ck, NULL, "st", 2),
			      .start = start,
			      .len = len,
			      .stride = stride,
			      .mem = (uintptr_t)(buf + 7) };
	unshard_error err = { 0 };
	int ret;
	void *whole = kit_read(ck, item.tensor, &ret, &err);

	cr_assert_eq(unshard_read(ck, &item, &err), 0, "%s", err.text);
	expect_floats(buf, whole);
	cr_expect(buf[0] == 0 && buf[4] == 0, "between them");
	item.dtype = "float64";
	item.mem = (uintptr_t)(wide + 7);
	cr_assert_eq(unshard_read(ck, &item, &err), 0, "%s", err.text);
	for (unsigned i = 0; i < 8; i++)
		cr_expect_eq(wide[i], (double)buf[i]);
	item.dtype = "int32";
	cr_expect_eq(unshard_read(ck, &item, &err), -EINVAL, "no such cast");
	item.dtype = "float";
	cr_expect_eq(unshard_read(ck, &item, &err), -EINVAL, "no such dtype");
	item.dtype = NULL;
	item.device = 1;
	cr_expect_eq(unshard_read(ck, &item, &err), -ENODEV);
	item.size = 8;
	cr_expect_eq(unshard_read(ck, &item, &err), -EINVAL);
	free(whole);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

Test(lib_memory, many_at_once)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	unshard_load_opts lo = { .size = sizeof(lo),
				 .options = "prefault=off" };
	unshard_stats stats = { .size = sizeof(stats) };
	unshard_item items[3];
	char buf[3][128];
	unshard_error err = { 0 };
	unshard_req *req;
	unsigned seen = 0;
	size_t i;
	int ret;

	for (i = 0; i < 3; i++)
		items[i] = (unshard_item){ .size = sizeof(*items),
					   .tensor = (uint32_t)i,
					   .mem = (uintptr_t)buf[i] };
	cr_assert_eq(unshard_load(ck, items, 3, &lo, &req, &err), 0, "%s",
		     err.text);
	unshard_unref(ck); /* it has a reference */
	cr_expect_geq(unshard_fd(req), 0);
	while (!(ret = unshard_next(req, -1, &i, &err)))
		seen |= 1u << i;
	cr_expect(ret == 1 && seen == 7, "%d %u", ret, seen);
	cr_expect_eq(unshard_wait(req, 0, &err), 0);
	cr_expect_eq(unshard_req_stats(req, &stats), 0);
	cr_expect_eq(stats.wanted, 24 + 40 + 128);
	cr_expect_eq(stats.done, stats.wanted);
	unshard_req_free(req);
	ck = kit_open(ctx, KIT_DCP, NULL);
	items[1].tensor = 5;
	cr_expect_eq(unshard_load(ck, items, 3, NULL, &req, &err), -EINVAL);
	cr_expect_eq(err.item, 1);
	items[1].tensor = 1;
	lo.options = "prefault=off,fast";
	cr_expect_eq(unshard_load(ck, items, 3, &lo, &req, &err), -EINVAL);
	cr_expect_eq(err.item, UNSHARD_NONE);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

Test(lib_memory, past_the_page_cache)
{
	static const char *const options[] = { "cache=direct", "cache=drop",
					       "cache=buffered,prefault=off",
					       "cache=auto" };
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	unshard_load_opts lo = { .size = sizeof(lo) };
	char buf[128];
	unshard_item item = { .size = sizeof(item),
			      .tensor = unshard_find(ck, NULL, "st", 2),
			      .mem = (uintptr_t)buf };
	unshard_error err = { 0 };
	unshard_req *req;
	int ret;
	void *want = kit_read(ck, item.tensor, &ret, &err);

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		unshard_stats stats = { .size = sizeof(stats) };

		lo.options = options[i];
		memset(buf, 1, sizeof(buf));
		cr_assert_eq(unshard_load(ck, &item, 1, &lo, &req, &err), 0,
			     "%s", err.text);
		cr_expect_eq(unshard_wait(req, -1, &err), 0, "%s", err.text);
		cr_expect_eq(memcmp(buf, want, sizeof(buf)), 0);
		cr_expect_eq(unshard_req_stats(req, &stats), 0);
		if (!i)
			cr_expect(stats.direct == stats.storage || *stats.why);
		else
			cr_expect(!stats.direct && !*stats.why);
		unshard_req_free(req);
	}
	lo.options = "cache=none";
	cr_expect_eq(unshard_load(ck, &item, 1, &lo, &req, &err), -EINVAL);
	cr_expect(strstr(err.text, "cache=direct"), "%s", err.text);
	free(want);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

struct looked {
	unshard_req *req;
	unshard_ckpt *ck;
	sem_t known; /* req is */
	int waited, next, freed, read;
};

/* What would wait for the thread that it is called by. */
static int ends_itself(void *arg, uint64_t done, uint64_t total)
{
	static char buf[128];
	struct looked *l = arg;
	unshard_item item = { .size = sizeof(item), .mem = (uintptr_t)buf };
	unshard_error err;
	size_t i;

	(void)done;
	(void)total;
	sem_wait(&l->known);
	sem_post(&l->known);
	l->read = unshard_read(l->ck, &item, &err);
	l->waited = unshard_wait(l->req, -1, &err);
	l->next = unshard_next(l->req, -1, &i, &err);
	l->freed = unshard_req_free(l->req);
	return 0;
}

Test(lib_memory, progress_that_waits_for_itself, .timeout = 30)
{
	unshard_ctx_opts co = { .size = sizeof(co), .threads = 1 };
	struct looked looked = { .read = 1 };
	unshard_load_opts lo = { .size = sizeof(lo),
				 .progress = ends_itself,
				 .arg = &looked };
	char buf[128];
	unshard_item item = { .size = sizeof(item), .mem = (uintptr_t)buf };
	unshard_error err = { 0 };
	unshard_ctx *ctx;

	cr_assert_eq(sem_init(&looked.known, 0, 0), 0);
	cr_assert_eq(unshard_ctx_new(&ctx, &co, &err), 0);
	looked.ck = kit_open(ctx, KIT_DCP, NULL);
	cr_assert_eq(unshard_load(looked.ck, &item, 1, &lo, &looked.req, &err),
		     0, "%s", err.text);
	sem_post(&looked.known);
	cr_expect_eq(unshard_wait(looked.req, -1, &err), 0, "%s", err.text);
	cr_expect_eq(looked.read, -EDEADLK);
	cr_expect_eq(looked.waited, -EDEADLK);
	cr_expect_eq(looked.next, -EDEADLK);
	cr_expect_eq(looked.freed, -EDEADLK);
	cr_expect_eq(unshard_req_free(looked.req), 0);
	unshard_unref(looked.ck);
	unshard_ctx_free(ctx);
	sem_destroy(&looked.known);
}

Test(lib_memory, memory_as_dlpack_says_it)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	float room[33], *buf = room + 1, other[32];
	int64_t shape[2] = { 8, 4 }, strides[2] = { 1, 8 };
	struct DLTensor t = { .data = room,
			      .device = { 1, 0 },
			      .ndim = 2,
			      .dtype = { 2, 32, 1 },
			      .shape = shape,
			      .strides = strides,
			      .byte_offset = 4 };
	unshard_item item = { .size = sizeof(item),
			      .tensor = unshard_find(ck, NULL, "st", 2) };
	unshard_error err = { 0 };

	item.mem = (uintptr_t)other;
	cr_assert_eq(unshard_read(ck, &item, &err), 0);
	cr_assert_eq(unshard_item_dlpack(&item, &t), 0);
	cr_assert_eq(unshard_read(ck, &item, &err), 0, "%s", err.text);
	for (unsigned i = 0; i < 32; i++)
		cr_expect_eq(buf[i % 4 * 8 + i / 4], other[i]);
	t.device.type = 2;
	cr_expect_eq(unshard_item_dlpack(&item, &t), -ENODEV);
	t.device.type = 1;
	t.dtype.lanes = 2;
	cr_expect_eq(unshard_item_dlpack(&item, &t), -EINVAL);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

Test(lib_memory, mapped_where_it_lies_so)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	unshard_item item = { .size = sizeof(item),
			      .tensor = unshard_find(ck, NULL, "st", 2) };
	const uint64_t start[2] = { 4, 0 }, len[2] = { 4, 4 };
	const uint64_t narrow[2] = { 4, 2 };
	struct DLManagedTensorVersioned *m;
	unshard_error err = { 0 };
	int ret;
	char *whole = kit_read(ck, item.tensor, &ret, &err);

	cr_expect_eq(unshard_map(ck, &item, &m, &err), -EXDEV, "in two files");
	item.start = start;
	item.len = narrow;
	cr_expect_eq(unshard_map(ck, &item, &m, &err), -EXDEV, "columns");
	item.len = len;
	item.stride = (const int64_t[]){ 1, 8 };
	cr_expect_eq(unshard_map(ck, &item, &m, &err), -EINVAL, "turned");
	item.stride = NULL;
	item.dtype = "float16";
	cr_expect_eq(unshard_map(ck, &item, &m, &err), -EINVAL, "cast");
	item.dtype = NULL;
	item.device = 7;
	cr_expect_eq(unshard_map(ck, &item, &m, &err), -ENODEV);
	item.device = -1;
	item.size = 0;
	cr_expect_eq(unshard_map(ck, &item, &m, &err), -EINVAL);
	item.size = sizeof(item);
	cr_assert_eq(unshard_map(ck, &item, &m, &err), 0, "%s", err.text);
	unshard_unref(ck); /* it has a reference */
	cr_expect_eq(m->major, 1);
	cr_expect_eq(m->flags, 1, "read-only");
	cr_expect(m->dl_tensor.ndim == 2 && m->dl_tensor.shape[0] == 4);
	cr_expect_eq(memcmp(m->dl_tensor.data, whole + 64, 64), 0);
	m->deleter(m);
	free(whole);
	unshard_ctx_free(ctx);
}
