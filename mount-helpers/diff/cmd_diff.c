/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_diff.c - what is different between two checkpoints
 *
 * Names first, then the elements of what both have, see compare.h; where both
 * are sealed and untouched since, digests that agree save the reading.
 */
#include "mount-helpers/cmd.h"
#include "mount-helpers/diff/diff.h"
#include "mount-helpers/health.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/catalog/catalog.h"

#include <errno.h>
#include <string.h>

/* By name: what @s refused with number @i, and @name of @img. */
static int compare_refused(const struct side *s, uint32_t i,
			   const struct ck_catalog *img, uint32_t name)
{
	return text_compare(s->img, s->img->problems[s->refused[i]].tensor, img,
			    name);
}

/* The problem for which @s has no tensor so called; CK_NONE: it never had one. */
static uint32_t refused(const struct side *s, const struct ck_catalog *img,
			uint32_t name)
{
	uint32_t at = CK_FIRST(i, 0, s->nr_refused,
			       compare_refused(s, i, img, name) >= 0);

	return at < s->nr_refused && !compare_refused(s, at, img, name) ?
		       s->refused[at] :
		       CK_NONE;
}

/* The tensor of @to that is called like tensor @i of @from. */
static uint32_t counterpart(const struct ck_catalog *from, uint32_t i,
			    const struct ck_catalog *to)
{
	const struct ck_tensor *t = &from->tensors[i];
	const char *tree = ck_catalog_str(from, from->trees[t->tree], NULL);
	size_t len;
	const char *file = ck_catalog_str(from, t->file, &len);

	for (uint32_t j = 0; j < to->nr_trees; j++)
		if (!strcmp(tree, ck_catalog_str(to, to->trees[j], NULL)))
			return ck_catalog_find_file(to, j, file, len);
	return CK_NONE;
}

static bool same_shape(const struct ck_catalog *a, const struct ck_tensor *x,
		       const struct ck_catalog *b, const struct ck_tensor *y)
{
	return x->rank == y->rank &&
	       !memcmp(a->dims + x->shape, b->dims + y->shape,
		       x->rank * sizeof(*a->dims));
}

/* Digests of the same bytes, and the same type of them. */
static bool same_digest(const struct diff *d, const struct ck_tensor *x,
			const struct ck_tensor *y)
{
	const struct side *s[] = { &d->a, &d->b };
	const struct ck_tensor *t[] = { x, y };
	struct ck_manifest_tensor m[2];

	for (unsigned i = 0; i < 2; i++) {
		size_t tree_len, len;
		const char *tree, *name;

		if (!s[i]->sealed)
			return false;
		tree = ck_catalog_str(s[i]->img, s[i]->img->trees[t[i]->tree],
				      &tree_len);
		name = ck_catalog_str(s[i]->img, t[i]->name, &len);
		if (!ck_manifest_find_tensor(&s[i]->manifest, tree, tree_len,
					     name, len, &m[i]) ||
		    !m[i].known || m[i].size != t[i]->size)
			return false;
	}
	return x->dtype == y->dtype && m[0].digest.hi == m[1].digest.hi &&
	       m[0].digest.lo == m[1].digest.lo;
}

static void look(const struct diff *d, struct compare_pair *p)
{
	const struct ck_tensor *x = &d->a.img->tensors[p->a];
	const struct ck_tensor *y = &d->b.img->tensors[p->b];

	if (!same_shape(d->a.img, x, d->b.img, y))
		p->kind = COMPARE_SHAPE;
	else
		p->by_digest = same_digest(d, x, y);
}

/* Only one has it: unless the other refused one of that name. */
static int look_absent(struct diff *d, struct compare_pair *p)
{
	const struct side *has = p->a == CK_NONE ? &d->b : &d->a;
	const struct side *lacks = p->a == CK_NONE ? &d->a : &d->b;
	uint32_t i = p->a == CK_NONE ? p->b : p->a;
	uint32_t problem = refused(lacks, has->img, has->img->tensors[i].name);
	struct ck_str why = { 0 };

	p->kind = COMPARE_ABSENT;
	if (problem == CK_NONE)
		return 0;
	p->kind = COMPARE_UNREADABLE;
	diff_put_refusal(&why, lacks, problem);
	p->why = why.v;
	return why.failed ? ck_no_memory(&d->err) : 0;
}

static bool has_name(const struct ck_catalog *img, const char *name, size_t len)
{
	for (uint32_t tree = 0; tree < img->nr_trees; tree++)
		if (ck_catalog_find_name(img, tree, name, len) != CK_NONE)
			return true;
	return false;
}

/* What @s refused and @other has not, nor, unless @both, refused. */
static int add_refusals(struct diff *d, const struct side *s,
			const struct side *other, bool both)
{
	for (uint32_t i = 0; i < s->nr_refused; i++) {
		uint32_t ref = s->img->problems[s->refused[i]].tensor;
		size_t len;
		const char *name = ck_catalog_str(s->img, ref, &len);
		struct refusal *r;

		if (!diff_chosen(d, s->img, ref) ||
		    has_name(other->img, name, len) ||
		    (!both && refused(other, s->img, ref) != CK_NONE))
			continue;
		r = ck_vec_push(&d->refusal);
		if (!r)
			return ck_no_memory(&d->err);
		*r = (struct refusal){ .s = s, .problem = s->refused[i] };
	}
	return 0;
}

static struct compare_pair *add_pair(struct diff *d, uint32_t a, uint32_t b)
{
	struct compare_pair *p = ck_vec_push(&d->pair);

	if (p)
		*p = (struct compare_pair){ .a = a, .b = b };
	else
		ck_no_memory(&d->err);
	return p;
}

/* All of A in its order, then what only B has, then what neither shows. */
static int make_pairs(struct diff *d)
{
	const struct ck_catalog *a = d->a.img, *b = d->b.img;
	struct compare_pair *p;
	int ret;

	for (uint32_t i = 0; i < a->nr_tensors; i++) {
		if (!diff_chosen(d, a, a->tensors[i].name))
			continue;
		p = add_pair(d, i, counterpart(a, i, b));
		if (!p)
			return -ENOMEM;
		if (p->b != CK_NONE)
			look(d, p);
		else if (look_absent(d, p))
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < b->nr_tensors; i++) {
		if (!diff_chosen(d, b, b->tensors[i].name) ||
		    counterpart(b, i, a) != CK_NONE)
			continue;
		p = add_pair(d, CK_NONE, i);
		if (!p || look_absent(d, p))
			return -ENOMEM;
	}
	ret = add_refusals(d, &d->a, &d->b, true);
	return ret ? ret : add_refusals(d, &d->b, &d->a, false);
}

/* ---- opening ---- */

static int64_t mtime_s(const struct ck_src *s)
{
	return s->id.mtime_ns / 1000000000;
}

/* A manifest says nothing of files that were written to since. */
static bool untouched(const struct side *s)
{
	for (uint32_t i = 0; i < s->img->nr_srcs; i++) {
		const struct ck_src *src = &s->img->srcs[i];
		struct ck_manifest_file f;
		size_t len;
		const char *name;

		if (src->kind == CK_SRC_CODEC || src->kind == CK_SRC_MEM)
			continue;
		if (src->kind != CK_SRC_FILE)
			return false;
		name = ck_catalog_str(s->img, src->name, &len);
		if (!ck_manifest_find_file(&s->manifest, name, len, &f) ||
		    f.size != src->id.size || mtime_s(src) >= s->manifest.made)
			return false;
	}
	return true;
}

static void take_manifest(struct side *s)
{
	if (ck_manifest_load(&s->manifest, ck_ckpt_root(s->ck), NULL))
		return;
	s->sealed = untouched(s);
}

static void tick(void *ctx, uint64_t bytes, uint64_t total)
{
	progress_at(ctx, bytes, total);
}

static int take_refused(struct diff *d, struct side *s)
{
	s->nr_refused = health_refusals(s->img, &s->refused);
	return s->refused ? 0 : ck_no_memory(&d->err);
}

static int compare(struct diff *d)
{
	struct compare_in in = {
		.a = d->a.ck, .b = d->b.ck, .tick = tick, .ctx = &d->progress
	};
	int ret = take_refused(d, &d->a);

	if (!ret)
		ret = take_refused(d, &d->b);
	if (!ret)
		ret = make_pairs(d);
	if (ret)
		return ret;
	in.pair = d->pair.v;
	in.nr = d->pair.nr;
	progress_begin(&d->progress, "tensors");
	ret = compare_run(&in, &d->err);
	progress_end(&d->progress);
	return ret;
}

static int diff(char **argv, unsigned nr, const struct ck_opts *opts)
{
	struct diff d = { .glob = nr > 2 ? argv[3] : NULL,
			  .json = ck_opts_get(opts, "json"),
			  .all = ck_opts_get(opts, "all") };
	struct ck_ckpt *ck[2];
	int ret = cmd_open_shown(ck, (const char *const *)argv + 1, 2, false,
				 opts, &d.err);

	if (ret)
		return cmd_err(&cmd_diff, &d.err);
	d.a = (struct side){ .ck = ck[0], .img = ck_ckpt_catalog(ck[0]) };
	d.b = (struct side){ .ck = ck[1], .img = ck_ckpt_catalog(ck[1]) };
	if (!ck_opts_get(opts, "read-all")) {
		take_manifest(&d.a);
		take_manifest(&d.b);
	}
	ret = compare(&d) ? cmd_err(&cmd_diff, &d.err) : diff_print(&d);
	for (size_t i = 0; i < d.pair.nr; i++)
		free(d.pair.v[i].why);
	free(d.pair.v);
	free(d.refusal.v);
	free(d.a.refused);
	free(d.b.refused);
	ck_str_free(&d.out);
	ck_manifest_free(&d.a.manifest);
	ck_manifest_free(&d.b.manifest);
	ck_ckpt_close(ck[0]);
	ck_ckpt_close(ck[1]);
	return ret;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	int nr = cmd_parse(&cmd_diff, argc, argv, &opts);
	int ret = nr < 0 ? CMD_USAGE : diff(argv, (unsigned)nr, &opts);

	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ .letter = 'a', .name = "all", .help = "list equal tensors too" },
	{ .name = "read-all", .help = "read what digests say is equal too" },
	{ 0 },
};

const struct cmd cmd_diff = {
	.name = "diff",
	.group = CMD_LOOK,
	.args = "A B [GLOB]",
	.summary = "say what is different between two checkpoints",
	.help = "A line for each tensor that is not the same: - only in A, "
		"+ only in B,\n~ other elements, type or shape, ! cannot be "
		"read.  GLOB chooses by name.\n",
	.flags = flags,
	.min_words = 2,
	.max_words = 3,
	.run = run,
};
