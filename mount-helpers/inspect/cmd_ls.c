/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_ls.c - what is in a checkpoint, a line each
 *
 * Two passes, one for the widths of the columns, so that a million tensors
 * need no more memory than one.
 */
#include "mount-helpers/health.h"
#include "mount-helpers/plan_reshard.h"
#include "mount-helpers/inspect/inspect.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/dump.h"
#include "core/geom/dtype.h"
#include "core/view/view.h"

#include <inttypes.h>

extern const struct cmd cmd_ls;

#define SHAPE_MAX 32 /* a column that one strange tensor does not widen */

struct widths {
	size_t dtype, shape, bytes, state;
};

static void widen(size_t *width, size_t to, size_t most)
{
	*width = CK_MAX(*width, CK_MIN(to, most));
}

static size_t digits(uint64_t v)
{
	size_t n = 1;

	while (v /= 10)
		n++;
	return n;
}

static void measure(const struct ck_catalog *img, struct widths *w)
{
	ck_auto_str struct ck_str s = { 0 };

	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];

		s.len = 0;
		text_dims(&s, img->dims + t->shape, t->rank);
		widen(&w->shape, s.len, SHAPE_MAX);
		s.len = 0;
		ck_str_puts(&s, ck_dtype_info(t->dtype)->name);
		widen(&w->dtype, s.len, SHAPE_MAX);
		widen(&w->bytes, digits(t->size), SHAPE_MAX);
		if (t->state != CK_OK)
			w->state = sizeof("missing") - 1;
	}
	for (uint32_t i = 0; i < img->nr_objects; i++) {
		widen(&w->dtype, sizeof("object") - 1, SHAPE_MAX);
		widen(&w->shape, sizeof("pickle") - 1, SHAPE_MAX);
		widen(&w->bytes, digits(img->objects[i].len), SHAPE_MAX);
		if (img->srcs[img->objects[i].src].kind == CK_SRC_ABSENT)
			w->state = sizeof("missing") - 1;
	}
	w->state = CK_MAX(w->state, sizeof("ok") - 1);
}

/* One line up to the name, which stands last because it may be anything. */
static void line(struct ck_str *s, const struct widths *w, const char *dtype,
		 const struct ck_str *shape, uint64_t bytes, const char *state)
{
	ck_str_fmt(s, "%-*s  %-*s  %*" PRIu64 "  %-*s  ", (int)w->dtype, dtype,
		   (int)w->shape, shape->v ? shape->v : "", (int)w->bytes,
		   bytes, (int)w->state, state);
}

static bool list(const struct ck_catalog *img)
{
	ck_auto_str struct ck_str s = { 0 }, shape = { 0 };
	struct widths w = { 0 };

	measure(img, &w);
	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];

		shape.len = 0;
		text_dims(&shape, img->dims + t->shape, t->rank);
		line(&s, &w, ck_dtype_info(t->dtype)->name, &shape, t->size,
		     text_state(t->state));
		text_tree(&s, img, t->tree);
		text_ref(&s, img, t->name);
		ck_str_puts(&s, "\n");
		if (!text_flush(&s))
			return false;
	}
	for (uint32_t i = 0; i < img->nr_objects; i++) {
		const struct ck_object *o = &img->objects[i];
		bool absent = img->srcs[o->src].kind == CK_SRC_ABSENT;

		shape.len = 0;
		ck_str_puts(&shape, text_enc(o->enc));
		line(&s, &w, "object", &shape, o->len,
		     text_state(absent ? CK_MISSING : CK_OK));
		text_tree(&s, img, o->tree);
		text_ref(&s, img, o->name);
		ck_str_puts(&s, "\n");
		if (!text_flush(&s))
			return false;
	}
	return true;
}

static bool list_json(const struct ck_catalog *img)
{
	ck_auto_str struct ck_str s = { 0 };
	struct ck_dump_pos pos = { 0 };

	while (ck_dump_next(img, CK_DUMP_LIST, 1, &pos, &s))
		if (!text_flush(&s))
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

static int ls(const char *path, const struct ck_opts *opts)
{
	struct ck_ckpt *ck;
	struct ck_err err = { 0 };
	const struct ck_catalog *img;
	bool ok;
	int ret;

	if (cmd_open_shown(&ck, &path, 1, true, opts, &err))
		return run_dir_list(&cmd_ls, path, opts, &err);
	img = ck_ckpt_catalog(ck);
	if (ck_views_find_problems(ck, opts, &err)) {
		ck_ckpt_close(ck);
		return cmd_err(&cmd_ls, &err);
	}
	ok = ck_opts_get(opts, "json") ? list_json(img) : list(img);
	ret = cmd_flush(&cmd_ls);
	if (!ret && !ok)
		ret = cmd_fail(&cmd_ls, CMD_SYSTEM, "no memory");
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
	int ret = CMD_USAGE;

	if (cmd_parse(&cmd_ls, argc, argv, &opts) >= 0)
		ret = ls(argv[1], &opts);
	ck_opts_free(&opts);
	return ret;
}

const struct cmd cmd_ls = {
	.name = "ls",
	.group = CMD_LOOK,
	.args = "CKPT",
	.summary = "list the tensors, and what else was saved",
	.help = "A line each: element type, shape, bytes, state, name.\n"
		"Of a directory of checkpoints: state, tensors, bytes, name.\n",
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
