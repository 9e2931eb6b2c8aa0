/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The facade, on the checkpoint of `make demo`: copied, read, and damaged.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/le.h"
#include "core/catalog/catalog.h"
#include "tests/lib/openckpt.h"
#include "tests/lib/unconfined.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEMO "tests/demo/checkpoint"
#define NAME "model.model.layers.0.mlp.down_proj.weight"
#define NBYTES 1872

static char dir[] = "/tmp/ckpt-test.XXXXXX";
static struct ck_opts opts;
static struct ck_err err;
static struct ck_ckpt *ck;

static void slurp(const char *path, char **bytes, size_t *len)
{
	FILE *f = fopen(path, "r");

	cr_assert(f, "%s", path);
	*bytes = malloc(1 << 20);
	*len = fread(*bytes, 1, 1 << 20, f);
	fclose(f);
}

static void put(const char *path, const char *bytes, size_t len)
{
	FILE *f = fopen(path, "w");

	cr_assert(f && fwrite(bytes, 1, len, f) == len && !fclose(f));
}

/* @from -> @to everywhere, of the same length; says how often. */
static unsigned replace(char *bytes, size_t len, const char *from,
			const char *to)
{
	size_t n = strlen(from);
	unsigned nr = 0;

	for (size_t i = 0; i + n <= len; i++)
		if (!memcmp(bytes + i, from, n)) {
			memcpy(bytes + i, to, n);
			nr++;
		}
	return nr;
}

static void copy_demo(void)
{
	DIR *d = opendir(DEMO);
	const struct dirent *e;
	char path[600], *bytes;
	size_t len;

	cr_assert(d && mkdtemp(dir));
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), DEMO "/%s", e->d_name);
		slurp(path, &bytes, &len);
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		put(path, bytes, len);
		free(bytes);
	}
	closedir(d);
}

static void setup(void)
{
	copy_demo();
	unconfined(&opts);
}

static void teardown(void)
{
	DIR *d = opendir(dir);
	const struct dirent *e;

	ck_ckpt_close(ck);
	ck_opts_free(&opts);
	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(dir);
}

TestSuite(ckpt, .init = setup, .fini = teardown);

static uint32_t open_it(void)
{
	uint32_t t;

	cr_assert(!open_ckpt(&ck, dir, &opts, &err), "%s", err.msg);
	t = ck_catalog_find_name(ck_ckpt_catalog(ck), 0, NAME, strlen(NAME));
	cr_assert(t != CK_NONE);
	cr_assert(ck_ckpt_catalog(ck)->tensors[t].size == NBYTES);
	return t;
}

static int read_it(uint32_t t, char *buf)
{
	err.msg[0] = '\0';
	return ck_ckpt_read(ck, t, buf, NBYTES, 0, &err);
}

Test(ckpt, reads_a_tensor_and_a_slice)
{
	uint32_t t = open_it();
	struct ck_box box = { .rank = 2, .start = { 3, 5 }, .len = { 1, 2 } };
	char buf[NBYTES], *want;
	size_t len;

	slurp("tests/demo/down_proj.expected", &want, &len);
	cr_assert(len == NBYTES);
	cr_assert(!read_it(t, buf), "%s", err.msg);
	cr_expect(!memcmp(buf, want, NBYTES));
	cr_assert(!ck_ckpt_read_box(ck, t, &box, buf, 8, &err), "%s", err.msg);
	cr_expect(!memcmp(buf, want + (3 * 26 + 5) * 4, 8));
	cr_expect(ck_ckpt_stats(ck)->resolved > 0);
	cr_expect(ck_ckpt_runtime_problems_seq(ck) == 0);
	free(want);
}

Test(ckpt, resolves_all_items_of_a_tensor)
{
	uint32_t t = open_it();
	const struct ck_tensor *ten = &ck_ckpt_catalog(ck)->tensors[t];
	struct ck_place place;

	cr_assert(ten->nr_all > 1);
	for (uint32_t c = ten->first; c < ten->first + ten->nr_all; c++)
		cr_assert(ck_resolved_get(ck_ckpt_resolved(ck), c, &place) ==
			  CK_RESOLVED_UNKNOWN);
	cr_assert(!ck_ckpt_resolve(ck, t, &err), "%s", err.msg);
	for (uint32_t c = ten->first; c < ten->first + ten->nr_all; c++)
		cr_expect(ck_resolved_get(ck_ckpt_resolved(ck), c, &place) ==
			  CK_RESOLVED_PLACED);
}

static void change(const char *name, const char *from, const char *to)
{
	char path[64], *bytes;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	slurp(path, &bytes, &len);
	cr_assert(replace(bytes, len, from, to) > 0);
	put(path, bytes, len);
	free(bytes);
}

static unsigned count(const char *text, const char *word)
{
	unsigned n = 0;

	for (; text && (text = strstr(text, word)); text++)
		n++;
	return n;
}

/* Two bytes an element where the index says four. */
Test(ckpt, an_item_that_disagrees_is_bad_and_named)
{
	struct ck_str json = { 0 }, lines = { 0 };
	char buf[NBYTES];
	uint64_t seq;
	uint32_t t;

	change("__1_0.distcp", "FloatStorage", "ShortStorage");
	t = open_it();
	cr_expect(read_it(t, buf) == -EIO);
	seq = ck_ckpt_runtime_problems_seq(ck);
	cr_expect(seq > 0);
	cr_expect(read_it(t, buf) == -EIO);
	cr_expect(ck_ckpt_runtime_problems_seq(ck) == seq, "listed twice");
	ck_ckpt_runtime_problems(ck, true, &json);
	ck_ckpt_runtime_problems(ck, false, &lines);
	cr_assert(json.v && lines.v);
	cr_expect(count(json.v, "\"severity\": \"error\"") == seq);
	cr_expect(strstr(json.v, "\"tensor\": \"" NAME "\", "
				 "\"file\": \"__1_0.distcp\", \"offset\": "),
		  "%s", json.v);
	cr_expect(json.v[0] == '{' && json.v[json.len - 1] == '}');
	cr_expect(count(lines.v, "\n") == seq);
	cr_expect(strstr(lines.v,
			 "error: tensor " NAME ": file __1_0.distcp: bytes ["),
		  "%s", lines.v);
	cr_expect(count(lines.v, "__1_0.distcp: ") == seq, "%s", lines.v);
	ck_str_free(&json);
	ck_str_free(&lines);
}

Test(ckpt, resolving_finds_what_is_bad)
{
	uint32_t t;

	change("__1_0.distcp", "FloatStorage", "ShortStorage");
	t = open_it();
	cr_expect(!ck_ckpt_resolve(ck, t, &err), "%s", err.msg);
	cr_expect(ck_ckpt_runtime_problems_seq(ck) > 0);
}

/* The same elements as int32: as many bytes, so only the type differs. */
Test(ckpt, another_dtype_of_the_same_size_is_bad)
{
	struct ck_str lines = { 0 };
	char buf[NBYTES];
	uint32_t t;

	change(".metadata", "float32", "float64");
	if (open_ckpt(&ck, dir, &opts, &err))
		return; /* refused at once is as good */
	t = ck_catalog_find_name(ck_ckpt_catalog(ck), 0, NAME, strlen(NAME));
	if (t == CK_NONE)
		return;
	cr_expect(ck_ckpt_read(ck, t, buf, 8, 0, &err) == -EIO);
	ck_ckpt_runtime_problems(ck, false, &lines);
	cr_expect(lines.v && strstr(lines.v, "float64") &&
			  strstr(lines.v, "float32"),
		  "%s", lines.v);
	ck_str_free(&lines);
}

Test(ckpt, a_file_cut_short_meanwhile_is_EIO)
{
	uint32_t t = open_it();
	char path[64], buf[NBYTES];

	snprintf(path, sizeof(path), "%s/__1_0.distcp", dir);
	cr_assert(!truncate(path, 100));
	cr_expect(read_it(t, buf) == -EIO);
	cr_expect(strstr(err.msg, "__1_0.distcp"), "%s", err.msg);
	cr_expect(ck_ckpt_runtime_problems_seq(ck) > 0);
}

Test(ckpt, the_image_is_sealed)
{
	struct ck_root root;
	int fd = -1;

	cr_assert(!ck_root_open(&root, dir, &opts, &err), "%s", err.msg);
	cr_assert(!ck_ckpt_describe(&root, &opts, &fd, &err), "%s", err.msg);
	cr_expect(pwrite(fd, "x", 1, 0) == -1 && errno == EPERM);
	cr_expect(ftruncate(fd, 0) == -1 && errno == EPERM);
	cr_expect(fcntl(fd, F_GET_SEALS) ==
		  (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	close(fd);
	ck_root_close(&root);
}

Test(ckpt, errors_come_through_both_processes)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/.metadata", dir);
	cr_assert(!truncate(path, 1000));
	cr_expect(open_ckpt(&ck, dir, &opts, &err) < 0);
	cr_expect(strstr(err.msg, ".metadata"), "%s", err.msg);
	cr_expect(!strstr(err.msg, "died"), "%s", err.msg);
	cr_expect(!ck);
	cr_expect(open_ckpt(&ck, "/no/such", &opts, &err) == -ENOENT);
	ck_opts_add(&opts, "engine", "none");
	cr_expect(open_ckpt(&ck, DEMO, &opts, &err) < 0);
	cr_expect(strstr(err.msg, "none"), "%s", err.msg);
}

/* Not a catalog: what a parser that was taken over could leave. */
Test(ckpt, a_bad_image_is_refused_and_the_root_kept)
{
	struct ck_root root;
	int fd = open("/dev/zero", O_RDONLY);

	cr_assert(!ck_root_open(&root, dir, &opts, &err), "%s", err.msg);
	cr_expect(ck_ckpt_serve(&ck, &root, &opts, fd, &err) < 0);
	cr_expect(root.fd >= 0 && fcntl(root.fd, F_GETFD) >= 0);
	ck_root_close(&root);
	close(fd);
}

Test(ckpt, effort_follows_the_index)
{
	struct ck_opts verify = { 0 };
	struct ck_parser_limits e;
	uint64_t before;
	struct ck_root root;
	unsigned char len[8];
	char path[64];
	int fd;

	cr_assert(!ck_root_open(&root, dir, &opts, &err), "%s", err.msg);
	ck_parser_limits_guess(&root, NULL, &e);
	before = e.folders; /* of the example */
	cr_expect(e.files == 5 && e.seconds == 5 + before, "%u s", e.seconds);
	snprintf(path, sizeof(path), "%s/x.index.json", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	cr_assert(fd >= 0 && !ftruncate(fd, 80 << 20));
	close(fd);
	ck_parser_limits_guess(&root, NULL, &e);
	cr_expect(e.seconds == 15 + before, "%u s", e.seconds);
	cr_expect(e.memory > UINT64_C(16) * (80 << 20));
	/* a rank's folder, in which nobody looks before the parser does */
	snprintf(path, sizeof(path), "%s/rank_0", dir);
	cr_assert_eq(mkdir(path, 0700), 0);
	ck_parser_limits_guess(&root, NULL, &e);
	cr_expect(e.folders == before + 1 && e.seconds == 16 + before, "%u s",
		  e.seconds);
	rmdir(path);
	/* a header as long as it says, and no longer than its file */
	snprintf(path, sizeof(path), "%s/x.safetensors", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	ck_le64_put(len, 40 << 20);
	cr_assert(fd >= 0 && write(fd, len, sizeof(len)) == sizeof(len) &&
		  !ftruncate(fd, 90 << 20));
	ck_parser_limits_guess(&root, NULL, &e);
	cr_expect(e.seconds == 20 + before, "%u s", e.seconds);
	cr_assert(!ftruncate(fd, 16 << 20));
	ck_parser_limits_guess(&root, NULL, &e);
	cr_expect(e.seconds == 17 + before, "%u s", e.seconds);
	close(fd);
	unlink(path);
	/* 10 GiB that were sealed may all have to be hashed */
	snprintf(path, sizeof(path), "%s/.unshard-manifest", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	cr_assert(fd >= 0 && !ftruncate(fd, 20 << 10));
	close(fd);
	ck_parser_limits_guess(&root, NULL, &e);
	cr_expect(e.seconds == 15 + before, "%u s", e.seconds);
	ck_opts_add(&verify, "verify", "");
	ck_parser_limits_guess(&root, &verify, &e);
	cr_expect(e.seconds == 25 + before, "%u s", e.seconds);
	unlink(path);
	ck_opts_add(&verify, "parse-time", "77");
	ck_parser_limits_guess(&root, &verify, &e);
	cr_expect(e.seconds == 77, "%u s", e.seconds);
	ck_opts_free(&verify);
	ck_root_close(&root);
}

Test(ckpt, the_list_of_late_problems_is_bounded)
{
	struct ck_runtime_problems l;
	struct ck_runtime_problem p = { .reason = "why" };
	struct ck_str json = { 0 };
	uint64_t seq;

	ck_runtime_problems_init(&l);
	for (p.chunk = 0; p.chunk < 3 * CK_RUNTIME_PROBLEMS_MAX; p.chunk++)
		ck_runtime_problems_add(&l, &p);
	cr_expect(l.nr == CK_RUNTIME_PROBLEMS_MAX && l.full);
	seq = atomic_load(&l.seq);
	cr_expect(seq == CK_RUNTIME_PROBLEMS_MAX + 1);
	p.chunk = 7;
	ck_runtime_problems_add(&l, &p);
	cr_expect(atomic_load(&l.seq) == seq);
	ck_runtime_problems_free(&l);

	open_it();
	p.chunk = 0;
	ck_runtime_problems_add(&ck->problems_found, &p);
	ck->problems_found.full = true;
	ck_ckpt_runtime_problems(ck, true, &json);
	cr_expect(strstr(json.v, "\"why\"},\n{\"severity\": \"note\""), "%s",
		  json.v);
	ck_str_free(&json);
}
