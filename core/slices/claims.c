/* SPDX-License-Identifier: Apache-2.0 */
/* claims.c - what was written: in memory, and said in a journal */
#include "core/slices/claims_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/root/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRETCHES (UINT32_C(1) << 22)

int ck_claims_refresh(struct ck_claims *c, struct ck_err *err)
{
	ck_auto_lock(&c->lock);
	return ck_claims_read_others(c, err);
}

int ck_claims_open(struct ck_claims **out, int dir,
		   const struct ck_slice_plan *plan, struct ck_err *err)
{
	struct ck_claims *c = calloc(1, sizeof(*c));
	int ret;

	if (!c)
		return ck_no_memory(err);
	c->dir = dir;
	c->plan = plan;
	c->log.fd = -1;
	pthread_mutex_init(&c->lock, NULL);
	c->others = calloc(plan->nr_files + 1u, sizeof(*c->others));
	c->again = calloc(plan->nr_files + 1u, sizeof(*c->again));
	ret = ck_claims_new_sets(c, &c->own) && c->others && c->again ?
		      ck_claims_read_others(c, err) :
		      ck_no_memory(err);
	if (ret)
		ck_claims_close(c);
	else
		*out = c;
	return ret;
}

void ck_claims_close(struct ck_claims *c)
{
	/* one that says nothing goes */
	if (c->log.fd >= 0 && !c->log.number)
		unlinkat(c->dir, c->name, 0);
	ck_journal_close(&c->log);
	ck_claims_free_sets(c, &c->own);
	ck_claims_forget_others(c);
	free(c->others);
	free(c->again);
	free(c->other.v);
	free(c->over.v);
	free(c->said.v);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static bool has_all(const struct ck_intervals *set, uint64_t off, uint64_t end)
{
	const struct ck_interval *run = ck_intervals_at(set, off);

	return run && run->off <= off && run->end >= end;
}

static void written_again(struct ck_claims_again *a, uint64_t off, uint64_t end)
{
	bool none = a->from == a->to;

	a->from = none ? off : CK_MIN(a->from, off);
	a->to = none ? end : CK_MAX(a->to, end);
	a->nr++;
}

/*
 * What we have claimed already is claimed once more: others may have said since
 * that it is over, and we would not know of it.
 */
int ck_claims_add(struct ck_claims *c, uint32_t file, uint64_t off,
		  uint64_t len, struct ck_err *err)
{
	ck_auto_lock(&c->lock);
	int ret = ck_claims_log_start(c, err);
	uint64_t end = off + len, before = c->own.written[file].total;

	if (ret || !len)
		return ret;
	if (ck_intervals_any(&c->own.written[file], off, end))
		written_again(&c->again[file], off, end);
	if (c->nr >= STRETCHES && !has_all(&c->own.written[file], off, end))
		return ck_fail(err, ENOSPC,
			       "slices are written in more than %u stretches "
			       "that do not touch",
			       STRETCHES);
	/* so that a cut finds room on a disk that is full */
	ret = ck_journal_reserve(&c->log, err);
	if (!ret)
		ret = ck_claims_put(&c->log, CK_CLAIMS_WRITTEN, file, off, end,
				    err);
	if (!ret && ck_intervals_add(&c->own.written[file], off, end))
		ret = ck_no_memory(err);
	ck_claims_count(c, file, before);
	if (!ret)
		ck_claims_log_shorten(c);
	return ret;
}

int ck_claims_begin(struct ck_claims *c, struct ck_err *err)
{
	int ret;

	ck_auto_lock(&c->lock);
	ret = ck_claims_log_start(c, err);
	return ret ? ret : ck_journal_reserve(&c->log, err);
}

/*
 * What is durable is said to be over, durably, before it is: else a loss of
 * power would bring the claim back, without the bytes.
 */
int ck_claims_cut(struct ck_claims *c, uint32_t file, uint64_t off,
		  uint64_t len, struct ck_err *err)
{
	const struct ck_claims_body b = { .off = off,
					  .len = len,
					  .file = file };
	uint64_t end = off + len, before;
	ck_auto_lock(&c->lock);
	/* journals of mounts that have ended become ours, and then are cut */
	int ret = ck_claims_log_start(c, err);

	if (!ret && len)
		ret = ck_claims_cut_others(c, &b, err);
	if (ret || !len || !ck_intervals_any(&c->own.written[file], off, end))
		return ret;
	before = c->own.written[file].total;
	c->cuts++;
	ret = ck_claims_put(&c->log, CK_CLAIMS_CUT, file, off, end, err);
	if (!ret && ck_intervals_any(&c->own.safe[file], off, end))
		ret = ck_claims_log_sync(c, &c->log, err);
	if (!ret && ck_claims_cut_sets(&c->own, &b))
		ret = ck_no_memory(err);
	ck_claims_count(c, file, before);
	if (!ret)
		ck_claims_log_shorten(c);
	return ret;
}

/* ---- durable ---- */

/* The first stretch of @file behind @at that never was; under the lock. */
static const struct ck_interval *unsafe(const struct ck_claims *c,
					uint32_t file, uint64_t at)
{
	const struct ck_interval *run;

	while ((run = ck_intervals_at(&c->own.written[file], at)) &&
	       has_all(&c->own.safe[file], run->off, run->end))
		at = run->end;
	return run;
}

/* All of them, and what was written again; *cuts, *again: as of when; 0: nothing was. */
static int list_unsafe(struct ck_claims *c, uint32_t file,
		       struct ck_intervals *out, uint64_t *cuts,
		       uint64_t *again, struct ck_err *err)
{
	const struct ck_claims_again *a = &c->again[file];
	const struct ck_interval *run;
	int ret = 0;

	ck_intervals_free(out);
	ck_auto_lock(&c->lock);
	*cuts = c->cuts;
	*again = a->from < a->to ? a->nr : 0;
	for (uint64_t at = 0; !ret && (run = unsafe(c, file, at));
	     at = run->end)
		ret = ck_intervals_add(out, run->off, run->end);
	for (uint64_t at = a->from;
	     !ret && at < a->to &&
	     (run = ck_intervals_at(&c->own.written[file], at)) &&
	     run->off < a->to;
	     at = run->end)
		ret = ck_intervals_add(out, CK_MAX(run->off, a->from),
				       CK_MIN(run->end, a->to));
	return ret ? ck_no_memory(err) : 0;
}

/* -EAGAIN: what was to be durable was cut meanwhile, and may be new. */
static int make_safe(struct ck_claims *c, uint32_t file,
		     const struct ck_intervals *set, uint64_t cuts,
		     uint64_t again, struct ck_err *err)
{
	struct ck_claims_again *a = &c->again[file];
	int ret;

	ck_auto_lock(&c->lock);
	if (c->cuts != cuts)
		return -EAGAIN;
	ret = ck_claims_put_all(&c->log, CK_CLAIMS_SAFE, file, set, err);
	if (!ret)
		ret = ck_claims_log_sync(c, &c->log, err);
	if (!ret && ck_intervals_join(&c->own.safe[file], set))
		ret = ck_no_memory(err);
	if (!ret && a->nr == again)
		a->from = a->to = 0;
	return ret;
}

int ck_claims_sync(struct ck_claims *c, uint32_t file, int fd, bool *lost,
		   struct ck_err *err)
{
	struct ck_intervals set = { 0 };
	uint64_t cuts, again;
	int ret;

	*lost = false;
	do {
		ret = list_unsafe(c, file, &set, &cuts, &again, err);
		if (!ret) {
			ret = fdatasync(fd) ? -errno : 0;
			ret = ck_fault_of(CK_FAULT_SYNC, ret);
			*lost = ret;
		}
		if (*lost)
			ck_fail(err, -ret, "fsync: %s", strerror(-ret));
		if (!ret && (set.total || again))
			ret = make_safe(c, file, &set, cuts, again, err);
	} while (ret == -EAGAIN && !*lost);
	ck_intervals_free(&set);
	return ret;
}

bool ck_claims_unsafe(struct ck_claims *c, uint32_t file)
{
	ck_auto_lock(&c->lock);
	return unsafe(c, file, 0) || c->again[file].from < c->again[file].to;
}

/* ---- asking ---- */

/* @pos, or where the stretch ends that it is in. */
static uint64_t covered(const struct ck_intervals *r, uint64_t pos)
{
	const struct ck_interval *run = ck_intervals_at(r, pos);

	return run && run->off <= pos ? run->end : pos;
}

static uint64_t next(const struct ck_intervals *r, uint64_t pos)
{
	const struct ck_interval *run = ck_intervals_at(r, pos);

	return run ? run->off : UINT64_MAX;
}

static void gap(struct ck_claims *c, uint32_t file, uint64_t pos, uint64_t end,
		uint64_t *from, uint64_t *to)
{
	const struct ck_intervals *a = &c->own.written[file],
				  *b = &c->others[file];
	uint64_t last;

	do {
		last = pos;
		pos = covered(a, pos);
		pos = covered(b, pos);
	} while (pos > last && pos < end);
	*from = *to = end;
	if (pos >= end)
		return;
	*from = pos;
	*to = CK_MIN(end, CK_MIN(next(a, pos), next(b, pos)));
}

void ck_claims_gap(struct ck_claims *c, uint32_t file, uint64_t pos,
		   uint64_t end, uint64_t *from, uint64_t *to)
{
	ck_auto_lock(&c->lock);
	gap(c, file, pos, end, from, to);
}

uint64_t ck_claims_bytes(struct ck_claims *c, uint32_t file, uint64_t pos,
			 uint64_t end)
{
	uint64_t sum = end - pos, from, to;

	ck_auto_lock(&c->lock);
	while (pos < end) {
		gap(c, file, pos, end, &from, &to);
		sum -= to - from;
		pos = to;
	}
	return sum;
}
