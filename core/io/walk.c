/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.c - the segments of a request, together where they can be
 *
 * Long runs of all segments are gathered into a batch and read in one go;
 * the rest is read as it comes.  A segment whose source fails is read again
 * from the next replica of its ring; so nothing of a batch is used before its
 * sources were looked at once more.
 *
 * While a segment is being resolved the thread's scratch memory holds a
 * batch: what resolves may only call ck_reader_source().
 */
#include "core/io/read_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <string.h>

static void srcset_add(struct ck_srcset *set, uint32_t src)
{
	unsigned nr = CK_MIN(set->nr, (unsigned)CK_SRCSET);

	for (unsigned i = 0; i < nr; i++)
		if (set->v[i] == src)
			return;
	if (set->nr < CK_SRCSET)
		set->v[set->nr] = src;
	if (set->nr <= CK_SRCSET)
		set->nr++;
}

static uint32_t src_of(const struct ck_walk *w, const struct ck_seg *seg)
{
	return w->r->in.img->chunks[seg->chunk].src;
}

bool ck_seg_inside(const struct ck_seg *seg, uint64_t size)
{
	uint64_t low = seg->src_off - seg->skip, high;

	if (seg->skip > seg->src_off ||
	    !ck_add_ok(seg->src_off, seg->run, &high))
		return false;
	for (unsigned i = 0; i < seg->nax; i++) {
		int64_t src = seg->ax[i].src;
		uint64_t step = ck_stride_size(src);
		uint64_t span;

		if (!ck_mul_ok(step, seg->ax[i].n - 1, &span))
			return false;
		if (src < 0 && span > low)
			return false;
		low -= src < 0 ? span : 0;
		if (src > 0 && !ck_add_ok(high, span, &high))
			return false;
	}
	return high <= size;
}

static int outside(const struct ck_walk *w, const struct ck_seg *seg,
		   const struct ck_bytes *b, struct ck_err *err)
{
	ck_fail(err, EIO,
		"%s: expected %llu bytes from byte %llu on, but it has %llu",
		ck_bytes_name(w->r, b->src), (unsigned long long)seg->nbytes,
		(unsigned long long)seg->src_off, (unsigned long long)b->len);
	if (err)
		ck_bytes_place(w->r, b->src, CK_MAX(seg->src_off, b->len), err);
	return -EIO;
}

bool ck_seg_is_edge(const struct ck_seg *seg)
{
	return seg->xform != CK_XF_NONE && seg->run % seg->elem;
}

/* Runs that readv may scatter: long, and none read twice. */
static bool is_direct(const struct ck_seg *seg)
{
	if (ck_seg_is_edge(seg))
		return false;
	if (!seg->nax)
		return true;
	for (unsigned i = 0; i < seg->nax; i++) {
		int64_t src = seg->ax[i].src;
		uint64_t step = ck_stride_size(src);

		if (step < seg->run && seg->run < CK_BOUNCE_SIZE / 8)
			return false;
	}
	return seg->run >= CK_SHORT_RUN;
}

static int read_edge(struct ck_walk *w, const struct ck_seg *seg,
		     const struct ck_bytes *b, struct ck_err *err)
{
	const struct ck_tensor *t = &w->r->in.img->tensors[w->t];
	unsigned char elem[UINT8_MAX];
	struct ck_seg whole = *seg;
	int ret = ck_bytes_read(w->r, b, elem, seg->elem,
				seg->src_off - seg->skip, err);

	if (ret)
		return ret;
	whole.dst = 0;
	whole.run = whole.nbytes = seg->elem;
	ck_seg_transform(&whole, t->dtype, elem);
	memcpy(w->buf + seg->dst, elem + seg->skip, seg->run);
	return 0;
}

/* Calls the owner's fault() the first time that @chunk fails. */
static void tell(struct ck_walk *w, uint32_t chunk, const struct ck_err *err)
{
	struct ck_reader *r = w->r;
	uint64_t bit = UINT64_C(1) << (chunk % 64);

	if (!r->in.fault || atomic_fetch_or(&r->told[chunk / 64], bit) & bit)
		return;
	r->in.fault(r->in.fault_ctx, w->t, chunk, err);
}

static uint64_t plan_end(const struct ck_plan *p, unsigned io)
{
	const struct ck_plan_run *last = &p->run[p->io_end[io] - 1];

	return last->off + last->len;
}

/* Runs the plan; segments of failed reads are marked in @bad, if any. */
static int run_plan(struct ck_walk *w, const struct ck_bytes *bytes,
		    unsigned nr_bytes, bool *bad, struct ck_err *err)
{
	struct ck_plan *p = &w->s->plan;
	struct ck_err why;
	int fd[CK_PLAN_SRCS], ret = 0;
	unsigned first = 0;

	for (unsigned i = 0; i < nr_bytes; i++)
		fd[i] = bytes[i].fd;
	ck_plan_make(p, fd);
	ck_stat_add(&w->r->stats.source_reads, p->nr_io);
	ck_stat_add(&w->r->stats.source_bytes, ck_plan_bytes(p));
	for (unsigned i = 0; i < p->nr_io; i++)
		p->io[i].src = bytes[p->run[i ? p->io_end[i - 1] : 0].src].src;
	ck_fetch(w->r, p->io, p->nr_io, &why);
	for (unsigned i = 0; i < p->nr_io; first = p->io_end[i++]) {
		const struct ck_plan_run *run = &p->run[first];

		if (!p->io[i].res)
			continue;
		if (!ret && why.code)
			ret = ck_fail_as(err, &why);
		else if (!ret)
			ret = ck_bytes_fail(w->r, &bytes[run->src], run->off,
					    plan_end(p, i) - run->off,
					    -p->io[i].res, err);
		for (unsigned k = first; bad && k < p->io_end[i]; k++)
			bad[p->run[k].seg] = true;
	}
	ck_plan_reset(p);
	return ret;
}

/* A direct segment by itself, a plan full of runs at a time. */
static int read_runs(struct ck_walk *w, const struct ck_seg *seg,
		     const struct ck_bytes *b, struct ck_err *err)
{
	struct ck_runs it;

	ck_runs_init(&it, seg);
	while (!ck_plan_add_all(&w->s->plan, &it, w->buf, 0, 0)) {
		int ret = run_plan(w, b, 1, NULL, err);

		if (ret)
			return ret;
	}
	return run_plan(w, b, 1, NULL, err);
}

static int read_mem(struct ck_walk *w, const struct ck_seg *seg,
		    const struct ck_bytes *b)
{
	struct ck_runs it;

	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		memcpy(w->buf + it.dst, b->mem + it.src, seg->run);
	return 0;
}

/* The plan is empty; the batch is not touched. */
static int read_opened(struct ck_walk *w, const struct ck_seg *seg,
		       const struct ck_bytes *b, struct ck_err *err)
{
	const struct ck_tensor *t = &w->r->in.img->tensors[w->t];
	int ret;

	if (!ck_seg_inside(seg, b->len))
		return outside(w, seg, b, err);
	if (ck_seg_is_edge(seg))
		return read_edge(w, seg, b, err);
	if (b->mem)
		ret = read_mem(w, seg, b);
	else if (is_direct(seg))
		ret = read_runs(w, seg, b, err);
	else
		ret = ck_bounce_read(w->r, b, seg, w->buf, w->s, err);
	if (!ret)
		ret = ck_bytes_recheck(w->r, b, err);
	if (!ret)
		ck_seg_transform(seg, t->dtype, w->buf);
	return ret;
}

static int read_alone(struct ck_walk *w, const struct ck_seg *seg,
		      struct ck_err *err)
{
	struct ck_bytes b;
	int ret = ck_bytes_get(w->r, src_of(w, seg), &b, err);

	if (ret)
		return ret;
	ret = read_opened(w, seg, &b, err);
	ck_bytes_put(w->r, &b);
	if (!ret && w->srcs)
		srcset_add(w->srcs, src_of(w, seg));
	return ret;
}

int ck_walk_alt(struct ck_walk *w, const struct ck_seg *seg, uint32_t chunk,
		struct ck_err *err)
{
	struct ck_err why = { 0 }; /* of what resolving found */
	struct ck_cursor alt;
	struct ck_seg part;
	int ret = 0;

	ck_cursor_init_alt(&alt, w->cur, seg, chunk);
	ck_cursor_resolve(&alt, &why);
	while (!ret && ck_cursor_next(&alt, &part)) {
		if (part.kind == CK_SEG_COPY) {
			ret = read_alone(w, &part, err);
		} else if (part.kind == CK_SEG_UNRESOLVED) {
			ret = ck_fail_as(err, &why);
		} else if (*why.msg) {
			why.code = part.err;
			ret = ck_fail_as(err, &why);
		} else {
			ret = ck_fail(err, part.err,
				      "%s: this part is torn, missing or bad",
				      ck_bytes_name(w->r, src_of(w, &part)));
		}
	}
	return ret;
}

/* Where the bytes of @seg that could not be had begin, unless @err knows. */
static void place(const struct ck_walk *w, const struct ck_seg *seg,
		  struct ck_err *err)
{
	const struct ck_chunk *c = &w->r->in.img->chunks[seg->chunk];
	uint64_t at = seg->kind == CK_SEG_COPY ? seg->src_off : c->off;

	ck_bytes_place(w->r, c->src, at, err);
}

/* @seg failed with @ret and @err: its other replicas, else @ret again. */
static int fail_over(struct ck_walk *w, const struct ck_seg *seg, int ret,
		     struct ck_err *err)
{
	uint32_t c = seg->chunk;

	if (ret == -EINTR) /* nobody waits for it any more */
		return ret;
	place(w, seg, err);
	tell(w, seg->chunk, err);
	while ((c = ck_ring_next(w->r->in.img, seg->chunk, c)) != CK_NONE) {
		struct ck_err other = { 0 };

		if (!ck_walk_alt(w, seg, c, &other))
			return 0;
		tell(w, c, &other);
	}
	return ret;
}

static void drop_batch(struct ck_walk *w)
{
	for (unsigned i = 0; i < w->s->nr_bytes; i++)
		ck_bytes_put(w->r, &w->s->bytes[i]);
	w->s->nr_bytes = w->s->nr_seg = 0;
	ck_plan_reset(&w->s->plan);
}

/* What became of segment @i of the batch, whose plan was run with @ret. */
static int settle(struct ck_walk *w, unsigned i, int ret, struct ck_err *err)
{
	struct ck_scratch *s = w->s;
	unsigned at = s->seg_bytes[i];

	if (!s->code[at] && !s->bad[i]) {
		ck_seg_transform(&s->seg[i], w->r->in.img->tensors[w->t].dtype,
				 w->buf);
		if (w->srcs)
			srcset_add(w->srcs, s->bytes[at].src);
		return 0;
	}
	if (s->code[at]) {
		ret = s->code[at];
		*err = s->why[at];
	}
	return fail_over(w, &s->seg[i], ret, err);
}

/* Reads the batch, looks at its sources once more, fails over. */
static int flush(struct ck_walk *w, struct ck_err *err)
{
	struct ck_scratch *s = w->s;
	struct ck_err read_err = { 0 };
	int ret = 0, read_ret;

	if (!s->nr_seg) {
		drop_batch(w);
		return 0;
	}
	memset(s->bad, 0, s->nr_seg * sizeof(s->bad[0]));
	read_ret = run_plan(w, s->bytes, s->nr_bytes, s->bad, &read_err);
	for (unsigned i = 0; i < s->nr_bytes; i++)
		s->code[i] = ck_bytes_recheck(w->r, &s->bytes[i], &s->why[i]);
	for (unsigned i = 0; i < s->nr_seg && !ret; i++) {
		struct ck_err why = read_err;

		ret = settle(w, i, read_ret, &why);
		if (ret && err)
			*err = why;
	}
	drop_batch(w);
	return ret;
}

static unsigned batch_find(const struct ck_scratch *s, uint32_t src)
{
	unsigned i = 0;

	while (i < s->nr_bytes && s->bytes[i].src != src)
		i++;
	return i;
}

static bool batch_fits(const struct ck_walk *w, const struct ck_seg *seg)
{
	return w->s->nr_seg < CK_BATCH_SEGS &&
	       seg->nbytes / seg->run <= CK_PLAN_RUNS - w->s->plan.nr_piece &&
	       batch_find(w->s, src_of(w, seg)) < CK_PLAN_SRCS;
}

/* Into the batch, which has room unless it is empty. */
static int add_direct(struct ck_walk *w, const struct ck_seg *seg,
		      struct ck_err *err)
{
	struct ck_scratch *s = w->s;
	unsigned at = batch_find(s, src_of(w, seg));
	struct ck_runs it;

	if (!batch_fits(w, seg))
		return read_alone(w, seg, err);
	if (at == s->nr_bytes) {
		int ret =
			ck_bytes_get(w->r, src_of(w, seg), &s->bytes[at], err);

		if (ret)
			return ret;
		s->nr_bytes++;
	}
	if (s->bytes[at].mem)
		return read_opened(w, seg, &s->bytes[at], err);
	if (!ck_seg_inside(seg, s->bytes[at].len))
		return outside(w, seg, &s->bytes[at], err);
	ck_runs_init(&it, seg);
	ck_plan_add_all(&s->plan, &it, w->buf, at, s->nr_seg);
	s->seg_bytes[s->nr_seg] = at;
	s->seg[s->nr_seg++] = *seg;
	return 0;
}

/* Every replica of it is known to be bad. */
static int bad_part(const struct ck_walk *w, const struct ck_seg *seg,
		    struct ck_err *err)
{
	const struct ck_chunk *c = &w->r->in.img->chunks[seg->chunk];
	const char *name = ck_bytes_name(w->r, c->src);
	uint64_t has = w->r->in.img->srcs[c->src].len;

	if (c->state == CK_MISSING)
		return ck_fail(err, seg->err, "%s: does not exist", name);
	if (c->state == CK_TORN) {
		ck_fail(err, seg->err,
			"%s: expected more than the %llu bytes that it has",
			name, (unsigned long long)has);
		ck_bytes_place(w->r, c->src, CK_MAX(c->off, has), err);
		return -seg->err;
	}
	if (w->r->in.img->srcs[c->src].kind == CK_SRC_CODEC)
		return ck_fail(
			err, seg->err,
			"%s: the compressed item at byte %llu is bad", name,
			(unsigned long long)w->r->in.img->srcs[c->src].off);
	return ck_fail(err, seg->err, "%s: the item at byte %llu is bad", name,
		       (unsigned long long)c->off);
}

static int read_slow(struct ck_walk *w, const struct ck_seg *seg,
		     struct ck_err *err)
{
	if (seg->kind == CK_SEG_UNRESOLVED)
		return ck_walk_alt(w, seg, CK_NONE, err);
	if (seg->kind == CK_SEG_ERROR)
		return bad_part(w, seg, err);
	if (is_direct(seg))
		return add_direct(w, seg, err);
	return read_alone(w, seg, err);
}

static int take(struct ck_walk *w, const struct ck_seg *seg, struct ck_err *err)
{
	bool direct = seg->kind == CK_SEG_COPY && is_direct(seg);
	struct ck_err why = { 0 };
	int ret;

	if (seg->op != CK_OP_SET)
		return ck_fail(err, EOPNOTSUPP,
			       "%s: adding up partial sums is not supported",
			       ck_bytes_name(w->r, src_of(w, seg)));
	if (direct && batch_fits(w, seg) && !add_direct(w, seg, &why))
		return 0;
	if (!direct && w->may_tile && seg->kind == CK_SEG_COPY &&
	    !ck_seg_is_edge(seg) && ck_bounce_wasteful(seg)) {
		w->tile_chunk = seg->chunk;
		return -EREMOTE;
	}
	/*
	 * The plan is needed for this segment alone; and the batch may hold
	 * the descriptor that its source lacks.
	 */
	ret = flush(w, err);
	if (ret)
		return ret;
	ret = read_slow(w, seg, &why);
	if (ret)
		ret = fail_over(w, seg, ret, &why);
	if (ret && err)
		*err = why;
	return ret;
}

static int check_whole(const struct ck_walk *w, uint64_t got,
		       struct ck_err *err)
{
	const struct ck_catalog *img = w->r->in.img;
	const struct ck_tensor *t = &img->tensors[w->t];

	if (got == w->len)
		return 0;
	return ck_fail(err, EIO,
		       "%s: %llu bytes are in no file; the first such byte "
		       "of the tensor is %llu",
		       ck_catalog_str(img, t->name, NULL),
		       (unsigned long long)(w->len - got),
		       (unsigned long long)ck_tensor_first_hole(img, t));
}

int ck_walk_run(struct ck_walk *w, struct ck_err *err)
{
	struct ck_seg seg;
	uint64_t got = 0;
	int ret = 0;

	while (!ret && ck_cursor_next(w->cur, &seg)) {
		got += seg.nbytes;
		ret = take(w, &seg, err);
	}
	if (!ret)
		ret = flush(w, err);
	drop_batch(w);
	return ret ? ret : check_whole(w, got, err);
}
