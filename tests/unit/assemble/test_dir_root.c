/* SPDX-License-Identifier: Apache-2.0 */
/* Real folders: links of a hub cache, and what must not be opened. */
#include "core/catalog/catalog.h"
#include "core/format/detect.h"
#include "core/root/root.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/ck-formats-XXXXXX";

static const char *at(const char *rel)
{
	static char path[4][512];
	static unsigned turn;
	char *out = path[turn++ % 4];

	snprintf(out, 512, "%s/%s", top, rel);
	return out;
}

static int drop(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void setup(void)
{
	cr_assert(mkdtemp(top));
}

static void teardown(void)
{
	nftw(top, drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* One tensor of two floats, called @name. */
static void put_st(const char *rel, const char *name)
{
	char json[128];
	FILE *f = fopen(at(rel), "w");
	uint64_t len;
	float data[2] = { 1, 2 };

	cr_assert(f, "%s", rel);
	snprintf(json, sizeof(json),
		 "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],"
		 "\"data_offsets\":[0,8]}}",
		 name);
	len = strlen(json);
	fwrite(&len, sizeof(len), 1, f);
	fputs(json, f);
	fwrite(data, sizeof(data), 1, f);
	fclose(f);
}

static void put_text(const char *rel, const char *text)
{
	FILE *f = fopen(at(rel), "w");

	cr_assert(f, "%s", rel);
	fputs(text, f);
	fclose(f);
}

static int load(const char *rel, struct ck_catalog *img, struct ck_err *err)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	struct ck_root root;
	struct ck_dir dir;
	int ret = ck_root_open(&root, at(rel), NULL, err);

	cr_assert_eq(ret, 0, "%s", err->msg);
	ck_dir_root_init(&dir, &root, NULL);
	ret = ck_detect_load(&dir, fd, err);
	if (!ret)
		ret = ck_catalog_map(img, fd, err);
	ck_root_close(&root);
	close(fd);
	return ret;
}

#define INDEX "model.safetensors.index.json"
#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"
static const char index_json[] =
	"{\"weight_map\":{\"a\":\"" ONE "\",\"b\":\"" TWO "\"}}";

TestSuite(dir_root, .init = setup, .fini = teardown);

Test(dir_root, a_hub_cache_is_read_through_its_links)
{
	struct ck_err err = { 0 };
	struct ck_catalog img;

	mkdir(at("models--o--n"), 0755);
	mkdir(at("models--o--n/blobs"), 0755);
	mkdir(at("models--o--n/snapshots"), 0755);
	mkdir(at("models--o--n/snapshots/r1"), 0755);
	put_st("models--o--n/blobs/b1", "a");
	put_st("models--o--n/blobs/b2", "b");
	put_text("models--o--n/blobs/b3", index_json);
	cr_assert_eq(
		symlink("../../blobs/b1", at("models--o--n/snapshots/r1/" ONE)),
		0);
	cr_assert_eq(
		symlink("../../blobs/b2", at("models--o--n/snapshots/r1/" TWO)),
		0);
	cr_assert_eq(symlink("../../blobs/b3",
			     at("models--o--n/snapshots/r1/" INDEX)),
		     0);
	cr_assert_eq(load("models--o--n/snapshots/r1", &img, &err), 0, "%s",
		     err.msg);
	cr_expect_eq(img.nr_tensors, 2);
	cr_expect_eq(img.nr_problems, 0);
	ck_catalog_unmap(&img);
}

static void expect_refused(const char *what)
{
	struct ck_err err = { 0 };
	struct ck_catalog img;
	int ret;

	alarm(5); /* a FIFO must not be waited for */
	ret = load("ck", &img, &err);
	alarm(0);
	cr_assert_lt(ret, 0, "%s: accepted", what);
	cr_expect_neq(ret, -ENOENT, "%s: %s", what, err.msg);
	cr_expect(strstr(err.msg, TWO), "%s: %s", what, err.msg);
}

static void make_pair(void)
{
	mkdir(at("ck"), 0755);
	put_st("ck/" ONE, "a");
	put_text("ck/" INDEX, index_json);
	put_st("outside", "b");
}

Test(dir_root, a_link_that_leads_out_is_refused)
{
	make_pair();
	cr_assert_eq(symlink("../outside", at("ck/" TWO)), 0);
	expect_refused("a link");
}

Test(dir_root, a_link_without_an_index_is_refused_too)
{
	make_pair();
	cr_assert_eq(symlink("../outside", at("ck/" TWO)), 0);
	cr_assert_eq(unlink(at("ck/" INDEX)), 0);
	expect_refused("a link");
}

Test(dir_root, a_fifo_is_refused_and_not_waited_for)
{
	make_pair();
	cr_assert_eq(mkfifo(at("ck/" TWO), 0644), 0);
	expect_refused("a FIFO");
}

Test(dir_root, a_folder_in_a_shards_place_is_refused)
{
	make_pair();
	cr_assert_eq(mkdir(at("ck/" TWO), 0755), 0);
	expect_refused("a folder");
}

Test(dir_root, a_missing_shard_is_a_problem_not_a_refusal)
{
	struct ck_err err = { 0 };
	struct ck_catalog img;

	make_pair();
	cr_assert_eq(load("ck", &img, &err), 0, "%s", err.msg);
	cr_expect_eq(img.nr_tensors, 1);
	cr_expect_gt(img.nr_problems, 0);
	ck_catalog_unmap(&img);
}

Test(dir_root, the_kind_of_a_wrong_source_is_said)
{
	static const struct {
		const char *name, *text, *says;
	} kinds[] = {
		{ "w.gguf", "GGUF0000", "GGUF" },
		{ ".metadata", "\x80\x04 and so on", "directory" },
		{ "x.index.json", "{\"a\": 1234}", "directory" },
		{ "empty", "", "empty" },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		struct ck_err err = { 0 };
		struct ck_catalog img;

		put_text(kinds[i].name, kinds[i].text);
		cr_assert_eq(load(kinds[i].name, &img, &err), -EINVAL);
		cr_expect(strstr(err.msg, kinds[i].says), "%s", err.msg);
		cr_expect(strstr(err.msg, "expected"), "%s", err.msg);
	}
}

Test(dir_root, folders_of_steps_are_named)
{
	struct ck_err err = { 0 };
	struct ck_catalog img;

	mkdir(at("run"), 0755);
	mkdir(at("run/step-10"), 0755);
	put_text("run/step-10/.metadata", "\x80\x04");
	put_text("run/notes.txt", "none");
	cr_assert_eq(load("run", &img, &err), -ENODATA, "%s", err.msg);
	cr_expect(strstr(err.msg, "step-10"), "%s", err.msg);
}
