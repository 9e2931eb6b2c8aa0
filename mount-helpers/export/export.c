/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.c - pieces of the files of a view, read and written by several threads
 *
 * Each thread takes the next pieces, of whatever file, so one big file is
 * written by all of them and many small ones too; while one writes, others read.
 */
#include "mount-helpers/export/export.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/search.h"
#include "core/base/whole.h"
#include "core/base/pool.h"
#include "core/load/load.h"
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

#define JOBS 4 /* threads: one reads while others write, and storage waits */
#define OPEN_FILES 64 /* that stay open; more are opened for each piece */

/*
 * What a kill costs.  All has to go to disk once anyway, so a record costs
 * little more than its two waits; but of many files syncfs() takes along what
 * others have written to that filesystem, hence never as much time as went by
 * without.
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
				    .first = x->pieces,
				    .fd = -1,
				    .writing = PTHREAD_MUTEX_INITIALIZER };
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
		    !strcmp(o->name, "--verify") ||
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
		XXH3_128bits_update(s, &src->id.ctime_ns, 8);
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
	if (!x->digest || !x->done || !x->now.digest || !x->now.done)
		return ck_no_memory(err);
	ret = export_sums_plan(x, err);
	return ret ? ret : export_order(x, err);
}

void export_free(struct export *x)
{
	for (size_t i = 0; i < x->file.nr; i++) {
		free(x->file.v[i].name);
		if (x->file.v[i].fd >= 0)
			close(x->file.v[i].fd);
	}
	free(x->file.v);
	ck_load_pool_free(x->pool);
	free(x->order);
	free(x->digest);
	free(x->done);
	free(x->now.digest);
	free(x->now.done);
	free(x->sum.v);
	free(x->part);
	free(x->summed);
}

/* ---- one piece ---- */

static void locate(const struct export *x, uint64_t nr,
		   struct export_piece *out)
{
	out->file =
		&x->file.v[CK_LAST(i, 0, x->file.nr, x->file.v[i].first <= nr)];
	out->nr = nr;
	out->off = (nr - out->file->first) * EXPORT_PIECE;
	out->len = CK_MIN(EXPORT_PIECE, out->file->size - out->off);
	out->shared = 0;
}

/* Writing: what is not done; checking: what was before, or all; what was
 * written again: that. */
static bool is_due(const struct export *x, uint64_t piece)
{
	if (!x->check)
		return x->done[piece] == EXPORT_NOT;
	if (x->mark == EXPORT_AGAIN)
		return x->done[piece] == EXPORT_AGAIN;
	return x->check_all || x->done[piece] == EXPORT_KEPT;
}

/* Several, if they are small, with their places in @buf; under the lock. */
static size_t take(struct export *x, struct export_piece *p, unsigned char *buf)
{
	unsigned char *end = buf + EXPORT_ROOM;
	size_t nr = 0;

	for (; x->next < x->pieces && nr < EXPORT_BATCH && !x->ret; x->next++) {
		if (!is_due(x, x->order[x->next]))
			continue;
		locate(x, x->order[x->next], &p[nr]);
		if (p[nr].len > (uint64_t)(end - buf))
			break;
		p[nr].buf = buf;
		buf += CK_DIV_UP(p[nr].len, 4096u) * 4096;
		nr++;
	}
	return nr;
}

/* The file, whose it is to close where *own becomes it. */
static int open_file(struct export *x, struct export_file *f, int *own)
{
	int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, fd;

	if (x->file.nr > OPEN_FILES) {
		*own = openat(x->dir, f->name, flags, 0666);
		return *own < 0 ? -errno : *own;
	}
	pthread_mutex_lock(&x->lock);
	if (f->fd < 0)
		f->fd = openat(x->dir, f->name, flags, 0666);
	fd = f->fd < 0 ? -errno : f->fd;
	pthread_mutex_unlock(&x->lock);
	return fd;
}

static int write_piece(struct export *x, struct export_piece *p,
		       struct ck_err *err)
{
	ck_auto_fd int own = -1;
	int fd = open_file(x, p->file, &own), ret = fd < 0 ? fd : 0;

	pthread_mutex_lock(&p->file->writing);
	if (!ret)
		ret = export_put(x, p->file->nr, fd, p->buf, p->len, p->off,
				 &p->shared);
	pthread_mutex_unlock(&p->file->writing);
	/* what an older, longer one left behind */
	if (!ret && p->off + p->len == p->file->size &&
	    ftruncate(fd, (off_t)p->file->size))
		ret = -errno;
	if (ret)
		return ck_fail(err, -ret, "%s: %s", p->file->name,
			       strerror(-ret));
	/* storage writes while the next is read; what fails, a record says */
	sync_file_range(fd, (off_t)p->off, (off_t)p->len,
			SYNC_FILE_RANGE_WRITE);
	x->digest[p->nr] = XXH3_64bits(p->buf, p->len);
	export_sums_take(x, p->nr, p->off, p->buf, p->len);
	return 0;
}

static int check_piece(struct export *x, const struct export_piece *p,
		       struct ck_err *err)
{
	ck_auto_fd int fd = openat(x->dir, p->file->name,
				   O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = -errno;

	if (fd >= 0) {
		/* from the disk, not from what was just written */
		posix_fadvise(fd, (off_t)p->off, (off_t)p->len,
			      POSIX_FADV_DONTNEED);
		n = ck_pread_most(fd, p->buf, p->len, p->off);
	}
	if (n < 0)
		return ck_fail(err, (int)-n, "%s: %s", p->file->name,
			       strerror((int)-n));
	export_sums_hide(x, p->buf, (uint64_t)n, p->off);
	if ((uint64_t)n == p->len &&
	    XXH3_64bits(p->buf, p->len) == x->digest[p->nr])
		return 0;
	return ck_fail(err, EIO,
		       "%s: bytes [%" PRIu64 ", %" PRIu64
		       ") are not what was written",
		       p->file->name, p->off, p->off + p->len);
}

/* Under the lock: of one that went well, or can be had again. */
static void settle(struct export *x, const struct export_piece *p, bool damaged)
{
	x->moved += p->len;
	x->shared += p->shared;
	if (damaged) {
		x->done[p->nr] = EXPORT_NOT;
		x->damaged += p->len;
	} else if (!x->check) {
		x->done[p->nr] = x->mark;
		p->file->dirty = true;
	}
}

/* One that was taken; with the lock, which is given up meanwhile. */
static int do_piece(struct export *x, struct export_piece *p,
		    struct ck_err *err)
{
	bool damaged;
	int ret;

	pthread_mutex_unlock(&x->lock);
	ret = x->check ? check_piece(x, p, err) : write_piece(x, p, err);
	pthread_mutex_lock(&x->lock);
	damaged = ret && x->check && x->done[p->nr] == EXPORT_KEPT;
	if (!ret || damaged)
		settle(x, p, damaged);
	return damaged ? 0 : ret;
}

/* How many of the first could be read: what cannot be costs no other piece. */
static size_t read_pieces(struct export *x, struct export_piece *p, size_t nr,
			  int *ret, struct ck_err *err)
{
	size_t good = 0;

	*ret = export_read(x, p, nr, err);
	if (!*ret)
		return nr;
	while (nr > 1 && good < nr &&
	       !(*ret = export_read(x, &p[good], 1, err)))
		good++;
	return good;
}

static void work(void *arg)
{
	struct export *x = arg;
	ck_auto_free unsigned char *buf = aligned_alloc(4096, EXPORT_ROOM);
	struct export_piece p[EXPORT_BATCH];
	struct ck_err err = { 0 };
	int ret = buf ? 0 : ck_no_memory(&err), done = 0;
	size_t nr;

	pthread_mutex_lock(&x->lock);
	while (!ret && !done && (nr = take(x, p, buf))) {
		if (!x->check) {
			pthread_mutex_unlock(&x->lock);
			nr = read_pieces(x, p, nr, &ret, &err);
			pthread_mutex_lock(&x->lock);
		}
		for (size_t i = 0; i < nr && !done; i++)
			done = do_piece(x, &p[i], ret ? NULL : &err);
	}
	ret = ret ? ret : done;
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
	struct export_piece p;

	pthread_mutex_lock(&x->lock);
	x->recorded = x->moved;
	for (size_t i = 0; i < x->file.nr; i++) {
		x->file.v[i].sync |= x->file.v[i].dirty;
		x->file.v[i].dirty = false;
	}
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

/* What snapshot() found written; others' files are left alone, if ours are few. */
static int sync_files(struct export *x, struct ck_err *err)
{
	int failed = 0;

	if (x->file.nr > OPEN_FILES)
		failed = syncfs(x->dir) ? errno : 0;
	for (size_t i = 0; i < x->file.nr && x->file.nr <= OPEN_FILES; i++) {
		if (x->file.v[i].sync && fdatasync(x->file.v[i].fd) && !failed)
			failed = errno;
		x->file.v[i].sync = false;
	}
	if (!failed && fsync(x->dir))
		failed = errno;
	return failed ? ck_fail(err, failed, "writing to disk: %s",
				strerror(failed)) :
			0;
}

/* Puts on disk, and then on record, what is written. */
static int record(struct export *x, struct ck_err *err)
{
	int64_t begin = ck_now_ns();
	int ret;

	snapshot(x);
	ret = sync_files(x, err);
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
		x->tick(x->ctx, x->kept + moved, x->kept + x->total);
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
	struct ck_pool_in pool = {
		.jobs = JOBS, .ctx = x, .work = work, .tick = tick
	};
	int ret = x->pool ? 0 : ck_load_pool_new(&x->pool, 0, err);

	if (ret)
		return ret;
	x->next = x->moved = x->total = 0;
	for (uint64_t i = 0; i < x->pieces; i++) {
		struct export_piece p;

		locate(x, i, &p);
		x->total += is_due(x, i) ? p.len : 0;
	}
	x->ret = 0;
	x->recorded = 0;
	x->recorded_ns = ck_now_ns();
	ck_pool_run(&pool);
	if (x->ret && err)
		*err = x->err;
	return x->ret;
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
			       x->moved, x->total);
	return ret || !x->damaged ? ret : write_again(x, err);
}
