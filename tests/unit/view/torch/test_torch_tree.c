/* SPDX-License-Identifier: Apache-2.0 */
/* Dicts of model.pt: values beside tensors, and parameters of optimizers. */
#include "core/view/torch/torch_tree.h"
#include "core/view/torch/torch_value.h"

#include "core/base/auto.h"
#include "core/emit/torch_blob.h"
#include "core/parse/pickle.h"
#include "core/view/nest.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEAVES 32

static struct viewkit k;
static struct ck_tree_leaf leaf[MAX_LEAVES];
static struct ck_str values, out;
static struct ck_torch_tree tree;
static struct ck_pickle *p;
static const char *why;
static struct ck_err err;

/* Objects in the order of their names, as a catalog has them. */
static struct {
	const char *name, *pickle;
	size_t len;
} object[MAX_LEAVES];
static unsigned nr_objects;

static void setup(void)
{
	vk_init(&k);
	nr_objects = 0;
}

static void teardown(void)
{
	ck_pickle_free(p);
	ck_str_free(&values);
	ck_str_free(&out);
	vk_free(&k);
}
TestSuite(torch_tree, .init = setup, .fini = teardown);
TestSuite(torch_value, .init = setup, .fini = teardown);

/* An object below the keys of @path, of which @opcodes are the value. */
static void put(const char *path, const char *opcodes, size_t len)
{
	struct ck_object_in o = { .enc = CK_ENC_RAW, .src = k.src };
	struct ck_path_part part[8];
	char name[128] = "", copy[128], *save, *word;
	unsigned nr = 0;

	strcpy(copy, path);
	for (word = strtok_r(copy, "/", &save); word;
	     word = strtok_r(NULL, "/", &save)) {
		bool index = *word == '#';

		part[nr++] = (struct ck_path_part){
			.key = index ? NULL : word,
			.key_len = index ? 0 : strlen(word),
			.index = index ? atol(word + 1) : -1,
		};
		strcat(strcat(name, *name ? "." : ""), word + index);
	}
	o.name = name;
	o.name_len = strlen(name);
	cr_assert_eq(ck_builder_object(k.kit.b, &o, &err), 0, "%s", err.msg);
	cr_assert_eq(
		ck_builder_path(k.kit.b, 0, name, strlen(name), part, nr, &err),
		0, "%s", err.msg);
	object[nr_objects].name = strdup(name);
	object[nr_objects].pickle = opcodes;
	object[nr_objects++].len = len;
}
#define PUT(path, opcodes) put(path, opcodes, sizeof(opcodes) - 1)

static int by_path(const void *pa, const void *pb)
{
	const struct ck_tree_leaf *la = pa, *lb = pb;
	struct ck_nest_path a = ck_nest_path(tree.img, la->ref),
			    b = ck_nest_path(tree.img, lb->ref);

	return ck_nest_paths_cmp(&a, &b);
}

static void add_object(uint32_t i)
{
	const char *name =
		ck_catalog_str(tree.img, tree.img->objects[i].name, NULL);
	struct ck_tree_leaf *l = &leaf[tree.nr++];

	for (unsigned n = 0; n < nr_objects; n++) {
		if (strcmp(object[n].name, name) != 0)
			continue;
		*l = (struct ck_tree_leaf){ .ref = tree.img->nr_tensors + i,
					    .at = values.len };
		ck_str_add(&values, "\x80\x02", 2);
		ck_str_add(&values, object[n].pickle, object[n].len);
		ck_str_add(&values, ".", 1);
		l->len = values.len - l->at;
		free((char *)object[n].name);
		object[n].name = "";
		return;
	}
	cr_assert_fail("no object %s", name);
}

/* The root of the pickle that comes of all. */
static ck_pv make(bool ids)
{
	tree = (struct ck_torch_tree){ .img = vk_image(&k),
				       .v = leaf,
				       .ids = ids };
	for (uint32_t t = 0; t < tree.img->nr_tensors; t++)
		leaf[tree.nr++] =
			(struct ck_tree_leaf){ .ref = t, .storage = t };
	for (uint32_t i = 0; i < tree.img->nr_objects; i++)
		add_object(i);
	tree.values = values.v;
	qsort(leaf, tree.nr, sizeof(*leaf), by_path);
	ck_torch_tree_pickle(&tree, &out);
	cr_assert(!out.failed);
	cr_assert_eq(ck_pickle_parse(&p, out.v, out.len, NULL, NULL, &err), 0,
		     "%s", err.msg);
	return ck_pickle_root(p);
}

static ck_pv key(ck_pv dict, const char *name)
{
	ck_pv v = 0;

	cr_assert_eq(ck_pv_kind(dict), CK_P_DICT);
	cr_assert(ck_pv_key(p, dict, name, &v), "no key %s", name);
	return v;
}

/* The keys of @dict that are numbers, summed; -1: one is none. */
static int64_t sum_of_keys(ck_pv dict)
{
	struct ck_piter it;
	ck_pv name, value;
	int64_t sum = 0, n;

	ck_piter_init_pairs(&it, p, dict);
	while (ck_piter_next2(&it, &name, &value)) {
		if (!ck_pv_int(p, name, &n))
			return -1;
		sum += n;
	}
	return sum;
}

/* One optimizer of three parameters in two groups. */
static void put_optimizer(const char *first, size_t first_len,
			  const char *second, size_t second_len)
{
	put("optim/param_groups/#0/params", first, first_len);
	put("optim/param_groups/#1/params", second, second_len);
	PUT("optim/param_groups/#0/lr", "G\x3f\xe0\0\0\0\0\0\0");
	PUT("optim/param_groups/#1/lr", "N");
}
#define PUT_OPTIMIZER(a, b) put_optimizer(a, sizeof(a) - 1, b, sizeof(b) - 1)
#define PUT_NAMED() PUT_OPTIMIZER("](X\2\0\0\0l.X\1\0\0\0be", "](X\1\0\0\0ae")

Test(torch_tree, optimizers_by_name_stay_so)
{
	ck_pv root, state, group, v;
	double lr;

	PUT_NAMED();
	vk_nested(&k, "optim/state/l./m");
	vk_nested(&k, "optim/state/a/m");
	vk_nested(&k, "model/a");
	PUT("epoch", "K\x07");
	root = make(false);
	state = key(key(root, "optim"), "state");
	cr_expect_eq(ck_pv_kind(key(key(state, "l."), "m")), CK_P_CALL);
	cr_expect_eq(ck_pv_len(p, state), 2);
	group = key(key(root, "optim"), "param_groups");
	cr_assert_eq(ck_pv_kind(group), CK_P_LIST);
	cr_assert(ck_pv_at(p, group, 0, &v));
	cr_expect(ck_pv_float(p, key(v, "lr"), &lr) && lr == 0.5);
	cr_assert(ck_pv_at(p, key(v, "params"), 1, &v));
	cr_expect(ck_pv_is_str(p, v, "b"));
	cr_expect_eq(ck_pv_kind(key(root, "epoch")), CK_P_INT);
}

/* l., b and a are 0, 1 and 2, through both groups. */
Test(torch_tree, optimizers_by_number)
{
	ck_pv root, group, v;
	int64_t n;

	PUT_NAMED();
	vk_nested(&k, "optim/state/b/m");
	vk_nested(&k, "optim/state/b/v");
	vk_nested(&k, "optim/state/a/m");
	root = make(true);
	cr_expect_eq(sum_of_keys(key(key(root, "optim"), "state")), 1 + 2);
	group = key(key(root, "optim"), "param_groups");
	cr_assert(ck_pv_at(p, group, 1, &v));
	cr_assert(ck_pv_at(p, key(v, "params"), 0, &v));
	cr_expect(ck_pv_int(p, v, &n) && n == 2);
}

/* Saved by number: number 10 is not a text, nor place 10 of a list. */
Test(torch_tree, numbers_are_numbers_again)
{
	ck_pv root, group, v;
	int64_t n;

	PUT_OPTIMIZER("](K\0K\x0a"
		      "e",
		      "](K\x05"
		      "e");
	vk_nested(&k, "optim/state/0/m");
	vk_nested(&k, "optim/state/10/m");
	vk_nested(&k, "other/state/10/m");
	root = make(true);
	cr_expect_eq(sum_of_keys(key(key(root, "optim"), "state")), 10);
	cr_expect_eq(sum_of_keys(key(key(root, "other"), "state")), -1);
	group = key(key(root, "optim"), "param_groups");
	cr_assert(ck_pv_at(p, group, 0, &v));
	cr_assert(ck_pv_at(p, key(v, "params"), 1, &v));
	cr_expect(ck_pv_int(p, v, &n) && n == 10, "as they were saved");
}

Test(torch_tree, no_state_is_an_empty_one)
{
	ck_pv root;

	PUT_NAMED();
	vk_nested(&k, "model/a");
	root = make(true);
	cr_expect_eq(ck_pv_len(p, key(key(root, "optim"), "state")), 0);
}

/* ---- values ---- */

static bool value(const char *opcodes, size_t len)
{
	ck_auto_str struct ck_str in = { 0 };

	ck_str_add(&in, "\x80\x04", 2);
	ck_str_add(&in, opcodes, len);
	ck_str_add(&in, ".", 1);
	out.len = 0;
	return ck_torch_value(&out, in.v, in.len, &why);
}
#define VALUE(opcodes) value(opcodes, sizeof(opcodes) - 1)

static void same(const char *opcodes, size_t len)
{
	cr_assert(value(opcodes, len), "%s", why);
	cr_assert_eq(out.len, len + 3);
	cr_expect_eq(memcmp(out.v, "\x80\x02", 2), 0);
	cr_expect_eq(memcmp(out.v + 2, opcodes, len), 0);
}
#define SAME(opcodes) same(opcodes, sizeof(opcodes) - 1)

Test(torch_value, plain_ones)
{
	SAME("N");
	SAME("\x88");
	SAME("\x89");
	SAME("K\xff");
	SAME("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff");
	SAME("G\x7f\xf0\0\0\0\0\0\0");
	SAME("X\2\0\0\0\xc3\xa9");
	SAME("(K\1(K\2tt");
	SAME("](}(X\1\0\0\0a](euNe");
	cr_expect(VALUE("ccollections\nOrderedDict\n)R(K\1K\2u"));
	cr_expect_eq(memcmp(out.v + 2, "}(K\1K\2u", 7), 0, "a dict");
}

Test(torch_value, nothing_is_run_and_nothing_passed_on)
{
	cr_expect(!VALUE("cos\nsystem\n(X\4\0\0\0truetR"));
	cr_expect_eq(out.len, 0);
	cr_expect(!VALUE("](cos\nsystem\ne"));
	cr_expect(!VALUE("C\1x"), "bytes");
	cr_expect(!VALUE("\x8f"), "a set");
	cr_expect(!VALUE("X\1\0\0\0\xff"), "not UTF-8");
	/* what is thrown away is not in ours */
	cr_assert(VALUE("cos\nsystem\n(X\4\0\0\0truetR0K\1"), "%s", why);
	cr_expect_eq(out.len, 5);
	cr_expect(!memmem(out.v, out.len, "system", 6));
}

Test(torch_value, endless_ones)
{
	char deep[256];

	cr_expect(!VALUE("]q\0h\0a"), "in itself");
	memset(deep, ']', 100);
	memset(deep + 100, 'a', 99);
	cr_expect(!value(deep, 199), "%d", (int)out.len);
	cr_expect(strstr(why, "deep"));
	cr_expect_eq(out.len, 0);
}

Test(torch_value, archives)
{
	ck_auto_str struct ck_str zip = { 0 };

	ck_torch_blob_pickle(&zip, "\x80\x02K\x07.", 5);
	cr_assert(ck_torch_value_zip(&out, zip.v, zip.len, &why), "%s", why);
	cr_expect_eq(memcmp(out.v, "\x80\x02K\x07.", 5), 0);
	for (size_t cut = 0; cut < zip.len; cut++) {
		ck_auto_free char *part = malloc(cut + 1);

		out.len = 0;
		memcpy(part, zip.v, cut);
		cr_expect(!ck_torch_value_zip(&out, part, cut, &why), "%d",
			  (int)cut);
	}
}
