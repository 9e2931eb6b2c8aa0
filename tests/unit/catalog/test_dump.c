/* SPDX-License-Identifier: Apache-2.0 */
/* The documents: valid JSON, what it says, the same from any position. */
#include "core/parse/json.h"
#include "tests/unit/catalog/kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

KIT_SUITE(catalog_dump);

static json_t *parsed(enum ck_dump_doc doc)
{
	ck_auto_str struct ck_str text = kit_dump(kit_image(&k), doc);
	json_error_t why;
	json_t *root =
		json_loadb(text.v, text.len, JSON_REJECT_DUPLICATES, &why);

	cr_assert_not_null(root, "%s at %d: %s", why.text, why.position,
			   text.v);
	return root;
}

/* @got is what @want, JSON text with ' for ", says. */
static void expect_json(const json_t *got, const char *want)
{
	char *text = strdup(want), *have;
	json_t *wanted;

	for (char *s = text; *s; s++)
		*s = *s == '\'' ? '"' : *s;
	wanted = json_loads(text, JSON_DECODE_ANY, NULL);
	cr_assert_not_null(wanted, "%s", text);
	have = json_dumps(got, JSON_ENCODE_ANY);
	cr_expect(json_equal(got, wanted), "%s is not %s", have, text);
	json_decref(wanted);
	free(have);
	free(text);
}

static json_t *source(const json_t *root, size_t tensor, size_t i)
{
	json_t *t = json_array_get(json_object_get(root, "tensors"), tensor);

	return json_array_get(json_object_get(t, "sources"), i);
}

Test(catalog_dump, empty)
{
	json_t *root = parsed(CK_DUMP_CATALOG);

	expect_json(root, "{'format': 'kit', 'generation': 3, 'tensors': [], "
			  "'objects': []}");
	json_decref(root);
	root = parsed(CK_DUMP_PROBLEMS);
	expect_json(root, "[]");
	json_decref(root);
}

Test(catalog_dump, tensor)
{
	struct ck_part p = kit_part("a/b", file);
	json_t *root;

	p.off = 64;
	kit_add(&k, &p);
	root = parsed(CK_DUMP_CATALOG);
	expect_json(root,
		    "{'format': 'kit', 'generation': 3, 'tensors': [{'name': "
		    "'a/b', 'file': 'a%2Fb', 'dtype': 'float32', 'shape': [4, "
		    "8], 'nbytes': 128, 'state': 'ok', 'sources': [{'file': "
		    "'a.bin', 'offset': 64, 'nbytes': 128, 'box': [[0, 4], [0, "
		    "8]]}]}], 'objects': []}");
	json_decref(root);
	root = parsed(CK_DUMP_LIST);
	expect_json(json_object_get(root, "tensors"),
		    "[{'name': 'a/b', 'file': 'a%2Fb', 'dtype': 'float32', "
		    "'shape': [4, 8], 'nbytes': 128, 'state': 'ok'}]");
	json_decref(root);
}

Test(catalog_dump, scalar)
{
	struct ck_part p = kit_part("s", file);
	json_t *root;

	p.rank = 0;
	kit_add(&k, &p);
	root = parsed(CK_DUMP_CATALOG);
	expect_json(source(root, 0, 0), "{'file': 'a.bin', 'offset': 0, "
					"'nbytes': 4, 'box': []}");
	json_decref(root);
}

Test(catalog_dump, replicas_name_their_cell)
{
	struct ck_part p = kit_part("w", file);
	uint32_t b = kit_file(&k, "b.bin", 4096);
	json_t *root;

	p.len = DIMS(2, 8);
	for (uint64_t row = 0; row < 4; row += 2) {
		p.start = DIMS(row, 0);
		p.src = file;
		p.off = row * 32;
		kit_add(&k, &p);
		p.src = b;
		p.off = row ? 0 : 200;
		kit_add(&k, &p);
		p.off = row ? 100 : 300;
		kit_add(&k, &p);
	}
	root = parsed(CK_DUMP_CATALOG);
	cr_expect_null(json_object_get(source(root, 0, 1), "replica_of"));
	for (size_t i = 2; i < 6; i++)
		cr_expect_eq(json_integer_value(json_object_get(
				     source(root, 0, i), "replica_of")),
			     i / 4);
	expect_json(source(root, 0, 5),
		    "{'file': 'b.bin', 'offset': 100, 'nbytes': 64, 'box': "
		    "[[2, 4], [0, 8]], 'replica_of': 1}");
	json_decref(root);
}

Test(catalog_dump, replicas_of_the_last_cell_only)
{
	struct ck_part p = kit_part("w", file);
	json_t *root;

	p.len = DIMS(2, 8);
	kit_add(&k, &p);
	p.start = DIMS(2, 0);
	p.off = 64;
	kit_add(&k, &p);
	p.off = 100;
	kit_add(&k, &p);
	root = parsed(CK_DUMP_CATALOG);
	cr_expect_eq(json_integer_value(
			     json_object_get(source(root, 0, 2), "replica_of")),
		     1);
	json_decref(root);
}

Test(catalog_dump, deferred_grid_flat_strided_stored_torn)
{
	struct ck_part p = kit_part("a", file);
	json_t *root;

	p.item_len = 1234;
	p.off = 7;
	kit_add(&k, &p);
	p.name = "b";
	p.item_len = 0;
	p.grid_rank = 3;
	p.grid = DIMS(2, 2, 8);
	kit_add(&k, &p);
	p.name = "c";
	p.grid = NULL;
	p.flat = DIMS(0, 13);
	kit_add(&k, &p);
	p.flat = DIMS(13, 32);
	p.off += 13 * 4;
	kit_add(&k, &p);
	p.name = "d";
	p.flat = NULL;
	p.stride = STEPS(1, -4);
	p.off = 1000;
	p.stored = CK_DT_I32;
	kit_add(&k, &p);
	p.name = "e";
	p.stride = NULL;
	p.stored = 0;
	p.off = 1 << 20;
	kit_add(&k, &p);
	root = parsed(CK_DUMP_CATALOG);
	expect_json(source(root, 0, 0),
		    "{'file': 'a.bin', 'offset': 7, 'nbytes': 1234, "
		    "'deferred': true, 'box': [[0, 4], [0, 8]]}");
	expect_json(source(root, 1, 0),
		    "{'file': 'a.bin', 'offset': 7, 'nbytes': 128, 'box': [[0, "
		    "2], [0, 2], [0, 8]], 'grid': [2, 2, 8]}");
	expect_json(source(root, 2, 1),
		    "{'file': 'a.bin', 'offset': 59, 'nbytes': 76, 'box': [[0, "
		    "4], [0, 8]], 'flat': [13, 32]}");
	expect_json(source(root, 3, 0),
		    "{'file': 'a.bin', 'offset': 1000, 'nbytes': 128, 'box': "
		    "[[0, 4], [0, 8]], 'stride': [1, -4], 'stored': 'int32'}");
	expect_json(source(root, 4, 0),
		    "{'file': 'a.bin', 'offset': 1048576, 'nbytes': 128, "
		    "'box': [[0, 4], [0, 8]], 'state': 'torn'}");
	json_decref(root);
}

Test(catalog_dump, objects_trees_and_packed_sources)
{
	struct ck_part p = kit_part("w", file);
	struct ck_object_in o = { "step", 4, 0, file, CK_ENC_TORCH_ZIP, 5, 6 };
	uint32_t tree, mem;
	json_t *root;

	cr_assert_eq(ck_builder_tree(k.b, "optim", 5, &tree, &k.err), 0);
	cr_assert_eq(ck_builder_mem(k.b, "{}", 2, &mem, &k.err), 0);
	cr_assert_eq(ck_builder_codec(k.b, file, CK_CODEC_ZSTD, 30, 40, &p.src,
				      &k.err),
		     0);
	kit_add(&k, &p);
	cr_assert_eq(ck_builder_object(k.b, &o, &k.err), 0);
	o.tree = tree;
	o.src = mem;
	o.enc = CK_ENC_JSON;
	o.off = 0;
	o.len = 2;
	cr_assert_eq(ck_builder_object(k.b, &o, &k.err), 0);
	root = parsed(CK_DUMP_CATALOG);
	expect_json(source(root, 0, 0),
		    "{'file': 'a.bin', 'offset': 30, 'nbytes': 40, 'codec': "
		    "'zstd', 'box': [[0, 4], [0, 8]]}");
	expect_json(json_object_get(root, "objects"),
		    "[{'name': 'step', 'file': 'a.bin', 'offset': 5, 'nbytes': "
		    "6, 'encoding': 'torch'}, {'name': 'step', 'tree': "
		    "'optim', 'file': null, 'offset': 0, 'nbytes': 2, "
		    "'encoding': 'json'}]");
	json_decref(root);
}

static void add_problems(void)
{
	const struct ck_problem_in all = { .severity = CK_ERROR,
					   .tensor = "w\n\"x\"",
					   .tensor_len = 5,
					   .file = "f",
					   .off = 3,
					   .len = 4 };
	const struct ck_problem_in few = { .severity = CK_NOTE };

	cr_assert_eq(ck_builder_problem(k.b, &all, &k.err, "bad %d", 1), 0);
	cr_assert_eq(ck_builder_problem(k.b, &few, &k.err, "so so\n"), 0);
}

Test(catalog_dump, problems)
{
	json_t *root;

	add_problems();
	root = parsed(CK_DUMP_PROBLEMS);
	expect_json(json_array_get(root, 1),
		    "{'severity': 'note', 'reason': 'so so\\n'}");
	cr_expect_str_eq(json_string_value(json_object_get(
				 json_array_get(root, 0), "tensor")),
			 "w\n\"x\"");
	cr_expect_eq(json_integer_value(json_object_get(json_array_get(root, 0),
							"offset")),
		     3);
	cr_expect_eq(json_integer_value(json_object_get(json_array_get(root, 0),
							"nbytes")),
		     4);
	json_decref(root);
}

Test(catalog_dump, problems_as_lines)
{
	ck_auto_str struct ck_str text = { 0 };

	add_problems();
	text = kit_dump(kit_image(&k), CK_DUMP_PROBLEMS_TEXT);
	cr_expect_str_eq(text.v,
			 "error: tensor w\\x0a\"x\": file f: bytes [3, 7): bad "
			 "1\nnote: so so\\x0a\n");
}

/* Names of any bytes: still JSON, as Python's surrogateescape reads it. */
Test(catalog_dump, names_that_are_no_text)
{
	struct ck_part p = kit_part("\xff\x01\"\\", file);
	ck_auto_str struct ck_str text = { 0 };

	kit_add(&k, &p);
	text = kit_dump(kit_image(&k), CK_DUMP_LIST);
	cr_expect(strstr(text.v, "\"name\": \"\\udcff\\u0001\\\"\\\\\""), "%s",
		  text.v);
	cr_expect(strstr(text.v, "\"file\": \"%FF%01\\\"\\\\\""), "%s", text.v);
}

static void add_many(void)
{
	struct ck_part p = kit_part("many", file);
	char name[16];

	p.shape = DIMS(300, 8);
	p.len = DIMS(1, 8);
	for (uint64_t i = 0; i < 600; i++) {
		p.start = DIMS(i % 300, 0);
		p.off = i * 32;
		kit_add(&k, &p);
	}
	for (unsigned i = 0; i < 20; i++) {
		struct ck_object_in o = { name, 3, 0, file, CK_ENC_RAW, i, 1 };

		snprintf(name, sizeof(name), "t%02u", i % 100);
		p = kit_part(name, file);
		kit_add(&k, &p);
		cr_assert_eq(ck_builder_object(k.b, &o, &k.err), 0);
	}
	add_problems();
}

/* From each position on, the rest of the document is the same. */
static void restart(enum ck_dump_doc doc, size_t max_record)
{
	const struct ck_catalog *img = kit_image(&k);
	ck_auto_str struct ck_str whole = kit_dump(img, doc);
	struct ck_dump_pos pos = { 0 };
	size_t at = 0;

	for (;;) {
		ck_auto_str struct ck_str record = { 0 }, rest = { 0 };
		struct ck_dump_pos from = pos;

		while (ck_dump_next(img, doc, 3, &from, &rest))
			;
		cr_assert_eq(rest.len, whole.len - at);
		cr_assert(!rest.len || !memcmp(rest.v, whole.v + at, rest.len));
		if (!ck_dump_next(img, doc, 3, &pos, &record))
			break;
		cr_assert_leq(record.len, max_record);
		at += record.len;
	}
	cr_assert_eq(at, whole.len);
}

Test(catalog_dump, restarts_anywhere)
{
	json_t *root;

	add_many();
	root = parsed(CK_DUMP_CATALOG);
	cr_expect_eq(json_array_size(json_object_get(root, "tensors")), 21);
	cr_expect_eq(json_array_size(json_object_get(root, "objects")), 20);
	cr_expect_not_null(source(root, 0, 599));
	cr_expect_null(source(root, 0, 600));
	for (size_t i = 300; i < 600; i++)
		cr_expect_eq(json_integer_value(json_object_get(
				     source(root, 0, i), "replica_of")),
			     i - 300);
	json_decref(root);
	restart(CK_DUMP_CATALOG, 16384);
	restart(CK_DUMP_LIST, 4096);
	restart(CK_DUMP_PROBLEMS, 4096);
	restart(CK_DUMP_PROBLEMS_TEXT, 4096);
}

Test(catalog_dump, same_input_same_bytes)
{
	ck_auto_str struct ck_str one = { 0 }, two = { 0 };
	size_t size;
	void *first;

	add_many();
	one = kit_dump(kit_image(&k), CK_DUMP_CATALOG);
	size = k.img.size;
	first = malloc(size);
	memcpy(first, k.img.base, size);
	kit_free(&k);
	set_up();
	add_many();
	two = kit_dump(kit_image(&k), CK_DUMP_CATALOG);
	cr_expect_str_eq(one.v, two.v);
	cr_expect_eq(k.img.size, size);
	cr_expect(!memcmp(first, k.img.base, size), "the images differ");
	free(first);
}
