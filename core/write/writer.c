/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c - the public calls of writer.h, and which files an edit touched
 *
 * A failed sync is remembered for its file: the kernel tells each descriptor
 * once, but the pages that it could not write are gone, and every later sync
 * would say that all is well.
 */
#include "core/write/write_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SYNCS 64
#define TRIED 16 /* files of a tensor that an open looks at */

int ck_writer_new(struct ck_writer **out, struct ck_reader *r,
		  struct ck_err *err)
{
	const struct ck_catalog *img = r->in.img;
	struct ck_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return ck_no_memory(err);
	w->r = r;
	w->img = img;
	pthread_mutex_init(&w->edge, NULL);
	ck_range_locks_init(&w->range_locks);
	w->wrote_ns = calloc(img->nr_tensors + 1u, sizeof(*w->wrote_ns));
	w->failed = calloc(img->nr_srcs + 1u, sizeof(*w->failed));
	w->sums = ck_sums_new(r);
	if (!w->wrote_ns || !w->failed || !w->sums ||
	    ck_shared_storage_new(&w->alias, img)) {
		ck_writer_free(w);
		return ck_no_memory(err);
	}
	*out = w;
	return 0;
}

void ck_writer_free(struct ck_writer *w)
{
	if (!w)
		return;
	ck_sums_free(w->sums);
	ck_shared_storage_free(w->alias);
	pthread_mutex_destroy(&w->edge);
	ck_range_locks_destroy(&w->range_locks);
	free((void *)w->wrote_ns);
	free((void *)w->failed);
	free(w);
}

struct ck_edit *ck_edit_new(struct ck_writer *w)
{
	struct ck_edit *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->w = w;
	e->touched = calloc(w->img->nr_srcs / 64 + 1, sizeof(*e->touched));
	if (!e->touched) {
		free(e);
		return NULL;
	}
	return e;
}

void ck_edit_free(struct ck_edit *e)
{
	if (!e)
		return;
	free((void *)e->touched);
	free(e);
}

bool ck_writer_wrote(const struct ck_writer *w, const char *name,
		     int64_t mtime_ns, int64_t *was_ns)
{
	const struct ck_self_writes *self_writes = w->r->self_writes;

	for (uint32_t i = 0; atomic_load(&w->last_ns) && i < w->img->nr_srcs;
	     i++) {
		const struct ck_src *src = &w->img->srcs[i];
		int64_t last = ck_self_writes_id(self_writes, i).mtime_ns;

		/* few differ, and names are looked at for those only */
		if (src->kind != CK_SRC_FILE ||
		    (last == src->id.mtime_ns &&
		     !ck_self_writes_busy(self_writes, i)) ||
		    strcmp(ck_catalog_str(w->img, src->name, NULL), name) != 0)
			continue;
		*was_ns = src->id.mtime_ns;
		return mtime_ns == last || ck_self_writes_busy(self_writes, i);
	}
	return false;
}

int ck_writer_may(struct ck_writer *w, uint32_t t, struct ck_err *err)
{
	const struct ck_tensor *ten = &w->img->tensors[t];
	int ret = 0;

	for (uint32_t i = 0; !ret && i < ten->nr_all; i++)
		ret = ck_scatter_may(w, t, ten->first + i, err);
	return ret;
}

int ck_writer_try(struct ck_writer *w, uint32_t src, struct ck_err *err)
{
	const struct ck_src *s = &w->img->srcs[src];
	struct ck_err why;
	int fd, ret;

	if (s->kind != CK_SRC_FILE || w->r->in.over)
		return 0;
	ret = ck_files_get(w->r->wfiles, src, &fd, &why);
	if (!ret)
		ck_files_put(w->r->wfiles, src);
	/* what else is wrong with it the write says, and of all its files */
	return ret == -EBUSY || ret == -EROFS || ret == -EACCES ||
			       ret == -EPERM ?
		       ck_fail(err, -ret, "%s", why.msg) :
		       0;
}

static int try_sums(struct ck_writer *w, uint32_t t, uint32_t chunk,
		    struct ck_err *err)
{
	uint32_t src = w->img->chunks[chunk].src;
	uint64_t off, len;
	struct ck_err why;
	int ret;

	if (w->img->srcs[src].kind != CK_SRC_FILE || w->r->in.over)
		return 0;
	ck_chunk_archive(w->img, &w->img->tensors[t], chunk, &off, &len);
	ret = ck_sums_need(w->sums, src, off, len, &why);
	return ret == -EROFS ? ck_fail(err, EROFS, "%s", why.msg) : 0;
}

int ck_writer_try_tensor(struct ck_writer *w, uint32_t t, struct ck_err *err)
{
	const struct ck_tensor *ten = &w->img->tensors[t];
	uint32_t last = CK_NONE;
	unsigned tried = 0;
	int ret = 0;

	for (uint32_t i = 0; !ret && i < ten->nr_all && tried < TRIED; i++) {
		uint32_t src = w->img->chunks[ten->first + i].src;

		if (src == last)
			continue;
		last = src;
		tried++;
		ret = ck_writer_try(w, src, err);
	}
	return ret || !ten->nr_all ? ret : try_sums(w, t, ten->first, err);
}

static void note(struct ck_writer *w, uint32_t t)
{
	struct timespec now;
	int64_t ns;

	clock_gettime(CLOCK_REALTIME, &now);
	ns = ck_ns(now);
	atomic_store(&w->wrote_ns[t], ns);
	atomic_store(&w->last_ns, ns);
	atomic_fetch_add(&w->seq, 1);
}

void ck_writer_begin(struct ck_writer *w, struct ck_range_lock *range_lock)
{
	/* where bytes are shared, an offset tells nothing */
	for (unsigned i = 0; i < range_lock->nr; i++) {
		uint32_t key = range_lock->part[i].key, group;

		if (key == CK_RANGE_LOCK_ALL)
			continue;
		group = ck_shared_storage_group(w->alias, key);
		if (group != CK_NONE)
			range_lock->part[i] =
				(struct ck_range_lock_part){ group, 0,
							     UINT64_MAX };
	}
	ck_range_lock_begin(&w->range_locks, range_lock);
	ck_stat_add(&w->r->stats.writes, 1);
}

void ck_writer_end(struct ck_writer *w, struct ck_range_lock *range_lock)
{
	ck_range_lock_end(&w->range_locks, range_lock);
}

void ck_writer_count_span_walk(struct ck_writer *w)
{
	ck_stat_add(&w->r->stats.span_walks, 1);
}

static int inside(const struct ck_writer *w, const struct ck_wrange *r,
		  struct ck_err *err)
{
	const struct ck_tensor *t = &w->img->tensors[r->tensor];

	if (ck_range_ok(r->off, r->len, t->size))
		return 0;
	return ck_fail(err, EFBIG,
		       "%s: has %llu bytes, and none is written past them",
		       ck_catalog_str(w->img, t->name, NULL),
		       (unsigned long long)t->size);
}

int ck_writer_write_ranges(struct ck_writer *w, struct ck_edit *e,
			   const struct ck_wrange *v, size_t nr, size_t *done,
			   struct ck_err *err)
{
	uint64_t len = 0;
	int ret = 0;

	*done = 0;
	for (size_t i = 0; !ret && i < nr; i++) {
		len += v[i].len;
		ret = inside(w, &v[i], err);
	}
	if (ret)
		return ret;
	ret = ck_scatter(w, e, v, nr, done, err);
	for (size_t i = 0; i < nr; i++)
		if (v[i].len)
			note(w, v[i].tensor); /* failed: it may have changed */
	ck_stat_add(ret ? &w->r->stats.failed : &w->r->stats.written,
		    ret ? 1 : len);
	return ret;
}

int ck_writer_write(struct ck_writer *w, struct ck_edit *e, uint32_t t,
		    const void *buf, uint64_t len, uint64_t off,
		    struct ck_err *err)
{
	const struct ck_wrange range = {
		.tensor = t, .buf = buf, .len = len, .off = off
	};
	size_t done;

	return ck_writer_write_ranges(w, e, &range, 1, &done, err);
}

/* ---- sync ---- */

struct batch {
	struct ck_io io[SYNCS];
	uint32_t src[SYNCS];
	unsigned nr;
};

static int sync_failed(struct ck_writer *w, uint32_t src, struct ck_err *err)
{
	int code = atomic_load(&w->failed[src]);

	return ck_fail(err, code, "%s: could not be written to storage: %s",
		       ck_bytes_name(w->r, src), strerror(code));
}

/* Syncs the batch; it is empty afterwards. */
static int run_batch(struct ck_writer *w, struct batch *b, struct ck_err *err)
{
	struct ck_engine *e = ck_engine_mine(w->r->in.engine);
	int ret = 0;

	e->ops->run(e, b->io, b->nr);
	for (unsigned i = 0; i < b->nr; i++) {
		ck_files_put(w->r->wfiles, b->src[i]);
		if (!b->io[i].res)
			continue;
		atomic_store(&w->failed[b->src[i]], -b->io[i].res);
		if (!ret)
			ret = sync_failed(w, b->src[i], err);
	}
	b->nr = 0;
	return ret;
}

static int add_sync(struct ck_writer *w, uint32_t src, void *ctx,
		    struct ck_err *err)
{
	struct batch *b = ctx;
	struct ck_io *io = &b->io[b->nr];
	int ret;

	if (atomic_load(&w->failed[src]))
		return sync_failed(w, src, err);
	*io = (struct ck_io){ .op = CK_IO_SYNC };
	ret = ck_files_get(w->r->wfiles, src, &io->fd, err);
	if (ret)
		return ret;
	b->src[b->nr++] = src;
	return b->nr == SYNCS ? run_batch(w, b, err) : 0;
}

/* Calls @fn for every source that @e wrote to, whatever becomes of some. */
static int each_source(struct ck_edit *e,
		       int (*fn)(struct ck_writer *w, uint32_t src, void *ctx,
				 struct ck_err *err),
		       void *ctx, struct ck_err *err)
{
	struct ck_writer *w = e->w;
	int ret = 0;

	for (uint32_t i = 0; i <= w->img->nr_srcs / 64; i++) {
		uint64_t bits = atomic_load(&e->touched[i]);

		for (; bits; bits &= bits - 1) {
			uint32_t src = i * 64 + (uint32_t)__builtin_ctzll(bits);
			int one = fn(w, src, ctx, ret ? NULL : err);

			ret = ret ? ret : one;
		}
	}
	return ret;
}

static int flush_source(struct ck_writer *w, uint32_t src, void *ctx,
			struct ck_err *err)
{
	(void)ctx;
	return ck_sums_flush(w->sums, src, err);
}

static int unmark_one(struct ck_writer *w, uint32_t src, void *ctx,
		      struct ck_err *err)
{
	(void)ctx;
	(void)err;
	ck_sums_synced(w->sums, src);
	return 0;
}

int ck_edit_flush_checksums(struct ck_edit *e, struct ck_err *err)
{
	return each_source(e, flush_source, NULL, err);
}

int ck_edit_sync(struct ck_edit *e, struct ck_err *err)
{
	struct batch b = { .nr = 0 };
	int ret = ck_edit_flush_checksums(e, err), more;

	if (e->w->r->in.over) /* who has it syncs it */
		return ret;
	more = each_source(e, add_sync, &b, ret ? NULL : err);
	ret = ret ? ret : more;
	more = run_batch(e->w, &b, ret ? NULL : err);
	ret = ret ? ret : more;
	return ret ? ret : each_source(e, unmark_one, NULL, err);
}
