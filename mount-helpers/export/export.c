/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.c - pieces of the files of a view, read and written by several threads
 *
 * Each thread takes the next piece of the next file, so one big file is
 * written by all of them and many small ones too.
 */
#include "mount-helpers/export/export.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/search.h"
#include "core/base/whole.h"
#include "core/base/pool.h"
#include "core/options/options.h"
#include "core/view/as_ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/*
 * What a kill costs.  All has to go to disk once anyway, so a record costs
 * little more than its two waits; but syncfs() takes along what others have
 * written to that filesystem, hence never as much time as went by without.
 */
#define RECORD_NS INT64_C(1000000000)
#define RECORD_BYTES (UINT64_C(256) << 20)

static uint64_t nr_pieces(uint64_t size)
{
	return size ? (size + EXPORT_PIECE - 1) / EXPORT_PIECE : 1;
}

static int add_file(struct export *x, uint32_t nr, const struct ck_vfile *f,
		    const char *as, struct ck_err *err)
{
	struct export_file *to = ck_vec_push(&x->file);

	if (!to)
		return ck_no_memory(err);
	*to = (struct export_file){ .name = strdup(as),
				    .nr = nr,
				    .size = f->size,
				    .first = x->pieces };
	x->bytes += f->size;
	x->pieces += nr_pieces(f->size);
	return to->name ? 0 : ck_no_memory(err);
}

static void add_text(XXH3_state_t *s, const char *text)
{
	XXH3_128bits_update(s, text, strlen(text) + 1);
}

/* But for those that are about how it is read and written. */
static void add_opts(XXH3_state_t *s, const struct ck_opts *opts)
{
	for (size_t i = 0; opts && i < opts->nr; i++) {
		const struct ck_opt *o = &opts->v[i];

		if (!strcmp(o->name, "to") || !strcmp(o->name, "json") ||
		    !strcmp(o->name, "no-verify") ||
		    (ck_options_is_how(o->name) && strcmp(o->name, "verify")))
			continue;
		add_text(s, o->name);
		add_text(s, o->value);
		if (o->bytes)
			XXH3_128bits_update(s, o->bytes, o->len);
	}
}

/* Of all that decides what is written. */
static int identify(struct export *x, const char *only,
		    const struct ck_opts *opts, struct ck_err *err)
{
	const struct ck_catalog *img = x->view->img;
	XXH3_state_t *s = XXH3_createState();
	XXH128_hash_t h;

	if (!s)
		return ck_no_memory(err);
	XXH3_128bits_reset(s);
	add_text(s, x->view->ops->name);
	add_text(s, only ? only : "");
	add_opts(s, opts);
	for (size_t i = 0; i < x->file.nr; i++) {
		add_text(s, x->file.v[i].name);
		XXH3_128bits_update(s, &x->file.v[i].size, 8);
	}
	for (uint32_t i = 0; i < img->nr_srcs; i++) {
		const struct ck_src *src = &img->srcs[i];

		if (src->name != CK_NONE) /* what is decoded has none */
			add_text(s, ck_catalog_str(img, src->name, NULL));
		XXH3_128bits_update(s, &src->id.size, 8);
		XXH3_128bits_update(s, &src->id.mtime_ns, 8);
	}
	h = XXH3_128bits_digest(s);
	XXH3_freeState(s);
	x->id[0] = h.high64;
	x->id[1] = h.low64;
	return 0;
}

static int add_one(struct export *x, uint32_t nr, const char *as,
		   struct ck_err *err)
{
	struct ck_vfile f;
	char name[CK_VIEW_NAME];

	if (!x->view->ops->file(x->view, nr, &f))
		return 0; /* left out, as the problems say */
	x->view->ops->label(x->view, nr, name);
	return add_file(x, nr, &f, as ? as : name, err);
}

/*
 * All files of folder @d, and the one that a reshard has and does not list,
 * without which what is written would be no checkpoint.
 */
static int add_all(struct export *x, uint32_t d, struct ck_err *err)
{
	const struct ck_view_folder_ops *ops = x->view->ops->folders;
	uint32_t base = d << CK_VIEW_FOLDER_SHIFT, i;
	uint32_t nr = ops->nr_files(x->view, d);
	int ret = 0;

	for (i = 0; i < nr && !ret; i++)
		ret = add_one(x, base + i, NULL, err);
	if (ret)
		return ret;
	if (!ops->unlisted)
		return 0;
	i = ops->find_file(x->view, d, ops->unlisted, strlen(ops->unlisted));
	x->no_layout = i == CK_NONE;
	return i == CK_NONE || i - base < nr ? 0 : add_one(x, i, NULL, err);
}

/* A folder of a view whose files are in folders. */
static int add_folder(struct export *x, const char *name, struct ck_err *err)
{
	uint32_t d;
	int ret;

	ret = ck_view_folder_called(x->view, name, &d, err);
	return ret ? ret : add_all(x, d, err);
}

static int add_files(struct export *x, const char *only, const char *as,
		     struct ck_err *err)
{
	const struct ck_view *v = x->view;
	uint32_t i;
	int ret = 0;

	if (v->ops->folders && only && !strchr(only, '/'))
		return add_folder(x, only, err);
	if (v->ops->folders && !only)
		return ck_fail(err, ENOENT, "%s: expected a folder of it",
			       v->ops->name);
	if (!only) {
		for (i = 0; i < v->ops->nr(v) && !ret; i++)
			ret = add_one(x, i, as, err);
		return ret;
	}
	i = ck_view_file_called(v, only, err);
	return i == CK_NONE ? -err->code : add_one(x, i, as, err);
}

int export_plan(struct export *x, const struct ck_view *view, const char *only,
		const char *as, const struct ck_opts *opts, struct ck_err *err)
{
	int ret;

	*x = (struct export){ .view = view,
			      .dir = -1,
			      .mark = EXPORT_WRITTEN,
			      .lock = PTHREAD_MUTEX_INITIALIZER };
	ret = add_files(x, only, as, err);
	if (!ret)
		ret = identify(x, only, opts, err);
	if (ret)
		return ret;
	x->digest = calloc(x->pieces + 1, sizeof(*x->digest));
	x->done = calloc(x->pieces + 1, 1);
	x->now.digest = calloc(x->pieces + 1, sizeof(*x->digest));
	x->now.done = calloc(x->pieces + 1, 1);
	return x->digest && x->done && x->now.digest && x->now.done ?
		       export_sums_plan(x, err) :
		       ck_no_memory(err);
}

void export_free(struct export *x)
{
	for (size_t i = 0; i < x->file.nr; i++)
		free(x->file.v[i].name);
	free(x->file.v);
	free(x->digest);
	free(x->done);
	free(x->now.digest);
	free(x->now.done);
	free(x->sum.v);
	free(x->part);
	free(x->summed);
}

/* ---- one piece ---- */

struct piece {
	const struct export_file *file;
	uint64_t nr, off, len;
	uint64_t shared; /* when it is written */
};

static void locate(const struct export *x, uint64_t nr, struct piece *out)
{
	out->file =
		&x->file.v[CK_LAST(i, 0, x->file.nr, x->file.v[i].first <= nr)];
	out->nr = nr;
	out->off = (nr - out->file->first) * EXPORT_PIECE;
	out->len = CK_MIN(EXPORT_PIECE, out->file->size - out->off);
	out->shared = 0;
}

/* Writing: what is not done; checking: all; what was written again: that. */
static bool is_due(const struct export *x, uint64_t piece)
{
	if (!x->check)
		return x->done[piece] == EXPORT_NOT;
	return x->mark != EXPORT_AGAIN || x->done[piece] == EXPORT_AGAIN;
}

/* Under the lock. */
static bool take(struct export *x, struct piece *out)
{
	while (x->next < x->pieces && !is_due(x, x->next))
		x->next++;
	if (x->ret || x->next >= x->pieces)
		return false;
	locate(x, x->next++, out);
	return true;
}

static int write_piece(struct export *x, struct piece *p, char *buf,
		       struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	int ret = p->len ? ck_view_read(x->view, p->file->nr, buf, p->len,
					p->off, err) :
			   0;

	if (ret)
		return ret;
	fd = openat(x->dir, p->file->name,
		    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	ret = fd < 0 ? -errno :
		       export_put(x, p->file->nr, fd, buf, p->len, p->off,
				  &p->shared);
	/* what an older, longer one left behind */
	if (!ret && p->off + p->len == p->file->size &&
	    ftruncate(fd, (off_t)p->file->size))
		ret = -errno;
	if (ret)
		return ck_fail(err, -ret, "%s: %s", p->file->name,
			       strerror(-ret));
	x->digest[p->nr] = XXH3_64bits(buf, p->len);
	export_sums_take(x, p->nr, p->off, buf, p->len);
	return 0;
}

static int check_piece(struct export *x, const struct piece *p, char *buf,
		       struct ck_err *err)
{
	ck_auto_fd int fd = openat(x->dir, p->file->name,
				   O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = -errno;

	if (fd >= 0) {
		/* from the disk, not from what was just written */
		posix_fadvise(fd, (off_t)p->off, (off_t)p->len,
			      POSIX_FADV_DONTNEED);
		n = ck_pread_most(fd, buf, p->len, p->off);
	}
	if (n < 0)
		return ck_fail(err, (int)-n, "%s: %s", p->file->name,
			       strerror((int)-n));
	export_sums_hide(x, buf, (uint64_t)n, p->off);
	if ((uint64_t)n == p->len &&
	    XXH3_64bits(buf, p->len) == x->digest[p->nr])
		return 0;
	return ck_fail(err, EIO,
		       "%s: bytes [%" PRIu64 ", %" PRIu64
		       ") are not what was written",
		       p->file->name, p->off, p->off + p->len);
}

/* Under the lock: of one that went well, or can be had again. */
static void settle(struct export *x, const struct piece *p, bool damaged)
{
	x->moved += p->len;
	x->shared += p->shared;
	if (damaged) {
		x->done[p->nr] = EXPORT_NOT;
		x->damaged += p->len;
	} else if (!x->check) {
		x->done[p->nr] = x->mark;
	}
}

static void work(void *arg)
{
	struct export *x = arg;
	ck_auto_free char *buf = aligned_alloc(4096, EXPORT_PIECE);
	struct ck_err err = { 0 };
	struct piece p;
	int ret = buf ? 0 : ck_no_memory(&err);

	pthread_mutex_lock(&x->lock);
	while (!ret && take(x, &p)) {
		bool damaged;

		pthread_mutex_unlock(&x->lock);
		ret = x->check ? check_piece(x, &p, buf, &err) :
				 write_piece(x, &p, buf, &err);
		pthread_mutex_lock(&x->lock);
		damaged = ret && x->check && x->done[p.nr] == EXPORT_KEPT;
		if (damaged)
			ret = 0;
		if (!ret)
			settle(x, &p, damaged);
	}
	if (ret && !x->ret) {
		x->ret = ret;
		x->err = err;
	}
	pthread_mutex_unlock(&x->lock);
}

/* ---- all of them ---- */

/* Bytes of all that is done, which x->now has then. */
static uint64_t snapshot(struct export *x)
{
	uint64_t bytes = 0;
	struct piece p;

	pthread_mutex_lock(&x->lock);
	x->recorded = x->moved;
	for (uint64_t i = 0; i < x->pieces; i++) {
		x->now.done[i] = x->done[i] != EXPORT_NOT;
		x->now.digest[i] = x->now.done[i] ? x->digest[i] : 0;
		if (!x->now.done[i])
			continue;
		locate(x, i, &p);
		bytes += p.len;
	}
	pthread_mutex_unlock(&x->lock);
	return bytes;
}

/* Puts on disk, and then on record, what is written. */
static int record(struct export *x, struct ck_err *err)
{
	int64_t begin = ck_now_ns();
	int ret = 0;

	snapshot(x);
	if (syncfs(x->dir))
		ret = ck_fail(err, errno, "writing to disk: %s",
			      strerror(errno));
	if (!ret)
		ret = export_state_save(x, err);
	x->recorded_ns = ck_now_ns();
	x->record_ns = x->recorded_ns - begin;
	return ret;
}

static bool record_is_due(const struct export *x, uint64_t moved)
{
	int64_t since = ck_now_ns() - x->recorded_ns;

	return !x->check && moved > x->recorded && since >= x->record_ns &&
	       (since >= RECORD_NS || moved - x->recorded >= RECORD_BYTES);
}

/* Says how far it is, records it now and then, and ends it if asked to. */
static void tick(void *arg)
{
	struct export *x = arg;
	struct ck_err err;
	uint64_t moved;
	int ret = 0;

	pthread_mutex_lock(&x->lock);
	moved = x->moved;
	pthread_mutex_unlock(&x->lock);
	if (x->tick)
		x->tick(x->ctx, x->kept + moved, x->bytes);
	if (x->stop && x->stop())
		ret = ck_fail(&err, EINTR, "stopped");
	else if (record_is_due(x, moved))
		ret = record(x, &err);
	pthread_mutex_lock(&x->lock);
	if (ret && !x->ret) {
		x->ret = ret;
		x->err = err;
	}
	pthread_mutex_unlock(&x->lock);
}

static int run(struct export *x, struct ck_err *err)
{
	struct ck_pool_in pool = { .ctx = x, .work = work, .tick = tick };
	int ret;

	x->next = x->moved = 0;
	x->ret = 0;
	x->recorded = 0;
	x->recorded_ns = ck_now_ns();
	ret = ck_pool_run(&pool, err);
	if (!ret && x->ret && err)
		*err = x->err;
	return ret ? ret : x->ret;
}

/* It was of use. */
static int add_goes_on(const struct export *x, uint64_t written, int ret,
		       struct ck_err *err)
{
	struct ck_err why = *err;

	if (ret != -ENOSPC && ret != -EDQUOT)
		return ck_fail(err, -ret,
			       "%.300s; %" PRIu64 " of %" PRIu64
			       " bytes are written, the same command goes on",
			       why.msg, written, x->bytes);
	return ck_fail(err, -ret,
		       "%.300s; %" PRIu64 " of %" PRIu64
		       " bytes are written, the same command goes on "
		       "once there is room for %" PRIu64 " more",
		       why.msg, written, x->bytes, x->bytes - written);
}

int export_write(struct export *x, struct ck_err *err)
{
	int ret = export_state_begin(x, err);
	uint64_t written;

	if (!ret)
		ret = run(x, err);
	if (!ret)
		return record(x, err) ?: export_sums_put(x, err);
	written = snapshot(x);
	if (!written) {
		export_state_forget(x, NULL);
		return ret;
	}
	return record(x, NULL) ? ret : add_goes_on(x, written, ret, err);
}

/* What lay there since an export before, and is not what that had written. */
static int write_again(struct export *x, struct ck_err *err)
{
	int ret;

	x->check = false;
	x->mark = EXPORT_AGAIN;
	x->kept = x->bytes - x->damaged;
	ret = export_write(x, err);
	x->check = true;
	return ret ? ret : run(x, err);
}

int export_check(struct export *x, struct ck_err *err)
{
	int ret;

	x->check = true;
	x->kept = 0;
	ret = run(x, err);
	if (ret == -EINTR)
		return ck_fail(err, EINTR,
			       "stopped; all is written, and %" PRIu64
			       " of %" PRIu64
			       " bytes were read back, the same command "
			       "reads it again",
			       x->moved, x->bytes);
	return ret || !x->damaged ? ret : write_again(x, err);
}
