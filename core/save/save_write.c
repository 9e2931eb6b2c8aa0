/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_write.c - memory into slices, by several threads
 *
 * Boxes are cut along their first dimensions into stretches, each one write; what
 * does not lie in row-major order, or not in the host's memory, is gathered
 * first.  When all are written, and on their way to storage, digests are made of
 * the memory that still has them.
 */
#include "core/save/save_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/pool.h"
#include "core/geom/catalog.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#define STRETCH (UINT64_C(4) << 20) /* which the processor's cache still has */
#define ALONE (UINT64_C(4) << 20) /* less than this takes no thread */

/* What is given out next: boxes of item @item, from @at on. */
struct feed {
	const struct ck_save_item *v;
	size_t nr, item;
	bool begun;
	struct ck_box box; /* of the item */
	uint64_t at[CK_MAX_RANK]; /* in the box */
	unsigned dim; /* that is cut; those before it go one by one */
	uint64_t rows; /* of it, at once */
};

struct job {
	struct ck_save *s;
	struct feed feed;
	pthread_mutex_t lock; /* of feed, bad and why */
	_Atomic int stop;
	size_t bad;
	struct ck_err why;
};

static unsigned elem_of(const struct ck_save_slice *is)
{
	return ck_dtype_info(is->dtype)->size;
}

static const struct ck_save_declared *slice_of(const struct ck_save *s,
					       const struct ck_save_item *item)
{
	return &s->declared.v[item->slice];
}

static int check(const struct ck_save *s, const struct ck_save_item *item,
		 struct ck_err *err)
{
	const struct ck_save_slice *is;

	if (item->slice >= s->declared.nr || !slice_of(s, item)->is.dtype)
		return ck_fail(err, EINVAL,
			       "%s: slice %" PRIu32
			       " of %zu that were declared",
			       s->draft->name, item->slice, s->declared.nr);
	is = &slice_of(s, item)->is;
	for (unsigned d = 0; item->start && d < is->rank; d++)
		if (item->start[d] < is->start[d] ||
		    item->start[d] - is->start[d] > is->len[d] ||
		    item->len[d] > is->len[d] - (item->start[d] - is->start[d]))
			return ck_fail(err, EINVAL,
				       "%.300s: dimension %u: elements %" PRIu64
				       " to %" PRIu64
				       ", and the slice has %" PRIu64
				       " to %" PRIu64,
				       is->name, d, item->start[d],
				       item->start[d] + item->len[d],
				       is->start[d], is->start[d] + is->len[d]);
	return 0;
}

/* ---- one stretch after the other ---- */

/* Whether the whole slice lies in memory as it will in its shard. */
static bool is_plain(const struct ck_save_item *item,
		     const struct ck_save_slice *is)
{
	uint64_t step = 1;

	for (unsigned d = is->rank; d-- > 0; step *= is->len[d])
		if ((item->start && item->len[d] != is->len[d]) ||
		    (item->stride && is->len[d] != 1 &&
		     item->stride[d] != (int64_t)step))
			return false;
	return !item->dev;
}

static void begin_item(struct feed *f, const struct ck_save_declared *of)
{
	const struct ck_save_item *item = &f->v[f->item];
	const struct ck_save_slice *is = &of->is;
	uint64_t inner = elem_of(is), most = STRETCH;

	/* so that it has one digest, as it has where it is written */
	if (!of->ours && is_plain(item, is))
		most = UINT64_MAX / 2;

	f->box.rank = is->rank;
	for (unsigned d = 0; d < is->rank; d++) {
		f->box.start[d] = item->start ? item->start[d] : is->start[d];
		f->box.len[d] = item->start ? item->len[d] : is->len[d];
		f->at[d] = 0;
	}
	for (f->dim = is->rank; f->dim > 0; f->dim--) {
		if (inner * CK_MAX(f->box.len[f->dim - 1], 1) > most)
			break;
		inner *= CK_MAX(f->box.len[f->dim - 1], 1);
	}
	/* all of it, or rows of the dimension that is too long */
	f->rows = f->dim ? CK_MAX(STRETCH / inner, 1) : 0;
	f->begun = true;
}

/* The next one along the dimensions that are cut; false: that was the last. */
static bool step_on(struct feed *f)
{
	if (!f->dim)
		return false;
	f->at[f->dim - 1] += f->rows;
	for (unsigned d = f->dim; d-- > 0;) {
		if (f->at[d] < f->box.len[d])
			return true;
		f->at[d] = 0;
		if (d)
			f->at[d - 1]++;
	}
	return false;
}

static void stretch(const struct feed *f, struct ck_box *out)
{
	*out = f->box;
	for (unsigned d = 0; d < f->dim; d++) {
		bool last = d + 1 == f->dim;

		out->start[d] += f->at[d];
		out->len[d] =
			last ? CK_MIN(f->rows, f->box.len[d] - f->at[d]) : 1;
	}
}

/* Under the lock; false: there are no more. */
static bool next(struct job *j, struct ck_box *out, size_t *item)
{
	struct feed *f = &j->feed;

	for (; f->item < f->nr; f->item++, f->begun = false) {
		if (!f->begun)
			begin_item(f, slice_of(j->s, &f->v[f->item]));
		else if (!step_on(f))
			continue;
		*item = f->item;
		stretch(f, out);
		return true;
	}
	return false;
}

/* ---- gathering ---- */

/* Where the first element of @box is, and how far it is to the next ones. */
static uint64_t address(const struct feed *whole, const struct ck_box *box,
			const struct ck_save_item *item, unsigned elem,
			int64_t step[CK_MAX_RANK])
{
	const struct ck_box *of = &whole->box;
	uint64_t at = item->mem, row = elem;

	for (unsigned d = of->rank; d-- > 0;) {
		step[d] = item->stride ? item->stride[d] * (int64_t)elem :
					 (int64_t)row;
		row *= of->len[d];
		at += (box->start[d] - of->start[d]) * (uint64_t)step[d];
	}
	return at;
}

/* Dimensions from which on memory is as the slice has it, and bytes of that. */
static unsigned plain_from(const struct ck_box *box, const int64_t *step,
			   unsigned elem, uint64_t *run)
{
	unsigned d = box->rank;

	for (*run = elem; d > 0; d--) {
		if (box->len[d - 1] != 1 && step[d - 1] != (int64_t)*run)
			break;
		*run *= box->len[d - 1];
	}
	return d;
}

static int gather(const struct ck_save_item *item, const struct ck_box *box,
		  const int64_t *step, unsigned dims, uint64_t run,
		  uint64_t from, char *to, struct ck_err *err)
{
	uint64_t at[CK_MAX_RANK] = { 0 };
	unsigned d;
	int ret = 0;

	do {
		if (item->dev)
			ret = ck_device_get(item->dev, to, from, run, err);
		else
			memcpy(to, (const void *)(uintptr_t)from, run);
		to += run;
		for (d = dims; d-- > 0; at[d] = 0) {
			from += (uint64_t)step[d];
			if (++at[d] < box->len[d])
				break;
			from -= at[d] * (uint64_t)step[d];
		}
	} while (d != UINT32_MAX && !ret);
	return ret;
}

static int write_box(struct job *j, const struct feed *whole, size_t nr,
		     const struct ck_box *box, char *buf, struct ck_err *err)
{
	const struct ck_save_item *item = &whole->v[nr];
	const struct ck_save_declared *d = slice_of(j->s, item);
	const struct ck_slice_part of = { d->tensor, d->piece, box };
	int64_t step[CK_MAX_RANK];
	uint64_t run, at = address(whole, box, item, elem_of(&d->is), step);
	unsigned dims = plain_from(box, step, elem_of(&d->is), &run);
	const void *mem = buf;
	int ret = 0;

	if (d->piece == CK_NONE || !ck_box_volume(box))
		return 0;
	if (!dims && !item->dev)
		mem = (const void *)(uintptr_t)at;
	else
		ret = gather(item, box, step, dims, run, at, buf, err);
	if (ret)
		return ret;
	return d->ours ? ck_slice_write_once(j->s->slices, &of, mem, err) :
			 ck_slice_same(j->s->slices, &of, j->s->rank, mem, err);
}

/* ---- digests ---- */

static int by_piece(const void *a, const void *b)
{
	const struct ck_slice_mem *x = a, *y = b;

	return (x->piece > y->piece) - (x->piece < y->piece);
}

static int sum(const struct job *j, struct ck_err *err)
{
	const struct feed *f = &j->feed;
	ck_auto_free struct ck_slice_mem *mem = calloc(f->nr + 1, sizeof(*mem));
	size_t nr = 0;

	if (!mem)
		return ck_no_memory(err);
	for (size_t i = 0; i < f->nr; i++) {
		const struct ck_save_declared *d = slice_of(j->s, &f->v[i]);

		if (d->ours && d->piece != CK_NONE &&
		    is_plain(&f->v[i], &d->is))
			mem[nr++] = (struct ck_slice_mem){
				d->piece, (const void *)(uintptr_t)f->v[i].mem
			};
	}
	if (nr)
		qsort(mem, nr, sizeof(*mem), by_piece);
	return ck_slices_sum(j->s->slices, mem, nr, j->s->threads, err);
}

static void failed(struct job *j, int ret, size_t item,
		   const struct ck_err *why)
{
	pthread_mutex_lock(&j->lock);
	if (!j->stop) {
		j->why = *why;
		j->bad = item;
		j->stop = ret;
	}
	pthread_mutex_unlock(&j->lock);
}

static void work(void *ctx)
{
	struct job *j = ctx;
	ck_auto_free char *buf = malloc(STRETCH);
	struct feed whole;
	struct ck_box box;
	struct ck_err err = { 0 };
	size_t item = 0;
	bool more = true;

	if (!buf)
		failed(j, ck_no_memory(&err), SIZE_MAX, &err);
	while (!j->stop && more) {
		int ret = 0;

		pthread_mutex_lock(&j->lock);
		more = next(j, &box, &item);
		whole = j->feed;
		pthread_mutex_unlock(&j->lock);
		if (more)
			ret = write_box(j, &whole, item, &box, buf, &err);
		if (ret)
			failed(j, ret, item, &err);
	}
}

static uint64_t bytes_of(const struct ck_save *s, const struct ck_save_item *v,
			 size_t nr)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < nr; i++) {
		const struct ck_save_slice *is = &slice_of(s, &v[i])->is;
		uint64_t n = 1;

		ck_dims_volume(v[i].start ? v[i].len : is->len, is->rank, &n);
		sum += n * elem_of(is);
	}
	return sum;
}

static int run(struct job *j, struct ck_err *err)
{
	const struct ck_pool_in pool = { .jobs = j->s->threads,
					 .ctx = j,
					 .work = work };

	if (j->s->threads == 1 || bytes_of(j->s, j->feed.v, j->feed.nr) < ALONE)
		work(j);
	else
		ck_pool_run(&pool);
	return j->stop ? ck_fail_as(err, &j->why) : sum(j, err);
}

int ck_save_write(struct ck_save *s, const struct ck_save_item *v, size_t nr,
		  size_t *bad, struct ck_err *err)
{
	struct job j = { .s = s,
			 .feed = { .v = v, .nr = nr },
			 .bad = SIZE_MAX };
	int ret = ck_save_begin(s, err);

	*bad = SIZE_MAX;
	for (size_t i = 0; i < nr && !ret; i++) {
		ret = check(s, &v[i], err);
		*bad = ret ? i : SIZE_MAX;
	}
	if (!ret)
		ret = ck_draft_begin(s->draft, err);
	if (ret)
		return ret;
	pthread_mutex_init(&j.lock, NULL);
	pthread_mutex_lock(&s->lock);
	ret = run(&j, err);
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_destroy(&j.lock);
	ck_draft_end(s->draft);
	*bad = j.bad;
	return ret;
}
