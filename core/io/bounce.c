/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounce.c - a segment of short runs: read in stretches, copied from there
 *
 * A write goes the other way, in stretches without gaps: what lies in a gap
 * may be somebody else's to write.
 *
 * The axes are put in the order of the source.  As many of the innermost as
 * keep a stretch within the bounce buffer, its gaps below a page, and its
 * length at most 4x the bytes wanted, make one stretch; the others say where
 * the stretches begin.
 */
#include "core/io/read_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <string.h>

#define MAX_BLOCKS 64
#define PAGE 4096
#define NEAR 512 /* steps that are always read through */

struct shape {
	struct ck_seg_axis ax[CK_SEG_AXES]; /* innermost in the source first */
	unsigned nr, inner; /* ax[0, inner) are inside a stretch */
	uint64_t part; /* ax[inner] is taken in parts of this many; 0: not */
	uint64_t span; /* bytes of a stretch, without ax[inner] */
	uint64_t run;
};

static uint64_t step_of(const struct ck_seg_axis *ax)
{
	return ck_stride_size(ax->src);
}

static void sort_axes(struct shape *sh, const struct ck_seg *seg)
{
	sh->nr = seg->nax;
	for (unsigned i = 0; i < sh->nr; i++) {
		unsigned at = i;

		for (; at && step_of(&sh->ax[at - 1]) > step_of(&seg->ax[i]);
		     at--)
			sh->ax[at] = sh->ax[at - 1];
		sh->ax[at] = seg->ax[i];
	}
}

/*
 * Runs the axis to its @n-th step: bytes of the stretch, or 0: too many.
 * @wanted 0: gaps are not allowed.
 */
static uint64_t grow(uint64_t span, const struct ck_seg_axis *ax, uint64_t n,
		     uint64_t wanted)
{
	uint64_t step = step_of(ax), more;

	if (!wanted && step != span)
		return 0;

	if (!ck_mul_ok(step, n - 1, &more) || more > CK_BOUNCE_SIZE - span)
		return 0;
	/* Storage has pages, and a system call costs as much as a few KiB. */
	if (step > span && (step - span > PAGE ||
			    (step > NEAR && span + more > 4 * wanted * n)))
		return 0;
	return span + more;
}

static void shape_of(struct shape *sh, const struct ck_seg *seg, bool gaps)
{
	uint64_t wanted = gaps ? seg->run : 0;

	sort_axes(sh, seg);
	sh->run = sh->span = seg->run;
	sh->part = 0;
	for (sh->inner = 0; sh->inner < sh->nr; sh->inner++) {
		const struct ck_seg_axis *ax = &sh->ax[sh->inner];
		uint64_t more = grow(sh->span, ax, ax->n, wanted);

		if (!more)
			break;
		sh->span = more;
		wanted *= ax->src ? ax->n : 1;
	}
	if (sh->inner < sh->nr) {
		const struct ck_seg_axis *ax = &sh->ax[sh->inner];
		uint64_t n = (CK_BOUNCE_SIZE - sh->span) / step_of(ax) + 1;

		n = CK_MIN(n, ax->n);
		if (n > 1 && grow(sh->span, ax, n, wanted))
			sh->part = n;
	}
}

bool ck_bounce_wasteful(const struct ck_seg *seg)
{
	struct shape sh;
	uint64_t nr = 1, len, wanted;

	shape_of(&sh, seg, true);
	for (unsigned i = sh.inner + (sh.part != 0); i < sh.nr; i++)
		nr *= sh.ax[i].n;
	wanted = seg->nbytes / nr;
	len = sh.span;
	if (sh.part)
		len += (sh.ax[sh.inner].n - 1) * step_of(&sh.ax[sh.inner]);
	if (nr > 1)
		len = (len + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	return len / 4 > wanted;
}

/* A stretch: where it is in the source, the buffer and the bounce buffer. */
struct block {
	uint64_t src, dst, len;
	uint64_t first; /* of the copy at index 0: bytes into the stretch */
	uint64_t n; /* steps of ax[inner] */
	uint64_t stage;
};

/* The axes of the copies of @nr stretches, which are evenly spaced. */
static unsigned copy_axes(const struct shape *sh, const struct block *b,
			  unsigned nr_blocks,
			  struct ck_seg_axis ax[CK_SEG_AXES + 2])
{
	unsigned nr = 0;

	for (unsigned i = 0; i < sh->inner; i++)
		ax[nr++] = sh->ax[i];
	if (sh->part) {
		ax[nr] = sh->ax[sh->inner];
		ax[nr++].n = b->n;
	}
	if (nr_blocks > 1)
		ax[nr++] =
			(struct ck_seg_axis){ nr_blocks,
					      (int64_t)(b[1].stage - b->stage),
					      (int64_t)(b[1].dst - b->dst) };
	return nr;
}

static void turn_round(struct ck_seg_axis *ax, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		int64_t src = ax[i].src;

		ax[i].src = ax[i].dst;
		ax[i].dst = src;
	}
}

/* From the stretches to the buffer; @back: from the buffer to them. */
static void scatter(const struct shape *sh, const struct block *b,
		    unsigned nr_blocks, unsigned char *buf,
		    unsigned char *stage, bool back)
{
	struct ck_seg_axis ax[CK_COPY_AXES];
	unsigned nr = copy_axes(sh, b, nr_blocks, ax);
	unsigned char *here = stage + b->stage + b->first;

	if (back)
		turn_round(ax, nr);
	ck_copy_axes(ax, nr, sh->run, back ? here : buf + b->dst,
		     back ? buf + b->dst : here);
}

/* Whether @b[0], @b[1] are as far apart as @b[1], @b[2], and alike. */
static bool evenly(const struct block *b)
{
	return b[1].n == b[2].n && b[1].dst > b[0].dst &&
	       b[2].dst - b[1].dst == b[1].dst - b[0].dst &&
	       b[2].stage - b[1].stage == b[1].stage - b[0].stage;
}

/* All stretches, as many together as are evenly spaced. */
static void scatter_all(const struct shape *sh, const struct block *b,
			unsigned nr, unsigned char *buf, unsigned char *stage,
			bool back)
{
	while (nr) {
		unsigned n = nr > 1 && b[0].n == b[1].n ? 2 : 1;

		while (n > 1 && n < nr && evenly(b + n - 2))
			n++;
		scatter(sh, b, n, buf, stage, back);
		b += n;
		nr -= n;
	}
}

/* Stretches that are in the bounce buffer together. */
struct group {
	struct ck_reader *r;
	const struct ck_bytes *b;
	const struct shape *sh;
	const struct ck_seg *seg;
	unsigned char *buf, *stage;
	ck_bounce_put put; /* of a write: then r and b are NULL */
	void *ctx;
	uint8_t dtype;
	uint64_t used; /* bytes of the bounce buffer */
	unsigned nr;
	struct block v[MAX_BLOCKS];
	struct ck_io io[MAX_BLOCKS];
	struct iovec iov[MAX_BLOCKS];
};

static void fill_io(struct group *g)
{
	for (unsigned i = 0; i < g->nr; i++) {
		const struct block *b = &g->v[i];

		g->iov[i] = (struct iovec){ g->stage + b->stage, b->len };
		g->io[i] =
			(struct ck_io){ .op = g->put ? CK_IO_WRITE : CK_IO_READ,
					.fd = g->b ? g->b->fd : -1,
					.off = b->src,
					.len = b->len,
					.iov = &g->iov[i],
					.nr_iov = 1 };
	}
}

/* Gathers the group and writes it; then it is empty. */
static int put_group(struct group *g, struct ck_err *err)
{
	struct ck_seg flat = {
		.xform = g->seg->xform,
		.elem = g->seg->elem,
		.run = g->used,
	};
	unsigned nr = g->nr;

	scatter_all(g->sh, g->v, nr, g->buf, g->stage, true);
	ck_seg_transform(&flat, g->dtype, g->stage);
	fill_io(g);
	g->nr = 0;
	g->used = 0;
	return g->put(g->ctx, g->io, nr, err);
}

/* Reads the group and copies what is wanted of it; then it is empty. */
static int finish_group(struct group *g, struct ck_err *err)
{
	struct ck_err why;
	unsigned nr = g->nr;

	if (g->put)
		return put_group(g, err);
	fill_io(g);
	for (unsigned i = 0; i < nr; i++)
		g->io[i].src = g->b->src;
	ck_fetch(g->r, g->io, nr, &why);
	ck_stat_add(&g->r->stats.source_reads, nr);
	ck_stat_add(&g->r->stats.source_bytes, g->used);
	g->nr = 0;
	g->used = 0;
	for (unsigned i = 0; i < nr; i++)
		if (g->io[i].res && why.code)
			return ck_fail_as(err, &why);
		else if (g->io[i].res)
			return ck_bytes_fail(g->r, g->b, g->v[i].src,
					     g->v[i].len, -g->io[i].res, err);
	scatter_all(g->sh, g->v, nr, g->buf, g->stage, false);
	return 0;
}

/* The stretch at the copy (@src, @dst), @n steps of the partial axis long. */
static struct block block_at(const struct shape *sh, uint64_t src, uint64_t dst,
			     uint64_t n)
{
	struct block b = { .dst = dst, .len = sh->span, .n = n };

	for (unsigned i = 0; i < sh->inner; i++)
		if (sh->ax[i].src < 0)
			b.first += (sh->ax[i].n - 1) * step_of(&sh->ax[i]);
	if (sh->part) {
		uint64_t more = (n - 1) * step_of(&sh->ax[sh->inner]);

		b.len += more;
		b.first += sh->ax[sh->inner].src < 0 ? more : 0;
	}
	b.src = src - b.first;
	return b;
}

/* What begins the stretches: the outer axes, ax[inner] in parts. */
static struct ck_seg begins(const struct shape *sh, const struct ck_seg *seg)
{
	struct ck_seg out = { .src_off = seg->src_off, .dst = seg->dst };

	for (unsigned i = sh->nr; i-- > sh->inner;)
		out.ax[out.nax++] = sh->ax[i];
	if (sh->part) {
		struct ck_seg_axis *ax = &out.ax[out.nax - 1];

		ax->n = CK_DIV_UP(ax->n, sh->part);
		ax->src *= (int64_t)sh->part;
		ax->dst *= (int64_t)sh->part;
	}
	return out;
}

/* All of @seg in groups; everything else of @g is set. */
static int run_groups(struct group *g, const struct ck_seg *seg,
		      struct ck_err *err)
{
	const struct shape *sh = g->sh;
	struct ck_seg outer = begins(sh, seg);
	struct ck_runs it;

	g->seg = seg;
	g->used = g->nr = 0;
	for (ck_runs_init(&it, &outer); !it.done; ck_runs_step(&it)) {
		struct block next;
		uint64_t n = 0;
		int ret = 0;

		if (sh->part)
			n = CK_MIN(sh->part,
				   sh->ax[sh->inner].n -
					   it.at[outer.nax - 1] * sh->part);
		next = block_at(sh, it.src, it.dst, n);
		if (g->nr == MAX_BLOCKS || g->used + next.len > CK_BOUNCE_SIZE)
			ret = finish_group(g, err);
		if (ret)
			return ret;
		next.stage = g->used;
		g->used += next.len;
		g->v[g->nr++] = next;
	}
	return finish_group(g, err);
}

int ck_bounce_read(struct ck_reader *r, const struct ck_bytes *b,
		   const struct ck_seg *seg, unsigned char *buf,
		   struct ck_scratch *s, struct ck_err *err)
{
	struct shape sh;
	struct group g;

	/* Not all of it: the arrays are filled as far as they are used. */
	g.r = r;
	g.b = b;
	g.sh = &sh;
	g.buf = buf;
	g.stage = s->stage;
	g.put = NULL;
	shape_of(&sh, seg, true);
	return run_groups(&g, seg, err);
}

/*
 * A run that is longer than the bounce buffer is cut: it is an axis of its
 * elements.
 */
static struct ck_seg cut_run(const struct ck_seg *seg)
{
	struct ck_seg out = *seg;
	uint64_t elem = seg->run % seg->elem ? 1 : seg->elem;

	if (seg->run <= CK_BOUNCE_SIZE || seg->nax == CK_SEG_AXES)
		return out;
	out.ax[out.nax++] =
		(struct ck_seg_axis){ seg->run / elem, (int64_t)elem,
				      (int64_t)elem };
	out.run = elem;
	return out;
}

int ck_bounce_write(const struct ck_seg *seg, uint8_t dtype,
		    const unsigned char *buf, struct ck_scratch *s,
		    ck_bounce_put put, void *ctx, struct ck_err *err)
{
	const struct ck_seg whole = cut_run(seg);
	struct shape sh;
	struct group g;

	if (whole.run > CK_BOUNCE_SIZE)
		return ck_fail(err, EFBIG, "a run of %llu bytes in six axes",
			       (unsigned long long)whole.run);
	g.r = NULL;
	g.b = NULL;
	g.sh = &sh;
	g.buf = (unsigned char *)buf; /* only read */
	g.stage = s->stage;
	g.put = put;
	g.ctx = ctx;
	g.dtype = dtype;
	shape_of(&sh, &whole, false);
	return run_groups(&g, &whole, err);
}
