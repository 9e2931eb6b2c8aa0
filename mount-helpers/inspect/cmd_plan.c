/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_plan.c - which bytes of which files are behind a tensor or a slice
 *
 * What the cursor says, as text (a line a segment) or as JSON (every stretch
 * of bytes by itself, so that nothing is left to be worked out).  Streamed.
 */
#include "core/options/options.h"
#include "mount-helpers/plan_reshard.h"
#include "core/lib/plan.h"
#include "core/lib/target.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct cmd cmd_plan;

struct plan {
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	const struct ck_tensor *t;
	struct ck_target target;
	const char *name; /* as given */
	struct ck_plan_sums sums;
	bool ok;
	struct ck_str out;
	struct ck_err err;
};

static void flush(struct plan *p)
{
	p->ok = p->ok && text_flush(&p->out);
}

static void text_seg(struct plan *p, const struct ck_seg *seg)
{
	const struct ck_chunk *c = &p->img->chunks[seg->chunk];
	const struct ck_src *src = &p->img->srcs[c->src];
	uint32_t file = ck_catalog_file_of(p->img, c->src);
	struct ck_str *o = &p->out;

	if (seg->kind == CK_SEG_COPY)
		ck_str_fmt(o, "%14" PRIu64, seg->src_off);
	else
		ck_str_fmt(o, "%14s", "-");
	ck_str_fmt(o, " %12" PRIu64 " %14" PRIu64 "  ", seg->run, seg->dst);
	if (file == CK_NONE)
		ck_str_puts(o, "(in the index)");
	text_ref(o, p->img, file);
	for (unsigned d = 0; d < seg->nax; d++) {
		ck_str_fmt(o, "  x %" PRIu64, seg->ax[d].n);
		if (seg->kind == CK_SEG_COPY)
			ck_str_fmt(o, " every %" PRId64 " -> %" PRId64,
				   seg->ax[d].src, seg->ax[d].dst);
		else
			ck_str_fmt(o, " -> every %" PRId64, seg->ax[d].dst);
	}
	if (seg->kind != CK_SEG_COPY)
		ck_str_fmt(o, "  ERROR: %s",
			   ck_plan_why(p->img, seg->chunk, seg->err));
	else if (src->kind == CK_SRC_CODEC)
		ck_str_fmt(o,
			   "  (of what zstd makes of bytes %" PRIu64
			   " to %" PRIu64 ")",
			   src->off, src->off + src->len);
	if (seg->kind == CK_SEG_COPY && seg->xform)
		ck_str_fmt(o, "  (%s)", ck_plan_xform(seg->xform));
	ck_str_puts(o, "\n");
	flush(p);
}

static void text_head(struct plan *p)
{
	const struct ck_subscript *s = &p->target.slice;

	ck_str_plain(&p->out, p->name, strlen(p->name));
	ck_str_fmt(&p->out, "  %s ", ck_dtype_info(p->t->dtype)->name);
	text_dims(&p->out, s->shape, s->rank);
	ck_str_fmt(&p->out, "  %" PRIu64 " bytes\n%14s %12s %14s  %s\n",
		   p->sums.size, "OFFSET", "BYTES", "TO", "FILE");
	flush(p);
}

static int finish(struct plan *p)
{
	uint64_t hole = p->sums.size - p->sums.planned;
	int ret = cmd_flush(&cmd_plan);

	if (ret)
		return ret;
	if (!p->ok)
		return cmd_fail(&cmd_plan, CMD_SYSTEM, "no memory");
	if (p->sums.lost || hole)
		return cmd_fail(&cmd_plan, CMD_BAD_CKPT,
				"%s: %" PRIu64 " of %" PRIu64
				" bytes cannot be read, %" PRIu64
				" were never stored",
				p->name, p->sums.lost, p->sums.size, hole);
	return CMD_OK;
}

static int plan_text(struct plan *p)
{
	struct ck_cursor cur;
	struct ck_seg seg;

	p->ok = true;
	ck_plan_begin(p->ck, &p->target, &cur, &p->sums);
	text_head(p);
	while (p->ok && ck_plan_next(&cur, &seg, &p->sums))
		text_seg(p, &seg);
	return finish(p);
}

static int put(void *ctx, const char *text, size_t len)
{
	(void)ctx;
	return fwrite(text, 1, len, stdout) == len ? 0 : -EIO;
}

static int plan_json(struct plan *p)
{
	p->ok = !ck_plan_json(p->ck, &p->target, put, NULL, &p->sums, &p->err);
	return finish(p);
}

static int plan_one(struct plan *p, char **argv, bool json)
{
	p->img = ck_ckpt_catalog(p->ck);
	p->name = argv[2];
	if (ck_target_find(p->img, argv[2], &p->target, &p->err))
		return cmd_target_err(&cmd_plan, &p->err);
	if (p->target.tensor == CK_NONE)
		return cmd_fail(&cmd_plan, CMD_USAGE,
				"%s: expected a tensor, found an object (its "
				"place is in unshard ls --json)",
				argv[2]);
	p->t = &p->img->tensors[p->target.tensor];
	return json ? plan_json(p) : plan_text(p);
}

static int plan_open(struct plan *p, char **argv, const struct ck_opts *opts,
		     const struct ck_opts *mesh)
{
	int ret;

	if (cmd_open_shown(&p->ck, (const char *const *)argv + 1, 1, false,
			   opts, &p->err))
		return cmd_err(&cmd_plan, &p->err);
	ret = mesh->nr ? plan_reshard(&cmd_plan, argv[1], p->ck, mesh, opts) :
			 plan_one(p, argv, ck_opts_get(opts, "json"));
	ck_str_free(&p->out);
	ck_ckpt_close(p->ck);
	return ret;
}

/* A mesh has no slash and no such ending: a file was meant. */
static int need_file(const char *value, struct ck_err *err)
{
	size_t len = strlen(value);
	bool is_file = (len > 5 && !strcmp(value + len - 5, ".json")) ||
		       (strchr(value, '/') && !strchr(value, '='));

	if (!is_file || !access(value, F_OK))
		return 0;
	return ck_fail(err, errno, "--reshard: %s: %s", value, strerror(errno));
}

/*
 * Moves --reshard out of the options, for it says nothing about how the
 * checkpoint is read, and reads its file while that is still allowed.
 */
static int take_mesh(struct ck_opts *opts, struct ck_opts *mesh,
		     struct ck_err *err)
{
	for (size_t i = 0; i < opts->nr; i++) {
		struct ck_opt o = opts->v[i];
		int ret;

		if (strcmp(o.name, "reshard") != 0)
			continue;
		if (mesh->nr)
			return ck_fail(err, EINVAL, "--reshard is given twice");
		ret = need_file(o.value, err);
		if (!ret)
			ret = ck_options_add_file(mesh, o.name, o.value, err);
		opts->nr--;
		memmove(&opts->v[i], &opts->v[i + 1],
			(opts->nr - i) * sizeof(o));
		i--;
		free(o.name);
		free(o.value);
		if (ret)
			return ret;
	}
	return 0;
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 }, mesh = { 0 };
	struct plan p = { 0 };
	int ret = CMD_USAGE, nr = cmd_parse(&cmd_plan, argc, argv, &opts);

	if (nr >= 0 && take_mesh(&opts, &mesh, &p.err))
		cmd_fail(&cmd_plan, CMD_USAGE, "%s", p.err.msg);
	else if (nr >= 0 && nr != (mesh.nr ? 1 : 2))
		cmd_fail(&cmd_plan, CMD_USAGE,
			 mesh.nr ? "expected CKPT alone with --reshard" :
				   "expected CKPT NAME");
	else if (nr >= 0)
		ret = plan_open(&p, argv, &opts, &mesh);
	ck_opts_free(&opts);
	ck_opts_free(&mesh);
	return ret;
}

static const struct cmd_valued valued[] = {
	{ .name = "reshard",
	  .value = "SPEC",
	  .help = "for a mesh: dim0=8, tp=4, ..., or a file that says it" },
	{ .name = NULL },
};

const struct cmd cmd_plan = {
	.name = "plan",
	.group = CMD_LOOK,
	.args = "CKPT NAME | CKPT --reshard SPEC",
	.summary = "say which bytes of which files are behind a tensor",
	.help = "NAME is the name of a tensor, with a slice if wanted: "
		"'NAME[2:5, :, -1]',\nas NumPy reads it.  With --reshard, of "
		"all tensors: one read for each pair\nof a shard of the mesh "
		"and a stored chunk that meet.\n",
	.valued = valued,
	.min_words = 1,
	.max_words = 2,
	.run = run,
};
