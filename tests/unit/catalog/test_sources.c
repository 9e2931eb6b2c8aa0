/* SPDX-License-Identifier: Apache-2.0 */
/* Sources, objects, paths, problems. */
#include "tests/unit/catalog/kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <errno.h>
#include <string.h>

static struct kit k;

static void set_up(void)
{
	k = kit_new();
}

static void tear_down(void)
{
	kit_free(&k);
}

TestSuite(catalog_sources, .init = set_up, .fini = tear_down);

Test(catalog_sources, a_file_is_described_once)
{
	struct stat st = { .st_mode = S_IFREG | 0640,
			   .st_uid = 5,
			   .st_gid = 6,
			   .st_dev = 3,
			   .st_ino = 4,
			   .st_size = 77,
			   .st_mtim = { 2, 9 } };
	uint32_t a, b, c;
	const struct ck_src *s;

	cr_assert_eq(ck_builder_file(k.b, "x/a", &st, &a, &k.err), 0);
	cr_assert_eq(ck_builder_file(k.b, "x/b", &st, &b, &k.err), 0);
	cr_assert_eq(ck_builder_file(k.b, "x/a", &st, &c, &k.err), 0);
	cr_expect_eq(a, c);
	cr_expect_neq(a, b);
	s = &kit_image(&k)->srcs[a];
	cr_expect_eq(k.img.nr_srcs, 2);
	cr_expect_eq(s->kind, CK_SRC_FILE);
	cr_expect_eq(s->state, CK_OK);
	cr_expect_str_eq(ck_catalog_str(&k.img, s->name, NULL), "x/a");
	cr_expect_eq(s->mode, S_IFREG | 0640);
	cr_expect_eq(s->uid, 5);
	cr_expect_eq(s->gid, 6);
	cr_expect_eq(s->len, 77);
	cr_expect_eq(s->id.dev, 3);
	cr_expect_eq(s->id.ino, 4);
	cr_expect_eq(s->id.size, 77);
	cr_expect_eq(s->id.mtime_ns, 2000000009);
}

Test(catalog_sources, what_was_read_and_is_no_source)
{
	struct stat st = { .st_mode = S_IFREG | 0600, .st_ino = 4 };
	static const char *const read[] = { "m", "x", "index", "m", "index" };
	uint32_t src;

	for (size_t i = 0; i < 5; i++)
		cr_assert_eq(ck_builder_read(k.b, read[i], &st, &k.err), 0);
	cr_assert_eq(ck_builder_file(k.b, "x", &st, &src, &k.err), 0);
	cr_assert_eq(ck_builder_file(k.b, "lost", NULL, &src, &k.err), 0);
	kit_image(&k);
	cr_assert_eq(k.img.nr_indexes, 2);
	cr_expect_str_eq(ck_catalog_str(&k.img, k.img.indexes[0].name, NULL),
			 "m");
	cr_expect_str_eq(ck_catalog_str(&k.img, k.img.indexes[1].name, NULL),
			 "index");
	cr_expect_eq(k.img.indexes[1].id.ino, 4);
}

Test(catalog_sources, kept_bytes)
{
	struct ck_part p = kit_part("w", 0);
	float v[32];
	const struct ck_src *s;
	uint32_t one, two;

	for (unsigned i = 0; i < 32; i++)
		v[i] = (float)i;
	cr_assert_eq(ck_builder_mem(k.b, "xyz", 3, &one, &k.err), 0);
	cr_assert_eq(ck_builder_mem(k.b, v, sizeof(v), &two, &k.err), 0);
	p.src = two;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
	cr_expect_eq(kit_tensor(&k, "w")->newest, CK_NONE);
	s = &k.img.srcs[two];
	cr_expect_eq(s->kind, CK_SRC_MEM);
	cr_expect_eq(s->len, sizeof(v));
	cr_expect_arr_eq(k.img.blob + s->off, v, sizeof(v));
	cr_expect_arr_eq(k.img.blob + k.img.srcs[one].off, "xyz", 3);
}

Test(catalog_sources, kept_bytes_that_are_too_few)
{
	struct ck_part p = kit_part("w", 0);

	cr_assert_eq(ck_builder_mem(k.b, "xyz", 3, &p.src, &k.err), 0);
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_TORN);
}

Test(catalog_sources, compressed_item)
{
	struct ck_part p = kit_part("w", 0);
	uint32_t file = kit_file(&k, "a.bin", 1000), again;
	const struct ck_src *s;

	cr_assert_eq(ck_builder_codec(k.b, file, CK_CODEC_ZSTD, 10, 50, &p.src,
				      &k.err),
		     0);
	cr_assert_eq(ck_builder_codec(k.b, file, CK_CODEC_ZSTD, 10, 50, &again,
				      &k.err),
		     0);
	cr_expect_eq(again, p.src);
	p.off = 123456789; /* in what will be decoded: not known yet */
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
	cr_expect_eq(kit_tensor(&k, "w")->newest, file);
	s = &k.img.srcs[p.src];
	cr_expect_eq(s->kind, CK_SRC_CODEC);
	cr_expect_eq(s->parent, file);
	cr_expect_eq(s->off, 10);
	cr_expect_eq(s->len, 50);
	cr_expect_eq(k.img.nr_srcs, 2);
}

Test(catalog_sources, compressed_item_past_the_end)
{
	struct ck_part p = kit_part("w", 0);
	uint32_t file = kit_file(&k, "a.bin", 1000);

	cr_assert_eq(ck_builder_codec(k.b, file, CK_CODEC_ZSTD, 990, 50, &p.src,
				      &k.err),
		     0);
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_TORN);
	cr_expect_str_eq(kit_reason(&k, NULL),
			 "a compressed item ends past the end of the file");
	cr_expect_eq(k.img.problems[0].off, 990);
}

Test(catalog_sources, compressed_item_of_a_missing_file)
{
	struct ck_part p = kit_part("w", 0);
	uint32_t gone = kit_missing(&k, "gone.bin");

	cr_assert_eq(ck_builder_codec(k.b, gone, CK_CODEC_ZSTD, 0, 50, &p.src,
				      &k.err),
		     0);
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_MISSING);
	cr_expect_eq(k.img.nr_problems, 2);
}

Test(catalog_sources, wrong_codecs_are_refused)
{
	uint32_t file = kit_file(&k, "a.bin", 1000), src, nested;

	cr_expect_eq(
		ck_builder_codec(k.b, 9, CK_CODEC_ZSTD, 0, 5, &src, &k.err),
		-EINVAL);
	cr_expect_eq(ck_builder_codec(k.b, file, 7, 0, 5, &src, &k.err),
		     -EINVAL);
	cr_expect_eq(ck_builder_codec(k.b, file, CK_CODEC_ZSTD, 1, UINT64_MAX,
				      &src, &k.err),
		     -EINVAL);
	cr_assert_eq(
		ck_builder_codec(k.b, file, CK_CODEC_ZSTD, 1, 5, &src, &k.err),
		0);
	cr_expect_eq(ck_builder_codec(k.b, src, CK_CODEC_ZSTD, 0, 5, &nested,
				      &k.err),
		     -EINVAL);
}

static void add_object(const char *name, uint32_t src, uint64_t off,
		       uint64_t len)
{
	const struct ck_object_in o = { .name = name,
					.name_len = strlen(name),
					.src = src,
					.enc = CK_ENC_PICKLE,
					.off = off,
					.len = len };

	cr_assert_eq(ck_builder_object(k.b, &o, &k.err), 0);
}

Test(catalog_sources, objects_are_sorted_and_keep_their_paths)
{
	uint32_t file = kit_file(&k, "a.bin", 1000);
	const struct ck_path_part path[] = { { "opt", 3, -1 }, { NULL, 0, 4 } };
	const struct ck_object *o;
	const uint64_t *at;

	add_object("step", file, 10, 20);
	add_object("opt.4", file, 30, 20);
	cr_assert_eq(ck_builder_path(k.b, 0, "opt.4", 5, path, 2, &k.err), 0);
	o = kit_image(&k)->objects;
	cr_assert_eq(k.img.nr_objects, 2);
	cr_expect_eq(k.img.nr_tensors, 0);
	cr_expect_str_eq(ck_catalog_str(&k.img, o[0].name, NULL), "opt.4");
	cr_expect_str_eq(ck_catalog_str(&k.img, o[1].name, NULL), "step");
	cr_expect_eq(o[1].path, CK_NONE);
	cr_expect_eq(o[1].off, 10);
	cr_expect_eq(o[1].enc, CK_ENC_PICKLE);
	at = k.img.dims + o[0].path;
	cr_expect_eq(at[0], 2);
	cr_expect(at[1] & CK_PATH_STR);
	cr_expect_str_eq(
		ck_catalog_str(&k.img, (uint32_t)(at[1] & ~CK_PATH_STR), NULL),
		"opt");
	cr_expect_eq(at[2], 4);
}

Test(catalog_sources, path_of_a_tensor)
{
	struct ck_part p = kit_part("m.w", kit_file(&k, "a.bin", 1000));
	const struct ck_path_part path[] = { { "m", 1, -1 }, { "w", 1, -1 } };

	cr_assert_eq(ck_builder_path(k.b, 0, "m.w", 3, path, 2, &k.err), 0);
	kit_add(&k, &p);
	cr_assert_neq(kit_tensor(&k, "m.w")->path, CK_NONE);
	cr_expect_eq(k.img.dims[kit_tensor(&k, "m.w")->path], 2);
}

Test(catalog_sources, damaged_objects)
{
	uint32_t file = kit_file(&k, "a.bin", 1000), mem;
	struct ck_object_in o = { "n\0l", 3, 0, file, CK_ENC_RAW, 0, 1 };

	cr_assert_eq(ck_builder_mem(k.b, "xyz", 3, &mem, &k.err), 0);
	add_object("past the end", file, 990, 20);
	add_object("overflow", file, UINT64_MAX, 20);
	add_object("no source", 99, 0, 20);
	add_object("kept", mem, 0, 4);
	cr_assert_eq(ck_builder_object(k.b, &o, &k.err), 0);
	kit_image(&k);
	/* the first is there: a read of it says EIO */
	cr_expect_eq(k.img.nr_objects, 1);
	cr_expect_eq(k.img.nr_problems, 5);
	cr_expect_str_eq(kit_reason(&k, "past the end"),
			 "it ends past the end of the file");
	cr_expect_str_eq(kit_reason(&k, "overflow"), "its bytes end past 2^62");
	cr_expect_str_eq(kit_reason(&k, "no source"),
			 "it is described wrongly");
	cr_expect_str_eq(kit_reason(&k, "kept"),
			 "its bytes end past those kept for it");
	cr_expect_str_eq(kit_reason(&k, "n"), "its name has a NUL byte in it");
}

Test(catalog_sources, problems_are_bounded)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };

	for (unsigned i = 0; i < 10100; i++)
		cr_assert_eq(ck_builder_problem(k.b, &p, &k.err, "nr %u", i),
			     0);
	kit_image(&k);
	cr_expect_eq(k.img.nr_problems, 10001);
	cr_expect_str_eq(ck_catalog_str(&k.img, k.img.problems[0].reason, NULL),
			 "nr 0");
	cr_expect_str_eq(
		ck_catalog_str(&k.img, k.img.problems[9999].reason, NULL),
		"nr 9999");
	cr_expect_str_eq(
		ck_catalog_str(&k.img, k.img.problems[10000].reason, NULL),
		"100 more are not listed");
	cr_expect_eq(k.img.problems[10000].severity, CK_WARNING);
}

Test(catalog_sources, the_same_problem_twice_is_one)
{
	const struct ck_problem_in p = { .severity = CK_NOTE, .file = "f" };

	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(ck_builder_problem(k.b, &p, &k.err, "again"), 0);
	cr_expect_eq(kit_nr_problems(&k, NULL), 1);
}

Test(catalog_sources, finishing_twice_is_refused)
{
	kit_image(&k);
	cr_expect_eq(ck_builder_finish(k.b, "kit", k.fd, &k.err), -EINVAL);
}
