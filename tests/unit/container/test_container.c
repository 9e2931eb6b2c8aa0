/* SPDX-License-Identifier: Apache-2.0 */
/* Files of either kind give the same tensors. */
#include "core/container/container.h"
#include "tests/lib/memdir.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct ck_err err;

struct kit {
	struct memdir m;
	struct ck_builder *b;
	struct ck_container c;
	size_t tensors, objects;
	char last[64];
};

static void setup(struct kit *k, const char *folder)
{
	*k = (struct kit){ .b = ck_builder_new(&err) };
	cr_assert(k->b);
	memdir_init(&k->m);
	cr_assert_eq(memdir_load(&k->m, folder), 0, "%s", folder);
}

static void teardown(struct kit *k)
{
	ck_container_close(&k->c);
	ck_builder_free(k->b);
	memdir_free(&k->m);
}

static int count(void *ctx, const struct ck_found *f, struct ck_err *e)
{
	struct kit *k = ctx;

	(void)e;
	*(f->is_tensor ? &k->tensors : &k->objects) += 1;
	if (f->is_tensor && !f->x.fault) {
		uint64_t bytes;

		cr_expect(ck_extent_bytes(&f->x, &bytes));
		snprintf(k->last, sizeof(k->last), "%.*s", (int)f->len,
			 f->name);
	}
	return 0;
}

static bool opens(struct kit *k, const char *name, struct ck_err *why)
{
	bool ok;

	cr_assert_eq(
		ck_container_open(&k->c, &k->m.dir, k->b, name, &ok, why, &err),
		0, "%s", err.msg);
	return ok;
}

Test(container, torch_save)
{
	struct kit k;
	struct ck_err why;

	setup(&k, "tests/formats/torch/views/in");
	cr_assert(opens(&k, "views.pt", &why), "%s", why.msg);
	cr_expect_eq(ck_container_each(&k.c, k.b, count, &k, &err), 0);
	cr_expect_gt(k.tensors, 0);
	teardown(&k);
}

Test(container, safetensors)
{
	struct kit k;
	struct ck_err why;
	const char *name;

	setup(&k, "tests/formats/colossalai/padded-vocab/in");
	name = "model-dist-00000-shard-00000.safetensors";
	cr_assert(opens(&k, name, &why), "%s", why.msg);
	cr_expect_eq(ck_container_each(&k.c, k.b, count, &k, &err), 0);
	cr_expect_gt(k.tensors, 0);
	cr_expect_eq(k.objects, 0);
	teardown(&k);
}

Test(container, what_is_damaged_is_told_and_what_is_missing_is_not)
{
	struct kit k;
	struct ck_err why;

	setup(&k, "tests/formats/torch/views/in");
	memdir_put(&k.m, "cut.pt", "PK\3\4 and no more", 15);
	cr_expect_not(opens(&k, "cut.pt", &why));
	cr_expect_eq(why.code, EINVAL);
	ck_container_close(&k.c);
	cr_expect_not(opens(&k, "gone.pt", &why));
	cr_expect_eq(why.code, 0);
	teardown(&k);
}

Test(extent, dense_is_row_major_without_gaps)
{
	static const uint64_t shape[] = { 2, 1, 3 };
	static const int64_t row[] = { 3, 77, 1 }, column[] = { 1, 2, 2 };
	struct ck_extent x = { .shape = shape, .rank = 3 };

	cr_expect(ck_extent_is_dense(&x));
	x.stride = row;
	cr_expect(ck_extent_is_dense(&x));
	x.stride = column;
	cr_expect_not(ck_extent_is_dense(&x));
}
