/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - which bytes of which files are behind a tensor or a slice, as JSON
 *
 * What the cursor says, every stretch of bytes by itself, so that nothing is
 * left to be worked out.  Streamed.
 */
#include "core/lib/plan.h"

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* An unbroken stretch, from a source to the result. */
struct stretch {
	uint32_t chunk;
	uint8_t kind, xform;
	int err;
	uint64_t off, len, dst;
};

struct plan {
	const struct ck_catalog *img;
	int (*put)(void *ctx, const char *text, size_t len);
	void *ctx;
	bool any;
	int ret; /* not 0: no more */
	struct stretch last; /* not printed yet: the next may continue it */
	struct ck_str out;
};

static void flush(struct plan *p)
{
	if (!p->ret && p->out.failed)
		p->ret = -ENOMEM;
	if (!p->ret && p->out.len)
		p->ret = p->put(p->ctx, p->out.v, p->out.len);
	p->out.len = 0;
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

const char *ck_plan_why(const struct ck_catalog *img, uint32_t chunk, int err)
{
	const struct ck_chunk *c = &img->chunks[chunk];

	if (c->state == CK_MISSING || img->srcs[c->src].kind == CK_SRC_ABSENT)
		return "missing";
	if (c->state == CK_TORN)
		return "torn";
	return err ? strerror(err) : "not resolved";
}

const char *ck_plan_xform(uint8_t xform)
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
	json_string(&p->out, p->img, ck_catalog_file_of(p->img, c->src));
	if (s->kind == CK_SEG_COPY)
		ck_str_fmt(&p->out, ", \"offset\": %" PRIu64, s->off);
	ck_str_fmt(&p->out, ", \"nbytes\": %" PRIu64 ", \"dst\": %" PRIu64,
		   s->len, s->dst);
	if (s->kind == CK_SEG_COPY)
		json_codec(&p->out, &p->img->srcs[c->src]);
	if (s->kind == CK_SEG_COPY && s->xform)
		ck_str_fmt(&p->out, ", \"transform\": \"%s\"",
			   ck_plan_xform(s->xform));
	if (s->kind != CK_SEG_COPY)
		ck_str_fmt(&p->out, ", \"error\": \"%s\"",
			   ck_plan_why(p->img, s->chunk, s->err));
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
	} while (d < seg->nax && !p->ret);
}

static void head(struct plan *p, const struct ck_tensor *t,
		 const struct ck_target *target,
		 const struct ck_plan_sums *sums)
{
	const struct ck_subscript *s = &target->slice;

	ck_str_puts(&p->out, "{\"name\": ");
	json_string(&p->out, p->img, t->name);
	ck_str_fmt(&p->out, ", \"dtype\": \"%s\", \"shape\": ",
		   ck_dtype_info(t->dtype)->name);
	ck_str_json_u64(&p->out, s->shape, s->rank);
	ck_str_fmt(&p->out, ", \"nbytes\": %" PRIu64 ", \"ranges\": [",
		   sums->size);
	flush(p);
}

void ck_plan_begin(struct ck_ckpt *ck, const struct ck_target *target,
		   struct ck_cursor *cur, struct ck_plan_sums *sums)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	const struct ck_tensor *t = &img->tensors[target->tensor];
	struct ck_err ignored;

	*sums = (struct ck_plan_sums){
		.size = ck_box_volume(&target->slice.box) *
			ck_dtype_info(t->dtype)->size,
	};
	/* What cannot be resolved is an error of its own bytes only. */
	ck_ckpt_resolve(ck, target->tensor, &ignored);
	if (target->sliced)
		ck_cursor_init_box(cur, img, ck_ckpt_resolved(ck), t,
				   &target->slice.box);
	else
		ck_cursor_init(cur, img, ck_ckpt_resolved(ck), t, 0, t->size);
	ck_cursor_resolve(cur, NULL);
}

bool ck_plan_next(struct ck_cursor *cur, struct ck_seg *seg,
		  struct ck_plan_sums *sums)
{
	if (!ck_cursor_next(cur, seg))
		return false;
	sums->planned += seg->nbytes;
	if (seg->kind != CK_SEG_COPY)
		sums->lost += seg->nbytes;
	return true;
}

int ck_plan_json(struct ck_ckpt *ck, const struct ck_target *target,
		 int (*put)(void *ctx, const char *text, size_t len), void *ctx,
		 struct ck_plan_sums *sums, struct ck_err *err)
{
	struct plan p = { .img = ck_ckpt_catalog(ck), .put = put, .ctx = ctx };
	struct ck_cursor cur;
	struct ck_seg seg;

	ck_plan_begin(ck, target, &cur, sums);
	head(&p, &p.img->tensors[target->tensor], target, sums);
	while (!p.ret && ck_plan_next(&cur, &seg, sums))
		json_seg(&p, &seg);
	if (p.last.len)
		json_stretch(&p, &p.last);
	ck_str_fmt(&p.out, "\n], \"not_stored\": %" PRIu64 "}\n",
		   sums->size - sums->planned);
	flush(&p);
	ck_str_free(&p.out);
	return p.ret ? ck_fail(err, -p.ret, "the plan: %s", strerror(-p.ret)) :
		       0;
}
