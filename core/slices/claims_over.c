/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims_over.c - what is to be written anew, of what others have claimed
 *
 * Nobody writes to another's journal, nor is there a clock that all of them go by.
 * So who empties a slice says in his own which claims of others are over: those in
 * that journal up to the length that it has.  What its owner claims later counts.
 */
#include "core/slices/claims_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/fds.h"
#include "core/base/search.h"
#include "core/root/openat_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* What takes longer to read, of many or far journals, may take 1/8 of the time. */
#define QUICK_NS INT64_C(2000000)
#define SHARE 8
#define TRIES 8 /* journals come and go */
#define MOMENTS 5000 /* that claims are moved for, at most */

static int by_length(const void *a, const void *b)
{
	const struct ck_claims_over *x = a, *y = b;

	return ck_order(x->upto, y->upto);
}

static size_t pick(const struct ck_claims_overs *from, uint64_t log,
		   struct ck_claims_over *to)
{
	size_t n = 0;

	for (size_t i = 0; i < from->nr; i++)
		if (from->v[i].log == log)
			to[n++] = from->v[i];
	return n;
}

int ck_claims_over_of(const struct ck_claims *c, uint64_t log,
		      struct ck_claims_over **v, size_t *nr, struct ck_err *err)
{
	*v = calloc(c->over.nr + c->said.nr + 1, sizeof(**v));
	if (!*v)
		return ck_no_memory(err);
	*nr = pick(&c->over, log, *v);
	*nr += pick(&c->said, log, *v + *nr);
	if (*nr)
		qsort(*v, *nr, sizeof(**v), by_length);
	return 0;
}

/* How long journal @log is; opened, for a node may remember an older length. */
static int length_of(const struct ck_claims *c, uint64_t log, uint64_t *len)
{
	ck_auto_fd int fd = -1;
	char name[24];
	struct stat st;

	ck_claims_log_name(name, log);
	fd = ck_beneath_file(c->dir, name, O_RDONLY);
	if (fd < 0 || fstat(fd, &st))
		return fd < 0 ? fd : -errno;
	*len = (uint64_t)st.st_size;
	return 0;
}

/*
 * The same of one that nobody moves from now on, until *fd is closed; -EBUSY:
 * somebody does and does not end.
 */
static int hold(const struct ck_claims *c, uint64_t log, int *fd, uint64_t *len)
{
	const struct timespec moment = { .tv_nsec = 1000000 };
	char name[24];
	struct stat st;
	int ret = -EBUSY;

	ck_claims_log_name(name, log);
	*fd = ck_beneath_file(c->dir, name, O_RDONLY);
	if (*fd < 0)
		return *fd;
	for (int i = 0; i < MOMENTS && ret == -EBUSY; i++) {
		if (i)
			nanosleep(&moment, NULL);
		ret = ck_fds_lock(*fd, CK_CLAIMS_MOVED, F_RDLCK);
	}
	if (ret == -EBUSY)
		return ret;
	if (fstat(*fd, &st))
		return -errno;
	*len = (uint64_t)st.st_size;
	return st.st_nlink ? 0 : -ENOENT;
}

static int say(struct ck_claims *c, const struct ck_claims_over *over,
	       struct ck_err *err)
{
	int ret;

	if (!ck_vec_reserve(&c->over, 1))
		return ck_no_memory(err);
	ret = ck_journal_append(&c->log, CK_CLAIMS_OVER, over, sizeof(*over),
				err);
	if (!ret)
		c->over.v[c->over.nr++] = *over;
	return ret;
}

/* -ENOENT: that journal is gone. */
static int cut_one(struct ck_claims *c, struct ck_claims_other *o,
		   const struct ck_claims_body *b, struct ck_err *err)
{
	struct ck_claims_over over = { .b = *b, .log = o->log };
	uint64_t end = b->off + b->len;
	bool durable = ck_intervals_any(&o->sets.safe[b->file], b->off, end);
	ck_auto_fd int fd = -1;
	int ret = hold(c, o->log, &fd, &over.upto);

	if (ret == -ENOENT)
		return ret;
	if (ret)
		return ck_fail(err, -ret, "slices: a journal: %s",
			       strerror(-ret));
	c->cuts++;
	ret = say(c, &over, err);
	/* before bytes of it change: else a loss of power brings it back */
	if (!ret && durable)
		ret = ck_claims_log_sync(c, &c->log, err);
	return !ret && ck_claims_cut_sets(&o->sets, b) ? ck_no_memory(err) :
							 ret;
}

static int cut_all(struct ck_claims *c, const struct ck_claims_body *b,
		   struct ck_err *err)
{
	uint64_t end = b->off + b->len;
	int ret = 0;

	for (size_t i = 0; !ret && i < c->other.nr; i++)
		if (ck_intervals_any(&c->other.v[i].sets.written[b->file],
				     b->off, end))
			ret = cut_one(c, &c->other.v[i], b, err);
	return !ret && ck_intervals_cut(&c->others[b->file], b->off, end) ?
		       ck_no_memory(err) :
		       ret;
}

int ck_claims_keep_fresh(struct ck_claims *c, struct ck_err *err)
{
	bool old = c->reading_ns < QUICK_NS ||
		   ck_now_ns() - c->read_ns >= SHARE * c->reading_ns;

	return old ? ck_claims_read_others(c, err) : 0;
}

int ck_claims_cut_others(struct ck_claims *c, const struct ck_claims_body *b,
			 struct ck_err *err)
{
	int ret = ck_claims_keep_fresh(c, err);

	for (int i = 0; !ret && i < TRIES; i++) {
		ret = cut_all(c, b, err);
		if (ret != -ENOENT)
			return ret;
		/* another took it over, or its owner wrote it anew */
		ret = ck_claims_read_others(c, err);
	}
	return ret ? ret : ck_fail(err, EAGAIN, "slices: journals come and go");
}

int ck_claims_put_over(const struct ck_claims *c, struct ck_journal *j,
		       struct ck_err *err)
{
	uint64_t len;
	int ret = 0;

	for (size_t i = 0; !ret && i < c->over.nr; i++)
		if (length_of(c, c->over.v[i].log, &len) != -ENOENT)
			ret = ck_journal_append(j, CK_CLAIMS_OVER,
						&c->over.v[i],
						sizeof(c->over.v[i]), err);
	return ret;
}

int ck_claims_take_over(struct ck_claims *c, const struct ck_claims_overs *over,
			struct ck_err *err)
{
	uint64_t len;
	int ret = 0;

	for (size_t i = 0; !ret && i < over->nr; i++)
		if (length_of(c, over->v[i].log, &len) != -ENOENT)
			ret = say(c, &over->v[i], err);
	return ret;
}
