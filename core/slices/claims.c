/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims.c - what was written, in memory
 *
 * Our own stretches know their slots in our log; those of others are only
 * read.  A stretch that swallows another is written down before the other's
 * slot is freed: whoever reads meanwhile finds too much twice, or too little.
 */
#include "core/slices/claims_priv.h"

#include "core/base/check.h"
#include "core/root/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void free_sets(struct ck_intervals *sets, uint32_t nr)
{
	for (uint32_t i = 0; sets && i < nr; i++)
		ck_intervals_free(&sets[i]);
}

int ck_claims_open(struct ck_claims **out, int dir,
		   const struct ck_slice_plan *plan, struct ck_err *err)
{
	struct ck_claims *c = calloc(1, sizeof(*c));
	int ret;

	ck_claims_boot();
	if (!c)
		return ck_no_memory(err);
	c->dir = dir;
	c->plan = plan;
	c->log.fd = c->log.safe = -1;
	c->own = calloc(plan->nr_files + 1, sizeof(*c->own));
	c->others = calloc(plan->nr_files + 1, sizeof(*c->others));
	pthread_mutex_init(&c->lock, NULL);
	ret = c->own && c->others ? ck_claims_read_others(c, err) :
				    ck_no_memory(err);
	if (ret)
		ck_claims_close(c);
	else
		*out = c;
	return ret;
}

void ck_claims_close(struct ck_claims *c)
{
	ck_claims_log_end(&c->log, c->dir);
	free_sets(c->own, c->plan->nr_files);
	free_sets(c->others, c->plan->nr_files);
	free(c->own);
	free(c->others);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static int refresh(struct ck_claims *c, struct ck_err *err)
{
	free_sets(c->others, c->plan->nr_files);
	return ck_claims_read_others(c, err);
}

int ck_claims_refresh(struct ck_claims *c, struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&c->lock);
	ret = refresh(c, err);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* ---- writing ---- */

static int no_mem(struct ck_err *err)
{
	return ck_no_memory(err);
}

struct freed {
	uint32_t *v;
	size_t nr, room;
};

static int note_free(struct freed *f, uint32_t slot)
{
	if (f->nr == f->room) {
		size_t room = f->room ? f->room * 2 : 16;
		uint32_t *grown = reallocarray(f->v, room, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		f->v = grown;
		f->room = room;
	}
	f->v[f->nr++] = slot;
	return 0;
}

/* All that [off, end] touches becomes one; the slots of all but the first. */
static int swallow(struct ck_intervals *own, struct ck_interval *all,
		   struct freed *f)
{
	struct ck_interval one;
	int ret = 0;

	while (!ret && ck_intervals_take(own, all->off, all->end, &one)) {
		all->off = CK_MIN(all->off, one.off);
		all->end = CK_MAX(all->end, one.end);
		if (all->slot == CK_INTERVAL_NO_SLOT)
			all->slot = one.slot;
		else
			ret = note_free(f, one.slot);
	}
	return ret;
}

int ck_claims_add_own(struct ck_claims *c, uint32_t file, uint64_t off,
		      uint64_t end, struct ck_err *err)
{
	struct ck_interval all = { .off = off,
				   .end = end,
				   .slot = CK_INTERVAL_NO_SLOT };
	const struct ck_interval *has = ck_intervals_at(&c->own[file], off);
	struct freed f = { 0 };
	int ret;

	if (off >= end || (has && has->off <= off && has->end >= end))
		return 0;
	ret = swallow(&c->own[file], &all, &f) ? no_mem(err) : 0;
	if (!ret && all.slot == CK_INTERVAL_NO_SLOT)
		ret = ck_claims_slot_new(&c->log, &all.slot, err);
	if (!ret && ck_intervals_put(&c->own[file], &all))
		ret = no_mem(err);
	if (!ret)
		ret = ck_claims_slot_write(c, all.slot, file, all.off, all.end,
					   err);
	/* one that stays says again what the one that swallowed it says */
	for (size_t i = 0; i < f.nr && !ret; i++)
		ck_claims_slot_free(c, f.v[i], NULL);
	free(f.v);
	return ret;
}

int ck_claims_add(struct ck_claims *c, uint32_t file, uint64_t off,
		  uint64_t len, struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&c->lock);
	ret = ck_claims_log_start(c, err);
	if (!ret)
		ret = ck_claims_add_own(c, file, off, off + len, err);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* One stretch, of which [off, end) goes. */
static int cut_one(struct ck_claims *c, uint32_t file,
		   const struct ck_interval *one, uint64_t off, uint64_t end,
		   struct ck_err *err)
{
	struct ck_interval left = *one, right = *one;
	bool has_left = one->off<off, has_right = one->end> end;
	int ret = 0;

	left.end = off;
	right.off = end;
	left.safe = right.safe = false;
	if (has_left && has_right)
		ret = ck_claims_slot_new(&c->log, &right.slot, err);
	if (!ret && has_right)
		ret = ck_intervals_put(&c->own[file], &right) ? no_mem(err) : 0;
	if (!ret && has_left)
		ret = ck_intervals_put(&c->own[file], &left) ? no_mem(err) : 0;
	if (!ret && has_right)
		ret = ck_claims_slot_write(c, right.slot, file, right.off,
					   right.end, err);
	if (!ret && has_left)
		ret = ck_claims_slot_write(c, left.slot, file, left.off,
					   left.end, err);
	if (!ret && !has_left && !has_right)
		ret = ck_claims_slot_free(c, one->slot, err);
	return ret;
}

/*
 * What is durable is said to be over, durably, before it is: else a loss of
 * power would bring the claim back, without the bytes.
 */
static int cut_safe(struct ck_claims *c, uint32_t file, uint64_t off,
		    uint64_t end, struct ck_err *err)
{
	int ret;

	if (c->log.safe < 0)
		return 0;
	ret = ck_claims_safe_put(c, file, off, end, true, err);
	return ret ? ret : ck_claims_safe_sync(c, err);
}

static int cut(struct ck_claims *c, uint32_t file, uint64_t off, uint64_t end,
	       struct ck_err *err)
{
	const struct ck_interval *has = ck_intervals_at(&c->own[file], off);
	struct ck_interval one;
	int ret;

	if (off >= end || !has || has->off >= end)
		return 0;
	ret = cut_safe(c, file, off, end, err);
	while (!ret && ck_intervals_take(&c->own[file], off + 1, end - 1, &one))
		ret = cut_one(c, file, &one, off, end, err);
	return ret;
}

int ck_claims_cut(struct ck_claims *c, uint32_t file, uint64_t off,
		  uint64_t len, struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&c->lock);
	/* logs of mounts that have ended become ours, and then are cut */
	ret = ck_claims_log_start(c, err);
	if (!ret)
		ret = cut(c, file, off, off + len, err);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* ---- durable ---- */

struct unsafe {
	struct ck_interval *v;
	size_t nr;
};

static int take_unsafe(void *ctx, const struct ck_interval *run)
{
	struct unsafe *u = ctx;

	if (!run->safe)
		u->v[u->nr++] = *run;
	return 0;
}

static int list_unsafe(struct ck_claims *c, uint32_t file, struct unsafe *u,
		       struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	u->v = calloc(c->own[file].total + 1, sizeof(*u->v));
	if (u->v)
		ck_intervals_each(&c->own[file], take_unsafe, u);
	else
		ret = no_mem(err);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* Those that are still what they were. */
static void mark_safe(struct ck_claims *c, uint32_t file,
		      const struct unsafe *u)
{
	for (size_t i = 0; i < u->nr; i++) {
		const struct ck_interval *now =
			ck_intervals_at(&c->own[file], u->v[i].off);

		if (now && now->off == u->v[i].off && now->end == u->v[i].end)
			((struct ck_interval *)now)->safe = true;
	}
}

static int make_safe(struct ck_claims *c, uint32_t file, const struct unsafe *u,
		     struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < u->nr && !ret; i++)
		ret = ck_claims_safe_put(c, file, u->v[i].off, u->v[i].end,
					 false, err);
	if (!ret && u->nr)
		ret = ck_claims_safe_sync(c, err);
	if (!ret)
		mark_safe(c, file, u);
	return ret;
}

int ck_claims_sync(struct ck_claims *c, uint32_t file, int fd, bool *lost,
		   struct ck_err *err)
{
	struct unsafe u = { 0 };
	int ret = list_unsafe(c, file, &u, err);

	*lost = false;
	if (!ret) {
		ret = fdatasync(fd) ? -errno : 0;
		ret = ck_fault_of(CK_FAULT_SYNC, ret);
		*lost = ret;
	}
	if (*lost)
		ck_fail(err, -ret, "fsync: %s", strerror(-ret));
	pthread_mutex_lock(&c->lock);
	if (!ret)
		ret = make_safe(c, file, &u, err);
	pthread_mutex_unlock(&c->lock);
	free(u.v);
	return ret;
}

static int is_unsafe(void *ctx, const struct ck_interval *run)
{
	(void)ctx;
	return !run->safe;
}

bool ck_claims_unsafe(struct ck_claims *c, uint32_t file)
{
	bool yes;

	pthread_mutex_lock(&c->lock);
	yes = ck_intervals_each(&c->own[file], is_unsafe, NULL);
	pthread_mutex_unlock(&c->lock);
	return yes;
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
	const struct ck_intervals *a = &c->own[file], *b = &c->others[file];
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
	pthread_mutex_lock(&c->lock);
	gap(c, file, pos, end, from, to);
	pthread_mutex_unlock(&c->lock);
}

uint64_t ck_claims_bytes(struct ck_claims *c, uint32_t file, uint64_t pos,
			 uint64_t end)
{
	uint64_t sum = end - pos, from, to;

	pthread_mutex_lock(&c->lock);
	while (pos < end) {
		gap(c, file, pos, end, &from, &to);
		sum -= to - from;
		pos = to;
	}
	pthread_mutex_unlock(&c->lock);
	return sum;
}
