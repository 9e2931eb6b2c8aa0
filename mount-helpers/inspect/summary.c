/* SPDX-License-Identifier: Apache-2.0 */
/* summary.c - counts: tensors by type and by cut, objects, files */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/inspect/fold.h"

#include "mount-helpers/text.h"

#include "fs/sharding.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/dtype.h"
#include "core/view/extras.h"
#include "core/view/translate/translate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CUTS 12 /* ways to cut that are told apart */
#define MAX_FILES 24 /* that are listed */

static void put_dtypes(const struct ck_catalog *img, struct ck_str *out)
{
	uint64_t nr[CK_DT_NR] = { 0 }, bytes = 0;
	const char *sep = " (";

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		nr[img->tensors[i].dtype]++;
		bytes += img->tensors[i].size;
	}
	ck_str_fmt(out, "tensors   %" PRIu32 ", ", img->nr_tensors);
	text_size(out, bytes);
	for (unsigned d = 0; d < CK_DT_NR; d++) {
		if (!nr[d])
			continue;
		ck_str_fmt(out, "%s%" PRIu64 " %s", sep, nr[d],
			   ck_dtype_info((enum ck_dtype)d)->name);
		sep = ", ";
	}
	ck_str_puts(out, *sep == ',' ? ")\n" : "\n");
}

struct cut {
	char *text;
	uint64_t nr;
	uint32_t example;
};

/* One more of @text; false: there are too many kinds already. */
static bool count_cut(struct cut *v, unsigned *nr, const char *text,
		      uint32_t example)
{
	unsigned i = 0;

	while (i < *nr && strcmp(v[i].text, text))
		i++;
	if (i == *nr) {
		if (*nr == MAX_CUTS)
			return false;
		v[i] = (struct cut){ strdup(text), 0, example };
		if (!v[i].text)
			return false;
		++*nr;
	}
	v[i].nr++;
	return true;
}

static void put_cuts(const struct ck_catalog *img, struct ck_str *out)
{
	struct cut v[MAX_CUTS];
	ck_auto_str struct ck_str text = { 0 };
	uint64_t others = 0;
	unsigned nr = 0;

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		text.len = 0;
		fs_sharding_text(img, &img->tensors[i], &text);
		others += !text.v || !count_cut(v, &nr, text.v, i);
	}
	for (unsigned i = 0; i < nr; i++) {
		size_t from = out->len;

		ck_str_fmt(out, "%s%s", i ? "          " : "cut       ",
			   v[i].text);
		text_pad(out, from, 34);
		ck_str_fmt(out, " %6" PRIu64 "  such as ", v[i].nr);
		text_ref(out, img, img->tensors[v[i].example].name);
		ck_str_puts(out, "\n");
		free(v[i].text);
	}
	if (others)
		ck_str_fmt(out, "          in other ways %" PRIu64 "\n",
			   others);
}

static void put_objects(const struct ck_catalog *img, struct ck_str *out)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < img->nr_objects; i++)
		bytes += img->objects[i].len;
	if (!img->nr_objects)
		return;
	ck_str_fmt(out, "objects   %" PRIu32 ", ", img->nr_objects);
	text_size(out, bytes);
	ck_str_puts(out, "\n");
}

/* The file that is the source, or that it lies in; CK_NONE: no file. */
static uint32_t file_src(const struct ck_catalog *img, uint32_t src)
{
	const struct ck_src *s = &img->srcs[src];

	if (s->kind == CK_SRC_CODEC)
		src = s->parent;
	return img->srcs[src].kind == CK_SRC_MEM ? CK_NONE : src;
}

static void put_file(const struct ck_catalog *img, uint32_t src,
		     uint64_t pieces, struct ck_str *out)
{
	const struct ck_src *s = &img->srcs[src];
	size_t from = out->len;

	ck_str_puts(out, "          ");
	text_ref(out, img, s->name);
	text_pad(out, from, 44);
	ck_str_puts(out, " ");
	from = out->len;
	if (s->kind == CK_SRC_ABSENT)
		ck_str_puts(out, "MISSING");
	else
		text_size(out, s->len);
	text_pad(out, from, 12);
	ck_str_fmt(out, "%" PRIu64 " piece%s%s\n", pieces,
		   pieces == 1 ? "" : "s", s->state == CK_TORN ? ", TORN" : "");
}

struct files {
	const struct ck_catalog *img;
	const uint64_t *pieces; /* by source */
	struct ck_str *out;
	uint64_t shown, left;
};

/* "rank_{0..1023}.pt   10.0 KiB    1 piece each, 1024 files" */
static bool put_fold(void *ctx, const struct ck_str *text,
		     const struct fold_name *v, size_t nr)
{
	const struct ck_src *s;
	struct files *f = ctx;
	size_t from = f->out->len;

	if (f->shown++ >= MAX_FILES) {
		f->left += nr;
		return true;
	}
	if (nr == 1) {
		put_file(f->img, (uint32_t)v->index, f->pieces[v->index],
			 f->out);
		return true;
	}
	s = &f->img->srcs[v->index];
	ck_str_puts(f->out, "          ");
	ck_str_plain(f->out, text->v, text->len);
	text_pad(f->out, from, 44);
	ck_str_puts(f->out, " ");
	from = f->out->len;
	text_size(f->out, s->len);
	text_pad(f->out, from, 12);
	text_count(f->out, f->pieces[v->index], "piece");
	ck_str_fmt(f->out, " each, %zu files%s\n", nr,
		   s->state == CK_TORN ? ", TORN" : "");
	return true;
}

/* Those of one class are said to be alike: in length, pieces and state. */
static size_t class_of(const struct files *f, uint32_t src)
{
	const struct ck_src *s = &f->img->srcs[src];
	uint64_t h = s->len;

	if (s->kind == CK_SRC_ABSENT)
		return (size_t)src << 1 | 1; /* each is said */
	h = (h ^ f->pieces[src]) * UINT64_C(0x9e3779b97f4a7c15);
	return (size_t)((h ^ s->state) << 1);
}

/* Of many files those that are alike are one line. */
static void put_folded(struct files *f, uint64_t nr)
{
	const struct ck_catalog *img = f->img;
	ck_auto_free struct fold_name *v = calloc(nr + 1, sizeof(*v));
	size_t n = 0;

	for (uint32_t i = 0; v && i < img->nr_srcs; i++)
		if (file_src(img, i) == i)
			v[n++] = (struct fold_name){
				ck_catalog_str(img, img->srcs[i].name, NULL),
				class_of(f, i), i
			};
	f->out->failed |= !v || !fold_names(v, n, put_fold, f);
	if (f->left)
		ck_str_fmt(f->out, "          and %" PRIu64 " more\n", f->left);
}

static void put_files(const struct ck_catalog *img, struct ck_str *out)
{
	ck_auto_free uint64_t *pieces =
		calloc(img->nr_srcs + 1u, sizeof(*pieces));
	struct files all = { .img = img, .pieces = pieces, .out = out };
	uint64_t nr = 0, missing = 0, bytes = 0;

	if (!pieces) {
		out->failed = true;
		return;
	}
	for (uint32_t i = 0; i < img->nr_chunks; i++) {
		uint32_t f = file_src(img, img->chunks[i].src);

		if (f != CK_NONE)
			pieces[f]++;
	}
	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		if (file_src(img, i) != i)
			continue;
		nr++;
		missing += img->srcs[i].kind == CK_SRC_ABSENT;
		bytes +=
			img->srcs[i].kind == CK_SRC_FILE ? img->srcs[i].len : 0;
	}
	ck_str_fmt(out, "files     %" PRIu64 ", ", nr);
	text_size(out, bytes);
	if (missing)
		ck_str_fmt(out, ", and %" PRIu64 " of them missing", missing);
	ck_str_puts(out, "\n");
	if (nr > MAX_FILES) {
		put_folded(&all, nr);
		return;
	}
	for (uint32_t i = 0; i < img->nr_srcs; i++)
		if (file_src(img, i) == i)
			put_file(img, i, pieces[i], out);
}

static void put_pieces(const struct ck_catalog *img, struct ck_str *out)
{
	uint64_t cells = 0, all = 0;

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		cells += img->tensors[i].nr;
		all += img->tensors[i].nr_all;
	}
	ck_str_fmt(out, "pieces    %" PRIu64, cells);
	if (all > cells)
		ck_str_fmt(out, ", and %" PRIu64 " copies of them",
			   all - cells);
	ck_str_puts(out, "\n");
}

void summary_put(const struct ck_catalog *img, const char *path,
		 struct ck_str *out)
{
	ck_str_plain(out, path, strlen(path));
	ck_str_puts(out, "\nformat    ");
	text_ref(out, img, img->format);
	ck_str_puts(out, "\n");
	put_dtypes(img, out);
	put_objects(img, out);
	put_pieces(img, out);
	put_cuts(img, out);
	put_files(img, out);
}

static void put_clashes(const struct ck_catalog *img,
			const struct ck_model_names *n, struct ck_str *out)
{
	for (uint32_t i = 0; i < n->nr_clash; i++) {
		const struct ck_model_clash *c = &n->clash[i];

		ck_str_puts(out, "          not ");
		text_ref(out, img, img->tensors[c->tensor].name);
		ck_str_puts(out, ", for ");
		text_ref(out, img, img->tensors[c->other].name);
		ck_str_puts(out, " would get the same name\n");
	}
}

static void put_names(const struct ck_catalog *img,
		      const struct ck_model_names *n, const json_t *config,
		      const struct ck_opts *opts, struct ck_str *out)
{
	struct ck_translation t;

	if (ck_translate(&t, img, n, config, opts, NULL)) {
		out->failed = true;
	} else if (t.why.len) {
		ck_str_puts(out, "hf        warning: ");
		ck_str_plain(out, t.why.v, t.why.len);
		ck_str_puts(out, "\n");
	} else if (t.rule.len) {
		ck_str_fmt(out, "hf        %s\n", t.rule.v);
	} else {
		ck_str_fmt(out,
			   "hf        %" PRIu32
			   " tensors, taken off their names: ",
			   n->nr);
		ck_str_plain(out, n->rule.v, n->rule.len);
		ck_str_puts(out, "\n");
		put_clashes(img, n, out);
	}
	ck_translation_free(&t);
}

void summary_model(const struct ck_catalog *img, const struct ck_root *root,
		   const struct ck_opts *opts, struct ck_str *out)
{
	ck_auto_json json_t *config = NULL;
	struct ck_model_names n;
	uint32_t nr = 0;

	while (nr < img->nr_tensors && !img->tensors[nr].tree)
		nr++;
	if (ck_model_names_make(&n, img, 0, nr, opts, NULL)) {
		out->failed = true;
		return;
	}
	ck_model_config(&config, root, opts, NULL);
	put_names(img, &n, config, opts, out);
	ck_model_names_free(&n);
}
