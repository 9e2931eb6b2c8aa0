/* SPDX-License-Identifier: Apache-2.0 */
/* File names of tensors: the table, lengths, collisions. */
#include "tests/unit/catalog/kit.h"

#include "core/base/utf8.h"
#include "core/catalog/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME(raw, file)                    \
	{                                  \
		raw, sizeof(raw) - 1, file \
	}

Test(catalog_names, table)
{
	static const struct {
		const char *raw;
		size_t len;
		const char *file;
	} table[] = {
		NAME("model.layers.0.weight", "model.layers.0.weight"),
		NAME("", "%00"),
		NAME("\0", "%00"),
		NAME(".", "%2E"),
		NAME("..", "%2E."),
		NAME(".hidden", "%2Ehidden"),
		NAME("a.b", "a.b"),
		NAME("a/b", "a%2Fb"),
		NAME("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
		NAME("/", "%2F"),
		NAME("%00", "%2500"),
		NAME("100%", "100%25"),
		NAME("two words", "two%20words"),
		NAME("line\nbreak", "line%0Abreak"),
		NAME("tab\there", "tab%09here"),
		NAME("\x1f!", "%1F!"),
		NAME("\x7f", "%7F"),
		NAME("~", "~"),
		NAME("-rf", "-rf"),
		NAME("\xc3\xa4", "\xc3\xa4"),
		NAME("\xe6\x9d\x83\xe9\x87\x8d", "\xe6\x9d\x83\xe9\x87\x8d"),
		NAME("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"),
		NAME("\xff", "%FF"),
		NAME("\xc3", "%C3"),
		NAME("\xc3(", "%C3("),
		NAME("\xc0\xaf", "%C0%AF"),
		NAME("\xed\xa0\x80", "%ED%A0%80"),
		NAME("\xf4\x90\x80\x80", "%F4%90%80%80"),
		NAME("\xe2\x82", "%E2%82"),
		NAME("a\\b:c*?\"<>|", "a\\b:c*?\"<>|"),
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(table); i++) {
		char out[CK_FILE_NAME_MAX + 1];
		size_t n = ck_name_encode(table[i].raw, table[i].len, out);

		cr_expect_str_eq(out, table[i].file);
		cr_expect_eq(n, strlen(table[i].file));
	}
}

/* @piece over and over, @len bytes of file name in all. */
static size_t repeat(char *raw, const char *piece, size_t len)
{
	raw[0] = '\0';
	while (strlen(raw) < len)
		strcat(raw, piece);
	return strlen(raw);
}

static void expect_cut(const char *raw, size_t len, size_t prefix,
		       const char *hash)
{
	char out[CK_FILE_NAME_MAX + 1];
	size_t n = ck_name_encode(raw, len, out);

	cr_expect_eq(n, prefix + 17);
	cr_expect_eq(strlen(out), n);
	cr_expect_str_eq(out + prefix, hash);
}

/* The hashes are what XXH3_64bits() of version 0.8.1 gives. */
Test(catalog_names, cut_when_too_long)
{
	char raw[1024], out[CK_FILE_NAME_MAX + 1];

	cr_expect_eq(ck_name_encode(raw, repeat(raw, "x", 240), out), 240);
	cr_expect_str_eq(out, raw);
	expect_cut(raw, repeat(raw, "x", 241), 200, "~14da9e5c301a6a1d");
	expect_cut(raw, repeat(raw, "x", 300), 200, "~a5d1b4607dc83554");
	/* an escape of 3 bytes that 200 would cut: 66 x 3 */
	expect_cut(raw, repeat(raw, "/", 81), 198, "~e5fb4e850e610ddf");
	cr_expect_eq(ck_name_encode(raw, repeat(raw, "/", 80), out), 240);
	/* a character of 3 bytes likewise, of 4 it ends there */
	expect_cut(raw, repeat(raw, "\xe2\x82\xac", 300), 198,
		   "~21920a285165eac1");
	expect_cut(raw, repeat(raw, "\xf0\x9f\x98\x80", 300), 200,
		   "~df22e353b9dfeb56");
}

Test(catalog_names, whatever_bytes_make_one_file_name)
{
	uint64_t seed = 5;

	for (unsigned i = 0; i < 20000; i++) {
		char raw[400], out[CK_FILE_NAME_MAX + 1];
		size_t len, n, step;

		seed = seed * UINT64_C(6364136223846793005) + 1;
		len = (seed >> 33) % (i % 2 ? 12 : sizeof(raw));
		for (size_t j = 0; j < len; j++) {
			seed = seed * UINT64_C(6364136223846793005) + 1;
			raw[j] = (char)(seed >> 40);
		}
		n = ck_name_encode(raw, len, out);
		cr_assert(n && n <= CK_FILE_NAME_MAX && n == strlen(out));
		cr_assert(out[0] != '.' && !strchr(out, '/'));
		for (size_t j = 0; j < n; j += step) {
			step = ck_utf8_len((unsigned char *)out + j, n - j);
			cr_assert(step && (unsigned char)out[j] > 0x20);
		}
	}
}

static void add(struct kit *k, const char *name, size_t len, uint32_t tree)
{
	struct ck_part p = kit_part("", 0);

	p.name = name;
	p.name_len = len;
	p.tree = tree;
	kit_add(k, &p);
}

/* Another name that has, as it is, the file name that @raw gets. */
Test(catalog_names, collisions_get_the_hash)
{
	struct kit k = kit_new();
	char raw[301], taken[CK_FILE_NAME_MAX + 1];
	const struct ck_catalog *img;
	uint32_t first, second;
	const char *file;

	kit_file(&k, "a", 4096);
	memset(raw, 'x', 300);
	raw[300] = '\0';
	ck_name_encode(raw, 300, taken);
	add(&k, raw, 300, 0);
	add(&k, taken, strlen(taken), 0);
	add(&k, "plain", 5, 0);
	img = kit_image(&k);
	cr_assert_eq(img->nr_tensors, 3);
	first = kit_find(&k, raw);
	second = kit_find(&k, taken);
	cr_assert(first != CK_NONE && second != CK_NONE && first != second);
	/* 'x' comes before '~', so the long one keeps what it would get */
	file = ck_catalog_str(img, img->tensors[first].file, NULL);
	cr_expect_str_eq(file, taken);
	cr_expect_eq(ck_catalog_find_file(img, 0, taken, strlen(taken)), first);
	file = ck_catalog_str(img, img->tensors[second].file, NULL);
	cr_expect_eq(strlen(file), 217);
	cr_expect_arr_eq(file, taken, 200);
	kit_free(&k);
}

/* The same, whatever the order in which the parts come. */
Test(catalog_names, order_of_arrival_does_not_matter)
{
	struct ck_str out[2];

	for (unsigned turn = 0; turn < 2; turn++) {
		struct kit k = kit_new();
		char raw[300], taken[CK_FILE_NAME_MAX + 1];

		kit_file(&k, "a", 4096);
		memset(raw, 'x', 300);
		ck_name_encode(raw, 300, taken);
		if (turn)
			add(&k, taken, strlen(taken), 0);
		add(&k, raw, 300, 0);
		if (!turn)
			add(&k, taken, strlen(taken), 0);
		out[turn] = kit_dump(kit_image(&k), CK_DUMP_LIST);
		kit_free(&k);
	}
	cr_expect_str_eq(out[0].v, out[1].v);
	ck_str_free(&out[0]);
	ck_str_free(&out[1]);
}

Test(catalog_names, hostile_names_are_listed_and_found)
{
	static const char *const names[] = {
		"../../etc/passwd", "a/b", "a.b", "",
		"new\nline",	    "%00", ".",	  ".."
	};
	struct kit k = kit_new();
	const struct ck_catalog *img;

	kit_file(&k, "a", 4096);
	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		add(&k, names[i], strlen(names[i]), 0);
	img = kit_image(&k);
	cr_assert_eq(img->nr_tensors, CK_ARRAY_LEN(names));
	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++) {
		uint32_t t = kit_find(&k, names[i]);
		size_t len;
		const char *file;

		cr_assert_neq(t, CK_NONE, "%s", names[i]);
		file = ck_catalog_str(img, img->tensors[t].file, &len);
		cr_expect_eq(ck_catalog_find_file(img, 0, file, len), t);
	}
	cr_expect_eq(kit_find(&k, "not there"), CK_NONE);
	cr_expect_eq(ck_catalog_find_file(img, 1, "a.b", 3), CK_NONE);
	kit_free(&k);
}

Test(catalog_names, trees_are_apart)
{
	struct kit k = kit_new();
	const struct ck_catalog *img;
	uint32_t tree, same, t;

	kit_file(&k, "a", 4096);
	cr_assert_eq(ck_builder_tree(k.b, "optim", 5, &tree, &k.err), 0);
	cr_assert_eq(ck_builder_tree(k.b, "optim", 5, &same, &k.err), 0);
	cr_expect_eq(tree, 1);
	cr_expect_eq(same, 1);
	add(&k, "w", 1, tree);
	add(&k, "w", 1, 0);
	add(&k, "v", 1, tree);
	img = kit_image(&k);
	cr_assert_eq(img->nr_tensors, 3);
	cr_expect_eq(img->nr_trees, 2);
	cr_expect_str_eq(ck_catalog_str(img, img->trees[1], NULL), "optim");
	t = ck_catalog_find_name(img, tree, "w", 1);
	cr_assert_neq(t, CK_NONE);
	cr_expect_eq(img->tensors[t].tree, tree);
	cr_expect_eq(kit_find(&k, "v"), CK_NONE);
	cr_expect_neq(ck_catalog_find_name(img, tree, "v", 1), CK_NONE);
	kit_free(&k);
}
