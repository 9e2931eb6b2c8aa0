/* SPDX-License-Identifier: Apache-2.0 */
#include "core/io/read_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <string.h>

const char *ck_bytes_name(const struct ck_reader *r, uint32_t src)
{
	const struct ck_catalog *img = r->in.img;
	unsigned hops = 0;

	while (img->srcs[src].kind == CK_SRC_CODEC && hops++ < 2)
		src = img->srcs[src].parent;
	if (img->srcs[src].kind == CK_SRC_MEM)
		return "(bytes of the index)";
	return ck_catalog_str(img, img->srcs[src].name, NULL);
}

void ck_bytes_place(const struct ck_reader *r, uint32_t src, uint64_t off,
		    struct ck_err *err)
{
	const struct ck_src *s = &r->in.img->srcs[src];

	if (s->kind == CK_SRC_CODEC) /* @off is of what it was decoded to */
		off = s->off;
	if (s->kind != CK_SRC_MEM)
		ck_err_place(err, ck_bytes_name(r, src), off);
}

static int get_mem(struct ck_reader *r, struct ck_bytes *b, struct ck_err *err)
{
	const struct ck_catalog *img = r->in.img;
	const struct ck_src *s = &img->srcs[b->src];

	if (!ck_range_ok(s->off, s->len, img->blob_len))
		return ck_fail(err, EIO, "source %u lies outside of the image",
			       b->src);
	b->mem = img->blob + s->off;
	b->len = s->len;
	return 0;
}

int ck_bytes_get(struct ck_reader *r, uint32_t src, struct ck_bytes *b,
		 struct ck_err *err)
{
	const struct ck_src *s = &r->in.img->srcs[src];

	*b = (struct ck_bytes){ .src = src, .fd = -1 };
	switch (s->kind) {
	case CK_SRC_FILE:
		b->len = s->id.size;
		if (r->in.made)
			return 0;
		return ck_files_get(r->files, src, &b->fd, err);
	case CK_SRC_MEM:
		return get_mem(r, b, err);
	case CK_SRC_CODEC:
		return ck_decomp_cache_get(r->spool, src, b, err);
	case CK_SRC_ABSENT:
		return ck_fail_at(err, EIO, ck_bytes_name(r, src), CK_NOWHERE,
				  "%s: is not here", ck_bytes_name(r, src));
	default:
		return ck_fail(err, EOPNOTSUPP,
			       "source %u: kind %u cannot be read", src,
			       s->kind);
	}
}

int ck_bytes_recheck(struct ck_reader *r, const struct ck_bytes *b,
		     struct ck_err *err)
{
	if (r->in.img->srcs[b->src].kind != CK_SRC_FILE || r->in.made)
		return 0;
	return ck_files_recheck(r->files, b->src, b->fd, err);
}

void ck_bytes_put(struct ck_reader *r, struct ck_bytes *b)
{
	if (b->spooled)
		ck_decomp_cache_put(r->spool, b->spooled);
	else if (b->fd >= 0)
		ck_files_put(r->files, b->src);
	*b = (struct ck_bytes){ .fd = -1 };
}

int ck_bytes_fail(const struct ck_reader *r, const struct ck_bytes *b,
		  uint64_t off, uint64_t len, int code, struct ck_err *err)
{
	ck_fail(err, code, "%s: %llu bytes at byte %llu: %s",
		ck_bytes_name(r, b->src), (unsigned long long)len,
		(unsigned long long)off, strerror(code));
	if (err)
		ck_bytes_place(r, b->src, off, err);
	return -code;
}

int ck_bytes_read(struct ck_reader *r, const struct ck_bytes *b, void *buf,
		  uint64_t len, uint64_t off, struct ck_err *err)
{
	struct iovec iov = { buf, len };
	struct ck_io io = { .fd = b->fd,
			    .src = b->src,
			    .off = off,
			    .len = len,
			    .iov = &iov,
			    .nr_iov = 1 };
	struct ck_err why;

	if (!ck_range_ok(off, len, b->len)) {
		ck_fail(err, EIO,
			"%s: expected %llu bytes at byte %llu, but it has %llu",
			ck_bytes_name(r, b->src), (unsigned long long)len,
			(unsigned long long)off, (unsigned long long)b->len);
		if (err)
			ck_bytes_place(r, b->src, CK_MAX(off, b->len), err);
		return -EIO;
	}
	if (b->mem) {
		memcpy(buf, b->mem + off, len);
		return 0;
	}
	ck_fetch(r, &io, 1, &why);
	ck_stat_add(&r->stats.source_reads, 1);
	ck_stat_add(&r->stats.source_bytes, len);
	if (io.res && why.code)
		return ck_fail_as(err, &why);
	if (io.res)
		return ck_bytes_fail(r, b, off, len, -io.res, err);
	return ck_bytes_recheck(r, b, err);
}
