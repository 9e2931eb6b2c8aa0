/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.c - intervals of a staged file; see the header
 *
 * The intervals are sorted and do not touch.  A writer in order has one.
 */
#include "core/view/replace.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/vec.h"
#include "core/base/whole.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INTERVALS (1u << 20)
#define PIECE (UINT64_C(1) << 20)

struct interval {
	uint64_t from, to;
};

struct ck_replace {
	const struct ck_view *v;
	uint32_t nr;
	struct ck_edit *e;
	struct ck_vfile file;
	int fd;
	pthread_mutex_t lock;
	int failed; /* errno: it can no longer be committed */
	CK_VEC(struct interval) done;
};

int ck_replace_new(struct ck_replace **out, const struct ck_view *v, uint32_t i,
		   struct ck_edit *e, struct ck_err *err)
{
	struct ck_replace *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return ck_fail(err, ENOMEM, "no memory for a replacement");
	r->v = v;
	r->nr = i;
	r->e = e;
	ret = v->ops->file(v, i, &r->file) ?
		      ck_ckpt_spool(v->ck, &r->fd, err) :
		      ck_fail(err, ESTALE, "a file that its view left out");
	if (ret) {
		free(r);
		return ret;
	}
	pthread_mutex_init(&r->lock, NULL);
	*out = r;
	return 0;
}

void ck_replace_free(struct ck_replace *r)
{
	if (!r)
		return;
	close(r->fd);
	pthread_mutex_destroy(&r->lock);
	free(r->done.v);
	free(r);
}

/* Under the lock: the first interval that ends at or after @off. */
static size_t find(const struct ck_replace *r, uint64_t off)
{
	size_t lo = 0, hi = r->done.nr;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (r->done.v[mid].to < off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Under the lock: joins what it touches. */
static int add(struct ck_replace *r, uint64_t from, uint64_t to)
{
	size_t at = find(r, from), end = at;

	while (end < r->done.nr && r->done.v[end].from <= to)
		end++;
	if (end > at) {
		from = CK_MIN(from, r->done.v[at].from);
		to = CK_MAX(to, r->done.v[end - 1].to);
	} else if (r->done.nr >= MAX_INTERVALS ||
		   !ck_vec_reserve(&r->done, 1)) {
		return -ENOMEM;
	}
	memmove(r->done.v + at + 1, r->done.v + end,
		(r->done.nr - end) * sizeof(*r->done.v));
	r->done.nr = r->done.nr - end + at + 1;
	r->done.v[at] = (struct interval){ from, to };
	return 0;
}

static int fail(struct ck_replace *r, int code, struct ck_err *err)
{
	pthread_mutex_lock(&r->lock);
	r->failed = code;
	pthread_mutex_unlock(&r->lock);
	if (code == EFBIG)
		return ck_fail(err, code,
			       "%s/%s: has %llu bytes, and its replacement "
			       "more; it stays as it was",
			       r->v->ops->name, r->file.name,
			       (unsigned long long)r->file.size);
	return ck_fail(err, code,
		       "%s/%s: its replacement cannot be staged in the spool: "
		       "%s; it stays as it was",
		       r->v->ops->name, r->file.name, strerror(code));
}

int ck_replace_write(struct ck_replace *r, const void *buf, uint64_t len,
		     uint64_t off, struct ck_err *err)
{
	int ret;

	if (!ck_range_ok(off, len, r->file.size))
		return fail(r, EFBIG, err);
	ret = ck_pwrite_whole(r->fd, buf, len, off);
	if (!ret && len) {
		pthread_mutex_lock(&r->lock);
		ret = add(r, off, off + len);
		pthread_mutex_unlock(&r->lock);
	}
	return ret ? fail(r, -ret, err) : 0;
}

static int commit(struct ck_replace *r, struct ck_err *err)
{
	ck_auto_free unsigned char *buf = malloc(PIECE);
	int ret = buf ? 0 : ck_fail(err, ENOMEM, "no memory");

	for (uint64_t at = 0; !ret && at < r->file.size; at += PIECE) {
		uint64_t n = CK_MIN(PIECE, r->file.size - at);
		ssize_t got = pread(r->fd, buf, n, (off_t)at);

		if (got != (ssize_t)n)
			ret = ck_fail(err, got < 0 ? errno : EIO,
				      "%s/%s: its replacement cannot be read "
				      "from the spool again",
				      r->v->ops->name, r->file.name);
		else
			ret = ck_view_write(r->v, r->nr, r->e, buf, n, at, err);
	}
	return ret;
}

static int incomplete(struct ck_replace *r, struct ck_err *err)
{
	uint64_t there = 0;

	for (size_t i = 0; i < r->done.nr; i++)
		there += r->done.v[i].to - r->done.v[i].from;
	return ck_fail(err, r->failed ? r->failed : EIO,
		       "%s/%s: %llu of its %llu bytes were written anew; it "
		       "stays as it was",
		       r->v->ops->name, r->file.name, (unsigned long long)there,
		       (unsigned long long)r->file.size);
}

int ck_replace_close(struct ck_replace *r, bool *committed, struct ck_err *err)
{
	bool whole;
	int ret = 0;

	*committed = false;
	pthread_mutex_lock(&r->lock);
	whole = !r->failed && r->done.nr == 1 && !r->done.v[0].from &&
		r->done.v[0].to == r->file.size;
	if (whole)
		ret = commit(r, err);
	else if (r->done.nr || r->failed)
		ret = incomplete(r, err);
	if (whole && !ret) {
		r->done.nr = 0;
		*committed = true;
	}
	pthread_mutex_unlock(&r->lock);
	return ret;
}

bool ck_replace_pending(struct ck_replace *r)
{
	bool any;

	pthread_mutex_lock(&r->lock);
	any = r->done.nr || r->failed;
	pthread_mutex_unlock(&r->lock);
	return any;
}
