/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract.c - what every format's reader must do, shown on examples
 *
 *	tests/formats/NAME/CASE/in/          the checkpoint
 *	                        only         optional: the one file that is given
 *	                        opts         optional: NAME or NAME=VALUE of -o
 *	                        want         its catalog and problems, as text
 *	                        want-error   or the line that refuses it
 *
 * NAME is the reader that must be chosen, alone unless CASE begins with "tie-".  UPDATE_WANT=1 writes want anew: look
 * at the difference before committing it.
 */
#include "core/catalog/dump.h"
#include "core/catalog/catalog.h"
#include "core/format/detect.h"
#include "core/format/format.h"
#include "tests/lib/failalloc.h"
#include "tests/lib/memdir.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOP "tests/formats"
#define MAX_CASES 1024
#define FLIPS 150
#define CUTS 120

struct example {
	char format[32], path[224];
};

static struct example *examples;
static size_t nr_examples;

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct example *)a)->path,
		      ((const struct example *)b)->path);
}

static void find_cases(const char *format)
{
	char path[160], in[512];
	const struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), TOP "/%s", format);
	dir = opendir(path);
	while (dir && (e = readdir(dir)) && nr_examples < MAX_CASES) {
		struct example *x = &examples[nr_examples];

		snprintf(in, sizeof(in), "%s/%s/in", path, e->d_name);
		if (e->d_name[0] == '.' || access(in, F_OK))
			continue;
		snprintf(x->format, sizeof(x->format), "%s", format);
		snprintf(x->path, sizeof(x->path), "%.150s/%.64s", path,
			 e->d_name);
		nr_examples++;
	}
	if (dir)
		closedir(dir);
}

/* Criterion wants parameters in memory that it shares with its children. */
static struct criterion_test_params all_examples(void)
{
	examples = cr_malloc(MAX_CASES * sizeof(*examples));
	nr_examples = 0;
	for (size_t i = 0; ck_formats[i]; i++)
		find_cases(ck_formats[i]->name);
	cr_assert_lt(nr_examples, MAX_CASES);
	qsort(examples, nr_examples, sizeof(*examples), by_path);
	return cr_make_param_array(struct example, examples, nr_examples, NULL);
}

/* A small file of the case's folder, or NULL. */
static char *case_file(const struct example *x, const char *name)
{
	char path[288];
	char *text = NULL;
	size_t room = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", x->path, name);
	f = fopen(path, "r");
	if (!f)
		return NULL;
	if (getdelim(&text, &room, '\0', f) < 0) {
		free(text);
		text = NULL;
	}
	fclose(f);
	return text;
}

static void cut_line(char *text)
{
	if (text)
		text[strcspn(text, "\n")] = '\0';
}

struct given {
	struct memdir mem;
	struct ck_opts opts;
	char *only;
};

static void open_example(struct given *g, const struct example *x)
{
	char path[288];
	char *name = case_file(x, "opts"), *value;

	cut_line(name);
	value = name ? strchr(name, '=') : NULL;
	if (value)
		*value++ = '\0';
	*g = (struct given){ .only = case_file(x, "only") };
	cut_line(g->only);
	memdir_init(&g->mem);
	snprintf(path, sizeof(path), "%s/in", x->path);
	cr_assert_eq(memdir_load(&g->mem, path), 0, "%s", path);
	if (name)
		cr_assert_eq(ck_opts_add(&g->opts, name, value ? value : ""),
			     0);
	free(name);
	g->mem.dir.path = "in";
	g->mem.dir.only = g->only;
	g->mem.dir.opts = &g->opts;
}

static void close_example(struct given *g)
{
	memdir_free(&g->mem);
	ck_opts_free(&g->opts);
	free(g->only);
}

static int load_catalog(const struct memdir *m, struct ck_catalog *img,
			struct ck_err *err)
{
	int fd = memfd_create("contract", MFD_CLOEXEC);
	int ret = ck_detect_load(&m->dir, fd, err);

	if (!ret)
		ret = ck_catalog_map(img, fd, err);
	close(fd);
	return ret;
}

static void dump(const struct ck_catalog *img, enum ck_dump_doc doc,
		 struct ck_str *out)
{
	struct ck_dump_pos pos = { 0 };

	while (ck_dump_next(img, doc, 1, &pos, out))
		;
}

static void describe(const struct ck_catalog *img, struct ck_str *out)
{
	dump(img, CK_DUMP_CATALOG, out);
	ck_str_puts(out, "--- problems\n");
	dump(img, CK_DUMP_PROBLEMS_TEXT, out);
}

static void update(const struct example *x, const char *name, const char *text)
{
	char path[288];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", x->path, name);
	f = fopen(path, "w");
	cr_assert(f, "%s", path);
	fputs(text, f);
	fclose(f);
}

ParameterizedTestParameters(formats, says_what_the_files_hold)
{
	return all_examples();
}

ParameterizedTest(struct example *x, formats, says_what_the_files_hold)
{
	struct given g;
	struct ck_catalog img;
	struct ck_err err = { 0 };
	struct ck_str got = { 0 };
	char *want = case_file(x, "want");
	char *want_error = case_file(x, "want-error");
	bool write = getenv("UPDATE_WANT") != NULL;
	int ret;

	open_example(&g, x);
	ret = load_catalog(&g.mem, &img, &err);
	cut_line(want_error);
	if (ret) {
		ck_str_fmt(&got, "%s\n", err.msg);
		if (write)
			update(x, "want-error", got.v);
		else
			cr_expect_str_eq(err.msg, want_error ? want_error : "",
					 "%s", x->path);
		cr_expect_eq(err.code, -ret, "%s: code", x->path);
	} else {
		describe(&img, &got);
		cr_expect_str_eq(ck_catalog_str(&img, img.format, NULL),
				 x->format, "%s: reader", x->path);
		if (write)
			update(x, "want", got.v);
		else
			cr_expect_str_eq(got.v, want ? want : "", "%s",
					 x->path);
		ck_catalog_unmap(&img);
	}
	ck_str_free(&got);
	free(want);
	free(want_error);
	close_example(&g);
}

/* No reader claims another's example as surely as its own does. */
ParameterizedTestParameters(formats, others_are_less_sure)
{
	return all_examples();
}

ParameterizedTest(struct example *x, formats, others_are_less_sure)
{
	struct given g;
	int own = 0;

	open_example(&g, x);
	for (size_t i = 0; ck_formats[i]; i++)
		if (!strcmp(ck_formats[i]->name, x->format))
			own = ck_formats[i]->probe(&g.mem.dir, NULL);
	cr_expect_gt(own, CK_MATCH_NONE, "%s", x->path);
	if (strstr(x->path, "/tie-")) {
		close_example(&g);
		return;
	}
	for (size_t i = 0; ck_formats[i]; i++)
		if (strcmp(ck_formats[i]->name, x->format))
			cr_expect_lt(ck_formats[i]->probe(&g.mem.dir, NULL),
				     own, "%s: %s", x->path,
				     ck_formats[i]->name);
	close_example(&g);
}

/* Any answer is right as long as it is one. */
static void load_any(const struct given *g, const struct example *x)
{
	struct ck_catalog img;
	struct ck_err err = { 0 };
	struct ck_str text = { 0 };
	int ret = load_catalog(&g->mem, &img, &err);

	if (ret) {
		cr_assert(err.msg[0], "%s: no line for %d", x->path, ret);
		cr_assert_eq(err.code, -ret, "%s: %s", x->path, err.msg);
		return;
	}
	describe(&img, &text);
	cr_assert(!text.failed);
	ck_str_free(&text);
	ck_catalog_unmap(&img);
}

ParameterizedTestParameters(formats, truncation_is_answered)
{
	return all_examples();
}

ParameterizedTest(struct example *x, formats, truncation_is_answered)
{
	struct given g;

	open_example(&g, x);
	for (size_t i = 0; i < g.mem.nr; i++) {
		struct memdir_file *f = &g.mem.v[i];
		size_t whole = f->len;
		const void *bytes = f->bytes;

		/* all lengths of a small file, so many of a large one */
		for (size_t cut = 0; cut < whole; cut += 1 + whole / CUTS) {
			void *exact = malloc(cut + 1);

			memcpy(exact, bytes, cut);
			f->bytes = exact;
			f->len = cut;
			load_any(&g, x);
			free(exact);
		}
		f->bytes = bytes;
		f->len = whole;
	}
	close_example(&g);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Bytes that a load looks at: not the payload of large data files. */
static size_t head_of(const struct memdir_file *f)
{
	return f->len < 4096 || strstr(f->name, "metadata") ? f->len : 4096;
}

ParameterizedTestParameters(formats, flipped_bits_are_answered)
{
	return all_examples();
}

ParameterizedTest(struct example *x, formats, flipped_bits_are_answered)
{
	uint64_t seed = 0x9e3779b97f4a7c15;
	struct given g;

	open_example(&g, x);
	for (unsigned n = 0; n < FLIPS && g.mem.nr; n++) {
		struct memdir_file *f = &g.mem.v[next_random(&seed) % g.mem.nr];
		unsigned char *bytes = f->owned;
		size_t at;
		unsigned char was;

		if (!f->len)
			continue;
		at = next_random(&seed) % head_of(f);
		was = bytes[at];
		bytes[at] = (unsigned char)(n % 4 ? was ^ 1u << n % 8 :
						    next_random(&seed));
		load_any(&g, x);
		bytes[at] = was;
	}
	close_example(&g);
}

/* Notes are for convenience, and may be missing. */
static void cut_notes(char *text)
{
	char *at = strstr(text, "--- problems\n");

	while (at && (at = strstr(at, "\nnote")))
		memmove(at, at + 1 + strcspn(at + 1, "\n"),
			strlen(at + 1 + strcspn(at + 1, "\n")) + 1);
}

/* Out of memory is an answer; less than all there is, as if whole, is none. */
static void fail_each(struct example *x, char *want)
{
	const bool each = getenv("UNSHARD_NIGHTLY");
	struct given g;
	bool more = true;

	if (want)
		cut_notes(want);
	open_example(&g, x);
	for (unsigned long n = 1; more; n += each ? 1 : 1 + n / 64) {
		struct ck_str got = { 0 };
		struct ck_err err = { 0 };
		struct ck_catalog img;
		int ret;

		failalloc_arm(n);
		ret = load_catalog(&g.mem, &img, &err);
		more = failalloc_happened();
		if (ret) {
			cr_expect(!more || ret == -ENOMEM ||
					  (want && !strcmp(err.msg, want)),
				  "%s: allocation %lu: %s", x->path, n,
				  err.msg);
			continue;
		}
		describe(&img, &got);
		cut_notes(got.v);
		cr_expect(want && !strcmp(got.v, want),
			  "%s: allocation %lu: another catalog", x->path, n);
		ck_str_free(&got);
		ck_catalog_unmap(&img);
	}
	close_example(&g);
}

ParameterizedTestParameters(formats, every_allocation_may_fail)
{
	return all_examples();
}

ParameterizedTest(struct example *x, formats, every_allocation_may_fail)
{
	char *want = case_file(x, "want");
	char *want_error = case_file(x, "want-error");

	cut_line(want_error);
	fail_each(x, want ? want : want_error);
	free(want);
	free(want_error);
}

Test(formats, each_has_examples)
{
	for (size_t i = 0; ck_formats[i]; i++) {
		char path[160];

		snprintf(path, sizeof(path), TOP "/%s", ck_formats[i]->name);
		cr_expect_eq(access(path, F_OK), 0, "%s", path);
	}
}
