/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_examples.c - every format's examples through the library: what they are
 * said to hold, and their bytes, are as the rest of core has them
 */
#include "core/ckpt/ckpt.h"
#include "core/format/format.h"
#include "tests/unit/lib/kit.h"
#include "tests/lib/openckpt.h"

#include <criterion/parameterized.h>
#include <dirent.h>
#include <errno.h>

#define MAX_CASES 1024
#define LARGE (64 << 20) /* bytes that are said, and in no file */

struct example {
	char path[256];
};

static struct criterion_test_params all_examples(void)
{
	struct example *all = cr_malloc(MAX_CASES * sizeof(*all));
	size_t nr = 0;

	for (size_t i = 0; ck_formats[i]; i++) {
		char top[128];
		const struct dirent *e;
		DIR *dir;

		snprintf(top, sizeof(top), "tests/formats/%s",
			 ck_formats[i]->name);
		dir = opendir(top);
		while (dir && (e = readdir(dir)) && nr < MAX_CASES) {
			snprintf(all[nr].path, sizeof(all->path),
				 "%.100s/%.100s/in", top, e->d_name);
			if (e->d_name[0] == '.' || access(all[nr].path, F_OK))
				continue;
			*strrchr(all[nr++].path, '/') = '\0';
		}
		if (dir)
			closedir(dir);
	}
	return cr_make_param_array(struct example, all, nr, NULL);
}

/* A small file of the case's folder, or NULL; @line: its first line. */
static char *case_file(const struct example *x, const char *name, bool line)
{
	char path[300];
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
	if (text && line)
		text[strcspn(text, "\n")] = '\0';
	return text;
}

struct given {
	char path[400];
	char *opts, *want, *want_error;
};

static void take(struct given *g, const struct example *x)
{
	char *only = case_file(x, "only", true);

	snprintf(g->path, sizeof(g->path), "%s/in%s%s", x->path,
		 only ? "/" : "", only ? only : "");
	g->opts = case_file(x, "opts", true);
	g->want = case_file(x, "want", false);
	g->want_error = case_file(x, "want-error", true);
	free(only);
}

static void drop(struct given *g)
{
	free(g->opts);
	free(g->want);
	free(g->want_error);
}

/* Its documents are those of the examples; problems are lines there. */
static void expect_documents(unshard_ckpt *ck, const struct given *g)
{
	struct ck_str got = { 0 };
	char *end = strstr(g->want, "--- problems\n");

	cr_assert(end);
	*end = '\0';
	cr_assert_eq(unshard_json(ck, "catalog", kit_put, &got, NULL), 0);
	cr_expect_str_eq(got.v, g->want, "%s", g->path);
	got.len = 0;
	cr_assert_eq(unshard_json(ck, "problems", kit_put, &got, NULL), 0);
	cr_expect_eq(strlen(end + 13) > 0, strchr(got.v, '{') != NULL, "%s",
		     g->path);
	ck_str_free(&got);
}

/* Each tensor, by the library and by what it stands on. */
static void expect_bytes(unshard_ckpt *ck, struct ck_ckpt *other,
			 const char *path)
{
	const struct ck_catalog *img = ck_ckpt_catalog(other);

	cr_assert_eq(unshard_tensors(ck), img->nr_tensors);
	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		uint64_t len = img->tensors[i].size;
		char *want = len < LARGE ? malloc(len + 1) : NULL, *got;
		struct ck_err why = { 0 };
		unshard_error err = { 0 };
		int want_ret, ret;

		if (!want)
			continue;
		want_ret = ck_ckpt_read(other, i, want, len, 0, &why);
		got = kit_read(ck, i, &ret, &err);
		cr_expect_eq(ret, want_ret, "%s: %u: %s, not %s", path, i,
			     err.text, why.msg);
		cr_expect(!ret == !err.text[0], "%s: %u: %d: a line", path, i,
			  ret);
		cr_expect(ret || !memcmp(got, want, len), "%s: %u: bytes", path,
			  i);
		free(got);
		free(want);
	}
}

/* What the examples' own tests read from memory are files here. */
static void expect_same(const struct given *g, unshard_ctx *ctx)
{
	char options[512];
	unshard_open_opts oo = { .size = sizeof(oo), .options = options };
	struct ck_opts opts = { 0 };
	unshard_error err = { 0 };
	struct ck_err why = { 0 };
	struct ck_ckpt *other;
	unshard_ckpt *ck;
	char *value;
	int ret;

	snprintf(options, sizeof(options), "%s%s", unconfined_options(),
		 g->opts ? g->opts : "");
	ret = unshard_open(ctx, g->path, &oo, &ck, &err);
	if (ret == -ENODATA && g->want_error)
		return; /* several, of which one is to be named */
	if (ret) {
		cr_expect(g->want_error && strstr(err.text, g->want_error),
			  "%s: %s, not %s", g->path, err.text,
			  g->want_error ? g->want_error : "opened");
		return;
	}
	cr_assert(g->want, "%s: opened", g->path);
	expect_documents(ck, g);
	value = g->opts ? strchr(g->opts, '=') : NULL;
	if (value)
		*value++ = '\0';
	if (g->opts)
		ck_opts_add(&opts, g->opts, value ? value : "");
	cr_assert_eq(open_ckpt(&other, g->path, &opts, &why), 0, "%s", why.msg);
	expect_bytes(ck, other, g->path);
	ck_ckpt_close(other);
	ck_opts_free(&opts);
	unshard_unref(ck);
}

ParameterizedTestParameters(lib_examples, are_what_they_hold)
{
	return all_examples();
}

ParameterizedTest(struct example *x, lib_examples, are_what_they_hold)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	struct given g;

	take(&g, x);
	expect_same(&g, ctx);
	drop(&g);
	unshard_ctx_free(ctx);
}
