/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_ls.c - what is in a checkpoint, a line each
 *
 * In natural order; two passes, one for the widths of the columns, so that of a
 * million tensors no more is kept than their numbers.
 */
#include "mount-helpers/health.h"
#include "mount-helpers/plan_reshard.h"
#include "mount-helpers/choose.h"
#include "mount-helpers/inspect/fold.h"
#include "mount-helpers/inspect/inspect.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/dump.h"
#include "core/geom/dtype.h"
#include "core/view/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct cmd cmd_ls;

#define SHAPE_MAX 32 /* a column that one strange tensor does not widen */

struct ls {
	const struct ck_catalog *img;
	struct choice chosen;
	bool human, fold, total;
	int dtype, shape, bytes, state; /* widths */
	struct ck_str out;
};

static void widen(int *width, size_t to)
{
	*width = CK_MAX(*width, (int)CK_MIN(to, (size_t)SHAPE_MAX));
}

static void put_bytes(const struct ls *l, uint64_t bytes, struct ck_str *out)
{
	if (l->human)
		text_size(out, bytes);
	else
		ck_str_u64(out, bytes);
}

static uint8_t object_state(const struct ck_catalog *img,
			    const struct ck_object *o)
{
	return img->srcs[o->src].kind == CK_SRC_ABSENT ? CK_MISSING : CK_OK;
}

static void measure_one(struct ls *l, const char *dtype, uint64_t bytes,
			uint8_t state)
{
	ck_auto_str struct ck_str s = { 0 };

	put_bytes(l, bytes, &s);
	widen(&l->bytes, s.len);
	widen(&l->dtype, strlen(dtype));
	if (state != CK_OK)
		l->state = sizeof("missing") - 1;
}

static void measure(struct ls *l)
{
	ck_auto_str struct ck_str s = { 0 };

	l->state = sizeof("ok") - 1;
	for (uint32_t i = 0; i < l->chosen.nr_tensors; i++) {
		const struct ck_tensor *t =
			&l->img->tensors[l->chosen.tensor[i]];

		s.len = 0;
		text_dims(&s, l->img->dims + t->shape, t->rank);
		widen(&l->shape, s.len);
		measure_one(l, ck_dtype_info(t->dtype)->name, t->size,
			    t->state);
	}
	for (uint32_t i = 0; i < l->chosen.nr_objects; i++) {
		const struct ck_object *o =
			&l->img->objects[l->chosen.object[i]];

		widen(&l->shape, sizeof("pickle") - 1);
		measure_one(l, "object", o->len, object_state(l->img, o));
	}
}

/* One line up to the name, which stands last because it may be anything. */
static void put_head(struct ls *l, const char *dtype,
		     const struct ck_str *shape, uint64_t each, uint8_t state)
{
	static const char *const colour[] = { [CK_OK] = TEXT_GREEN,
					      [CK_TORN] = TEXT_RED,
					      [CK_MISSING] = TEXT_RED };
	ck_auto_str struct ck_str bytes = { 0 };

	put_bytes(l, each, &bytes);
	ck_str_fmt(&l->out, "%-*s  %-*s  %*s  %s%-*s%s  ", l->dtype, dtype,
		   l->shape, shape->v ? shape->v : "", l->bytes,
		   bytes.v ? bytes.v : "", text_colour(colour[state]), l->state,
		   text_state(state), text_colour(TEXT_PLAIN));
}

static void put_tensor_head(struct ls *l, uint32_t i)
{
	const struct ck_tensor *t = &l->img->tensors[i];
	ck_auto_str struct ck_str shape = { 0 };

	text_dims(&shape, l->img->dims + t->shape, t->rank);
	put_head(l, ck_dtype_info(t->dtype)->name, &shape, t->size, t->state);
	text_tree(&l->out, l->img, t->tree);
}

static bool put_fold(void *ctx, const struct ck_str *text,
		     const struct fold_name *v, size_t nr)
{
	struct ls *l = ctx;

	put_tensor_head(l, (uint32_t)v->index);
	ck_str_puts(&l->out, text->v ? text->v : "");
	if (nr > 1)
		ck_str_fmt(&l->out, "  \xc3\x97%zu", nr);
	ck_str_puts(&l->out, "\n");
	return text_flush(&l->out);
}

/* Only what is the same but for its name is folded. */
static size_t class_of(const struct ls *l, const struct ck_tensor *t)
{
	uint64_t h = t->dtype | (uint64_t)t->state << 8 |
		     (uint64_t)t->rank << 16 | (uint64_t)t->tree << 24;

	for (unsigned d = 0; d < t->rank; d++)
		h = (h ^ l->img->dims[t->shape + d]) *
		    UINT64_C(0x9e3779b97f4a7c15);
	return (size_t)h;
}

static bool list_folded(struct ls *l)
{
	uint32_t nr = l->chosen.nr_tensors;
	ck_auto_free struct fold_name *v = calloc(nr + 1u, sizeof(*v));

	for (uint32_t i = 0; v && i < nr; i++) {
		uint32_t t = l->chosen.tensor[i];

		v[i].name =
			ck_catalog_str(l->img, l->img->tensors[t].name, NULL);
		v[i].index = t;
		v[i].class = class_of(l, &l->img->tensors[t]);
	}
	return v && fold_names(v, nr, put_fold, l);
}

static bool list_each(struct ls *l)
{
	for (uint32_t i = 0; i < l->chosen.nr_tensors; i++) {
		uint32_t t = l->chosen.tensor[i];

		put_tensor_head(l, t);
		text_ref(&l->out, l->img, l->img->tensors[t].name);
		ck_str_puts(&l->out, "\n");
		if (!text_flush(&l->out))
			return false;
	}
	return true;
}

static bool list_objects(struct ls *l)
{
	for (uint32_t i = 0; i < l->chosen.nr_objects; i++) {
		const struct ck_object *o =
			&l->img->objects[l->chosen.object[i]];
		ck_auto_str struct ck_str shape = { 0 };

		ck_str_puts(&shape, text_enc(o->enc));
		put_head(l, "object", &shape, o->len, object_state(l->img, o));
		text_tree(&l->out, l->img, o->tree);
		text_ref(&l->out, l->img, o->name);
		ck_str_puts(&l->out, "\n");
		if (!text_flush(&l->out))
			return false;
	}
	return true;
}

static bool put_total(struct ls *l)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < l->chosen.nr_tensors; i++)
		bytes += l->img->tensors[l->chosen.tensor[i]].size;
	ck_str_fmt(&l->out, "%" PRIu32 " tensor%s, ", l->chosen.nr_tensors,
		   l->chosen.nr_tensors == 1 ? "" : "s");
	text_size(&l->out, bytes);
	if (l->chosen.nr_objects)
		ck_str_fmt(&l->out, ", %" PRIu32 " object%s",
			   l->chosen.nr_objects,
			   l->chosen.nr_objects == 1 ? "" : "s");
	ck_str_puts(&l->out, "\n");
	return text_flush(&l->out);
}

static bool list(struct ls *l)
{
	measure(l);
	return (l->fold ? list_folded(l) : list_each(l)) && list_objects(l) &&
	       (!l->total || put_total(l));
}

static int by_number(const void *pa, const void *pb)
{
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	return a < b ? -1 : a > b;
}

/* The document of those alone, in the catalog's order. */
static bool list_json(struct ls *l)
{
	struct ck_catalog img = *l->img;
	ck_auto_free struct ck_tensor *t =
		calloc(img.nr_tensors + 1u, sizeof(*t));
	ck_auto_free struct ck_object *o =
		calloc(img.nr_objects + 1u, sizeof(*o));
	struct ck_dump_pos pos = { 0 };

	if (!t || !o)
		return false;
	qsort(l->chosen.tensor, l->chosen.nr_tensors, sizeof(uint32_t),
	      by_number);
	qsort(l->chosen.object, l->chosen.nr_objects, sizeof(uint32_t),
	      by_number);
	for (uint32_t i = 0; i < l->chosen.nr_tensors; i++)
		t[i] = img.tensors[l->chosen.tensor[i]];
	for (uint32_t i = 0; i < l->chosen.nr_objects; i++)
		o[i] = img.objects[l->chosen.object[i]];
	img.tensors = t;
	img.nr_tensors = l->chosen.nr_tensors;
	img.objects = o;
	img.nr_objects = l->chosen.nr_objects;
	while (ck_dump_next(&img, CK_DUMP_LIST, 1, &pos, &l->out))
		if (!text_flush(&l->out))
			return false;
	return true;
}

/* A line on stderr for those who list and do not inspect. */
static void warn(const char *path, const struct ck_catalog *img)
{
	const struct ck_problem *first = NULL;
	ck_auto_str struct ck_str text = { 0 };
	uint64_t nr = 0;

	for (uint32_t i = 0; i < img->nr_problems; i++) {
		if (img->problems[i].severity != CK_WARNING)
			continue;
		first = first ? first : &img->problems[i];
		nr++;
	}
	if (!first)
		return;
	if (first->tensor != CK_NONE)
		text_ref(&text, img, first->tensor);
	else if (first->file != CK_NONE)
		text_ref(&text, img, first->file);
	ck_str_puts(&text, text.len ? ": " : "");
	text_ref(&text, img, first->reason);
	if (nr > 1)
		ck_str_fmt(&text, ", and %" PRIu64 " more (unshard inspect)",
			   nr - 1);
	if (!text.failed)
		cmd_fail(&cmd_ls, CMD_OK, "%s: warning: %s", path, text.v);
}

/* Prints it; an exit code. */
static int show(const struct ck_catalog *img, char *const *pattern, unsigned nr,
		const struct ck_opts *opts)
{
	struct ls l = { .img = img,
			.human = ck_opts_get(opts, "human"),
			.fold = ck_opts_get(opts, "fold"),
			.total = ck_opts_get(opts, "total") ||
				 isatty(STDOUT_FILENO) };
	bool ok = choose(&l.chosen, img, pattern, nr);
	bool none = ok && nr && !l.chosen.nr_tensors && !l.chosen.nr_objects;
	int ret;

	if (ok && !none)
		ok = ck_opts_get(opts, "json") ? list_json(&l) : list(&l);
	ret = cmd_flush(&cmd_ls);
	if (!ret && !ok)
		ret = cmd_fail(&cmd_ls, CMD_SYSTEM, "no memory");
	if (!ret && none)
		ret = cmd_fail(&cmd_ls, CMD_USAGE,
			       "%s: no tensor or object has such a name",
			       *pattern);
	choice_free(&l.chosen);
	ck_str_free(&l.out);
	return ret;
}

static int ls(int nr, char **argv, const struct ck_opts *opts)
{
	const char *path = nr ? argv[1] : ".";
	unsigned nr_globs = nr ? (unsigned)nr - 1 : 0;
	struct ck_ckpt *ck;
	struct ck_err err = { 0 };
	const struct ck_catalog *img;
	int ret;

	if (cmd_open_shown(&ck, &path, 1, !nr_globs, opts, &err))
		return nr_globs ? cmd_err(&cmd_ls, &err) :
				  run_dir_list(&cmd_ls, path, opts, &err);
	img = ck_ckpt_catalog(ck);
	if (ck_views_find_problems(ck, opts, &err)) {
		ck_ckpt_close(ck);
		return cmd_err(&cmd_ls, &err);
	}
	ret = show(img, argv + 2, nr_globs, opts);
	if (!ret)
		health_errors(&cmd_ls, img);
	if (!ret)
		ret = health_report(&cmd_ls, path, img, 0);
	if (!ret)
		warn(path, img);
	if (!ret)
		plan_reshard_unused(&cmd_ls, path, img, opts);
	if (!ret)
		health_runtime(&cmd_ls, path, ck);
	ck_ckpt_close(ck);
	return ret;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_ls, argc, argv, &opts);
	int ret = nr < 0 ? CMD_USAGE : ls(nr, argv, &opts);

	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 'f', "fold", "names that differ by numbers alone in one line" },
	{ 'h', "human", "bytes in KiB, MiB and so on" },
	{ 'H', "human", NULL },
	{ 'l', "long", NULL }, /* as ls -lh is typed; a line is never short */
	{ 't', "total", "a last line with the sums, as on a terminal" },
	{ 0 },
};

const struct cmd cmd_ls = {
	.name = "ls",
	.group = CMD_LOOK,
	.args = "[CKPT [GLOB]...]",
	.summary = "list the tensors, and what else was saved",
	.help = "A line each: element type, shape, bytes, state, name.\n"
		"Of a directory of checkpoints: state, tensors, bytes, name.\n"
		"GLOB chooses by name: '*.weight'.\n",
	.flags = flags,
	.max_words = 1000,
	.run = run,
};
