/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_frame.c - what lies around the pieces in the files of a plan
 *
 * safetensors: a header that names all of them, and fillers where they are
 * apart.  DCP: each piece is the elements of a torch.save archive, with a CRC-32
 * of them.  Slices may be written in any order and anew, and by several; then no
 * sum can follow, and what was written is read once more, by several threads, a
 * file each.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/crc32.h"
#include "core/base/limits.h"
#include "core/base/pool.h"
#include "core/base/whole.h"
#include "core/emit/st_out.h"
#include "core/emit/torch_blob.h"
#include "core/layout/write.h"
#include "core/geom/dtype.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static void report_piece(const struct ck_slice_plan *p,
			 const struct ck_slice_plan_piece *x, uint64_t data,
			 struct ck_str *s)
{
	const struct ck_slice_plan_tensor *t = &p->tensors[x->tensor];
	const uint64_t *shape = p->dims + x->dims + 2 * (size_t)t->grid_rank;
	uint64_t flat = x->len / ck_dtype_info(t->dtype)->size;

	const char *name = ck_slice_plan_str(p, t->name);

	ck_st_out_entry(s, name, strlen(name), t->dtype,
			x->flat ? &flat : shape, x->flat ? 1 : t->grid_rank,
			x->off - data, x->len);
}

int ck_slice_plan_header(const struct ck_slice_plan *p, uint32_t f,
			 struct ck_str *out, struct ck_err *err)
{
	static const char metadata[] = "{\"format\":\"pt\"}";
	const struct ck_slice_plan_file *file = &p->files[f];
	uint64_t at = file->data, len;
	unsigned fillers = 0;
	char name[64];

	ck_str_add(out, "\0\0\0\0\0\0\0", CK_ST_OUT_LEN);
	ck_st_out_begin(out, metadata, sizeof(metadata) - 1);
	for (uint32_t i = 0; i < file->nr; i++) {
		const struct ck_slice_plan_piece *x =
			&p->pieces[file->first + i];

		/* the format allows no gaps */
		if (x->off > at) {
			uint64_t gap = x->off - at;

			snprintf(name, sizeof(name), CK_LAYOUT_FILLER "%u",
				 fillers++);
			ck_st_out_entry(out, name, strlen(name), CK_DT_U8, &gap,
					1, at - file->data, gap);
		}
		report_piece(p, x, file->data, out);
		at = x->off + x->len;
	}
	ck_str_puts(out, "}");
	while (!out->failed && out->len < file->data)
		ck_str_puts(out, " ");
	if (out->failed)
		return ck_no_memory(err);
	if (out->len > CK_MAX_HEADER)
		return ck_fail(err, E2BIG,
			       "%s: its header would have %zu bytes, of at "
			       "most %" PRIu64,
			       ck_slice_plan_str(p, file->name), out->len,
			       CK_MAX_HEADER);
	len = htole64(out->len - 8);
	memcpy(out->v, &len, sizeof(len));
	return 0;
}

int ck_slice_plan_blob(const struct ck_slice_plan *p,
		       const struct ck_slice_plan_piece *x, uint32_t crc,
		       struct ck_torch_blob *out, struct ck_err *err)
{
	const struct ck_slice_plan_tensor *t = &p->tensors[x->tensor];
	const uint64_t *len = p->dims + x->dims + t->grid_rank;

	*out = (struct ck_torch_blob){ .crc = crc };
	return ck_torch_blob_make(out, t->dtype, len, t->rank) ?
		       ck_no_memory(err) :
		       0;
}

/* Of one piece, in an archive. */
static int put_blob(const struct ck_slice_plan *p, uint32_t piece, uint32_t crc,
		    ck_slice_plan_put_fn put, void *ctx, struct ck_err *err)
{
	const struct ck_slice_plan_piece *x = &p->pieces[piece];
	struct ck_torch_blob b;
	int ret = ck_slice_plan_blob(p, x, crc, &b, err);

	if (!ret && x->off < b.head.len)
		ret = ck_fail(err, EINVAL, "plan of slices: no room for %s",
			      ck_slice_plan_str(p, p->tensors[x->tensor].name));
	if (!ret)
		ret = put(ctx, x->off - b.head.len, b.head.v, b.head.len, err);
	if (!ret)
		ret = put(ctx, x->off + x->len, b.tail.v, b.tail.len, err);
	ck_torch_blob_free(&b);
	return ret;
}

int ck_slice_plan_frame(const struct ck_slice_plan *p, uint32_t f,
			ck_slice_plan_put_fn put, void *ctx, struct ck_err *err)
{
	const struct ck_slice_plan_file *file = &p->files[f];
	ck_auto_str struct ck_str head = { 0 };
	int ret = 0;

	if (!p->dcp) {
		ret = ck_slice_plan_header(p, f, &head, err);
		return ret ? ret : put(ctx, 0, head.v, head.len, err);
	}
	for (uint32_t i = file->first; i < file->first + file->nr && !ret; i++)
		ret = put_blob(p, i, 0, put, ctx, err);
	return ret;
}

/* ---- into the shards ---- */

static int put_bytes(void *ctx, uint64_t off, const void *bytes, size_t len,
		     struct ck_err *err)
{
	int ret = ck_pwrite_whole(*(const int *)ctx, bytes, len, off);

	return ret ? ck_fail(err, -ret, "%s", strerror(-ret)) : 0;
}

int ck_slices_frames(const struct ck_slices *sl, uint32_t file, int fd,
		     struct ck_err *err)
{
	int ret = ck_slice_plan_frame(&sl->plan, file, put_bytes, &fd, err);

	return ck_wrap(err, ret, "%s: %s", CK_DRAFT_NAME(sl->draft),
		       ck_slices_file_name(sl, file));
}

static int crc_of(const struct ck_slice_plan_piece *p, int fd, uint32_t *crc)
{
	ck_auto_free void *buf = malloc(CK_SLICES_BUFFER);
	int ret = buf ? 0 : -ENOMEM;

	*crc = 0;
	for (uint64_t at = 0, len; at < p->len && !ret; at += len) {
		len = CK_MIN(CK_SLICES_BUFFER, p->len - at);
		ret = ck_pread_whole(fd, buf, len, p->off + at);
		if (!ret)
			*crc = ck_crc32(*crc, buf, len);
	}
	return ret;
}

int ck_slices_frame(const struct ck_slices *sl, uint32_t piece,
		    const uint32_t *crc, int fd, struct ck_err *err)
{
	const struct ck_slice_plan_piece *p = &sl->plan.pieces[piece];
	uint32_t sum = crc ? *crc : 0;
	int ret = crc ? 0 : crc_of(p, fd, &sum);

	if (ret)
		return ck_slices_fail(sl, p->file, -ret, err);
	ret = put_blob(&sl->plan, piece, sum, put_bytes, &fd, err);
	return ck_wrap(err, ret, "%s: %s", CK_DRAFT_NAME(sl->draft),
		       ck_slices_file_name(sl, p->file));
}

struct job {
	struct ck_slices *sl;
	_Atomic uint32_t next;
	_Atomic int stop; /* -errno */
	pthread_mutex_t lock;
	struct ck_err why;
};

/* Also of ranks that hold nothing; and what a crash left without a header. */
static int frame_file(struct ck_slices *sl, uint32_t file, struct ck_err *err)
{
	const struct ck_slice_plan_file *f = &sl->plan.files[file];
	ck_auto_fd int fd = -1;
	int ret = 0;

	if (sl->told[file].good)
		return 0;
	fd = ck_slices_shard(sl, file, true, err);
	if (fd < 0)
		return fd;
	if (!sl->plan.dcp)
		return ck_slices_frames(sl, file, fd, err);
	for (uint32_t i = f->first; i < f->first + f->nr && !ret; i++)
		ret = ck_slices_frame(sl, i, NULL, fd, err);
	return ret;
}

static void work(void *ctx)
{
	struct job *j = ctx;
	struct ck_err err = { 0 };
	uint32_t i;

	while (!j->stop && (i = j->next++) < j->sl->plan.nr_files) {
		int ret = frame_file(j->sl, i, &err);

		if (!ret)
			continue;
		pthread_mutex_lock(&j->lock);
		if (!j->stop)
			j->why = err;
		j->stop = ret;
		pthread_mutex_unlock(&j->lock);
	}
}

int ck_slices_frame_all(struct ck_slices *sl, struct ck_err *err)
{
	struct job j = { .sl = sl };
	const struct ck_pool_in pool = { .ctx = &j, .work = work };

	pthread_mutex_init(&j.lock, NULL);
	ck_pool_run(&pool);
	pthread_mutex_destroy(&j.lock);
	return j.stop ? ck_fail_as(err, &j.why) : 0;
}
