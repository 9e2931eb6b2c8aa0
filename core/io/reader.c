/* SPDX-License-Identifier: Apache-2.0 */
/* reader.c - the public calls of read.h */
#include "core/root/fault.h"
#include "core/io/checked.h"
#include "core/io/read_priv.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <stdlib.h>

#define DEFAULT_CACHE (UINT64_C(64) << 20)
#define PIECE (UINT64_C(4) << 20) /* bytes of a request walked at once */
#define MAX_TRIES 32 /* of a read whose files are touched meanwhile */

static bool open_files(struct ck_reader *r, const struct ck_reader_in *in)
{
	struct ck_files_in files = {
		.root = in->root,
		.img = in->img,
		.max = in->max_files,
	};

	files.self_writes = r->self_writes = ck_self_writes_new(in->img);
	if (!r->self_writes)
		return false;
	if (in->write) {
		files.write = !in->over;
		r->wfiles = ck_files_new(&files);
		r->helper = ck_write_helper_new(!in->unaided);
		if (!r->wfiles || !r->helper)
			return false;
	}
	files.write = false;
	r->files = ck_files_new(&files);
	return r->files;
}

/* ck_resolve_fn; @ctx is the struct ck_reader. */
static int resolve(void *ctx, uint32_t chunk, struct ck_err *err)
{
	struct ck_reader *r = ctx;
	int ret = r->in.resolve(r->in.resolve_ctx, chunk, err);

	if (!ret)
		ck_stat_add(&r->stats.resolved, 1);
	return ret;
}

int ck_reader_new(struct ck_reader **out, const struct ck_reader_in *in,
		  struct ck_err *err)
{
	struct ck_reader *r = calloc(1, sizeof(*r));
	int ret = r ? ck_fault_from_env(err) : ck_no_memory(err);

	if (ret) {
		free(r);
		return ret;
	}
	r->in = *in;
	pthread_mutex_init(&r->touch_lock, NULL);
	r->tiles =
		ck_tiles_new(r, in->cache_mem ? in->cache_mem : DEFAULT_CACHE);
	r->told = calloc(in->img->nr_chunks / 64 + 1, sizeof(*r->told));
	if (!open_files(r, in) || !r->tiles || !r->told)
		ret = ck_no_memory(err);
	else
		ret = ck_decomp_cache_new(&r->spool, r,
					  in->spool_dir ? in->spool_dir :
							  "/var/tmp",
					  in->spool_max, err);
	if (ret) {
		ck_reader_free(r);
		return ret;
	}
	if (in->resolve)
		ck_resolved_by(in->resolved, resolve, r);
	*out = r;
	return 0;
}

void ck_reader_free(struct ck_reader *r)
{
	if (!r)
		return;
	ck_tiles_free(r->tiles);
	ck_decomp_cache_free(r->spool);
	ck_files_free(r->files);
	ck_files_free(r->wfiles);
	ck_self_writes_free(r->self_writes);
	ck_write_helper_free(r->helper);
	pthread_mutex_destroy(&r->touch_lock);
	free((void *)r->told);
	free(r);
}

int ck_reader_nameless_file(struct ck_reader *r, int *fd, struct ck_err *err)
{
	return ck_decomp_cache_nameless(r->spool, fd, err);
}

const struct ck_read_stats *ck_reader_stats(const struct ck_reader *r)
{
	return &r->stats;
}

void ck_reader_count_cache(struct ck_reader *r, uint64_t opens, uint64_t bytes,
			   uint64_t filled)
{
	atomic_fetch_add(&r->stats.cache_opens, opens);
	atomic_fetch_add(&r->stats.cache_bytes, bytes);
	atomic_fetch_add(&r->stats.cache_filled, filled);
}

const struct ck_reader_in *ck_reader_settings(const struct ck_reader *r)
{
	return &r->in;
}

static int out_of_range(const struct ck_reader *r, uint32_t t, uint64_t len,
			uint64_t off, struct ck_err *err)
{
	const struct ck_catalog *img = r->in.img;
	const struct ck_tensor *ten = &img->tensors[t];

	return ck_fail(err, EINVAL,
		       "%s: bytes %llu to %llu were asked for, but it has "
		       "%llu",
		       ck_catalog_str(img, ten->name, NULL),
		       (unsigned long long)off, (unsigned long long)(off + len),
		       (unsigned long long)ten->size);
}

static int walk_bytes(struct ck_walk *w, uint64_t off, struct ck_err *err)
{
	const struct ck_reader_in *in = &w->r->in;
	struct ck_cursor cur;

	w->s = ck_scratch_mine();
	if (!w->s)
		return ck_no_memory(err);
	ck_cursor_init(&cur, in->img, in->resolved, &in->img->tensors[w->t],
		       off, w->len);
	w->cur = &cur;
	return ck_walk_run(w, err);
}

int ck_reader_fill(struct ck_reader *r, uint32_t t, unsigned char *buf,
		   uint64_t len, uint64_t off, struct ck_srcset *srcs,
		   struct ck_err *err)
{
	struct ck_walk w = {
		.r = r, .t = t, .buf = buf, .len = len, .srcs = srcs
	};

	return walk_bytes(&w, off, err);
}

uint64_t ck_reader_touches(const struct ck_reader *r)
{
	return ck_self_writes_touches(r->self_writes);
}

static void forget(struct ck_reader *r, uint32_t src)
{
	if (r->in.checked)
		ck_checked_forget(r->in.checked, src);
	ck_decomp_cache_forget(r->spool, src);
	if (r->in.touched)
		r->in.touched(r->in.touched_ctx, src);
	ck_stat_add(&r->stats.touched, 1);
}

uint64_t ck_reader_forget_touched(struct ck_reader *r)
{
	uint64_t nr = ck_reader_touches(r);

	if (nr == atomic_load(&r->forgotten))
		return nr;
	pthread_mutex_lock(&r->touch_lock);
	nr = ck_reader_touches(r);
	for (uint32_t i = 0; i < r->in.img->nr_srcs; i++)
		if (ck_self_writes_take_touch(r->self_writes, i))
			forget(r, i);
	atomic_store(&r->forgotten, nr);
	pthread_mutex_unlock(&r->touch_lock);
	return nr;
}

/*
 * Around a read: true until none of its files was found to be touched meanwhile,
 * for it may have bytes of before and of after; or -ESTALE, in the end.
 */
struct attempt {
	unsigned nr;
	uint64_t touches;
};
static bool try(struct ck_reader *r, struct attempt *a, int *ret,
		struct ck_err *err)
{
	if (a->nr && a->touches == ck_reader_touches(r))
		return false;
	if (a->nr++ == MAX_TRIES) {
		*ret = ck_fail(err, ESTALE,
			       "what is read changes faster than it is read");
		return false;
	}
	a->touches = ck_reader_forget_touched(r);
	return true;
}

static int read_once(struct ck_reader *r, uint32_t t, unsigned char *buf,
		     uint64_t len, uint64_t off, struct ck_err *err)
{
	struct ck_walk w = {
		.r = r, .t = t, .buf = buf, .len = len, .may_tile = true
	};
	int ret = walk_bytes(&w, off, err);

	if (ret != -EREMOTE)
		return ret;
	if (!ck_tiles_read(r->tiles, t, w.tile_chunk, buf, len, off))
		return 0;
	w.may_tile = false;
	return walk_bytes(&w, off, err);
}

static int read_piece(struct ck_reader *r, uint32_t t, unsigned char *buf,
		      uint64_t len, uint64_t off, struct ck_err *err)
{
	struct attempt a = { 0 };
	int ret = 0;

	while (try(r, &a, &ret, err))
		ret = read_once(r, t, buf, len, off, err);
	return ret;
}

const uint32_t ck_took_us[CK_TOOK_NR - 1] = {
	30,    100,    300,    1000,	3000,	 10000,
	30000, 100000, 300000, 1000000, 3000000,
};

static int count(struct ck_reader *r, uint64_t len, int64_t began, int ret)
{
	uint64_t took = (uint64_t)(ck_now_ns() - began);
	unsigned i = 0;

	while (i < CK_TOOK_NR - 1 && took > ck_took_us[i] * UINT64_C(1000))
		i++;
	ck_stat_add(&r->stats.took[i], 1);
	ck_stat_add(&r->stats.read_ns, took);
	ck_stat_add(&r->stats.reads, 1);
	ck_stat_add(ret ? &r->stats.failed : &r->stats.bytes, ret ? 1 : len);
	return ret;
}

int ck_reader_read(struct ck_reader *r, uint32_t t, void *buf, uint64_t len,
		   uint64_t off, struct ck_err *err)
{
	int64_t began = ck_now_ns();
	int ret = 0;

	if (!ck_range_ok(off, len, r->in.img->tensors[t].size))
		return out_of_range(r, t, len, off, err);
	for (uint64_t at = 0; !ret && at < len; at += PIECE)
		ret = read_piece(r, t, (unsigned char *)buf + at,
				 CK_MIN(PIECE, len - at), off + at, err);
	return count(r, len, began, ret);
}

/* Bytes of the elements of @box; false: it does not lie in the tensor. */
static bool box_bytes(const struct ck_catalog *img, const struct ck_tensor *ten,
		      const struct ck_box *box, uint64_t *bytes)
{
	if (box->rank != ten->rank)
		return false;
	for (unsigned i = 0; i < box->rank; i++)
		if (!ck_range_ok(box->start[i], box->len[i],
				 img->dims[ten->shape + i]))
			return false;
	*bytes = ck_box_volume(box) * ck_dtype_info(ten->dtype)->size;
	return true;
}

static int read_box_piece(struct ck_reader *r, uint32_t t,
			  const struct ck_box *box, unsigned char *buf,
			  uint64_t len, uint64_t off, struct ck_err *err)
{
	const struct ck_catalog *img = r->in.img;
	struct attempt a = { 0 };
	struct ck_cursor cur;
	struct ck_walk w = { .r = r,
			     .s = ck_scratch_mine(),
			     .t = t,
			     .cur = &cur,
			     .buf = buf,
			     .len = len };
	int ret = 0;

	if (!w.s)
		return ck_no_memory(err);
	while (try(r, &a, &ret, err)) {
		ck_cursor_init_box_bytes(&cur, img, r->in.resolved,
					 &img->tensors[t], box, off, len);
		ret = ck_walk_run(&w, err);
	}
	return ret;
}

int ck_reader_read_box_bytes(struct ck_reader *r, uint32_t t,
			     const struct ck_box *box, void *buf, uint64_t len,
			     uint64_t off, struct ck_err *err)
{
	const struct ck_catalog *img = r->in.img;
	const struct ck_tensor *ten = &img->tensors[t];
	int64_t began = ck_now_ns();
	uint64_t all;
	int ret = 0;

	if (!box_bytes(img, ten, box, &all) || !ck_range_ok(off, len, all))
		return ck_fail(err, EINVAL, "%s: no such part of it",
			       ck_catalog_str(img, ten->name, NULL));
	for (uint64_t at = 0; !ret && at < len; at += PIECE)
		ret = read_box_piece(r, t, box, (unsigned char *)buf + at,
				     CK_MIN(PIECE, len - at), off + at, err);
	return count(r, len, began, ret);
}

int ck_reader_read_box(struct ck_reader *r, uint32_t t,
		       const struct ck_box *box, void *buf, uint64_t len,
		       struct ck_err *err)
{
	const struct ck_catalog *img = r->in.img;
	const struct ck_tensor *ten = &img->tensors[t];
	uint64_t all;

	if (!box_bytes(img, ten, box, &all) || all != len)
		return ck_fail(err, EINVAL, "%s: no such part of it",
			       ck_catalog_str(img, ten->name, NULL));
	return ck_reader_read_box_bytes(r, t, box, buf, len, 0, err);
}

int ck_reader_source(struct ck_reader *r, uint32_t src, void *buf, uint64_t len,
		     uint64_t off, struct ck_err *err)
{
	struct attempt a = { 0 };
	struct ck_bytes b;
	int ret = 0;

	while (try(r, &a, &ret, err)) {
		ret = ck_bytes_get(r, src, &b, err);
		if (ret)
			continue;
		ret = ck_bytes_read(r, &b, buf, len, off, err);
		ck_bytes_put(r, &b);
	}
	return ret;
}

int ck_reader_look(struct ck_reader *r, uint32_t src)
{
	struct ck_bytes b;
	int ret = ck_bytes_get(r, src, &b, NULL);

	if (!ret)
		ck_bytes_put(r, &b);
	return ret;
}

int ck_reader_source_size(struct ck_reader *r, uint32_t src, uint64_t *size,
			  struct ck_err *err)
{
	const struct ck_src *s = &r->in.img->srcs[src];
	struct ck_bytes b;
	int ret;

	if (s->kind == CK_SRC_FILE || s->kind == CK_SRC_MEM) {
		*size = s->len;
		return 0;
	}
	ret = ck_bytes_get(r, src, &b, err);
	if (ret)
		return ret;
	*size = b.len;
	ck_bytes_put(r, &b);
	return 0;
}
