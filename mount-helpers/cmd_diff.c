/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_diff.c - what is different between two checkpoints
 *
 * Names first, then the elements of what both have, see compare.h; where both
 * are sealed and untouched since, digests that agree save the reading.
 */
#include "mount-helpers/cmd.h"
#include "mount-helpers/compare.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/text.h"
#include "mount-helpers/values.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/vec.h"
#include "core/catalog/image.h"
#include "core/publish/manifest.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

extern const struct cmd cmd_diff;

struct side {
	struct ck_ckpt *ck;
	const struct ck_image *img;
	struct ck_manifest manifest;
	bool sealed; /* and its files are as the manifest says */
};

struct diff {
	struct side a, b;
	const char *glob; /* NULL: all names */
	bool json, all;
	CK_VEC(struct compare_pair) pair; /* a or b CK_NONE: only in one */
	uint64_t printed, equal, differ, only_a, only_b, unreadable;
	struct ck_str out;
	struct progress progress;
	struct ck_err err;
};

static bool chosen(const struct diff *d, const struct ck_image *img, uint32_t i)
{
	return !d->glob ||
	       !fnmatch(d->glob, ck_image_str(img, img->tensors[i].name, NULL),
			0);
}

/* The tensor of @to that is called like tensor @i of @from. */
static uint32_t counterpart(const struct ck_image *from, uint32_t i,
			    const struct ck_image *to)
{
	const struct ck_tensor *t = &from->tensors[i];
	const char *tree = ck_image_str(from, from->trees[t->tree], NULL);
	size_t len;
	const char *file = ck_image_str(from, t->file, &len);

	for (uint32_t j = 0; j < to->nr_trees; j++)
		if (!strcmp(tree, ck_image_str(to, to->trees[j], NULL)))
			return ck_image_find_file(to, j, file, len);
	return CK_NONE;
}

static bool same_shape(const struct ck_image *a, const struct ck_tensor *x,
		       const struct ck_image *b, const struct ck_tensor *y)
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
		tree = ck_image_str(s[i]->img, s[i]->img->trees[t[i]->tree],
				    &tree_len);
		name = ck_image_str(s[i]->img, t[i]->name, &len);
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

/* All of A in its order, then what only B has. */
static int make_pairs(struct diff *d)
{
	const struct ck_image *a = d->a.img, *b = d->b.img;
	struct compare_pair *p;

	for (uint32_t i = 0; i < a->nr_tensors; i++) {
		if (!chosen(d, a, i))
			continue;
		p = ck_vec_push(&d->pair);
		if (!p)
			return ck_fail(&d->err, ENOMEM, "no memory");
		*p = (struct compare_pair){ .a = i, .b = counterpart(a, i, b) };
		if (p->b == CK_NONE)
			p->kind = COMPARE_ABSENT;
		else
			look(d, p);
	}
	for (uint32_t i = 0; i < b->nr_tensors; i++) {
		if (!chosen(d, b, i) || counterpart(b, i, a) != CK_NONE)
			continue;
		p = ck_vec_push(&d->pair);
		if (!p)
			return ck_fail(&d->err, ENOMEM, "no memory");
		*p = (struct compare_pair){ .a = CK_NONE,
					    .b = i,
					    .kind = COMPARE_ABSENT };
	}
	return 0;
}

/* ---- what is said ---- */

static const char *status(const struct compare_pair *p)
{
	static const char *const names[] = {
		[COMPARE_EQUAL] = "equal",
		[COMPARE_DIFFERS] = "differs",
		[COMPARE_DTYPE] = "dtype",
		[COMPARE_SHAPE] = "shape",
		[COMPARE_UNREADABLE] = "unreadable",
	};

	if (p->kind == COMPARE_ABSENT)
		return p->b == CK_NONE ? "only-a" : "only-b";
	return names[p->kind];
}

static void count(struct diff *d, const struct compare_pair *p)
{
	if (p->kind == COMPARE_EQUAL)
		d->equal++;
	else if (p->kind == COMPARE_UNREADABLE)
		d->unreadable++;
	else if (p->kind != COMPARE_ABSENT)
		d->differ++;
	else if (p->b == CK_NONE)
		d->only_a++;
	else
		d->only_b++;
}

static uint8_t dtype_a(const struct diff *d, const struct compare_pair *p)
{
	return d->a.img->tensors[p->a].dtype;
}

static uint8_t dtype_b(const struct diff *d, const struct compare_pair *p)
{
	return d->b.img->tensors[p->b].dtype;
}

/* Where in the tensor element number @at is. */
static void index_of(const struct ck_image *img, const struct ck_tensor *t,
		     uint64_t at, uint64_t *index)
{
	for (unsigned d = t->rank; d-- > 0;) {
		index[d] = at % img->dims[t->shape + d];
		at /= img->dims[t->shape + d];
	}
}

static void text_elements(struct diff *d, const struct compare_pair *p)
{
	const struct ck_tensor *x = &d->a.img->tensors[p->a];
	uint64_t index[CK_MAX_RANK];
	uint64_t all = x->size / ck_dtype_info(x->dtype)->size;

	ck_str_fmt(&d->out, ": %" PRIu64 " of %" PRIu64 " elements differ",
		   p->changed, all);
	if (p->largest >= 0) {
		index_of(d->a.img, x, p->at, index);
		ck_str_fmt(&d->out, ", by at most %.9g, at ", p->largest);
		text_dims(&d->out, index, x->rank);
	}
	if (p->nans)
		ck_str_fmt(&d->out, ", %" PRIu64 " %s NaN in one of them",
			   p->nans, p->nans == 1 ? "is" : "are");
}

static void text_pair(struct diff *d, const struct compare_pair *p)
{
	const struct side *s = p->a == CK_NONE ? &d->b : &d->a;
	const struct ck_tensor *t =
		&s->img->tensors[p->a == CK_NONE ? p->b : p->a];
	static const char marks[] = { [COMPARE_EQUAL] = '=',
				      [COMPARE_DIFFERS] = '~',
				      [COMPARE_DTYPE] = '~',
				      [COMPARE_SHAPE] = '~',
				      [COMPARE_UNREADABLE] = '!' };

	ck_str_fmt(&d->out, "%c ",
		   p->kind != COMPARE_ABSENT ? marks[p->kind] :
		   p->b == CK_NONE	     ? '-' :
					       '+');
	text_tree(&d->out, s->img, t->tree);
	text_ref(&d->out, s->img, t->name);
	ck_str_fmt(&d->out, "  %s ", ck_dtype_info(t->dtype)->name);
	text_dims(&d->out, s->img->dims + t->shape, t->rank);
	if (p->kind != COMPARE_ABSENT && dtype_a(d, p) != dtype_b(d, p))
		ck_str_fmt(&d->out, " -> %s",
			   ck_dtype_info(dtype_b(d, p))->name);
	if (p->kind == COMPARE_SHAPE) {
		const struct ck_tensor *y = &d->b.img->tensors[p->b];

		ck_str_puts(&d->out, " -> ");
		text_dims(&d->out, d->b.img->dims + y->shape, y->rank);
	}
	if (p->changed)
		text_elements(d, p);
	if (p->why)
		ck_str_fmt(&d->out, ": %s", p->why);
	ck_str_puts(&d->out, "\n");
}

static void json_side(struct ck_str *out, const char *key,
		      const struct ck_image *img, uint32_t i)
{
	const struct ck_tensor *t;

	ck_str_fmt(out, ", \"%s\": ", key);
	if (i == CK_NONE) {
		ck_str_puts(out, "null");
		return;
	}
	t = &img->tensors[i];
	ck_str_fmt(out, "{\"dtype\": \"%s\", \"shape\": ",
		   ck_dtype_info(t->dtype)->name);
	ck_str_json_u64(out, img->dims + t->shape, t->rank);
	ck_str_puts(out, "}");
}

static void json_elements(struct diff *d, const struct compare_pair *p)
{
	const struct ck_tensor *x = &d->a.img->tensors[p->a];
	uint64_t index[CK_MAX_RANK];

	ck_str_fmt(&d->out, ", \"changed\": %" PRIu64 ", \"nan\": %" PRIu64,
		   p->changed, p->nans);
	if (p->largest < 0)
		return;
	index_of(d->a.img, x, p->at, index);
	ck_str_puts(&d->out, ", \"largest\": ");
	value_text(CK_DT_F64, &p->largest, &d->out);
	ck_str_puts(&d->out, ", \"at\": ");
	ck_str_json_u64(&d->out, index, x->rank);
}

static void json_pair(struct diff *d, const struct compare_pair *p)
{
	const struct ck_image *img = p->a == CK_NONE ? d->b.img : d->a.img;
	const struct ck_tensor *t =
		&img->tensors[p->a == CK_NONE ? p->b : p->a];
	size_t len;
	const char *text = ck_image_str(img, t->name, &len);

	ck_str_puts(&d->out, d->printed ? ",\n{\"name\": " :
					  "{\"tensors\": [\n{\"name\": ");
	ck_str_json(&d->out, text, len);
	text = ck_image_str(img, img->trees[t->tree], &len);
	if (len) {
		ck_str_puts(&d->out, ", \"tree\": ");
		ck_str_json(&d->out, text, len);
	}
	ck_str_fmt(&d->out, ", \"status\": \"%s\"", status(p));
	json_side(&d->out, "a", d->a.img, p->a);
	json_side(&d->out, "b", d->b.img, p->b);
	if (p->kind == COMPARE_DIFFERS)
		json_elements(d, p);
	if (p->by_digest)
		ck_str_puts(&d->out, ", \"by_digest\": true");
	if (p->why) {
		ck_str_puts(&d->out, ", \"reason\": ");
		ck_str_json(&d->out, p->why, strlen(p->why));
	}
	ck_str_puts(&d->out, "}");
}

static void summary(struct diff *d)
{
	static const char *const text =
		"%" PRIu64 " equal, %" PRIu64 " differ, %" PRIu64
		" only in A, %" PRIu64 " only in B";

	if (d->json) {
		ck_str_puts(&d->out,
			    d->printed ? "\n], " : "{\"tensors\": [], ");
		ck_str_fmt(&d->out,
			   "\"equal\": %" PRIu64 ", \"differ\": %" PRIu64
			   ", \"only_a\": %" PRIu64 ", \"only_b\": %" PRIu64
			   ", \"unreadable\": %" PRIu64 "}\n",
			   d->equal, d->differ, d->only_a, d->only_b,
			   d->unreadable);
		return;
	}
	ck_str_fmt(&d->out, text, d->equal, d->differ, d->only_a, d->only_b);
	if (d->unreadable)
		ck_str_fmt(&d->out, ", %" PRIu64 " cannot be read",
			   d->unreadable);
	ck_str_puts(&d->out, "\n");
}

static int print(struct diff *d)
{
	bool ok = true;

	if (d->glob && !d->pair.nr)
		return cmd_fail(&cmd_diff, CMD_USAGE,
				"no tensor of A or B has a name like \"%s\" "
				"(unshard ls lists them)",
				d->glob);
	for (size_t i = 0; i < d->pair.nr && ok; i++) {
		const struct compare_pair *p = &d->pair.v[i];

		count(d, p);
		if (p->kind == COMPARE_EQUAL && !d->all)
			continue;
		if (d->json)
			json_pair(d, p);
		else
			text_pair(d, p);
		d->printed++;
		ok = text_flush(&d->out);
	}
	summary(d);
	ok = ok && text_flush(&d->out);
	if (cmd_flush(&cmd_diff))
		return CMD_SYSTEM;
	if (!ok)
		return cmd_fail(&cmd_diff, CMD_SYSTEM, "no memory");
	if (d->unreadable)
		return cmd_fail(&cmd_diff, CMD_BAD_CKPT,
				"%s, %s: %" PRIu64 " tensor%s cannot be read",
				ck_ckpt_root(d->a.ck)->path,
				ck_ckpt_root(d->b.ck)->path, d->unreadable,
				d->unreadable == 1 ? "" : "s");
	return d->equal == d->pair.nr ? CMD_OK : CMD_BAD_CKPT;
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
		name = ck_image_str(s->img, src->name, &len);
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

static int compare(struct diff *d)
{
	struct compare_in in = {
		.a = d->a.ck, .b = d->b.ck, .tick = tick, .ctx = &d->progress
	};
	int ret = make_pairs(d);

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
	d.a = (struct side){ .ck = ck[0], .img = ck_ckpt_image(ck[0]) };
	d.b = (struct side){ .ck = ck[1], .img = ck_ckpt_image(ck[1]) };
	if (!ck_opts_get(opts, "read-all")) {
		take_manifest(&d.a);
		take_manifest(&d.b);
	}
	ret = compare(&d) ? cmd_err(&cmd_diff, &d.err) : print(&d);
	for (size_t i = 0; i < d.pair.nr; i++)
		free(d.pair.v[i].why);
	free(d.pair.v);
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
