/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims_log.c - the journals of claims
 *
 * Whoever has one keeps its first byte locked, from before it has its name.
 */
#include "core/slices/claims_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/fds.h"
#include "core/root/openat_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIND 2
#define TRIES 100 /* journals are moved; seldom */

bool ck_claims_new_sets(const struct ck_claims *c, struct ck_claims_sets *s)
{
	s->written = calloc(c->plan->nr_files + 1, sizeof(*s->written));
	s->safe = calloc(c->plan->nr_files + 1, sizeof(*s->safe));
	return s->written && s->safe;
}

void ck_claims_free_sets(const struct ck_claims *c, struct ck_claims_sets *s)
{
	for (uint32_t i = 0; s->written && s->safe && i < c->plan->nr_files;
	     i++) {
		ck_intervals_free(&s->written[i]);
		ck_intervals_free(&s->safe[i]);
	}
	free(s->written);
	free(s->safe);
}

int ck_claims_cut_sets(struct ck_claims_sets *s, const struct ck_claims_body *b)
{
	return ck_intervals_cut(&s->written[b->file], b->off,
				b->off + b->len) ||
			       ck_intervals_cut(&s->safe[b->file], b->off,
						b->off + b->len) ?
		       -ENOMEM :
		       0;
}

/* ---- journals, read ---- */

struct reading {
	const struct ck_slice_plan *plan;
	struct ck_claims_sets *to;
	struct ck_claims_overs *says; /* of others; or NULL */
	const struct ck_journal *j;
	const struct ck_claims_over *over; /* said of it, and not applied yet */
	size_t nr;
};

void ck_claims_log_name(char name[24], uint64_t log)
{
	snprintf(name, 24, "w-%016" PRIx64 ".log", log);
}

uint64_t ck_claims_log_id(const char *name)
{
	return *name ? strtoull(name + 2, NULL, 16) : 0;
}

int ck_claims_bad_record(const struct ck_journal_record *r, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "record %" PRIu64
		       ": expected bytes of a file of the plan",
		       r->number);
}

int ck_claims_take(const struct ck_slice_plan *plan,
		   const struct ck_journal_record *r,
		   struct ck_claims_over *out, struct ck_err *err)
{
	bool over = r->type == CK_CLAIMS_OVER;
	size_t len = over ? sizeof(*out) : sizeof(out->b);

	if (r->len != len || !r->type || (r->type > CK_CLAIMS_CUT && !over))
		return ck_claims_bad_record(r, err);
	memcpy(out, r->body, len);
	return out->b.file < plan->nr_files &&
			       ck_range_ok(out->b.off, out->b.len,
					   plan->files[out->b.file].size) ?
		       0 :
		       ck_claims_bad_record(r, err);
}

/* What of it is written still: others may have cut what was made durable. */
static int make_safe(struct ck_claims_sets *s, const struct ck_claims_body *b)
{
	const struct ck_interval *run;
	uint64_t at = b->off, end = b->off + b->len;
	int ret = 0;

	while (!ret && at < end &&
	       (run = ck_intervals_at(&s->written[b->file], at)) &&
	       run->off < end) {
		ret = ck_intervals_add(&s->safe[b->file], CK_MAX(at, run->off),
				       CK_MIN(end, run->end));
		at = run->end;
	}
	return ret;
}

/* What was said of the journal when it was as long as @upto. */
static int apply_over(struct reading *in, uint64_t upto)
{
	int ret = 0;

	for (; !ret && in->nr && in->over->upto <= upto; in->over++, in->nr--)
		ret = ck_claims_cut_sets(in->to, &in->over->b);
	return ret;
}

static int take(void *ctx, const struct ck_journal_record *r,
		struct ck_err *err)
{
	struct reading *in = ctx;
	struct ck_claims_sets *to = in->to;
	struct ck_claims_over over;
	const struct ck_claims_body *b = &over.b;
	int ret = 0;

	if (apply_over(in, in->j->end))
		return ck_no_memory(err);
	if (r->type > CK_CLAIMS_CUT && r->type <= CK_CLAIMS_ALL)
		return 0;
	ret = ck_claims_take(in->plan, r, &over, err);
	if (ret)
		return ret;
	if (r->type == CK_CLAIMS_OVER)
		return in->says ? ck_vec_put(in->says, err, over) : 0;
	if (r->type == CK_CLAIMS_CUT)
		ret = ck_claims_cut_sets(to, b);
	else if (r->type == CK_CLAIMS_SAFE)
		ret = make_safe(to, b);
	else
		ret = ck_intervals_add(&to->written[b->file], b->off,
				       b->off + b->len);
	return ret ? ck_no_memory(err) : 0;
}

/*
 * Of another boot, or another machine, only what was durable counts: the
 * bytes of the rest may never have left its memory.
 */
static int leave_safe(const struct ck_claims *c, struct ck_claims_sets *s)
{
	int ret = 0;

	for (uint32_t i = 0; i < c->plan->nr_files && !ret; i++) {
		ck_intervals_free(&s->written[i]);
		ret = ck_intervals_join(&s->written[i], &s->safe[i]);
	}
	return ret;
}

int ck_claims_read_log(struct ck_claims *c, struct ck_journal *j, uint64_t log,
		       struct ck_claims_sets *to, struct ck_claims_overs *says,
		       struct ck_err *err)
{
	struct reading in = { .plan = c->plan, .to = to, .says = says, .j = j };
	struct ck_claims_over *over;
	int ret = ck_claims_over_of(c, log, &over, &in.nr, err);

	if (ret)
		return ret;
	in.over = over;
	ret = ck_claims_new_sets(c, to) ? ck_journal_replay(j, take, &in, err) :
					  ck_no_memory(err);
	if (!ret && apply_over(&in, UINT64_MAX))
		ret = ck_no_memory(err);
	if (!ret && !j->same_boot && leave_safe(c, to))
		ret = ck_no_memory(err);
	free(over);
	return ret;
}

int ck_claims_open_log(const struct ck_claims *c, const char *name, bool write,
		       struct ck_journal *j, struct ck_err *err)
{
	int ret = ck_journal_open(j, c->dir, name, write, KIND, c->plan->id,
				  "slices/", err);

	return ret == -EINVAL ?
		       ck_wrap(err, ret,
			       "only the version that wrote it can publish it") :
		       ret;
}

static bool is_log(const char *name)
{
	return strlen(name) == 22 && !strncmp(name, "w-", 2) &&
	       !strcmp(name + 18, ".log");
}

int ck_claims_each_log(struct ck_claims *c,
		       int (*call)(struct ck_claims *c, const char *name,
				   void *ctx, struct ck_err *err),
		       void *ctx, struct ck_err *err)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	int ret = ck_beneath_list(c->dir, "", &d);

	if (ret)
		return ck_fail(err, -ret, "slices: %s", strerror(-ret));
	while (!ret && (e = readdir(d)))
		if (is_log(e->d_name) && strcmp(e->d_name, c->name) != 0)
			ret = call(c, e->d_name, ctx, err);
	return ret;
}

void ck_claims_forget_others(struct ck_claims *c)
{
	for (uint32_t i = 0; c->others && i < c->plan->nr_files; i++)
		ck_intervals_free(&c->others[i]);
	for (size_t i = 0; i < c->other.nr; i++)
		ck_claims_free_sets(c, &c->other.v[i].sets);
	c->other.nr = 0;
}

static int read_other(struct ck_claims *c, const char *name, void *ctx,
		      struct ck_err *err)
{
	ck_auto_journal struct ck_journal j = { .fd = -1 };
	struct ck_claims_other o = { .log = ck_claims_log_id(name) };
	int ret = ck_claims_open_log(c, name, false, &j, err);
	bool *gone = ctx;

	/* else it is one of which a loss of power left the name */
	*gone |= ret == -ENOENT && faccessat(c->dir, name, F_OK, 0);
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	ret = ck_claims_read_log(c, &j, o.log, &o.sets, &c->said, err);
	if (!ret)
		ret = ck_vec_put(&c->other, err, o);
	if (ret)
		ck_claims_free_sets(c, &o.sets);
	return ret;
}

/* What others have said of ours since. */
static int read_own(struct ck_claims *c, struct ck_err *err)
{
	ck_auto_journal struct ck_journal j = { .fd = -1 };
	struct ck_claims_sets now = { 0 }, was = c->own;
	uint64_t log = ck_claims_log_id(c->name);
	struct ck_claims_over *over;
	size_t nr;
	int ret = ck_claims_over_of(c, log, &over, &nr, err);

	free(over);
	if (ret || c->log.fd < 0 || nr == c->over_us)
		return ret;
	ret = ck_claims_open_log(c, c->name, false, &j, err);
	j.same_boot = true; /* where nobody says which that is, too */
	if (!ret)
		ret = ck_claims_read_log(c, &j, log, &now, NULL, err);
	if (!ret) {
		c->own = now;
		now = was;
		c->over_us = nr;
		c->cuts++;
		c->nr = 0;
		for (uint32_t i = 0; i < c->plan->nr_files; i++)
			c->nr += c->own.written[i].total;
	}
	ck_claims_free_sets(c, &now);
	return ret;
}

/*
 * Once more where any says something of another, which may have been read before.
 * All is said twice then, which is the same as once.  *gone: so is one, since the
 * folder was listed, and its claims are elsewhere.
 */
static int read_all(struct ck_claims *c, bool *gone, struct ck_err *err)
{
	int ret = 0;

	*gone = false;
	c->said.nr = 0;
	for (int turn = 0; !ret && !*gone && turn < (c->said.nr ? 2 : 1);
	     turn++) {
		ck_claims_forget_others(c);
		ret = ck_claims_each_log(c, read_other, gone, err);
	}
	return ret;
}

int ck_claims_read_others(struct ck_claims *c, struct ck_err *err)
{
	int64_t begin = ck_now_ns();
	bool gone = true;
	int ret = 0;

	for (int i = 0; gone && !ret && i < TRIES; i++)
		ret = read_all(c, &gone, err);
	if (!ret && gone)
		ret = ck_fail(err, EAGAIN, "slices: journals come and go");
	for (size_t k = 0; !ret && k < c->other.nr; k++)
		for (uint32_t i = 0; !ret && i < c->plan->nr_files; i++)
			if (ck_intervals_join(&c->others[i],
					      &c->other.v[k].sets.written[i]))
				ret = ck_no_memory(err);
	c->read_ns = ck_now_ns();
	c->reading_ns = c->read_ns - begin;
	return ret ? ret : read_own(c, err);
}

/* ---- our own ---- */

int ck_claims_make_log(const struct ck_claims *c, struct ck_journal *j,
		       char name[24], char temp[32], struct ck_err *err)
{
	uint64_t r;
	int ret;

	if (getrandom(&r, sizeof(r), 0) != sizeof(r))
		return ck_fail(err, errno, "a name: %s", strerror(errno));
	ck_claims_log_name(name, r);
	snprintf(temp, 32, "new-%s", name);
	ret = ck_journal_make(j, c->dir, temp, KIND, c->plan->id, "slices/",
			      err);
	/* where there are no locks nobody takes over what he cannot lock */
	if (!ret)
		ck_fds_lock(j->fd, CK_CLAIMS_OWNED, F_WRLCK);
	return ret;
}

int ck_claims_put(struct ck_journal *j, uint32_t type, uint32_t file,
		  uint64_t off, uint64_t end, struct ck_err *err)
{
	const struct ck_claims_body b = { .off = off,
					  .len = end - off,
					  .file = file };

	return ck_journal_append(j, type, &b, sizeof(b), err);
}

int ck_claims_put_all(struct ck_journal *j, uint32_t type, uint32_t file,
		      const struct ck_intervals *set, struct ck_err *err)
{
	const struct ck_interval *run;
	uint64_t at = 0;
	int ret = 0;

	for (; !ret && (run = ck_intervals_at(set, at)); at = run->end)
		ret = ck_claims_put(j, type, file, run->off, run->end, err);
	return ret;
}

int ck_claims_log_sync(const struct ck_claims *c, struct ck_journal *j,
		       struct ck_err *err)
{
	int ret = ck_journal_sync(j, err);

	/* its name is what it is found by */
	if (!ret && fsync(c->dir))
		ret = ck_fail(err, errno, "slices: fsync: %s", strerror(errno));
	return ret;
}
