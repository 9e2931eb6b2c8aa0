/* SPDX-License-Identifier: Apache-2.0 */
/* Any range of a document equals that range of it made in one go. */
#include "core/catalog/dump.h"
#include "fs/tree/virt.h"
#include "tests/lib/openckpt.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TENSORS 3000 /* text of several marks */

static char dir[] = "/tmp/virt-test.XXXXXX";
static struct ck_ckpt *ck;
static struct fs_kernel kernel;
static struct fs_virt *v;
static struct ck_err err;

/* One safetensors file; its tensors lie past its end where @torn. */
static void put_file(bool torn)
{
	struct ck_str head = { 0 };
	char path[64];
	uint64_t len;
	FILE *f;

	ck_str_puts(&head, "{");
	for (unsigned i = 0; i < TENSORS; i++)
		ck_str_fmt(&head,
			   "%s\"layers.%u.weight\": {\"dtype\": \"U8\", "
			   "\"shape\": [2, 4], \"data_offsets\": [%u, %u]}",
			   i ? ", " : "", i, 8 * i, 8 * i + 8);
	ck_str_puts(&head, "}");
	len = head.len;
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	f = fopen(path, "w");
	cr_assert(f);
	fwrite(&len, 8, 1, f);
	fwrite(head.v, 1, len, f);
	for (unsigned i = 0; i < (torn ? TENSORS / 2 : TENSORS); i++)
		fwrite("abcdefgh", 1, 8, f);
	fclose(f);
	ck_str_free(&head);
}

static void start(bool torn)
{
	static struct ck_opts opts;

	cr_assert(mkdtemp(dir));
	put_file(torn);
	ck_opts_add(&opts, "sandbox", "off");
	ck_opts_add(&opts, "engine", "plain");
	cr_assert(!open_ckpt(&ck, dir, &opts, &err), "%s", err.msg);
	ck_opts_free(&opts);
	fs_kernel_setup(&kernel, NULL);
	v = fs_virt_new(&(struct fs_virt_in){
		.ck = ck, .kernel = &kernel, .generation = 1 });
	cr_assert(v);
}

static void stop(void)
{
	char cmd[64];

	fs_virt_free(v);
	ck_ckpt_close(ck);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	cr_assert(!system(cmd));
}
TestSuite(virt, .fini = stop);

static struct ck_str whole(enum ck_dump_doc doc)
{
	struct ck_str out = { 0 };
	struct ck_dump_pos pos = { 0 };

	while (ck_dump_next(ck_ckpt_catalog(ck), doc, 1, &pos, &out))
		;
	return out;
}

static struct ck_str read_all(unsigned id, size_t step)
{
	struct fs_virt_file *f = NULL;
	struct ck_str out = { 0 };
	char *buf = malloc(step);
	uint64_t size;
	size_t got;

	cr_assert(!fs_virt_size(v, id, &size, &err));
	cr_assert(!fs_virt_open(v, id, NULL, &f, &err));
	do {
		cr_assert(!fs_virt_read(f, buf, step, out.len, &got, &err));
		ck_str_add(&out, buf, got);
	} while (got == step);
	cr_expect_eq(out.len, size);
	cr_assert(!fs_virt_read(f, buf, step, out.len + 5, &got, &err));
	cr_expect_eq(got, 0);
	fs_virt_close(f);
	free(buf);
	return out;
}

static void expect_doc(unsigned id, enum ck_dump_doc doc, size_t step)
{
	struct ck_str want = whole(doc), have = read_all(id, step);

	cr_expect_eq(want.len, have.len);
	cr_expect(!memcmp(want.v, have.v, want.len));
	ck_str_free(&want);
	ck_str_free(&have);
}

Test(virt, documents_in_pieces_of_any_size)
{
	static const size_t steps[] = { 997, 4096, 65536, 1 << 20 };

	start(true);
	cr_assert_geq(ck_ckpt_catalog(ck)->nr_problems, 1);
	for (unsigned i = 0; i < 4; i++) {
		expect_doc(FS_VIRT_CATALOG, CK_DUMP_CATALOG, steps[i]);
		expect_doc(FS_VIRT_PROBLEMS_JSON, CK_DUMP_PROBLEMS, steps[i]);
		expect_doc(FS_VIRT_PROBLEMS, CK_DUMP_PROBLEMS_TEXT, steps[i]);
	}
}

Test(virt, any_range)
{
	struct ck_str want;
	struct fs_virt_file *f = NULL;
	char buf[5000];
	size_t got;

	start(false);
	want = whole(CK_DUMP_CATALOG);
	cr_assert_gt(want.len, 4 * 65536);
	cr_assert(!fs_virt_open(v, FS_VIRT_CATALOG, NULL, &f, &err));
	srand(1);
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t off = (uint64_t)rand() % want.len;
		size_t len = (size_t)rand() % sizeof(buf);

		cr_assert(!fs_virt_read(f, buf, len, off, &got, &err));
		cr_assert_eq(got, len < want.len - off ? len : want.len - off);
		cr_assert(!memcmp(buf, want.v + off, got));
	}
	fs_virt_close(f);
	ck_str_free(&want);
}

/* What is found while reading is put in before the closing bracket. */
static void expect_runtime(bool torn, const char *before)
{
	struct ck_str json, text;
	char path[64], buf[8];

	start(torn);
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	cr_assert(!truncate(path, 4096));
	cr_assert(ck_ckpt_read(ck, 0, buf, 8, 0, &err) < 0);
	cr_assert(ck_ckpt_runtime_problems_seq(ck));
	json = read_all(FS_VIRT_PROBLEMS_JSON, 101);
	text = read_all(FS_VIRT_PROBLEMS, 101);
	cr_expect(json.v[0] == '[');
	cr_expect(!strcmp(json.v + json.len - 3, "}]\n"), "%s", json.v);
	cr_expect(strstr(json.v, before), "%s", json.v);
	cr_expect(text.v[text.len - 1] == '\n');
	cr_expect(strstr(text.v, "layers.0.weight"), "%s", text.v);
	ck_str_free(&json);
	ck_str_free(&text);
}

Test(virt, late_problems_after_others)
{
	expect_runtime(true, "}\n,\n{");
}

Test(virt, late_problems_alone)
{
	expect_runtime(false, "[\n\n{");
}

Test(virt, stats_keep_their_size)
{
	struct ck_str before, after;
	char buf[8];

	start(false);
	before = read_all(FS_VIRT_STATS, 4096);
	for (unsigned i = 0; i < 1000; i++)
		cr_assert(!ck_ckpt_read(ck, i, buf, 8, 0, &err));
	after = read_all(FS_VIRT_STATS, 4096);
	cr_expect_eq(before.len, after.len);
	cr_expect(strcmp(before.v, after.v));
	cr_expect(strstr(after.v, "\nreads                 1000\n"));
	cr_expect(strstr(after.v, "\nengine plain\n"));
	ck_str_free(&before);
	ck_str_free(&after);
}
