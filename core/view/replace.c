/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.c - intervals of a buffered file; see the header
 *
 * The file lies in the checkpoint's directory (core/redo/redo.h): sealed, it
 * is what will be in the shards, and then it is copied there.
 *
 * The intervals are sorted and do not touch.  A writer in order has one.
 */
#include "core/view/replace.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
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
	char name[CK_VIEW_NAME]; /* of it */
	pthread_mutex_t lock; /* of all below */
	int fd; /* -1: to be made when something is written */
	struct ck_redo *redo; /* whose @fd is; NULL: a nameless file */
	int failed; /* errno: it can no longer be committed */
	CK_VEC(struct interval) done;
};

int ck_replace_new(struct ck_replace **out, const struct ck_view *v, uint32_t i,
		   struct ck_edit *e, struct ck_err *err)
{
	struct ck_replace *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return ck_no_memory(err);
	r->v = v;
	r->nr = i;
	r->e = e;
	ret = v->ops->file(v, i, &r->file) ?
		      ck_ckpt_redo(v->ck, &r->redo, &r->fd, err) :
		      ck_fail(err, ESTALE, "a file that its view left out");
	if (ret) {
		free(r);
		return ret;
	}
	v->ops->label(v, i, r->name);
	pthread_mutex_init(&r->lock, NULL);
	*out = r;
	return 0;
}

void ck_replace_free(struct ck_replace *r)
{
	if (!r)
		return;
	if (r->redo)
		ck_ckpt_redo_free(r->redo);
	else if (r->fd >= 0)
		close(r->fd);
	pthread_mutex_destroy(&r->lock);
	free(r->done.v);
	free(r);
}

/* Under the lock: the first interval that ends at or after @off. */
static size_t find(const struct ck_replace *r, uint64_t off)
{
	return CK_FIRST(i, 0, r->done.nr, r->done.v[i].to >= off);
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

/* Under the lock. */
static int fail(struct ck_replace *r, int code, struct ck_err *err)
{
	r->failed = code;
	if (code == EFBIG)
		return ck_fail(err, code,
			       "%s/%s: has %llu bytes, and its replacement "
			       "more; it stays as it was",
			       r->v->ops->name, r->name,
			       (unsigned long long)r->file.size);
	return ck_fail(
		err, code,
		"%s/%s: its replacement cannot be staged: %s; it stays as "
		"it was",
		r->v->ops->name, r->name, strerror(code));
}

/* Under the lock. */
static int stage(struct ck_replace *r, const void *buf, uint64_t len,
		 uint64_t off, struct ck_err *err)
{
	int ret = 0;

	if (!ck_range_ok(off, len, r->file.size))
		return fail(r, EFBIG, err);
	if (r->fd < 0) {
		ret = ck_ckpt_redo(r->v->ck, &r->redo, &r->fd, err);
		if (ret) {
			r->fd = -1;
			r->failed = EIO;
			return ret;
		}
	}
	ret = ck_pwrite_whole(r->fd, buf, len, off);
	if (!ret && len)
		ret = add(r, off, off + len);
	return ret ? fail(r, -ret, err) : 0;
}

int ck_replace_write(struct ck_replace *r, const void *buf, uint64_t len,
		     uint64_t off, struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&r->lock);
	ret = stage(r, buf, len, off, err);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

static int read_piece(struct ck_replace *r, void *buf, uint64_t n, uint64_t at,
		      struct ck_err *err)
{
	ssize_t got = ck_pread_most(r->fd, buf, n, at);

	if (got == (ssize_t)n)
		return 0;
	return ck_fail(err, got < 0 ? (int)-got : EIO,
		       "%s/%s: its replacement cannot be read again",
		       r->v->ops->name, r->name);
}

/* A header, which must be as it is. */
static int check_made(struct ck_replace *r, void *buf, uint64_t len,
		      uint64_t off, struct ck_err *err)
{
	int ret = 0;

	for (uint64_t done = 0, n; !ret && done < len; done += n) {
		n = CK_MIN(PIECE, len - done);
		ret = read_piece(r, buf, n, off + done, err);
		if (!ret)
			ret = ck_view_check(r->v, r->nr, buf, n, off + done,
					    err);
	}
	return ret;
}

/* All that can be refused is refused before it is committed. */
static int prepare(struct ck_replace *r, void *buf, struct ck_err *err)
{
	int ret = 0;
	struct ck_span s;

	for (uint64_t off = 0; !ret && off < r->file.size; off += s.len) {
		r->v->ops->at(r->v, r->nr, off, &s);
		s.len = CK_MIN(s.len, r->file.size - off);
		if (s.kind == CK_SPAN_MADE)
			ret = check_made(r, buf, s.len, off, err);
		else if (s.kind != CK_SPAN_TENSOR || !s.len)
			ret = ck_view_not_written(r->v, r->nr, err);
		else
			ret = ck_ckpt_may_write(r->v->ck, s.ref, err);
	}
	return ret;
}

static int seal(struct ck_replace *r, struct ck_err *err)
{
	int ret = 0;
	struct ck_span s;

	for (uint64_t off = 0; !ret && off < r->file.size; off += s.len) {
		r->v->ops->at(r->v, r->nr, off, &s);
		s.len = CK_MIN(s.len, r->file.size - off);
		if (s.kind == CK_SPAN_TENSOR)
			ret = ck_ckpt_redo_add(r->v->ck, r->redo, s.ref, off,
					       s.len, s.off, err);
	}
	return ret ? ret :
		     ck_ckpt_redo_commit(r->v->ck, r->redo, r->file.size, err);
}

/* *some: shards may have been changed. */
static int copy(struct ck_replace *r, void *buf, bool *some, struct ck_err *err)
{
	int ret = 0;

	for (uint64_t at = 0; !ret && at < r->file.size; at += PIECE) {
		uint64_t n = CK_MIN(PIECE, r->file.size - at);

		ret = read_piece(r, buf, n, at, err);
		if (!ret)
			ret = ck_ckpt_redo_step(err);
		if (!ret)
			ret = ck_view_write(r->v, r->nr, r->e, buf, n, at, NULL,
					    err);
		/* others than these are of what looks before it writes */
		*some |=
			!ret || ret == -EIO || ret == -ENOSPC || ret == -EDQUOT;
	}
	return ret;
}

static int commit_alone(struct ck_replace *r, struct ck_err *err)
{
	ck_auto_free unsigned char *buf = malloc(PIECE);
	bool some = false;
	int ret = buf ? 0 : ck_no_memory(err);

	if (!ret)
		ret = prepare(r, buf, err);
	if (ret)
		return ret;
	if (r->redo)
		ret = seal(r, err);
	if (!ret) {
		ret = copy(r, buf, &some, err);
		if (r->redo)
			ret = ck_ckpt_redo_end(r->v->ck, r->redo, r->e, ret,
					       some, err);
	}
	if (ret && r->redo)
		r->failed = EIO; /* it cannot be sealed again */
	return ret;
}

/* Of two programs' files at a time, all of one: one after the other. */
static int commit(struct ck_replace *r, struct ck_err *err)
{
	int ret = ck_ckpt_redo_lock(r->v->ck, err);

	if (ret)
		return ret;
	ret = commit_alone(r, err);
	ck_ckpt_redo_unlock(r->v->ck);
	return ret;
}

/*
 * The next program's bytes go elsewhere: a file that was committed is one.  It
 * is made when there are any, for most descriptors are only closed now.
 */
static void start_anew(struct ck_replace *r)
{
	r->done.nr = 0;
	if (!r->redo)
		return;
	ck_ckpt_redo_free(r->redo);
	r->redo = NULL;
	r->fd = -1;
}

static int incomplete(struct ck_replace *r, struct ck_err *err)
{
	uint64_t there = 0;

	for (size_t i = 0; i < r->done.nr; i++)
		there += r->done.v[i].to - r->done.v[i].from;
	return ck_fail(err, r->failed ? r->failed : EIO,
		       "%s/%s: %llu of its %llu bytes were written anew; it "
		       "stays as it was",
		       r->v->ops->name, r->name, (unsigned long long)there,
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
		*committed = true;
		start_anew(r);
	}
	pthread_mutex_unlock(&r->lock);
	return ret;
}
