/* SPDX-License-Identifier: Apache-2.0 */
/*
 * together.c - a load of several ranks, which read each byte once
 *
 * What the parts of a window lie in is posted (core/comm/share.h), and a stretch
 * is handed out when what it needs was shared.  Then its runs are copied instead
 * of read.  What cannot be copied is read as by a load alone: so whoever is gone,
 * and whatever could not be read by another, a load ends as it would alone.
 */
#include "core/load/load_priv.h"

#include "core/base/check.h"
#include "core/base/vec.h"
#include "core/io/bytes.h"
#include "core/io/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define SPLIT (UINT64_C(128) << 10) /* gaps of it are not wanted */
#define SPLITS 4096 /* of a part, or it is wanted as a whole */
#define TIDY \
	((size_t)256 << 10) /* ranges that are kept before they are joined */
#define FEW ((size_t)64 << 10)
#define READS 64 /* requests together */

/* ---- what is wanted ---- */

struct wanted {
	CK_VEC(struct ck_deal_range) v;
	bool failed;
};

/* As it is read: in pages, of which the last one of a file may be shorter. */
static void add(struct wanted *all, const struct ck_load *load, uint32_t src,
		uint64_t lo, uint64_t hi)
{
	uint64_t end = CK_DIV_UP(hi, CK_DEAL_PAGE) * CK_DEAL_PAGE;
	struct ck_deal_range *r;

	hi = CK_MAX(hi, CK_MIN(end, load->img->srcs[src].len));

	if (all->v.nr >= TIDY)
		all->v.nr = ck_deal_tidy(all->v.v, all->v.nr, FEW);
	r = ck_vec_push(&all->v);
	if (r)
		*r = (struct ck_deal_range){ lo, hi, src, 0 };
	all->failed |= !r;
}

static void add_part(struct wanted *all, const struct ck_load *load,
		     const struct ck_load_part *p)
{
	struct ck_seg seg = { .src_off = p->off, .run = p->run };
	uint64_t extent = p->run, nr = 1;
	struct ck_runs it;
	unsigned outer = p->nax;

	for (; outer; outer--) {
		const struct ck_seg_axis *ax = &p->ax[outer - 1];
		uint64_t step = (uint64_t)ax->src;

		if (step > extent + SPLIT)
			break;
		extent += step ? (ax->n - 1) * step : 0;
	}
	for (unsigned i = 0; i < outer; i++) {
		nr = CK_MIN(nr, (uint64_t)SPLITS) * p->ax[i].n;
		seg.ax[seg.nax++] = p->ax[i];
	}
	if (nr > SPLITS) {
		add(all, load, p->src, p->off, p->end);
		return;
	}
	for (ck_runs_init(&it, &seg); !it.done; ck_runs_step(&it))
		add(all, load, p->src, it.src, it.src + extent);
}

void ck_load_post(struct ck_load *load)
{
	struct wanted all = { 0 };

	if (!load->share)
		return;
	for (uint32_t i = 0; i < load->nr_parts && !all.failed; i++) {
		const struct ck_load_part *p =
			ck_load_part(load, load->part[i]);

		if (load->img->srcs[p->src].kind == CK_SRC_FILE)
			add_part(&all, load, p);
	}
	if (all.failed)
		ck_share_abort(load->share);
	else
		ck_share_post(load->share, all.v.v, all.v.nr);
	free(all.v.v);
}

/* ---- who is where; under the pool's lock ---- */

bool ck_load_arrived(struct ck_load *load)
{
	uint64_t lo;
	uint32_t src;

	return !load->share || !ck_load_next_at(load, &src, &lo) ||
	       load->img->srcs[src].kind != CK_SRC_FILE ||
	       ck_share_is_ready(load->share, src,
				 (lo / load->stretch + 1) * load->stretch);
}

void ck_load_passed(struct ck_load *load)
{
	uint32_t src = UINT32_MAX;
	uint64_t lo = 0;

	if (!load->share)
		return;
	ck_load_next_at(load, &src, &lo);
	for (unsigned i = 0; i < load->nr_at; i++) {
		const struct ck_load_job *job = load->at[i];

		if (job->src < src || (job->src == src && job->lo < lo)) {
			src = job->src;
			lo = job->lo;
		}
	}
	ck_share_at(load->share, src, lo);
}

void ck_load_enter(struct ck_load *load, const struct ck_load_job *job)
{
	if (load->share)
		load->at[load->nr_at++] = job;
}

void ck_load_leave(struct ck_load *load, const struct ck_load_job *job)
{
	for (unsigned i = 0; i < load->nr_at; i++)
		if (load->at[i] == job) {
			load->at[i] = load->at[--load->nr_at];
			break;
		}
}

/* ---- bytes ---- */

bool ck_load_copy_shared(struct ck_load_job *job, const struct ck_bytes *b)
{
	struct ck_load *load = job->load;

	if (!load->share || load->img->srcs[b->src].kind != CK_SRC_FILE)
		return false;
	for (unsigned i = 0; i < job->nr_run; i++) {
		const struct ck_load_run *run = &job->run[i];

		if (!ck_share_copy(load->share, b->src, run->off, run->len,
				   run->dst))
			return false;
	}
	return true;
}

/* Where all of @seg, with what is between its runs, is in one stretch; 0: nowhere. */
static uint64_t find_whole(struct ck_load_job *job, const struct ck_seg *seg,
			   uint64_t *copies)
{
	uint64_t span = ck_load_span_of(seg, copies), len = span;
	uint64_t at = span ? ck_share_place(job->load->share, job->src,
					    seg->src_off, &len) :
			     0;

	return len == span ? at : 0;
}

/* Counts the copies that @seg takes; false: not all of it is there. */
static bool find_shared(struct ck_load_job *job, struct ck_load_wish *w,
			const struct ck_seg *seg, unsigned part)
{
	uint64_t *copies = &job->span.copies;
	struct ck_runs it;

	(void)part;
	if (!ck_load_is_straight(w, seg))
		return false;
	if (find_whole(job, seg, copies))
		return *copies <= CK_LOAD_INSIDE;
	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		for (uint64_t at = 0, n; at < seg->run; at += n) {
			n = seg->run - at;
			if (!ck_share_place(job->load->share, job->src,
					    it.src + at, &n) ||
			    ++*copies > CK_LOAD_INSIDE)
				return false;
		}
	return true;
}

static bool send_shared(struct ck_load_job *job, struct ck_load_wish *w,
			const struct ck_seg *seg, unsigned part)
{
	struct ck_seg one = { .kind = CK_SEG_COPY };
	uint64_t copies = 0, from = find_whole(job, seg, &copies);
	struct ck_runs it;

	(void)part;
	if (from) {
		ck_load_send_from(job, w, seg, from);
		ck_share_took(job->load->share, job->src, seg->src_off,
			      seg->nbytes);
		return true;
	}
	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		for (uint64_t at = 0; at < seg->run; at += one.run) {
			one.run = seg->run - at;
			from = ck_share_place(job->load->share, job->src,
					      it.src + at, &one.run);
			one.nbytes = one.run;
			one.dst = it.dst + at;
			ck_load_send_from(job, w, &one, from);
			ck_share_took(job->load->share, job->src, it.src + at,
				      one.run);
		}
	return true;
}

bool ck_load_from_shared(struct ck_load_job *job, const struct ck_bytes *b)
{
	struct ck_load *load = job->load;

	if (!load->is_near || load->img->srcs[b->src].kind != CK_SRC_FILE)
		return false;
	job->span.copies = 0;
	if (!ck_load_each_piece(job, job->lo, job->hi, find_shared))
		return false;
	ck_load_slot_inside(job);
	ck_load_each_piece(job, job->lo, job->hi, send_shared);
	/* What it lies in may be received into when this stretch has passed. */
	ck_load_slot_wait(job);
	return true;
}

/* Pieces of one source, some at a time. */
struct batch {
	struct ck_load *load;
	struct ck_bytes b;
	int direct; /* or -1 */
	unsigned char *slot;
	unsigned nr;
	struct ck_io io[READS];
	struct iovec iov[READS];
	struct ck_deal_piece *of[READS];
	uint64_t off[READS], len[READS]; /* the engine changes io */
};

static void set(struct batch *t, unsigned n, struct ck_deal_piece *p, int fd,
		uint64_t off, uint64_t len)
{
	t->of[n] = p;
	t->off[n] = off;
	t->len[n] = len;
	t->iov[n] = (struct iovec){ t->slot + p->at + (off - p->lo), len };
	t->io[n] = (struct ck_io){ .op = CK_IO_READ,
				   .fd = fd,
				   .src = t->b.src,
				   .off = off,
				   .len = len,
				   .iov = &t->iov[n],
				   .nr_iov = 1 };
}

/* What has no direct reads after all, as some file systems say only now. */
static bool read_plain(struct batch *t, unsigned i)
{
	struct ck_deal_piece *p = t->of[i];
	uint64_t off = t->off[i], len = t->len[i];
	struct ck_err why;

	if (t->io[i].res != -EINVAL || t->io[i].fd != t->direct)
		return false;
	ck_load_note(t->load, "cache=direct: a file has none");
	set(t, i, p, t->b.fd, off, len);
	ck_fetch(t->load->reader, &t->io[i], 1, &why);
	return !t->io[i].res;
}

static void run(struct batch *t)
{
	struct ck_load *load = t->load;
	struct ck_err why;

	for (unsigned i = 0; i < t->nr; i++) {
		ck_load_add(&load->source_bytes, t->io[i].len);
		if (t->io[i].fd == t->direct)
			ck_load_add(&load->direct, t->io[i].len);
		else if (t->b.fd >= 0)
			ck_load_ask(load, t->b.fd, t->io[i].off, t->io[i].len,
				    0);
	}
	ck_load_add(&load->source_ops, t->nr);
	if (t->nr)
		ck_fetch(load->reader, t->io, t->nr, &why);
	for (unsigned i = 0; i < t->nr; i++)
		if (t->io[i].res && !read_plain(t, i))
			t->of[i]->bad = true;
	t->nr = 0;
}

/* Whole blocks past the page cache, and the file's end by way of it. */
static void ask_piece(struct batch *t, struct ck_deal_piece *p)
{
	uint64_t end = CK_MIN(p->lo + p->len, t->b.len), mid = p->lo;

	if (p->lo >= end) {
		p->bad = true;
		return;
	}
	if (t->nr + 2 > READS)
		run(t);
	if (t->direct >= 0)
		mid = end / CK_DEAL_PAGE * CK_DEAL_PAGE;
	if (mid > p->lo)
		set(t, t->nr++, p, t->direct, p->lo, mid - p->lo);
	if (end > mid)
		set(t, t->nr++, p, t->b.fd, mid, end - mid);
}

static void read_source(struct batch *t, struct ck_deal_piece *v, unsigned nr)
{
	struct ck_load *load = t->load;
	bool drops = ck_load_drops(load, &t->b);
	bool good;

	t->direct = load->is_direct ? ck_load_direct_fd(load, &t->b) : -1;
	for (unsigned i = 0; i < nr; i++)
		ask_piece(t, &v[i]);
	run(t);
	for (unsigned i = 0; drops && i < nr; i++)
		posix_fadvise(t->b.fd, (off_t)v[i].lo, (off_t)v[i].len,
			      POSIX_FADV_DONTNEED);
	good = !ck_bytes_recheck(load->reader, &t->b, NULL);
	for (unsigned i = 0; !good && i < nr; i++)
		v[i].bad = true;
	if (t->direct >= 0)
		close(t->direct);
}

static void read_pieces(void *arg, struct ck_deal_piece *v, unsigned nr,
			unsigned char *slot)
{
	struct batch t = { .load = arg, .slot = slot };
	unsigned n;

	for (unsigned i = 0; i < nr; i += n) {
		for (n = 1; i + n < nr && v[i + n].src == v[i].src; n++)
			;
		if (ck_bytes_get(t.load->reader, v[i].src, &t.b, NULL)) {
			for (unsigned k = 0; k < n; k++)
				v[i + k].bad = true;
			continue;
		}
		read_source(&t, v + i, n);
		ck_bytes_put(t.load->reader, &t.b);
	}
}

/* ---- the load ---- */

int ck_load_together(struct ck_load *load, const struct ck_load_in *in,
		     struct ck_err *err)
{
	const struct ck_share_in share = {
		.comm = in->comm,
		.digest = { in->digest[0], in->digest[1] },
		.nr_srcs = load->img->nr_srcs,
		.never_alone = in->never_alone,
		.read = read_pieces,
		.changed = ck_load_changed,
		.refused = ck_load_refused,
		.arg = load,
	};
	uint64_t stretch = CK_LOAD_STRETCH;
	const struct ck_device *near;

	if (!in->comm || ck_comm_ranks(in->comm) == 1)
		return 0;
	near = ck_comm_device(in->comm);
	load->is_near = near && in->ring &&
			ck_device_is_same(near, ck_ring_device(in->ring));
	while (stretch > CK_MIN(load->stretch, ck_comm_block(in->comm)))
		stretch /= 2;
	load->stretch = stretch; /* it lies within a block */
	load->no_dstore = true; /* what others want has to come to the host */
	return ck_share_start(&load->share, &share, err);
}
