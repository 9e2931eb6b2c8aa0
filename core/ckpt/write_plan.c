/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_plan.c - checks and runs what write_plan.h describes
 *
 * The kernel writes pages of maps back whole.  Of a page of several tensors, or
 * of one whose master follows, what differs from what is there counts, from the
 * first such byte to the last.  Bytes that a write past the page cache is just
 * putting there do not: until the kernel has dropped its older pages, those may
 * come as if a program had stored them.
 */
#include "core/ckpt/write_plan.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/ckpt/ckpt_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int ck_wplan_add(struct ck_wplan *p, uint32_t tensor, uint64_t off,
		 uint64_t len, uint64_t at, struct ck_err *err)
{
	struct ck_wpart *part = ck_vec_push(&p->parts);

	if (!part)
		return ck_no_memory(err);
	*part = (struct ck_wpart){
		.tensor = tensor,
		.copy = ck_ckpt_written_too(p->ck, tensor),
		.same = ck_fp32_master_same(p->ck, tensor),
		.key = ck_ckpt_bytes_key(p->ck, tensor),
		.off = off,
		.len = len,
		.at = at,
	};
	return 0;
}

static int masters_first(const void *a, const void *b)
{
	const struct ck_wpart *x = a, *y = b;
	bool follows = x->copy != CK_NONE;

	if (follows != (y->copy != CK_NONE))
		return follows ? 1 : -1;
	return (x->at > y->at) - (x->at < y->at);
}

void ck_wplan_made(struct ck_wplan *p)
{
	bool any = false;

	for (size_t i = 0; i < p->parts.nr; i++)
		any |= p->parts.v[i].copy != CK_NONE;
	if (any)
		qsort(p->parts.v, p->parts.nr, sizeof(*p->parts.v),
		      masters_first);
}

void ck_wplan_newer(struct ck_wplan *p)
{
	pthread_mutex_lock(&p->ck->newer_lock);
	p->next = p->ck->newer;
	p->ck->newer = p;
	p->newer = true;
	pthread_mutex_unlock(&p->ck->newer_lock);
}

static void forget(struct ck_wplan *p)
{
	struct ck_wplan **at;

	pthread_mutex_lock(&p->ck->newer_lock);
	for (at = &p->ck->newer; *at != p;)
		at = &(*at)->next;
	*at = p->next;
	pthread_mutex_unlock(&p->ck->newer_lock);
}

void ck_wplan_free(struct ck_wplan *p)
{
	if (!p)
		return;
	if (p->newer)
		forget(p);
	free(p->parts.v);
	free(p);
}

bool ck_wplan_wrote(int ret)
{
	return !ret || ret == -EIO || ret == -ENOSPC || ret == -EDQUOT;
}

/* ---- what of it is to be written ---- */

/* A plan that is run, while nobody else has its bytes. */
struct run {
	struct ck_wplan *p;
	struct ck_ckpt *ck;
	CK_VEC(struct ck_wrange) ranges; /* ->part: that they are of */
	size_t done; /* of them */
	bool following; /* all are written, and of those that are done followed */
};

/* Parts of which a page may hold bytes that only seem to be written. */
static bool heeded(const struct ck_wplan *p, const struct ck_wpart *part)
{
	return p->page && (part->may || p->several || part->copy != CK_NONE);
}

static int allow(struct ck_wplan *p, struct ck_err *err)
{
	int ret = ck_ckpt_whole(p->ck, err);

	for (size_t i = 0; !ret && i < p->parts.nr; i++) {
		struct ck_wpart *part = &p->parts.v[i];

		part->may = ck_ckpt_allows(p->ck, part->tensor, err);
		if (!heeded(p, part))
			ret = part->may;
	}
	return ret ? ret : ck_ckpt_lock_writer(p->ck, err);
}

/* Whole elements of 16 bits, for the master. */
static uint64_t lead_of(const struct ck_wpart *part)
{
	return part->copy == CK_NONE ? 0 : part->off % 2;
}

static int read_was(struct run *r, struct ck_wpart *part, struct ck_err *err)
{
	uint64_t lead = lead_of(part), len = lead + part->len;

	if (part->copy != CK_NONE)
		len = CK_DIV_UP(len, 2) * 2;
	part->was = malloc(len);
	if (!part->was)
		return ck_no_memory(err);
	return ck_reader_read(r->ck->reader, part->tensor, part->was, len,
			      part->off - lead, err);
}

/* One that is refused must be as it is: then nothing of it is to be written. */
static int look_at(struct run *r, struct ck_wpart *part, uint64_t *from,
		   uint64_t *to, struct ck_err *err)
{
	struct ck_partial_writes *u = &r->ck->partial_writes;
	const unsigned char *buf = r->p->buf + part->at, *was;
	int ret = read_was(r, part, part->may ? NULL : err);

	was = part->was + lead_of(part);
	if (part->may) {
		if (ret || memcmp(was, buf, part->len) != 0)
			return ck_ckpt_allows(r->ck, part->tensor, err);
		*to = 0;
		return 0;
	}
	if (ret)
		return ret;
	/* where a write failed half-way, what is there is one of several */
	if (u->nr)
		ck_partial_writes_spoil(u, part->same, part->off,
					part->off + part->len, buf,
					part->was + lead_of(part));
	while (*from < *to && was[*from] == buf[*from])
		++*from;
	while (*to > *from && was[*to - 1] == buf[*to - 1])
		--*to;
	return 0;
}

static int add_range(struct run *r, size_t part, uint64_t from, uint64_t to,
		     struct ck_err *err)
{
	const struct ck_wpart *of = &r->p->parts.v[part];
	struct ck_wrange *range = ck_vec_push(&r->ranges);

	if (!range)
		return ck_no_memory(err);
	*range = (struct ck_wrange){ .tensor = of->tensor,
				     .part = part,
				     .buf = r->p->buf + of->at + from,
				     .len = to - from,
				     .off = of->off + from };
	return 0;
}

/*
 * Under the lock: the end of what is newer at byte @at of the tensor; or,
 * nothing is, *next: where something may be.
 */
static uint64_t newer_until(const struct run *r, const struct ck_wpart *part,
			    uint64_t at, uint64_t *next)
{
	for (const struct ck_wplan *p = r->ck->newer; p; p = p->next)
		for (size_t i = 0; i < p->parts.nr; i++) {
			const struct ck_wpart *n = &p->parts.v[i];

			if (n->same != part->same || n->off + n->len <= at)
				continue;
			if (n->off <= at)
				return n->off + n->len;
			*next = CK_MIN(*next, n->off);
		}
	return at;
}

/* Bytes [from, to) of the part, but those that are newer than its page. */
static int add_older(struct run *r, size_t i, uint64_t from, uint64_t to,
		     struct ck_err *err)
{
	const struct ck_wpart *part = &r->p->parts.v[i];
	int ret = 0;

	pthread_mutex_lock(&r->ck->newer_lock);
	while (!ret && from < to) {
		uint64_t next = part->off + to, end;

		end = newer_until(r, part, part->off + from, &next);
		end -= part->off;
		if (end > from) {
			from = end;
			continue;
		}
		ret = add_range(r, i, from, next - part->off, err);
		from = next - part->off;
	}
	pthread_mutex_unlock(&r->ck->newer_lock);
	return ret;
}

static int look(struct run *r, struct ck_err *err)
{
	struct ck_wplan *p = r->p;
	int ret = 0;

	for (size_t i = 0; !ret && i < p->parts.nr; i++) {
		struct ck_wpart *part = &p->parts.v[i];
		uint64_t from = 0, to = part->len;

		if (heeded(p, part))
			ret = look_at(r, part, &from, &to, err);
		if (!ret && p->page)
			ret = add_older(r, i, from, to, err);
		else if (!ret)
			ret = add_range(r, i, from, to, err);
	}
	return ret;
}

/* ---- writing it ---- */

static void say_partial_write(struct ck_ckpt *ck, const struct ck_wpart *part,
			      int code)
{
	const struct ck_catalog *img = &ck->img;
	ck_auto_free char *line = NULL;

	if (asprintf(&line,
		     "a write to tensor %s failed (%s), and training goes on "
		     "from other values in its float32 copy %s until the same "
		     "bytes are written again",
		     ck_catalog_str(img, img->tensors[part->tensor].name, NULL),
		     strerror(code),
		     ck_catalog_str(img, img->tensors[part->copy].name, NULL)) <
	    0)
		line = NULL;
	else
		ck_ckpt_said(ck, CK_NONE, line);
}

/* The masters of what was written; as far as it was. */
static int follow(struct run *r, struct ck_edit *e, struct ck_err *err)
{
	int ret = 0;

	r->following = true;
	for (size_t i = 0; !ret && i < r->ranges.nr; i++) {
		const struct ck_wrange *range = &r->ranges.v[i];
		const struct ck_wpart *part = &r->p->parts.v[range->part];
		const unsigned char *was = part->was;

		if (part->copy == CK_NONE)
			continue;
		if (was) /* the element that the range begins in */
			was += range->off / 2 * 2 - part->off / 2 * 2;
		r->done = i;
		ret = ck_fp32_master_follow(r->ck, e, part->tensor, part->copy,
					    was, range->len, range->off, err);
	}
	r->done = ret ? r->done : r->ranges.nr;
	return ret;
}

/* What was written, and what may have been. */
static void note(struct run *r, int ret)
{
	struct ck_partial_writes *u = &r->ck->partial_writes;

	for (size_t i = 0; i < r->ranges.nr; i++) {
		const struct ck_wrange *range = &r->ranges.v[i];
		const struct ck_wpart *part = &r->p->parts.v[range->part];
		uint64_t end = range->off + range->len;

		if (i < r->done) {
			if (u->nr)
				ck_partial_writes_drop(u, part->same,
						       range->off, end);
			continue;
		}
		if (!ck_wplan_wrote(ret))
			return;
		if (r->following && part->copy == CK_NONE)
			continue;
		ck_partial_writes_add(u, part->same, range->off, end);
		if (part->copy != CK_NONE)
			say_partial_write(r->ck, part, -ret);
		if (!r->following)
			return; /* nothing came after it */
	}
}

static int write_all(struct run *r, struct ck_edit *e, struct ck_err *err)
{
	int ret = 0;

	if (r->ranges.nr)
		ret = ck_writer_write_ranges(r->ck->writer, e, r->ranges.v,
					     r->ranges.nr, &r->done, err);
	if (!ret)
		ret = follow(r, e, err);
	note(r, ret);
	return ret;
}

static void lock_all(struct ck_wplan *p, struct ck_range_lock *lock)
{
	lock->nr = 0;
	for (size_t i = 0; i < p->parts.nr; i++) {
		const struct ck_wpart *part = &p->parts.v[i];

		ck_range_lock_add(lock, part->tensor, part->off,
				  part->off + part->len);
		if (part->copy != CK_NONE)
			ck_range_lock_add(lock, part->copy, 0, UINT64_MAX);
	}
	ck_writer_begin(p->ck->writer, lock);
}

int ck_wplan_run(struct ck_wplan *p, struct ck_edit *e, struct ck_err *err)
{
	struct run r = { .p = p, .ck = p->ck };
	struct ck_range_lock lock;
	int ret = allow(p, err);

	if (ret)
		return ret;
	lock_all(p, &lock);
	ret = look(&r, err);
	if (!ret)
		ret = write_all(&r, e, err);
	ck_writer_end(p->ck->writer, &lock);
	for (size_t i = 0; i < p->parts.nr; i++) {
		free(p->parts.v[i].was);
		p->parts.v[i].was = NULL;
	}
	free(r.ranges.v);
	return ret;
}

int ck_ckpt_write(struct ck_ckpt *ck, struct ck_edit *e, uint32_t tensor,
		  const void *buf, uint64_t len, uint64_t off,
		  struct ck_err *err)
{
	struct ck_wplan p = { .ck = ck, .buf = buf };
	int ret = ck_wplan_add(&p, tensor, off, len, 0, err);

	if (!ret)
		ret = ck_wplan_run(&p, e, err);
	free(p.parts.v);
	return ret;
}
