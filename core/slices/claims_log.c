/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims_log.c - the journals of claims
 *
 * Whoever has one keeps its first byte locked, from before it has its name.  One
 * in which little still counts is written anew, beside, and takes its place by a
 * rename.
 */
#include "core/slices/claims_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
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
#define RECORD 64u /* bytes of a journal for each stretch, about */

uint64_t ck_claims_slack = UINT64_C(16) << 20;

static void empty(const struct ck_claims *c, struct ck_claims_sets *s)
{
	for (uint32_t i = 0; s->written && s->safe && i < c->plan->nr_files;
	     i++) {
		ck_intervals_free(&s->written[i]);
		ck_intervals_free(&s->safe[i]);
	}
}

bool ck_claims_new_sets(const struct ck_claims *c, struct ck_claims_sets *s)
{
	s->written = calloc(c->plan->nr_files + 1, sizeof(*s->written));
	s->safe = calloc(c->plan->nr_files + 1, sizeof(*s->safe));
	return s->written && s->safe;
}

void ck_claims_free_sets(const struct ck_claims *c, struct ck_claims_sets *s)
{
	empty(c, s);
	free(s->written);
	free(s->safe);
}

/* ---- journals, read ---- */

struct reading {
	const struct ck_slice_plan *plan;
	struct ck_claims_sets *to;
	bool all; /* else what is durable */
};

int ck_claims_bad_record(const struct ck_journal_record *r, struct ck_err *err)
{
	return ck_fail(err, EINVAL,
		       "record %" PRIu64
		       ": expected bytes of a file of the plan",
		       r->number);
}

int ck_claims_body(const struct ck_slice_plan *plan,
		   const struct ck_journal_record *r,
		   struct ck_claims_body *out, struct ck_err *err)
{
	if (r->len != sizeof(*out) || r->type < CK_CLAIMS_WRITTEN ||
	    r->type > CK_CLAIMS_CUT)
		return ck_claims_bad_record(r, err);
	memcpy(out, r->body, sizeof(*out));
	return out->file < plan->nr_files &&
			       ck_range_ok(out->off, out->len,
					   plan->files[out->file].size) ?
		       0 :
		       ck_claims_bad_record(r, err);
}

static int take(void *ctx, const struct ck_journal_record *r,
		struct ck_err *err)
{
	const struct reading *in = ctx;
	struct ck_intervals *written, *safe;
	struct ck_claims_body b;
	uint64_t end;
	int ret = 0;

	if (r->type > CK_CLAIMS_CUT && r->type <= CK_CLAIMS_ALL)
		return 0;
	ret = ck_claims_body(in->plan, r, &b, err);
	if (ret)
		return ret;
	written = &in->to->written[b.file];
	safe = &in->to->safe[b.file];
	end = b.off + b.len;
	if (r->type == CK_CLAIMS_CUT)
		ret = ck_intervals_cut(written, b.off, end) ||
		      ck_intervals_cut(safe, b.off, end);
	if (r->type == CK_CLAIMS_SAFE)
		ret = ck_intervals_add(safe, b.off, end);
	if (!ret && (r->type == CK_CLAIMS_SAFE ||
		     (r->type == CK_CLAIMS_WRITTEN && in->all)))
		ret = ck_intervals_add(written, b.off, end);
	return ret ? ck_no_memory(err) : 0;
}

/*
 * Of another boot, or another machine, only what was durable counts: the
 * bytes of the rest may never have left its memory.
 */
static int read_journal(const struct ck_claims *c, struct ck_journal *j,
			struct ck_claims_sets *to, struct ck_err *err)
{
	struct reading in = { .plan = c->plan, .to = to, .all = j->same_boot };

	return ck_journal_replay(j, take, &in, err);
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

static int read_other(struct ck_claims *c, const char *name, void *ctx,
		      struct ck_err *err)
{
	ck_auto_journal struct ck_journal j = { .fd = -1 };
	struct ck_claims_sets s = { 0 };
	int ret = ck_claims_open_log(c, name, false, &j, err);

	(void)ctx;
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	/* by itself, for its cuts are of what it claimed */
	ret = ck_claims_new_sets(c, &s) ? read_journal(c, &j, &s, err) :
					  ck_no_memory(err);
	for (uint32_t i = 0; i < c->plan->nr_files && !ret; i++)
		if (ck_intervals_join(&c->others.written[i], &s.written[i]) ||
		    ck_intervals_join(&c->others.safe[i], &s.safe[i]))
			ret = ck_no_memory(err);
	ck_claims_free_sets(c, &s);
	return ret;
}

int ck_claims_read_others(struct ck_claims *c, struct ck_err *err)
{
	empty(c, &c->others);
	return ck_claims_each_log(c, read_other, NULL, err);
}

/* ---- our own ---- */

static int lock_log(int fd)
{
	struct flock fl = { .l_type = F_WRLCK, .l_len = 1 };

	return fcntl(fd, F_OFD_SETLK, &fl) ? -errno : 0;
}

/* Where a file system has no locks nobody takes over what he cannot lock. */
static bool has_no_locks(int ret)
{
	return ret == -ENOSYS || ret == -EOPNOTSUPP || ret == -ENOLCK;
}

/*
 * Locked, and by a name that nobody takes over: it gets its own afterwards, for
 * of one that is not locked yet others would think that its mount has ended.
 */
static int make_log(const struct ck_claims *c, struct ck_journal *j,
		    char name[24], char temp[32], struct ck_err *err)
{
	uint64_t r;
	int ret;

	if (getrandom(&r, sizeof(r), 0) != sizeof(r))
		return ck_fail(err, errno, "a name: %s", strerror(errno));
	snprintf(name, 24, "w-%016" PRIx64 ".log", r);
	snprintf(temp, 32, "new-%s", name);
	ret = ck_journal_make(j, c->dir, temp, KIND, c->plan->id, "slices/",
			      err);
	if (ret)
		return ret;
	ret = lock_log(j->fd);
	if (!ret || has_no_locks(ret))
		return 0;
	ck_journal_close(j);
	unlinkat(c->dir, temp, 0);
	return ck_fail(err, -ret, "slices/%s: lock: %s", temp, strerror(-ret));
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

/* All that counts, into @j; *any: something is durable. */
static int put_sets(const struct ck_claims *c, const struct ck_claims_sets *s,
		    struct ck_journal *j, bool *any, struct ck_err *err)
{
	int ret = 0;

	*any = false;
	for (uint32_t i = 0; i < c->plan->nr_files && !ret; i++) {
		ret = ck_claims_put_all(j, CK_CLAIMS_WRITTEN, i, &s->written[i],
					err);
		if (!ret)
			ret = ck_claims_put_all(j, CK_CLAIMS_SAFE, i,
						&s->safe[i], err);
		*any |= s->safe[i].total;
	}
	return ret;
}

static void write_anew(struct ck_claims *c)
{
	struct ck_journal j;
	char name[24], temp[32];
	bool any;
	int ret = make_log(c, &j, name, temp, NULL);

	if (ret)
		return;
	ret = put_sets(c, &c->own, &j, &any, NULL);
	if (!ret)
		ret = ck_journal_reserve(&j, NULL);
	if (!ret && any)
		ret = ck_journal_sync(&j, NULL);
	if (!ret)
		ret = ck_journal_rename(&j, c->dir, temp, c->name, "slices/",
					NULL);
	if (ret) {
		unlinkat(c->dir, temp, 0);
		ck_journal_close(&j);
		return;
	}
	/* after a loss of power either may be there; they say the same */
	ck_journal_close(&c->log);
	c->log = j;
}

/* How many stretches: more or less than there were. */
void ck_claims_count(struct ck_claims *c, uint32_t file, uint64_t before)
{
	c->nr += c->own.written[file].total - before;
}

/* Where most of it does not count any more. */
void ck_claims_log_shorten(struct ck_claims *c)
{
	uint64_t live = RECORD * c->nr;

	if (c->log.end < CK_MAX(c->look_at, ck_claims_slack))
		return;
	for (uint32_t i = 0; i < c->plan->nr_files; i++)
		live += RECORD * c->own.safe[i].total;
	if (c->log.end / 2 >= live)
		write_anew(c);
	c->look_at = c->log.end + c->log.end / 2;
}

/* What it says becomes ours, as durable as it was. */
static int move_all(struct ck_claims *c, struct ck_journal *from,
		    struct ck_claims_sets *s, struct ck_err *err)
{
	bool any;
	int ret = read_journal(c, from, s, err);

	if (!ret)
		ret = put_sets(c, s, &c->log, &any, err);
	if (!ret && any)
		ret = ck_claims_log_sync(c, &c->log, err);
	for (uint32_t i = 0; i < c->plan->nr_files && !ret; i++) {
		uint64_t before = c->own.written[i].total;

		if (ck_intervals_join(&c->own.written[i], &s->written[i]) ||
		    ck_intervals_join(&c->own.safe[i], &s->safe[i]))
			ret = ck_no_memory(err);
		ck_claims_count(c, i, before);
	}
	return ret;
}

/* One whose mount has ended; where there are no locks nobody can tell. */
static int take_over(struct ck_claims *c, const char *name, void *ctx,
		     struct ck_err *err)
{
	ck_auto_journal struct ck_journal j = { .fd = -1 };
	struct ck_claims_sums **told = ctx;
	struct ck_claims_sets s = { 0 };
	struct stat st;
	int ret = ck_claims_open_log(c, name, true, &j, err);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	if (lock_log(j.fd) || fstat(j.fd, &st) || !st.st_nlink)
		return 0;
	/* before the first of them goes; without, a publish reads more */
	if (!*told)
		ck_claims_read_told(c, told, NULL);
	ret = ck_claims_new_sets(c, &s) ? move_all(c, &j, &s, err) :
					  ck_no_memory(err);
	ck_claims_free_sets(c, &s);
	if (!ret)
		unlinkat(c->dir, name, 0);
	return ret;
}

static int start(struct ck_claims *c, struct ck_err *err)
{
	char temp[32];
	int ret = make_log(c, &c->log, c->name, temp, err);

	if (!ret)
		ret = ck_journal_rename(&c->log, c->dir, temp, c->name,
					"slices/", err);
	if (ret && c->log.fd >= 0)
		unlinkat(c->dir, temp, 0);
	if (ret) {
		ck_journal_close(&c->log);
		c->name[0] = '\0';
	}
	return ret;
}

/* Under the lock. */
int ck_claims_log_start(struct ck_claims *c, struct ck_err *err)
{
	struct ck_claims_sums *told = NULL;
	int ret;

	if (c->log.fd >= 0)
		return 0;
	ret = start(c, err);
	if (!ret)
		ret = ck_claims_each_log(c, take_over, &told, err);
	if (!ret)
		ret = ck_claims_read_others(c, err);
	if (!ret)
		ret = ck_claims_tell_again(c, told, err);
	ck_claims_told_free(c->plan, told);
	return ret;
}
