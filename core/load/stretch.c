/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stretch.c - the parts of a stretch of a source: read once, handed out
 *
 * Long runs go straight to memory.  Short ones, and what is cast or transformed,
 * go through the slot, with the bytes between them as far as these cost less
 * than another request.  For a device the slot of its ring is that memory.  Runs that overlap are read once and copied.  What is
 * too much for the slot, or a plan, is done in smaller stretches.
 */
#include "core/load/load_priv.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/io/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define SHORT_RUN 512 /* shorter ones are copied */
#define GAP CK_PLAN_GAP /* is read through sooner than asked for again */
#define ALIGN 64 /* of what lies in the slot */
#define AHEAD (UINT64_C(8) << 20) /* bytes asked of storage early */

static void seg_of(const struct ck_load_part *p, struct ck_seg *seg)
{
	seg->kind = CK_SEG_COPY;
	seg->op = CK_OP_SET;
	seg->nax = p->nax;
	seg->xform = p->xform;
	seg->elem = p->elem;
	seg->skip = 0;
	seg->src_off = p->off;
	seg->dst = p->dst;
	seg->run = seg->nbytes = p->run;
	memcpy(seg->ax, p->ax, p->nax * sizeof(p->ax[0]));
	for (unsigned i = 0; i < p->nax; i++)
		seg->nbytes *= p->ax[i].n;
}

/*
 * How a piece of a segment goes through the slot: blocks, each a stretch of the
 * source, one behind the other; axes [outer, nax) are inside a block.
 */
struct blocks {
	unsigned outer;
	uint64_t extent, step; /* bytes of one; from one to the next */
	uint64_t nr;
};

static void blocks_of(const struct ck_seg *seg, struct blocks *b)
{
	b->extent = seg->run;
	b->nr = 1;
	b->outer = seg->nax;
	while (b->outer) {
		const struct ck_seg_axis *ax = &seg->ax[b->outer - 1];
		uint64_t step = (uint64_t)ax->src;

		if (step > b->extent + GAP)
			break;
		b->extent += step ? (ax->n - 1) * step : 0;
		b->outer--;
	}
	for (unsigned i = 0; i < b->outer; i++)
		b->nr *= seg->ax[i].n;
	b->step = (b->extent + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
}

bool ck_load_is_straight(const struct ck_load_wish *w, const struct ck_seg *seg)
{
	if (seg->xform != CK_XF_NONE || w->from != w->to)
		return false;
	if (!seg->nax)
		return true;
	return seg->run >= SHORT_RUN && seg->ax[seg->nax - 1].src;
}

static bool add_run(struct ck_load_job *job, const struct ck_load_run *run)
{
	if (job->nr_run == CK_PLAN_RUNS)
		return false;
	job->run[job->nr_run++] = *run;
	return true;
}

static bool add_straight(struct ck_load_job *job, const struct ck_load_wish *w,
			 const struct ck_seg *seg, unsigned part)
{
	struct ck_load_packed packed;
	struct ck_seg to = *seg;
	struct ck_runs it;

	if (seg->nbytes / seg->run > CK_PLAN_RUNS - job->nr_run)
		return false;
	if (job->ring_slot) {
		if (!ck_load_pack(job, w, seg->ax, seg->nax, seg->run, &packed))
			return false;
		memcpy(to.ax, packed.ax, seg->nax * sizeof(to.ax[0]));
		to.dst = packed.first;
	}
	for (ck_runs_init(&it, &to); !it.done; ck_runs_step(&it))
		add_run(job, &(struct ck_load_run){
				     it.src, seg->run,
				     job->ring_slot ? packed.mem + it.dst :
						      ck_load_place(w, it.dst),
				     part });
	return true;
}

static bool add_blocks(struct ck_load_job *job, const struct ck_seg *seg,
		       unsigned part)
{
	struct ck_seg each = *seg;
	struct blocks b;
	struct ck_runs it;

	blocks_of(seg, &b);
	if (b.nr > CK_PLAN_RUNS - job->nr_run || b.extent > CK_LOAD_SLOT ||
	    b.nr > (CK_LOAD_SLOT - job->slot_used) / b.step)
		return false;
	each.nax = (uint8_t)b.outer;
	for (ck_runs_init(&it, &each); !it.done; ck_runs_step(&it)) {
		add_run(job, &(struct ck_load_run){ it.src, b.extent,
						    job->slot + job->slot_used,
						    part });
		job->slot_used += b.step;
	}
	return true;
}

bool ck_load_each_piece(struct ck_load_job *job, uint64_t lo, uint64_t hi,
			ck_load_piece_fn each)
{
	for (unsigned i = 0; i < job->nr; i++) {
		const struct ck_load_part *p =
			ck_load_part(job->load, job->part[i]);
		struct ck_load_wish *w = &job->load->item[p->item];
		struct ck_seg seg, piece;
		struct ck_seg_cut cut;

		if (p->off >= hi || p->end <= lo)
			continue;
		seg_of(p, &seg);
		ck_seg_cut_init(&cut, &seg, lo, hi);
		while (ck_seg_cut_next(&cut, &piece))
			if (!each(job, w, &piece, i))
				return false;
	}
	return true;
}

static bool add_piece(struct ck_load_job *job, struct ck_load_wish *w,
		      const struct ck_seg *seg, unsigned part)
{
	struct ck_load_packed packed;

	if (ck_load_is_straight(w, seg))
		return add_straight(job, w, seg, part);
	if (job->ring_slot &&
	    !ck_load_pack(job, w, seg->ax, seg->nax, seg->run, &packed))
		return false;
	return add_blocks(job, seg, part);
}

static int by_place(const void *pa, const void *pb)
{
	const struct ck_load_run *a = pa, *b = pb;

	return (a->off > b->off) - (a->off < b->off);
}

static void sort_runs(struct ck_load_job *job)
{
	for (unsigned i = 1; i < job->nr_run; i++)
		if (job->run[i].off < job->run[i - 1].off) {
			qsort(job->run, job->nr_run, sizeof(job->run[0]),
			      by_place);
			return;
		}
}

/* Of runs that overlap, the bytes that an earlier one has are copied from it. */
static void share_runs(struct ck_load_job *job)
{
	struct ck_load_run far = { .len = 0 };
	unsigned nr = 0;

	sort_runs(job);
	job->nr_again = 0;
	for (unsigned i = 0; i < job->nr_run; i++) {
		struct ck_load_run run = job->run[i];
		uint64_t has = far.off + far.len;

		if (run.off < has && far.len) {
			uint64_t n = CK_MIN(run.len, has - run.off);

			job->again[job->nr_again++] = (struct ck_load_again){
				run.dst, far.dst + (run.off - far.off), n,
				run.part, far.part
			};
			run.off += n;
			run.dst += n;
			run.len -= n;
		}
		if (!run.len)
			continue;
		job->run[nr++] = run;
		far = run;
	}
	job->nr_run = nr;
}

void ck_load_ask(struct ck_load *load, int fd, uint64_t off, uint64_t len,
		 uint64_t more)
{
	unsigned char byte;
	struct iovec one = { &byte, 1 };

	if (len < (64 << 10))
		return;
	if (preadv2(fd, &one, 1, (off_t)off, RWF_NOWAIT) >= 0)
		ck_load_add(&load->resident, len);
	else if (errno == EAGAIN)
		posix_fadvise(fd, (off_t)off, (off_t)(len + more),
			      POSIX_FADV_WILLNEED);
}

static void ask_ahead(const struct ck_load_job *job, int fd)
{
	for (unsigned i = 0; i < job->plan.nr_io; i++) {
		const struct ck_io *io = &job->plan.io[i];
		uint64_t end = io->off + io->len, more = 0;

		if (i + 1 == job->plan.nr_io && end == job->hi)
			more = CK_MIN(job->ahead - end, AHEAD);
		ck_load_ask(job->load, fd, io->off, io->len, more);
	}
}

static void mark_failed(struct ck_load_job *job)
{
	const struct ck_plan *p = &job->plan;
	unsigned first = 0;

	for (unsigned i = 0; i < p->nr_io; first = p->io_end[i++])
		for (unsigned k = first; p->io[i].res && k < p->io_end[i]; k++)
			job->bad[p->run[k].seg] = true;
}

static void read_file(struct ck_load_job *job, const struct ck_bytes *b)
{
	struct ck_load *load = job->load;
	struct ck_plan *p = &job->plan;
	struct ck_err why;
	uint64_t bytes;

	ck_plan_reset(p);
	/* Each page of them holds bytes that are wanted, or the next one does. */
	p->all_gaps = true;
	for (unsigned i = 0; i < job->nr_run; i++) {
		const struct ck_load_run *run = &job->run[i];

		ck_plan_add(p, &(struct ck_plan_run){ .off = run->off,
						      .len = run->len,
						      .dst = run->dst,
						      .seg = run->part });
	}
	ck_plan_make(p, &b->fd);
	for (unsigned i = 0; i < p->nr_io; i++)
		p->io[i].src = b->src;
	bytes = ck_plan_bytes(p);
	ck_load_add(&load->source_ops, p->nr_io);
	ck_load_add(&load->source_bytes, bytes);
	if (load->is_direct && ck_load_direct(job, b)) {
		ck_load_add(&load->direct, bytes);
	} else {
		if (b->fd >= 0)
			ask_ahead(job, b->fd);
		ck_fetch(load->reader, p->io, p->nr_io, &why);
	}
	mark_failed(job);
}

static void read_mem(struct ck_load_job *job, const struct ck_bytes *b)
{
	for (unsigned i = 0; i < job->nr_run; i++)
		memcpy(job->run[i].dst, b->mem + job->run[i].off,
		       job->run[i].len);
}

/* Runs that do not lie in the source. */
static void drop_outside(struct ck_load_job *job, uint64_t size)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < job->nr_run; i++) {
		struct ck_load_run *run = &job->run[i];

		if (ck_range_ok(run->off, run->len, size))
			job->run[nr++] = *run;
		else
			job->bad[run->part] = true;
	}
	job->nr_run = nr;
}

static void copy_again(struct ck_load_job *job)
{
	for (unsigned i = 0; i < job->nr_again; i++) {
		const struct ck_load_again *a = &job->again[i];

		job->bad[a->part] |= job->bad[a->of];
		if (!job->bad[a->part])
			memmove(a->dst, a->from, a->len);
	}
}

/* The transform, in the slot, of each element that @seg gives once. */
static void transform(struct ck_load_job *job, const struct ck_load_wish *w,
		      const struct ck_seg *seg, const struct blocks *b)
{
	struct ck_seg here = *seg;
	uint64_t step = b->step;

	here.dst = 0;
	for (unsigned i = b->outer; i-- > 0;) {
		here.ax[i].dst = (int64_t)step;
		step *= here.ax[i].n;
	}
	for (unsigned i = b->outer; i < here.nax; i++) {
		here.ax[i].dst = here.ax[i].src;
		if (!here.ax[i].src)
			here.ax[i].n = 1;
	}
	ck_seg_transform(&here, w->from, job->slot + job->slot_used);
}

/* What was read to where it belongs, or into a slot from where it is sent. */
static bool send_straight(struct ck_load_job *job, const struct ck_load_wish *w,
			  const struct ck_seg *seg, unsigned part)
{
	struct ck_load_packed packed;

	if (!job->ring_slot)
		return true;
	ck_load_pack(job, w, seg->ax, seg->nax, seg->run, &packed);
	if (!job->bad[part])
		ck_load_send(job, w, seg->ax, seg->nax, seg->run, seg->dst,
			     &packed);
	return true;
}

/* From the slot to where it belongs, in the order of add_piece(). */
static bool hand_out(struct ck_load_job *job, struct ck_load_wish *w,
		     const struct ck_seg *seg, unsigned part)
{
	struct ck_seg_axis ax[CK_SEG_AXES];
	struct ck_load_packed packed;
	struct blocks b;
	uint64_t step;

	if (ck_load_is_straight(w, seg))
		return send_straight(job, w, seg, part);
	blocks_of(seg, &b);
	step = b.step;
	memcpy(ax, seg->ax, seg->nax * sizeof(ax[0]));
	for (unsigned i = b.outer; i-- > 0;) {
		ax[i].src = (int64_t)step;
		step *= ax[i].n;
	}
	if (!job->bad[part]) {
		transform(job, w, seg, &b);
		ck_load_deliver(job, w, ax, seg->nax, seg->run,
				job->slot + job->slot_used, seg->dst);
	} else if (job->ring_slot) {
		ck_load_pack(job, w, ax, seg->nax, seg->run, &packed);
	}
	job->slot_used += b.nr * b.step;
	return true;
}

static bool settle(struct ck_load_job *job, struct ck_load_wish *w,
		   const struct ck_seg *seg, unsigned part)
{
	ck_load_settle_late(job, (uint32_t)(w - job->load->item), seg->nbytes,
			    job->bad[part]);
	return true;
}

static bool populate(struct ck_load_job *job, struct ck_load_wish *w,
		     const struct ck_seg *seg, unsigned part)
{
	(void)part;
	ck_load_populate(job->load, w, seg);
	return true;
}

/* What begins in [lo, hi), all of it; false: it is too much at once. */
static bool run_stretch(struct ck_load_job *job, const struct ck_bytes *b,
			uint64_t lo, uint64_t hi)
{
	struct ck_load *load = job->load;
	uint64_t used = job->ring_used;
	int64_t t0, t1;

	job->nr_run = 0;
	job->slot_used = 0;
	if (!ck_load_each_piece(job, lo, hi, add_piece)) {
		job->ring_used = used;
		return false;
	}
	t0 = ck_now_ns();
	if (!load->ring)
		ck_load_each_piece(job, lo, hi, populate);
	drop_outside(job, b->len);
	share_runs(job);
	if (b->mem)
		read_mem(job, b);
	else if (!ck_load_copy_shared(job, b))
		read_file(job, b);
	t1 = ck_now_ns();
	ck_load_add(&load->ns_read, (uint64_t)(t1 - t0));
	copy_again(job);
	job->slot_used = 0;
	job->ring_used = used;
	ck_load_each_piece(job, lo, hi, hand_out);
	ck_load_add(&load->ns_copy, (uint64_t)(ck_now_ns() - t1));
	return true;
}

static void run_all(struct ck_load_job *job, const struct ck_bytes *b)
{
	uint64_t step = job->hi - job->lo, at = job->lo;

	if (ck_load_from_shared(job, b) || ck_load_by_device(job, b) ||
	    ck_load_by_slot(job, b))
		return;
	while (at < job->hi && !job->load->cancel) {
		uint64_t n = CK_MIN(step, job->hi - at);

		if (run_stretch(job, b, at, at + n))
			at += n;
		else if (!ck_load_slot_next(job))
			step = n / 2 + (n == 1);
	}
}

void ck_load_stretch(struct ck_load_job *job)
{
	struct ck_load *load = job->load;
	struct ck_bytes b;
	bool good = false, drops;

	memset(job->bad, 0, job->nr * sizeof(job->bad[0]));
	ck_load_slot_begin(job);
	if (!ck_bytes_get(load->reader, job->src, &b, NULL)) {
		drops = ck_load_drops(load, &b);
		run_all(job, &b);
		if (drops)
			ck_load_drop(job, &b);
		good = !ck_bytes_recheck(load->reader, &b, NULL) &&
		       load->touches == ck_reader_touches(load->reader);
		ck_bytes_put(load->reader, &b);
	}
	if (!good)
		memset(job->bad, 1, job->nr * sizeof(job->bad[0]));
	if (!load->cancel) /* else not all of it was read */
		ck_load_each_piece(job, job->lo, job->hi, settle);
	ck_load_slot_end(job);
}
