/* SPDX-License-Identifier: Apache-2.0 */
/* model.pt, taken apart by the readers of zips and pickles. */
#include "core/container/torch_save.h"
#include "core/container/torch_walk.h"
#include "core/view/nest.h"
#include "core/emit/pickle_out.h"
#include "tests/unit/view/viewkit.h"
#include "tests/lib/memsource.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ck_view_ops ck_view_torch;

static struct viewkit k;
static struct ck_view *v;
static unsigned char *bytes;
static uint64_t len;
static struct ck_source *src;
static struct ck_torch_save ts;
static struct ck_err err;

static void setup(void)
{
	vk_init(&k);
}

static void teardown(void)
{
	ck_torch_save_close(&ts);
	ck_source_close(src);
	free(bytes);
	ck_view_close(v);
	vk_free(&k);
}
TestSuite(view_torch, .init = setup, .fini = teardown);

static void open_view(void)
{
	v = vk_open(&k, &ck_view_torch, NULL);
	cr_assert(v);
	bytes = vk_bytes(v, vk_file(v, "model.pt"), &len);
	src = memsource(bytes, len, "model.pt");
	cr_assert(src);
	cr_assert_eq(ck_torch_save_open(&ts, src, &err), 0, "%s", err.msg);
}

static ck_pv root(void)
{
	return ck_pickle_root(ts.pickle);
}

static ck_pv key(ck_pv dict, const char *name)
{
	ck_pv out = 0;

	cr_assert_eq(ck_pv_kind(dict), CK_P_DICT);
	cr_assert(ck_pv_key(ts.pickle, dict, name, &out), "no key %s", name);
	return out;
}

static ck_pv item(ck_pv list, unsigned i)
{
	ck_pv out = 0;

	cr_assert_eq(ck_pv_kind(list), CK_P_LIST);
	cr_assert(ck_pv_at(ts.pickle, list, i, &out), "no item %u", i);
	return out;
}

/* That @value is tensor @name, bytes included. */
static void is_tensor(ck_pv value, const char *name)
{
	uint32_t t = kit_find(&k.kit, name);
	const struct ck_tensor *want = &k.ck.img.tensors[t];
	struct ck_torch_tensor got;
	uint64_t off;

	cr_assert_eq(ck_torch_tensor_read(ts.pickle, value, &got, &err), 0,
		     "%s: %s", name, err.msg);
	cr_expect_eq(got.rank, want->rank, "%s", name);
	cr_expect_eq(memcmp(got.shape, k.ck.img.dims + want->shape,
			    got.rank * sizeof(*got.shape)),
		     0);
	cr_assert_eq(ck_torch_save_place(&ts, &got, &off, &err), 0, "%s: %s",
		     name, err.msg);
	cr_expect_eq(off % 64, 0, "%s at %d", name, (int)off);
	cr_expect_eq(got.storage_len, want->size);
	for (uint64_t b = 0; b < want->size; b++)
		cr_assert_eq(bytes[off + b], vk_byte(t, b), "%s", name);
}

Test(view_torch, every_dtype)
{
	char name[32];

	for (int dt = CK_DT_NONE + 1; dt < CK_DT_NR; dt++)
		if (ck_dtype_info((enum ck_dtype)dt)->size) {
			snprintf(name, sizeof(name), "d%d", dt);
			vk_tensor(&k, name, (enum ck_dtype)dt, 2, DIMS(2, 3));
		}
	open_view();
	for (int dt = CK_DT_NONE + 1; dt < CK_DT_NR; dt++) {
		const struct ck_dtype_info *info =
			ck_dtype_info((enum ck_dtype)dt);
		struct ck_torch_tensor got;

		snprintf(name, sizeof(name), "d%d", dt);
		if (!info->size || !info->torch || dt == CK_DT_QINT8 ||
		    dt == CK_DT_QUINT8 || dt == CK_DT_QINT32)
			continue;
		is_tensor(key(root(), name), name);
		ck_torch_tensor_read(ts.pickle, key(root(), name), &got, &err);
		cr_expect_eq(got.dtype, dt, "%s", info->name);
	}
}

Test(view_torch, nested_as_it_was_saved)
{
	ck_pv state, groups;

	vk_nested(&k, "optimizer/state/w/exp_avg");
	vk_nested(&k, "optimizer/state/w/step");
	vk_nested(&k, "optimizer/groups/#0/lr");
	vk_nested(&k, "optimizer/groups/#1/lr");
	vk_nested(&k, "optimizer/groups/#1/pair/#0");
	vk_nested(&k, "optimizer/groups/#1/pair/#1");
	vk_nested(&k, "model/layers.0.weight");
	vk_nested(&k, "holes/#0");
	vk_nested(&k, "holes/#2");
	vk_nested(&k, "mixed/#0");
	vk_nested(&k, "mixed/name");
	vk_tensor(&k, "dotted.name", CK_DT_F32, 0, NULL);
	open_view();
	is_tensor(key(root(), "dotted.name"), "dotted.name");
	is_tensor(key(key(root(), "model"), "layers.0.weight"),
		  "model.layers.0.weight");
	state = key(key(key(root(), "optimizer"), "state"), "w");
	is_tensor(key(state, "exp_avg"), "optimizer.state.w.exp_avg");
	is_tensor(key(state, "step"), "optimizer.state.w.step");
	groups = key(key(root(), "optimizer"), "groups");
	cr_expect_eq(ck_pv_len(ts.pickle, groups), 2);
	is_tensor(key(item(groups, 0), "lr"), "optimizer.groups.0.lr");
	is_tensor(item(key(item(groups, 1), "pair"), 1),
		  "optimizer.groups.1.pair.1");
	/* positions with holes are keys that are numbers */
	cr_expect_eq(ck_pv_kind(key(root(), "holes")), CK_P_DICT);
	cr_expect_eq(ck_pv_len(ts.pickle, key(root(), "holes")), 2);
	cr_expect_eq(ck_pv_kind(key(root(), "mixed")), CK_P_DICT);
	is_tensor(key(key(root(), "mixed"), "name"), "mixed.name");
}

/* A lost storage has its pages to itself; all that is read first is on others. */
Test(view_torch, lost_tensors_are_apart)
{
	static const char *const lost[] = { "b", "c" };
	uint64_t off;

	vk_tensor(&k, "a", CK_DT_F32, 1, DIMS(1500));
	vk_lose(&k);
	vk_tensor(&k, "b", CK_DT_U8, 1, DIMS(5));
	vk_tensor(&k, "c", CK_DT_F64, 1, DIMS(700));
	open_view();
	is_tensor(key(root(), "a"), "a");
	for (unsigned i = 0; i < 2; i++) {
		struct ck_torch_tensor got;

		is_tensor(key(root(), lost[i]), lost[i]);
		cr_assert_eq(ck_torch_tensor_read(ts.pickle,
						  key(root(), lost[i]), &got,
						  &err),
			     0);
		cr_assert_eq(ck_torch_save_place(&ts, &got, &off, &err), 0);
		cr_expect_eq(off % CK_LOST_PAGE, 0, "%d", (int)off);
		off = CK_DIV_UP(off + got.storage_len, CK_LOST_PAGE) *
		      CK_LOST_PAGE;
		for (uint64_t b = off - 8; b < off; b++)
			cr_expect_eq(bytes[b], 0, "%d", (int)b);
	}
}

Test(view_torch, list_at_the_top)
{
	vk_nested(&k, "#0/a");
	vk_nested(&k, "#1");
	open_view();
	is_tensor(key(item(root(), 0), "a"), "0.a");
	is_tensor(item(root(), 1), "1");
}

Test(view_torch, a_tensor_and_a_dict_of_one_name)
{
	char *problems;

	vk_nested(&k, "a");
	vk_nested(&k, "a/b");
	vk_nested(&k, "a/c/d");
	vk_nested(&k, "b");
	open_view();
	is_tensor(key(root(), "a"), "a");
	is_tensor(key(root(), "b"), "b");
	problems = vk_problems(&k);
	cr_expect(strstr(problems, "tensor a.b: left out of model.pt"), "%s",
		  problems);
	cr_expect(strstr(problems, "tensor a.c.d: left out of model.pt"), "%s",
		  problems);
	free(problems);
}

Test(view_torch, tied_weights_share_a_storage)
{
	struct ck_torch_tensor a, b, c, d;

	vk_tensor(&k, "head", CK_DT_F32, 2, DIMS(3, 4));
	vk_twin(&k, "embed", CK_DT_F32, 2, DIMS(3, 4));
	vk_tensor(&k, "other", CK_DT_F32, 2, DIMS(3, 4));
	vk_tensor(&k, "none", CK_DT_F32, 2, DIMS(0, 4));
	open_view();
	ck_torch_tensor_read(ts.pickle, key(root(), "head"), &a, &err);
	ck_torch_tensor_read(ts.pickle, key(root(), "embed"), &b, &err);
	ck_torch_tensor_read(ts.pickle, key(root(), "other"), &c, &err);
	ck_torch_tensor_read(ts.pickle, key(root(), "none"), &d, &err);
	cr_expect_eq(a.key_len, b.key_len);
	cr_expect_eq(memcmp(a.key, b.key, a.key_len), 0);
	cr_expect_neq(memcmp(a.key, c.key, a.key_len), 0);
	cr_expect_eq(ts.storages.nr, 3, "%zu", ts.storages.nr);
}

Test(view_torch, no_tensors_at_all)
{
	open_view();
	cr_expect_eq(ck_pv_kind(root()), CK_P_DICT);
	cr_expect_eq(ck_pv_len(ts.pickle, root()), 0);
}

Test(view_torch, names_that_python_cannot_hold)
{
	char *problems;

	vk_tensor(&k, "bad\xff", CK_DT_F32, 1, DIMS(3));
	vk_tensor(&k, "\xc3\xa9", CK_DT_F32, 1, DIMS(3));
	open_view();
	is_tensor(key(root(), "\xc3\xa9"), "\xc3\xa9");
	cr_expect_eq(ck_pv_len(ts.pickle, root()), 1);
	problems = vk_problems(&k);
	cr_expect(strstr(problems, "its name is not UTF-8"), "%s", problems);
	free(problems);
}

Test(pickle_out, numbers)
{
	static const uint64_t want[] = { 0,	     1,
					 255,	     256,
					 65535,	     65536,
					 INT32_MAX,  (uint64_t)INT32_MAX + 1,
					 UINT32_MAX, (UINT64_C(1) << 62) - 1 };
	struct ck_str s = { 0 };
	struct ck_pickle *p;
	ck_pv at;
	int64_t n;

	ck_po_begin(&s);
	ck_po_ints(&s, want, 10);
	ck_po_end(&s);
	cr_assert_eq(ck_pickle_parse(&p, s.v, s.len, NULL, NULL, &err), 0, "%s",
		     err.msg);
	for (unsigned i = 0; i < 10; i++) {
		cr_assert(ck_pv_at(p, ck_pickle_root(p), i, &at));
		cr_assert(ck_pv_int(p, at, &n));
		cr_expect_eq((uint64_t)n, want[i]);
	}
	ck_pickle_free(p);
	ck_str_free(&s);
}

Test(nest, keys_before_positions_and_neighbours)
{
	struct viewkit n;
	const struct ck_catalog *img;
	uint32_t t[5] = { 0, 1, 2, 3, 4 };
	static const char *const want[] = { "a.b", "a.c.x", "a.c.1", "a.7",
					    "ab" };

	vk_init(&n);
	vk_nested(&n, "a/c/#1");
	vk_nested(&n, "a/#7");
	vk_nested(&n, "ab");
	vk_nested(&n, "a/c/x");
	vk_nested(&n, "a/b");
	img = vk_image(&n);
	ck_nest_sort(img, t, 5);
	for (unsigned i = 0; i < 5; i++)
		cr_expect_str_eq(
			ck_catalog_str(img, img->tensors[t[i]].name, NULL),
			want[i]);
	cr_expect_eq(ck_nest_common(img, t[1], t[2]), 2);
	cr_expect_eq(ck_nest_common(img, t[3], t[4]), 0);
	cr_expect_eq(ck_nest_depth(img, t[1]), 3);
	vk_free(&n);
}
