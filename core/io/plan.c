/* SPDX-License-Identifier: Apache-2.0 */
#include "core/io/plan.h"

#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/dtype.h"

#include <stdlib.h>
#include <string.h>

void ck_plan_reset(struct ck_plan *p)
{
	p->nr_run = p->nr_io = p->nr_iov = p->nr_piece = 0;
	p->op = CK_IO_READ;
	p->all_gaps = false;
}

/* False: full. */
bool ck_plan_add(struct ck_plan *p, const struct ck_plan_run *run)
{
	struct ck_plan_run *last = p->nr_run ? &p->run[p->nr_run - 1] : NULL;
	uint64_t pieces = run->piece ? run->len / run->piece : 1;

	if (last && !last->piece && !run->piece && last->src == run->src &&
	    last->seg == run->seg && last->off + last->len == run->off &&
	    last->dst + last->len == run->dst) {
		last->len += run->len;
		return true;
	}
	if (pieces > CK_PLAN_RUNS - p->nr_piece)
		return false;
	p->nr_piece += (unsigned)pieces;
	p->run[p->nr_run++] = *run;
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct ck_plan_run *x = a, *y = b;

	return ck_order2(x->src, y->src, x->off, y->off);
}

static bool is_sorted(const struct ck_plan *p)
{
	for (unsigned i = 1; i < p->nr_run; i++)
		if (by_place(&p->run[i - 1], &p->run[i]) > 0)
			return false;
	return true;
}

/* The runs of a source mostly come in order, those of several in turns. */
static void gather_sources(struct ck_plan *p)
{
	unsigned at[CK_PLAN_SRCS] = { 0 }, sum = 0;

	for (unsigned i = 0; i < p->nr_run; i++)
		at[p->run[i].src]++;
	for (unsigned k = 0; k < CK_PLAN_SRCS; k++) {
		unsigned nr = at[k];

		at[k] = sum;
		sum += nr;
	}
	for (unsigned i = 0; i < p->nr_run; i++)
		p->sorted[at[p->run[i].src]++] = p->run[i];
	memcpy(p->run, p->sorted, p->nr_run * sizeof(p->run[0]));
}

static void sort_runs(struct ck_plan *p)
{
	if (is_sorted(p))
		return;
	gather_sources(p);
	if (!is_sorted(p))
		qsort(p->run, p->nr_run, sizeof(p->run[0]), by_place);
}

static void add_iov(struct ck_plan *p, struct ck_io *io, void *base,
		    uint64_t len)
{
	struct iovec *last = io->nr_iov ? &io->iov[io->nr_iov - 1] : NULL;

	io->len += len;
	if (last && (char *)last->iov_base + last->iov_len == base &&
	    base != p->gap) {
		last->iov_len += len;
		return;
	}
	io->iov[io->nr_iov++] = (struct iovec){ base, len };
	p->nr_iov++;
}

static void add_run(struct ck_plan *p, struct ck_io *io,
		    const struct ck_plan_run *run)
{
	uint64_t n = run->piece ? run->len / run->piece : 1;

	for (uint64_t i = 0; i < n; i++)
		add_iov(p, io, run->dst + (int64_t)i * run->step,
			run->piece ? run->piece : run->len);
}

/* Whether @run can go on @io, of whose bytes @wanted are wanted. */
static bool joins(const struct ck_plan *p, const struct ck_io *io,
		  uint64_t wanted, const struct ck_plan_run *run)
{
	uint64_t end = io->off + io->len;

	if (io->op == CK_IO_WRITE)
		return run->off == end;
	return run->off >= end && run->off - end <= CK_PLAN_GAP &&
	       (p->all_gaps ||
		run->off + run->len - io->off <= 4 * (wanted + run->len));
}

void ck_plan_make(struct ck_plan *p, const int *fd)
{
	struct ck_io *io = NULL;
	uint64_t wanted = 0;

	sort_runs(p);
	for (unsigned i = 0; i < p->nr_run; i++) {
		const struct ck_plan_run *run = &p->run[i];

		if (!io || run->src != run[-1].src ||
		    !joins(p, io, wanted, run)) {
			io = &p->io[p->nr_io++];
			*io = (struct ck_io){ .op = (uint8_t)p->op,
					      .fd = fd[run->src],
					      .off = run->off,
					      .iov = p->iov + p->nr_iov };
			wanted = 0;
		} else if (run->off > io->off + io->len) {
			add_iov(p, io, p->gap, run->off - io->off - io->len);
		}
		add_run(p, io, run);
		wanted += run->len;
		p->io_end[p->nr_io - 1] = i + 1;
	}
}

uint64_t ck_plan_bytes(const struct ck_plan *p)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < p->nr_io; i++)
		sum += p->io[i].len;
	return sum;
}

void ck_runs_init(struct ck_runs *it, const struct ck_seg *seg)
{
	it->seg = seg;
	memset(it->at, 0, sizeof(it->at));
	it->src = seg->src_off;
	it->dst = seg->dst;
	it->done = false;
}

void ck_runs_step(struct ck_runs *it)
{
	for (unsigned i = it->seg->nax; i-- > 0;) {
		uint64_t n = it->seg->ax[i].n;

		it->src += (uint64_t)it->seg->ax[i].src;
		it->dst += (uint64_t)it->seg->ax[i].dst;
		if (++it->at[i] < n)
			return;
		it->at[i] = 0;
		it->src -= n * (uint64_t)it->seg->ax[i].src;
		it->dst -= n * (uint64_t)it->seg->ax[i].dst;
	}
	it->done = true;
}

/* Copies from the current one on that follow each other in the source. */
static uint64_t in_a_row(const struct ck_runs *it)
{
	const struct ck_seg *seg = it->seg;
	const struct ck_seg_axis *ax;

	if (!seg->nax)
		return 1;
	ax = &seg->ax[seg->nax - 1];
	if (ax->src < 0 || (uint64_t)ax->src != seg->run)
		return 1;
	return ax->n - it->at[seg->nax - 1];
}

static void pass(struct ck_runs *it, uint64_t n)
{
	if (n > 1) {
		const struct ck_seg_axis *ax = &it->seg->ax[it->seg->nax - 1];

		it->at[it->seg->nax - 1] += n - 1;
		it->src += (n - 1) * (uint64_t)ax->src;
		it->dst += (n - 1) * (uint64_t)ax->dst;
	}
	ck_runs_step(it);
}

bool ck_plan_add_all(struct ck_plan *p, struct ck_runs *it, unsigned char *buf,
		     unsigned src, unsigned seg)
{
	const struct ck_seg *of = it->seg;

	while (!it->done) {
		struct ck_plan_run run = { .off = it->src,
					   .len = of->run,
					   .dst = buf + it->dst,
					   .src = src,
					   .seg = seg };
		uint64_t n = in_a_row(it), room = CK_PLAN_RUNS - p->nr_piece;

		if (n > 1) {
			n = room > 1 ? CK_MIN(n, room) : 1;
			run.len *= n;
			run.piece = n > 1 ? of->run : 0;
			run.step = of->ax[of->nax - 1].dst;
		}
		if (!ck_plan_add(p, &run))
			return false;
		pass(it, n);
	}
	return true;
}

static bool is_complex(uint8_t dtype)
{
	return dtype == CK_DT_C32 || dtype == CK_DT_C64 ||
	       dtype == CK_DT_C128 || dtype == CK_DT_BC32;
}

static bool is_integer(uint8_t dtype)
{
	return dtype >= CK_DT_U8 && dtype <= CK_DT_I64;
}

static void swap_bytes(unsigned char *v, size_t n)
{
	for (size_t i = 0; i < n / 2; i++) {
		unsigned char b = v[i];

		v[i] = v[n - 1 - i];
		v[n - 1 - i] = b;
	}
}

static void negate(unsigned char *v, size_t n, bool integer)
{
	unsigned carry = 1;

	if (!integer) {
		v[n - 1] ^= 0x80;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		carry += (unsigned char)~v[i];
		v[i] = (unsigned char)carry;
		carry >>= 8;
	}
}

static void transform(unsigned char *v, uint8_t xform, uint8_t dtype,
		      size_t elem)
{
	size_t part = is_complex(dtype) ? elem / 2 : elem;

	for (size_t at = 0; at < elem; at += part) {
		if (xform == CK_XF_BYTESWAP)
			swap_bytes(v + at, part);
		else if (xform == CK_XF_NEG || (xform == CK_XF_CONJ && at))
			negate(v + at, part, is_integer(dtype));
	}
}

void ck_seg_transform(const struct ck_seg *seg, uint8_t dtype,
		      unsigned char *buf)
{
	struct ck_runs it;

	if (seg->xform == CK_XF_NONE)
		return;
	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		for (uint64_t at = 0; at < seg->run; at += seg->elem)
			transform(buf + it.dst + at, seg->xform, dtype,
				  seg->elem);
}
