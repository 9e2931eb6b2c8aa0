/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.c - what was written of a buffered file; see the header
 *
 * The file lies in the checkpoint's directory (core/redo/redo.h): sealed, it
 * is what will be in the shards, and then it is copied there.
 */
#include "core/view/replace.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/intervals.h"
#include "core/base/whole.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INTERVALS (1u << 20)
#define PIECE (UINT64_C(1) << 20)

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
	struct ck_intervals done;
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
	ck_intervals_free(&r->done);
	free(r);
}

/* Under the lock. */
static int add(struct ck_replace *r, uint64_t from, uint64_t to)
{
	const int ret = ck_intervals_add(&r->done, from, to);

	return r->done.total > MAX_INTERVALS ? -ENOMEM : ret;
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
		"%s/%s: its replacement cannot be buffered: %s; it stays as "
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
	int ret = ck_pread_whole(r->fd, buf, n, at);

	return ret ? ck_fail(err, -ret,
			     "%s/%s: its replacement cannot be read again",
			     r->v->ops->name, r->name) :
		     0;
}

static int get(void *ctx, void *buf, uint64_t len, uint64_t off,
	       struct ck_err *err)
{
	return read_piece(ctx, buf, len, off, err);
}

/* All that can be refused is refused before it is committed. */
static int prepare(struct ck_replace *r, struct ck_wplan *p, struct ck_err *err)
{
	int ret;

	p->get = get;
	p->ctx = r;
	ret = ck_view_plan(r->v, r->nr, p, r->file.size, 0, err);
	for (size_t i = 0; !ret && i < p->parts.nr; i++)
		ret = ck_ckpt_may_write(p->ck, p->parts.v[i].tensor, err);
	return ret;
}

static int seal(struct ck_replace *r, const struct ck_wplan *p,
		struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < p->parts.nr; i++) {
		const struct ck_wpart *part = &p->parts.v[i];

		ret = ck_ckpt_redo_add(p->ck, r->redo, part->tensor, part->at,
				       part->len, part->off, err);
	}
	return ret ? ret :
		     ck_ckpt_redo_commit(p->ck, r->redo, r->file.size, err);
}

static int copy_piece(struct ck_replace *r, const struct ck_wpart *part,
		      uint64_t from, uint64_t n, void *buf, struct ck_err *err)
{
	int ret = read_piece(r, buf, n, part->at + from, err);

	if (!ret)
		ret = ck_ckpt_redo_step(err);
	return ret ? ret :
		     ck_ckpt_write(r->v->ck, r->e, part->tensor, buf, n,
				   part->off + from, err);
}

/* *some: shards may have been changed. */
static int copy(struct ck_replace *r, const struct ck_wplan *p, bool *some,
		struct ck_err *err)
{
	ck_auto_free unsigned char *buf = malloc(PIECE);
	int ret = buf ? 0 : ck_no_memory(err);

	for (size_t i = 0; !ret && i < p->parts.nr; i++) {
		const struct ck_wpart *part = &p->parts.v[i];

		for (uint64_t at = 0; !ret && at < part->len; at += PIECE) {
			ret = copy_piece(r, part, at,
					 CK_MIN(PIECE, part->len - at), buf,
					 err);
			*some |= ck_wplan_wrote(ret);
		}
	}
	return ret;
}

static int commit_alone(struct ck_replace *r, struct ck_wplan *p,
			struct ck_err *err)
{
	bool some = false;
	int ret = prepare(r, p, err);

	if (ret)
		return ret;
	if (r->redo)
		ret = seal(r, p, err);
	if (!ret) {
		ck_wplan_newer(p);
		ret = copy(r, p, &some, err);
		if (r->redo)
			ret = ck_ckpt_redo_end(r->v->ck, r->redo, r->e, ret,
					       some, err);
	}
	if (ret && r->redo)
		r->failed = EIO; /* it cannot be sealed again */
	return ret;
}

/*
 * Of two programs' files at a time, all of one: one after the other.  *p: what
 * was written, where all of it was.
 */
static int commit(struct ck_replace *r, struct ck_wplan **p, struct ck_err *err)
{
	int ret = ck_ckpt_redo_lock(r->v->ck, err);

	if (ret)
		return ret;
	*p = calloc(1, sizeof(**p));
	ret = *p ? commit_alone(r, *p, err) : ck_no_memory(err);
	ck_ckpt_redo_unlock(r->v->ck);
	if (ret) {
		ck_wplan_free(*p);
		*p = NULL;
	}
	return ret;
}

/*
 * The next program's bytes go elsewhere: a file that was committed is one.  It
 * is made when there are any, for most descriptors are only closed now.
 */
static void start_anew(struct ck_replace *r)
{
	ck_intervals_free(&r->done);
	if (!r->redo)
		return;
	ck_ckpt_redo_free(r->redo);
	r->redo = NULL;
	r->fd = -1;
}

static int incomplete(struct ck_replace *r, struct ck_err *err)
{
	const struct ck_interval *i;
	uint64_t there = 0;

	for (uint64_t at = 0; (i = ck_intervals_at(&r->done, at)); at = i->end)
		there += i->end - i->off;
	return ck_fail(err, r->failed ? r->failed : EIO,
		       "%s/%s: %llu of its %llu bytes were written anew; it "
		       "stays as it was",
		       r->v->ops->name, r->name, (unsigned long long)there,
		       (unsigned long long)r->file.size);
}

int ck_replace_close(struct ck_replace *r, struct ck_wplan **committed,
		     struct ck_err *err)
{
	const struct ck_interval *all;
	bool whole;
	int ret = 0;

	*committed = NULL;
	pthread_mutex_lock(&r->lock);
	all = ck_intervals_at(&r->done, 0);
	whole = !r->failed && all && !all->off && all->end == r->file.size;
	if (whole)
		ret = commit(r, committed, err);
	else if (r->done.total || r->failed)
		ret = incomplete(r, err);
	if (whole && !ret)
		start_anew(r);
	pthread_mutex_unlock(&r->lock);
	return ret;
}
