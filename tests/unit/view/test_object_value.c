/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of real files by torch, and of one that would run something. */
#include "core/view/object_value.h"

#include "core/emit/pickle_out.h"
#include "core/emit/torch_blob.h"
#include "core/geom/dtype.h"
#include "core/parse/pickle.h"
#include "tests/lib/openckpt.h"
#include "tests/lib/unconfined.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ck_opts opts;
static struct ck_ckpt *ck;
static struct ck_object_values values;
static struct ck_str got;
static const char *why;
static struct ck_err err;

static void setup(void)
{
	unconfined(&opts);
}

static void teardown(void)
{
	ck_object_values_free(&values);
	ck_str_free(&got);
	ck_ckpt_close(ck);
	ck_opts_free(&opts);
}
TestSuite(object_value, .init = setup, .fini = teardown);

static void open_it(const char *path)
{
	cr_assert_eq(open_ckpt(&ck, path, &opts, &err), 0, "%s", err.msg);
	ck_object_values_init(&values, ck);
}

static int value_of(const char *name)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);

	got.len = 0;
	for (uint32_t i = 0; i < img->nr_objects; i++)
		if (!strcmp(ck_catalog_str(img, img->objects[i].name, NULL),
			    name))
			return ck_object_value(&values, i, &got, &why, &err);
	cr_assert_fail("no object %s", name);
	return -1;
}

/* The pickle of @name is "\x80\x04", then @opcodes, then a stop. */
static void is(const char *name, const char *opcodes, size_t len)
{
	cr_assert_eq(value_of(name), 1, "%s: %s", name, why);
	cr_assert_eq(got.len, len + 3, "%s: %d", name, (int)got.len);
	cr_expect_eq(memcmp(got.v, "\x80\x04", 2), 0, "%s", name);
	cr_expect_eq(memcmp(got.v + 2, opcodes, len), 0, "%s", name);
	cr_expect_eq(got.v[got.len - 1], '.', "%s", name);
}
#define IS(name, opcodes) is(name, opcodes, sizeof(opcodes) - 1)

Test(object_value, of_torch)
{
	open_it("tests/formats/torch/misc/in");
	IS("i", "K\x01");
	IS("n", "\x8a\x08\xfb\xff\xff\xff\xff\xff\xff\xff");
	IS("none", "N");
	IS("true", "\x88");
	IS("f", "G\x3f\xf8\0\0\0\0\0\0"
		"");
	IS("t1", "(K\x01t");
	IS("od.a", "K\x01");
	IS("size", "ctorch\nSize\n((K\x02K\x03ttR");
	IS("dt", "ctorch\nfloat32\n");
	IS("range", "cbuiltins\nrange\n(K\0K\x03K\x01tR");
	IS("ctr",
	   "ccollections\nCounter\n(}(X\1\0\0\0aK\x02X\1\0\0\0bK\x01utR");
	cr_expect_eq(value_of("lay"), 0);
	cr_expect(strstr(why, "the result of a call"), "%s", why);
	cr_expect_eq(got.len, 0);
}

Test(object_value, behind_the_rank)
{
	open_it("tests/formats/megatron/before-core/in");
	IS("iteration.mp_rank_01", "K\x0a");
	cr_assert_eq(value_of("args.mp_rank_00"), 1, "%s", why);
	cr_expect_eq(memcmp(got.v + 2, "cargparse\nNamespace\n)\x81}(", 23), 0);
}

Test(object_value, alone_in_its_bytes)
{
	open_it("tests/formats/colossalai/optim-async/in");
	IS("0.step", "J\x2c\x01\0\0");
	IS("param_groups.0.params", "](K\0K\x01K\x02K\x03"
				    "e");
}

/* {"w": a tensor, "run": os.system("true")} */
static void put_hostile(struct ck_str *s)
{
	static const uint64_t shape[] = { 0 };

	ck_po_begin(s);
	ck_str_puts(s, "}(");
	ck_po_str(s, "w", 1);
	ck_po_tensor(s, CK_DT_F32, shape, 1, 0);
	ck_po_str(s, "run", 3);
	ck_po_global(s, "os", "system");
	ck_str_puts(s, "(");
	ck_po_str(s, "true", 4);
	ck_str_puts(s, "tR");
	ck_po_op(s, CK_PO_SETITEMS);
	ck_po_end(s);
}

Test(object_value, hostile)
{
	ck_auto_str struct ck_str pickle = { 0 }, zip = { 0 };
	char dir[] = "/tmp/unshard-value-XXXXXX", path[64];
	FILE *f;

	put_hostile(&pickle);
	ck_torch_blob_pickle(&zip, pickle.v, pickle.len);
	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a.pt", dir);
	f = fopen(path, "w");
	cr_assert(f && fwrite(zip.v, 1, zip.len, f) == zip.len && !fclose(f));
	open_it(path);
	cr_expect_eq(value_of("run"), 0);
	cr_expect(strstr(why, "the result of a call"), "%s", why);
	for (uint32_t i = 0; i < ck_ckpt_catalog(ck)->nr_objects; i++) {
		cr_expect_eq(ck_object_value(&values, i, &got, &why, &err), 0);
		cr_expect_eq(got.len, 0);
	}
	unlink(path);
	rmdir(dir);
}
