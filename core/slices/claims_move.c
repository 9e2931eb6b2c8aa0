/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims_move.c - claims that go from one journal to another
 *
 * One in which little still counts is written anew, beside, and takes its place by
 * a rename; one whose mount has ended is taken over.  What others say of the old one
 * goes by its name and its length, so nobody may say anything of it from when that
 * is read until it is gone: its second byte is locked meanwhile, and those who cut
 * lock it too, for as long as they say it.  Whoever moves claims waits for nobody,
 * and leaves it for another time.
 */
#include "core/slices/claims_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD 64u /* bytes of a journal for each stretch, about */
#define BATCH 64

uint64_t ck_claims_slack = UINT64_C(16) << 20;

/* Where there are no locks nobody could tell. */
static bool may_move(int fd)
{
	return ck_fds_lock(fd, CK_CLAIMS_MOVED, F_WRLCK) != -EBUSY;
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

/*
 * One that says all that counts of ours, in place of ours if there is one.  By a
 * name of its own, for what others say of the old one goes by its length.  After
 * a loss of power either may be there, or both; they say the same.
 */
static int begin_log(struct ck_claims *c, struct ck_err *err)
{
	bool anew = c->log.fd >= 0, durable;
	struct ck_journal j;
	char name[24], temp[32];
	int ret = ck_claims_make_log(c, &j, name, temp, err);

	if (ret)
		return ret;
	ret = put_sets(c, &c->own, &j, &durable, err);
	if (!ret)
		ret = ck_claims_put_over(c, &j, err);
	if (!ret && anew)
		ret = ck_journal_reserve(&j, err);
	if (!ret && (durable || c->over.nr))
		ret = ck_journal_sync(&j, err);
	if (!ret)
		ret = ck_journal_rename(&j, c->dir, temp, name, "slices/", err);
	if (ret) {
		unlinkat(c->dir, temp, 0);
		ck_journal_close(&j);
		return ret;
	}
	if (anew)
		unlinkat(c->dir, c->name, 0);
	ck_journal_close(&c->log);
	c->log = j;
	strcpy(c->name, name);
	c->over_us = 0;
	return 0;
}

/* How many stretches: more or less than there were. */
void ck_claims_count(struct ck_claims *c, uint32_t file, uint64_t before)
{
	c->nr += c->own.written[file].total - before;
}

/* With what others have said of it; where that fails it stays long. */
static void write_anew(struct ck_claims *c)
{
	if (!may_move(c->log.fd))
		return;
	if (!ck_claims_read_others(c, NULL))
		begin_log(c, NULL);
	/* where it is the old one still */
	ck_fds_lock(c->log.fd, CK_CLAIMS_MOVED, F_UNLCK);
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
static int move_all(struct ck_claims *c, struct ck_journal *from, uint64_t log,
		    struct ck_err *err)
{
	struct ck_claims_sets sets = { 0 };
	struct ck_claims_overs says = { 0 };
	bool any = false;
	int ret = ck_claims_read_log(c, from, log, &sets, &says, err);

	if (!ret)
		ret = put_sets(c, &sets, &c->log, &any, err);
	if (!ret)
		ret = ck_claims_take_over(c, &says, err);
	if (!ret && (any || says.nr))
		ret = ck_claims_log_sync(c, &c->log, err);
	for (uint32_t i = 0; i < c->plan->nr_files && !ret; i++) {
		uint64_t before = c->own.written[i].total;

		if (ck_intervals_join(&c->own.written[i], &sets.written[i]) ||
		    ck_intervals_join(&c->own.safe[i], &sets.safe[i]))
			ret = ck_no_memory(err);
		ck_claims_count(c, i, before);
	}
	ck_claims_free_sets(c, &sets);
	free(says.v);
	return ret;
}

/* Those whose mounts have ended, so many at a time; locked. */
struct dead {
	struct {
		struct ck_journal j;
		char name[24];
	} v[BATCH];
	unsigned nr;
	bool stay; /* one cannot be removed */
};

/* Where there are no locks nobody can tell. */
static int find_dead(struct ck_claims *c, const char *name, void *ctx,
		     struct ck_err *err)
{
	struct dead *d = ctx;
	struct ck_journal j;
	struct stat st;
	int ret;

	if (d->nr == BATCH)
		return 0;
	ret = ck_claims_open_log(c, name, true, &j, err);
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	if (ck_fds_lock(j.fd, CK_CLAIMS_OWNED, F_WRLCK) ||
	    ck_fds_lock(j.fd, CK_CLAIMS_MOVED, F_WRLCK) || fstat(j.fd, &st) ||
	    !st.st_nlink) {
		ck_journal_close(&j);
		return 0;
	}
	strcpy(d->v[d->nr].name, name);
	d->v[d->nr++].j = j;
	return 0;
}

static int take_over(struct ck_claims *c, struct dead *d,
		     struct ck_claims_sums **told, struct ck_err *err)
{
	int ret = ck_claims_each_log(c, find_dead, d, err);

	/* before the first of them goes; without, a publish reads more */
	if (!ret && d->nr && !*told)
		ck_claims_read_told(c, told, NULL);
	if (!ret && d->nr)
		ret = ck_claims_read_others(c, err);
	for (unsigned i = 0; i < d->nr; i++) {
		if (!ret)
			ret = move_all(c, &d->v[i].j,
				       ck_claims_log_id(d->v[i].name), err);
		if (!ret && unlinkat(c->dir, d->v[i].name, 0))
			d->stay = true;
		ck_journal_close(&d->v[i].j);
	}
	return ret;
}

static int take_over_all(struct ck_claims *c, struct ck_claims_sums **told,
			 struct ck_err *err)
{
	struct dead d;
	int ret;

	do {
		d.nr = 0;
		d.stay = false;
		ret = take_over(c, &d, told, err);
	} while (!ret && d.nr == BATCH && !d.stay);
	return ret;
}

/* Under the lock. */
int ck_claims_log_start(struct ck_claims *c, struct ck_err *err)
{
	struct ck_claims_sums *told = NULL;
	int ret;

	if (c->log.fd >= 0)
		return 0;
	ret = begin_log(c, err);
	if (!ret)
		ret = ck_claims_keep_fresh(c, err);
	if (!ret)
		ret = take_over_all(c, &told, err);
	if (!ret)
		ret = ck_claims_read_others(c, err);
	if (!ret)
		ret = ck_claims_tell_again(c, told, err);
	ck_claims_told_free(c->plan, told);
	return ret;
}
