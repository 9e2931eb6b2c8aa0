/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scatter.c - the segments of byte ranges, backwards: buffer to sources
 *
 * First the segments of all ranges are resolved, looked at and opened, and kept;
 * then they are written.  Every member of a cell's ring of replicas has segments
 * of its own.  Long runs of a range are gathered into a plan, one vectored write
 * for each unbroken stretch of a file; short runs go through the bounce buffer,
 * in stretches without gaps, so that no byte is written that is not of the
 * request.
 */
#include "core/write/write_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/vec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IO 64 /* requests at once; bounce.c gives no more either */
#define MAX_LOOKS 64 /* at files that are touched meanwhile */
#define MAX_KEPT 8192 /* segments; what comes after them is found again */

/* A file that is being written. */
struct pin {
	uint32_t src;
	int fd;
};

struct scatter {
	struct ck_writer *w;
	struct ck_edit *e;
	struct ck_scratch *s;
	const struct ck_wrange *range; /* of which these are segments */
	uint8_t dtype;
	struct ck_cursor cur;
	CK_VEC(struct ck_seg) kept; /* that may be written */
	uint64_t looked, written; /* segments, of all ranges */
	struct pin pin[CK_PLAN_SRCS];
	unsigned nr_pins;
	unsigned bounced; /* the pin that bytes of the bounce buffer are for */
	bool writing; /* those that were not kept */
	bool copied; /* some of the range is stored more than once */
	bool wrote; /* some of it, or it failed while it did */
	uint32_t bad; /* the file that could not be written, or CK_NONE */
};

static const char *name_of(const struct scatter *sc, uint32_t src)
{
	return ck_bytes_name(sc->w->r, src);
}

/* ---- files ---- */

static void unpin_all(struct scatter *sc)
{
	struct ck_reader *r = sc->w->r;

	while (sc->nr_pins) {
		const struct pin *p = &sc->pin[--sc->nr_pins];

		ck_self_writes_end(r->self_writes, p->src, p->fd);
		ck_files_put(r->wfiles, p->src);
	}
}

/* At most MAX_IO requests, between the notes of which sums they make wrong. */
static int run_io(struct scatter *sc, struct ck_io *io, unsigned nr,
		  const uint32_t *src, struct ck_err *err)
{
	struct ck_reader *r = sc->w->r;
	uint64_t off[MAX_IO], len[MAX_IO];
	int ret = 0;

	for (unsigned i = 0; !ret && i < nr; i++) {
		io[i].src = src[i];
		off[i] = io[i].off;
		len[i] = io[i].len;
		ret = ck_sums_before(sc->w->sums, src[i], off[i], len[i], err);
	}
	if (ret)
		return ret;
	ret = ck_put(r, io, nr, err);
	sc->wrote |= !ret;
	ck_stat_add(&r->stats.source_writes, nr);
	for (unsigned i = 0; i < nr; i++)
		ck_sums_after(sc->w->sums, src[i], off[i], len[i],
			      !ret && !io[i].res);
	for (unsigned i = 0; !ret && i < nr; i++)
		if (io[i].res) {
			sc->bad = src[i];
			return ck_fail(err, -io[i].res,
				       "%s: writing at byte %llu: %s",
				       name_of(sc, src[i]),
				       (unsigned long long)io[i].off,
				       strerror(-io[i].res));
		}
	return ret;
}

/* Runs the plan; it is empty afterwards, and for writes. */
static int run_plan(struct scatter *sc, struct ck_err *err)
{
	struct ck_plan *p = &sc->s->plan;
	uint32_t src[MAX_IO];
	int fd[CK_PLAN_SRCS], ret = 0;

	for (unsigned i = 0; i < sc->nr_pins; i++)
		fd[i] = sc->pin[i].fd;
	ck_plan_make(p, fd);
	for (unsigned at = 0; !ret && at < p->nr_io; at += MAX_IO) {
		unsigned nr = CK_MIN((unsigned)MAX_IO, p->nr_io - at);

		for (unsigned i = 0; i < nr; i++) {
			unsigned first = at + i ? p->io_end[at + i - 1] : 0;

			src[i] = sc->pin[p->run[first].src].src;
		}
		ret = run_io(sc, p->io + at, nr, src, err);
	}
	ck_plan_reset(p);
	p->op = CK_IO_WRITE;
	return ret;
}

/* The pin of @src: found, or made; all others may be given up for it. */
static int pin(struct scatter *sc, uint32_t src, unsigned *out,
	       struct ck_err *err)
{
	struct ck_reader *r = sc->w->r;
	struct pin *p;
	uint64_t since;
	int ret;

	for (unsigned i = sc->nr_pins; i-- > 0;)
		if (sc->pin[i].src == src) {
			*out = i;
			return 0;
		}
	if (sc->nr_pins == CK_PLAN_SRCS) {
		ret = run_plan(sc, err);
		unpin_all(sc);
		if (ret)
			return ret;
	}
	p = &sc->pin[sc->nr_pins];
	p->src = src;
	since = ck_self_writes_clock(r->self_writes);
	ret = ck_files_get(r->wfiles, src, &p->fd, err);
	if (ret)
		return ret;
	ret = ck_self_writes_begin(r->self_writes, src, p->fd, since, err);
	if (ret) {
		ck_files_put(r->wfiles, src);
		return ret;
	}
	*out = sc->nr_pins++;
	atomic_fetch_or(&sc->e->touched[src / 64], UINT64_C(1) << src % 64);
	return 0;
}

/* ---- what can be written ---- */

/* Whether two elements of a box lie in the same bytes. */
static bool folded(const uint64_t *lens, const int64_t *stride, unsigned rank)
{
	uint64_t extent = 1; /* elements from the first to the last so far */
	bool done[CK_MAX_RANK] = { false };

	/* Axes from the shortest step to the longest. */
	for (;;) {
		uint64_t step = UINT64_MAX;
		unsigned at = rank;

		for (unsigned d = 0; d < rank; d++) {
			uint64_t far = ck_stride_size(stride[d]);

			if (!done[d] && lens[d] > 1 && far < step) {
				step = far;
				at = d;
			}
		}
		if (at == rank)
			return false;
		if (step < extent)
			return true;
		done[at] = true;
		extent += (lens[at] - 1) * step;
	}
}

int ck_scatter_may(const struct ck_writer *w, uint32_t tensor, uint32_t chunk,
		   struct ck_err *err)
{
	const struct ck_catalog *img = w->img;
	const struct ck_chunk *c = &img->chunks[chunk];
	const struct ck_layout *l = &img->layouts[c->layout];
	const char *name = ck_bytes_name(w->r, c->src);
	const int64_t *stride = ck_chunk_strides(w->r, chunk);

	if (c->op != CK_OP_SET)
		return ck_fail(err, EROFS,
			       "%s: holds partial sums, which cannot be "
			       "written",
			       name);
	if (stride && !(l->flags & CK_LAYOUT_FLAT) &&
	    folded(img->dims + l->len, stride, img->tensors[tensor].grid_rank))
		return ck_fail(err, EROFS,
			       "%s: several elements are stored in the same "
			       "bytes, so that they cannot be written one by "
			       "one",
			       name);
	switch (img->srcs[c->src].kind) {
	case CK_SRC_FILE:
	case CK_SRC_ABSENT:
		return 0;
	case CK_SRC_CODEC:
		return ck_fail(err, EROFS,
			       "%s: holds it compressed, which cannot be "
			       "written in place",
			       name);
	case CK_SRC_MEM:
		return ck_fail(err, EROFS,
			       "it is kept in the checkpoint's index, which "
			       "is not written");
	default:
		return ck_fail(err, EROFS, "%s: cannot be written", name);
	}
}

/* Keeps it too. */
static int check_seg(struct scatter *sc, const struct ck_seg *seg,
		     struct ck_err *err)
{
	const uint32_t t = sc->range->tensor;
	const struct ck_catalog *img = sc->w->img;
	const struct ck_chunk *c = &img->chunks[seg->chunk];
	uint64_t off, len;
	unsigned at;
	int ret = ck_scatter_may(sc->w, t, seg->chunk, err);

	if (ret)
		return ret;
	if (!ck_seg_inside(seg, img->srcs[c->src].id.size))
		return ck_fail(err, EIO, "%s: ends at byte %llu",
			       name_of(sc, c->src),
			       (unsigned long long)img->srcs[c->src].id.size);
	ret = pin(sc, c->src, &at, err);
	if (ret)
		return ret;
	ret = sc->looked++ < MAX_KEPT ? ck_vec_put(&sc->kept, err, *seg) : 0;
	if (ret)
		return ret;
	ck_chunk_archive(img, &img->tensors[t], seg->chunk, &off, &len);
	return ck_sums_need(sc->w->sums, c->src, off, len, err);
}

/* ---- one segment ---- */

static int put_bounced(void *ctx, struct ck_io *io, unsigned nr,
		       struct ck_err *err)
{
	struct scatter *sc = ctx;
	uint32_t src[MAX_IO];

	for (unsigned i = 0; i < nr; i++) {
		io[i].fd = sc->pin[sc->bounced].fd;
		src[i] = sc->pin[sc->bounced].src;
	}
	return run_io(sc, io, nr, src, err);
}

static int write_edge(struct scatter *sc, const struct ck_seg *seg,
		      struct ck_err *err)
{
	unsigned char elem[UINT8_MAX];
	struct ck_seg whole = *seg;
	struct ck_bytes b = {
		.src = sc->pin[sc->bounced].src,
		.fd = sc->pin[sc->bounced].fd,
		.len = sc->w->img->srcs[sc->pin[sc->bounced].src].id.size,
	};
	struct iovec iov = { elem, seg->elem };
	struct ck_io io = { .op = CK_IO_WRITE,
			    .off = seg->src_off - seg->skip,
			    .len = seg->elem,
			    .iov = &iov,
			    .nr_iov = 1 };
	int ret;

	whole.dst = 0;
	whole.run = whole.nbytes = seg->elem;
	pthread_mutex_lock(&sc->w->edge);
	ret = ck_bytes_read(sc->w->r, &b, elem, seg->elem, io.off, err);
	if (!ret) {
		ck_seg_transform(&whole, sc->dtype, elem);
		memcpy(elem + seg->skip, sc->range->buf + seg->dst, seg->run);
		ck_seg_transform(&whole, sc->dtype, elem);
		ret = put_bounced(sc, &io, 1, err);
	}
	pthread_mutex_unlock(&sc->w->edge);
	return ret;
}

static bool is_plain(const struct ck_seg *seg)
{
	return seg->xform == CK_XF_NONE &&
	       (!seg->nax || seg->run >= CK_SHORT_RUN);
}

static int plan_runs(struct scatter *sc, const struct ck_seg *seg, unsigned at,
		     struct ck_err *err)
{
	struct ck_runs it;

	ck_runs_init(&it, seg);
	/* only read, of the buffer */
	while (!ck_plan_add_all(&sc->s->plan, &it,
				(unsigned char *)sc->range->buf, at, 0)) {
		int ret = run_plan(sc, err);

		if (ret)
			return ret;
	}
	return 0;
}

static int write_seg(struct scatter *sc, const struct ck_seg *seg,
		     struct ck_err *err)
{
	unsigned at;
	int ret = pin(sc, sc->w->img->chunks[seg->chunk].src, &at, err);

	if (ret)
		return ret;
	if (is_plain(seg))
		return plan_runs(sc, seg, at, err);
	sc->bounced = at;
	if (ck_seg_is_edge(seg))
		return write_edge(sc, seg, err);
	return ck_bounce_write(seg, sc->dtype, sc->range->buf, sc->s,
			       put_bounced, sc, err);
}

/* ---- all segments ---- */

/* Looks at @seg, or writes it where it was looked at and not kept. */
static int one_seg(struct scatter *sc, const struct ck_seg *seg,
		   struct ck_err *err)
{
	if (!sc->writing)
		return check_seg(sc, seg, err);
	return sc->written++ < MAX_KEPT ? 0 : write_seg(sc, seg, err);
}

/* The elements of @seg in member @chunk of the ring. */
static int take_member(struct scatter *sc, const struct ck_seg *seg,
		       uint32_t chunk, struct ck_err *err)
{
	struct ck_err why = { 0 };
	struct ck_cursor alt;
	struct ck_seg part;
	int ret = 0;

	ck_cursor_init_alt(&alt, &sc->cur, seg, chunk);
	ck_cursor_resolve(&alt, &why);
	while (!ret && ck_cursor_next(&alt, &part)) {
		if (part.kind == CK_SEG_COPY)
			ret = one_seg(sc, &part, err);
		else if (*why.msg)
			ret = ck_fail_as(err, &why);
		else
			ret = ck_fail(
				err, EIO,
				"%s: holds a copy of it that is torn, "
				"missing or bad, and could not be "
				"written",
				name_of(sc, sc->w->img->chunks[chunk].src));
	}
	return ret;
}

static int take(struct scatter *sc, const struct ck_seg *seg,
		struct ck_err *err)
{
	const struct ck_catalog *img = sc->w->img;
	uint32_t c = seg->chunk;
	int ret = 0;

	if (img->chunks[c].next == CK_NONE && seg->kind == CK_SEG_COPY)
		return one_seg(sc, seg, err);
	sc->copied = true;
	for (; !ret && c != CK_NONE; c = ck_ring_next(img, seg->chunk, c))
		ret = take_member(sc, seg, c, err);
	return ret;
}

static void go_to(struct scatter *sc, const struct ck_wrange *range)
{
	sc->range = range;
	sc->dtype = sc->w->img->tensors[range->tensor].dtype;
}

/* All segments of sc->range. */
static int walk(struct scatter *sc, struct ck_err *err)
{
	const struct ck_catalog *img = sc->w->img;
	const struct ck_tensor *t = &img->tensors[sc->range->tensor];
	uint64_t got = 0;
	struct ck_seg seg;
	int ret = 0;

	ck_cursor_init(&sc->cur, img, sc->w->r->in.resolved, t, sc->range->off,
		       sc->range->len);
	while (!ret && ck_cursor_next(&sc->cur, &seg)) {
		got += seg.nbytes;
		ret = take(sc, &seg, err);
	}
	if (ret || got == sc->range->len)
		return ret;
	return ck_fail(err, EIO,
		       "%s: %llu of the bytes are in no file; the first such "
		       "byte of the tensor is %llu",
		       ck_catalog_str(img, t->name, NULL),
		       (unsigned long long)(sc->range->len - got),
		       (unsigned long long)ck_tensor_first_hole(img, t));
}

/* The kept ones of sc->range, which are the first of all that are left. */
static int write_kept(struct scatter *sc, uint64_t *next, uint64_t end,
		      struct ck_err *err)
{
	int ret = 0;

	while (!ret && *next < CK_MIN(end, sc->kept.nr))
		ret = write_seg(sc, &sc->kept.v[(*next)++], err);
	return ret;
}

/* What is shown is one of the copies, and it does not say that others differ. */
static void report_uneven(const struct scatter *sc, int code)
{
	const struct ck_writer *w = sc->w;
	const struct ck_catalog *img = w->img;
	ck_auto_free char *line = NULL;

	if (!w->said || !sc->copied || !sc->wrote)
		return;
	if (asprintf(&line,
		     "a write to tensor %s failed here (%s), and the copies of "
		     "those bytes may differ until they are written again; "
		     "unshard heal names them",
		     ck_catalog_str(img, img->tensors[sc->range->tensor].name,
				    NULL),
		     strerror(code)) < 0)
		line = NULL;
	else
		w->said(w->said_ctx, sc->bad, line);
}

/* What is known of a range that was looked at. */
struct looked {
	uint64_t end; /* its segments are those before this one */
	bool copied; /* some of it is stored more than once */
};

static int look_at_all(struct scatter *sc, const struct ck_wrange *v, size_t nr,
		       struct looked *l, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < nr; i++) {
		go_to(sc, &v[i]);
		sc->copied = false;
		ret = walk(sc, err);
		l[i] = (struct looked){ sc->looked, sc->copied };
	}
	return ret;
}

static int write_all(struct scatter *sc, const struct ck_wrange *v, size_t nr,
		     const struct looked *l, size_t *done, struct ck_err *err)
{
	uint64_t next = 0;
	int ret = 0;

	sc->writing = true;
	for (*done = 0; !ret && *done < nr; *done += !ret) {
		go_to(sc, &v[*done]);
		sc->wrote = false;
		sc->copied = l[*done].copied;
		sc->written = *done ? l[*done - 1].end : 0;
		ret = write_kept(sc, &next, l[*done].end, err);
		if (!ret && l[*done].end > MAX_KEPT)
			ret = walk(sc, err);
		if (!ret)
			ret = run_plan(sc, err);
		if (ret)
			report_uneven(sc, -ret);
	}
	return ret;
}

int ck_scatter(struct ck_writer *w, struct ck_edit *e,
	       const struct ck_wrange *v, size_t nr, size_t *done,
	       struct ck_err *err)
{
	struct scatter sc = {
		.w = w, .e = e, .s = ck_scratch_mine(), .bad = CK_NONE
	};
	ck_auto_free struct looked *l = calloc(nr + 1, sizeof(*l));
	unsigned tries = 0;
	uint64_t touches;
	int ret;

	*done = 0;
	if (!sc.s || !l)
		return ck_no_memory(err);
	ck_plan_reset(&sc.s->plan);
	sc.s->plan.op = CK_IO_WRITE;
	do { /* where items lie is read anew of a file that was touched */
		touches = ck_reader_forget_touched(w->r);
		unpin_all(&sc);
		sc.kept.nr = sc.looked = 0;
		ret = look_at_all(&sc, v, nr, l, err);
	} while (touches != ck_reader_touches(w->r) && tries++ < MAX_LOOKS);
	if (!ret)
		ret = write_all(&sc, v, nr, l, done, err);
	ck_plan_reset(&sc.s->plan);
	unpin_all(&sc);
	free(sc.kept.v);
	return ret;
}
