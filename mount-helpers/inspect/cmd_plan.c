/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_plan.c - which bytes of which files are behind a tensor or a slice
 *
 * What the cursor says, as text (a line a segment) or as JSON (every stretch
 * of bytes by itself, so that nothing is left to be worked out).  Streamed.
 */
#include "fs/opts.h"
#include "mount-helpers/plan_reshard.h"
#include "mount-helpers/target.h"
#include "mount-helpers/text.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct cmd cmd_plan;

/* An unbroken stretch, from a source to the result. */
struct stretch {
	uint32_t chunk;
	uint8_t kind, xform;
	int err;
	uint64_t off, len, dst;
};

struct plan {
	struct ck_ckpt *ck;
	const struct ck_catalog *img;
	const struct ck_tensor *t;
	struct target target;
	const char *name; /* as given */
	uint64_t size, planned, lost; /* bytes: asked, found, of errors */
	bool json, any, ok;
	struct stretch last; /* not printed yet: the next may continue it */
	struct ck_str out;
	struct ck_err err;
};

static void flush(struct plan *p)
{
	p->ok = p->ok && text_flush(&p->out);
}

static void json_string(struct ck_str *s, const struct ck_catalog *img,
			uint32_t ref)
{
	size_t len;
	const char *text;

	if (ref == CK_NONE) {
		ck_str_puts(s, "null");
		return;
	}
	text = ck_catalog_str(img, ref, &len);
	ck_str_json(s, text, len);
}

static const char *why(const struct ck_catalog *img, const struct stretch *s)
{
	const struct ck_chunk *c = &img->chunks[s->chunk];

	if (c->state == CK_MISSING || img->srcs[c->src].kind == CK_SRC_ABSENT)
		return "missing";
	if (c->state == CK_TORN)
		return "torn";
	return s->err ? strerror(s->err) : "not resolved";
}

static const char *xform_name(uint8_t xform)
{
	static const char *const names[] = { [CK_XF_CONJ] = "conj",
					     [CK_XF_NEG] = "neg",
					     [CK_XF_BYTESWAP] = "byteswap" };

	return xform < CK_ARRAY_LEN(names) ? names[xform] : NULL;
}

/* Compressed items have no bytes of their own: offsets count decoded ones. */
static void json_codec(struct ck_str *o, const struct ck_src *src)
{
	if (src->kind == CK_SRC_CODEC)
		ck_str_fmt(o,
			   ", \"codec\": \"zstd\", \"encoded\": [%" PRIu64
			   ", %" PRIu64 "]",
			   src->off, src->off + src->len);
}

static void json_stretch(struct plan *p, const struct stretch *s)
{
	const struct ck_chunk *c = &p->img->chunks[s->chunk];

	ck_str_puts(&p->out, p->any ? ",\n  {\"file\": " : "\n  {\"file\": ");
	p->any = true;
	json_string(&p->out, p->img, text_file_of(p->img, c->src));
	if (s->kind == CK_SEG_COPY)
		ck_str_fmt(&p->out, ", \"offset\": %" PRIu64, s->off);
	ck_str_fmt(&p->out, ", \"nbytes\": %" PRIu64 ", \"dst\": %" PRIu64,
		   s->len, s->dst);
	if (s->kind == CK_SEG_COPY)
		json_codec(&p->out, &p->img->srcs[c->src]);
	if (s->kind == CK_SEG_COPY && s->xform)
		ck_str_fmt(&p->out, ", \"transform\": \"%s\"",
			   xform_name(s->xform));
	if (s->kind != CK_SEG_COPY)
		ck_str_fmt(&p->out, ", \"error\": \"%s\"", why(p->img, s));
	ck_str_puts(&p->out, "}");
	flush(p);
}

/* Holds one back, for two chunks may touch in their file and in the tensor. */
static void add_stretch(struct plan *p, const struct stretch *s)
{
	struct stretch *l = &p->last;
	const struct ck_chunk *chunks = p->img->chunks;

	if (l->len && l->kind == s->kind && l->xform == s->xform &&
	    l->err == s->err && chunks[l->chunk].src == chunks[s->chunk].src &&
	    l->dst + l->len == s->dst &&
	    (s->kind != CK_SEG_COPY || l->off + l->len == s->off)) {
		l->len += s->len;
		return;
	}
	if (l->len)
		json_stretch(p, l);
	*l = *s;
}

static void json_seg(struct plan *p, const struct ck_seg *seg)
{
	uint64_t at[CK_SEG_AXES] = { 0 };
	unsigned d;

	do {
		struct stretch s = { .chunk = seg->chunk,
				     .kind = seg->kind,
				     .xform = seg->xform,
				     .err = seg->err,
				     .off = seg->src_off,
				     .len = seg->run,
				     .dst = seg->dst };

		for (d = 0; d < seg->nax; d++) {
			s.off += at[d] * (uint64_t)seg->ax[d].src;
			s.dst += at[d] * (uint64_t)seg->ax[d].dst;
		}
		add_stretch(p, &s);
		for (d = seg->nax; d-- > 0; at[d] = 0)
			if (++at[d] < seg->ax[d].n)
				break;
	} while (d < seg->nax && p->ok);
}

static void text_seg(struct plan *p, const struct ck_seg *seg)
{
	const struct ck_chunk *c = &p->img->chunks[seg->chunk];
	const struct ck_src *src = &p->img->srcs[c->src];
	const struct stretch s = { .chunk = seg->chunk, .err = seg->err };
	uint32_t file = text_file_of(p->img, c->src);
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
		ck_str_fmt(o, "  ERROR: %s", why(p->img, &s));
	else if (src->kind == CK_SRC_CODEC)
		ck_str_fmt(o,
			   "  (of what zstd makes of bytes %" PRIu64
			   " to %" PRIu64 ")",
			   src->off, src->off + src->len);
	if (seg->kind == CK_SEG_COPY && seg->xform)
		ck_str_fmt(o, "  (%s)", xform_name(seg->xform));
	ck_str_puts(o, "\n");
	flush(p);
}

static void head(struct plan *p)
{
	const struct slice *s = &p->target.slice;
	const char *dtype = ck_dtype_info(p->t->dtype)->name;

	if (p->json) {
		ck_str_puts(&p->out, "{\"name\": ");
		json_string(&p->out, p->img, p->t->name);
		ck_str_fmt(&p->out, ", \"dtype\": \"%s\", \"shape\": ", dtype);
		ck_str_json_u64(&p->out, s->shape, s->rank);
		ck_str_fmt(&p->out, ", \"nbytes\": %" PRIu64 ", \"ranges\": [",
			   p->size);
	} else {
		ck_str_plain(&p->out, p->name, strlen(p->name));
		ck_str_fmt(&p->out, "  %s ", dtype);
		text_dims(&p->out, s->shape, s->rank);
		ck_str_fmt(&p->out, "  %" PRIu64 " bytes\n%14s %12s %14s  %s\n",
			   p->size, "OFFSET", "BYTES", "TO", "FILE");
	}
	flush(p);
}

static int finish(struct plan *p)
{
	uint64_t hole = p->size - p->planned;
	int ret;

	if (p->last.len)
		json_stretch(p, &p->last);
	if (p->json)
		ck_str_fmt(&p->out, "\n], \"not_stored\": %" PRIu64 "}\n",
			   hole);
	flush(p);
	ret = cmd_flush(&cmd_plan);
	if (ret)
		return ret;
	if (!p->ok)
		return cmd_fail(&cmd_plan, CMD_SYSTEM, "no memory");
	if (p->lost || hole)
		return cmd_fail(&cmd_plan, CMD_BAD_CKPT,
				"%s: %" PRIu64 " of %" PRIu64
				" bytes cannot be read, %" PRIu64
				" were never stored",
				p->name, p->lost, p->size, hole);
	return CMD_OK;
}

static int plan(struct plan *p)
{
	struct ck_cursor cur;
	struct ck_seg seg;
	uint32_t i = p->target.tensor;

	p->t = &p->img->tensors[i];
	p->size = ck_box_volume(&p->target.slice.box) *
		  ck_dtype_info(p->t->dtype)->size;
	p->ok = true;
	/* What cannot be resolved is an error of its own bytes only. */
	ck_ckpt_resolve(p->ck, i, &p->err);
	head(p);
	if (p->target.sliced)
		ck_cursor_init_box(&cur, p->img, ck_ckpt_resolved(p->ck), p->t,
				   &p->target.slice.box);
	else
		ck_cursor_init(&cur, p->img, ck_ckpt_resolved(p->ck), p->t, 0,
			       p->t->size);
	while (p->ok && ck_cursor_next(&cur, &seg)) {
		p->planned += seg.nbytes;
		if (seg.kind != CK_SEG_COPY)
			p->lost += seg.nbytes;
		if (p->json)
			json_seg(p, &seg);
		else
			text_seg(p, &seg);
	}
	return finish(p);
}

static int plan_one(struct plan *p, char **argv)
{
	p->img = ck_ckpt_catalog(p->ck);
	p->name = argv[2];
	if (target_find(p->img, argv[2], &p->target, &p->err))
		return target_err(&cmd_plan, &p->err);
	if (p->target.tensor == CK_NONE)
		return cmd_fail(&cmd_plan, CMD_USAGE,
				"%s: expected a tensor, found an object (its "
				"place is in unshard ls --json)",
				argv[2]);
	return plan(p);
}

static int plan_open(struct plan *p, char **argv, const struct ck_opts *opts,
		     const struct ck_opts *mesh)
{
	int ret;

	if (cmd_open_shown(&p->ck, (const char *const *)argv + 1, 1, false,
			   opts, &p->err))
		return cmd_err(&cmd_plan, &p->err);
	p->json = ck_opts_get(opts, "json");
	ret = mesh->nr ? plan_reshard(&cmd_plan, argv[1], p->ck, mesh, opts) :
			 plan_one(p, argv);
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
			ret = fs_opts_add_file(mesh, o.name, o.value, err);
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
