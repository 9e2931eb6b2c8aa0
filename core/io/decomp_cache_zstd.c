/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decomp_cache_zstd.c - one compressed item, as a stream, into its file
 *
 * The bytes are untrusted: the window is bounded, the output by what is wanted
 * of the item and by the room in the spool, and input that ends inside a frame is
 * refused.
 */
#include "core/io/decomp_cache_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/helpers.h"
#include "core/geom/chunk.h"
#include "core/geom/range.h"

#include <errno.h>
#include <string.h>
#include <zstd.h>

#define MAX_WINDOW_LOG 27 /* 128 MiB, what zstd itself allows unasked */
#define IN_LEN (UINT64_C(128) << 10)
#define OUT_LEN (UINT64_C(128) << 10)

/* ---- how much is wanted ---- */

/*
 * Up to where @c's bytes may lie in its source.  Of an item only its size is
 * known, which the elements and their description make up; else it is all known.
 */
static uint64_t end_of(const struct ck_catalog *img, const struct ck_chunk *c,
		       unsigned rank)
{
	struct ck_chunk_at at;
	uint64_t from, to;

	ck_chunk_at(img, NULL, rank, c, &at);
	if (!at.placed)
		return at.bytes;
	return ck_chunk_extent(&at, &from, &to) ? to : CK_SIZE_MAX;
}

uint64_t *ck_decomp_cache_wanted(const struct ck_catalog *img)
{
	uint64_t *end = calloc(img->nr_srcs + 1u, sizeof(*end));

	for (uint32_t i = 0; end && i < img->nr_tensors; i++) {
		const struct ck_tensor *t = &img->tensors[i];

		for (uint32_t k = t->first; k < t->first + t->nr_all; k++) {
			const struct ck_chunk *c = &img->chunks[k];
			uint64_t *to = &end[c->src];

			if (img->srcs[c->src].kind == CK_SRC_CODEC)
				*to = CK_MAX(*to, end_of(img, c, t->grid_rank));
		}
	}
	for (uint32_t i = 0; end && i < img->nr_objects; i++) {
		const struct ck_object *o = &img->objects[i];

		end[o->src] = CK_MAX(end[o->src], o->off + o->len);
	}
	for (uint32_t i = 0; end && i < img->nr_srcs; i++)
		end[i] += CK_MAX_ITEM_REST;
	return end;
}

/* ---- the stream ---- */

struct stream {
	struct ck_decomp_cache *sp;
	struct ck_decomp_item *item;
	const struct ck_src *src;
	const char *name; /* of the file it is in */
	ZSTD_DStream *z;
	unsigned char *in, *out;
	size_t hint; /* 0: at the end of a frame */
	uint64_t most; /* bytes that it may unpack to */
	struct ck_err *err;
};

/* The bytes themselves are wrong, and will be next time. */
static int bad(const struct stream *st, uint64_t at, const char *what)
{
	struct ck_err line = { 0 };

	ck_fail(&line, EIO,
		"%s: compressed item at byte %llu: byte %llu of %llu: %s",
		st->name, (unsigned long long)st->src->off,
		(unsigned long long)at, (unsigned long long)st->src->len, what);
	st->item->bad = strdup(line.msg);
	return ck_fail(st->err, EIO, "%s", line.msg);
}

static int write_out(const struct stream *st, size_t len)
{
	uint64_t at = st->item->len;
	size_t done = 0;

	if (!ck_decomp_cache_reserve(st->sp, st->item, len))
		return ck_fail(st->err, EIO,
			       "%s: compressed item at byte %llu needs more "
			       "than the %llu bytes of the spool %s",
			       st->name, (unsigned long long)st->src->off,
			       (unsigned long long)st->sp->max, st->sp->path);
	while (done < len) {
		ssize_t n = pwrite(st->item->fd, st->out + done, len - done,
				   (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ck_fail(st->err, EIO,
				       "spool %s: %s; -o spool=DIR",
				       st->sp->path,
				       n ? strerror(errno) : "short write");
		done += (size_t)n;
	}
	ck_stat_add(&st->sp->r->stats.spooled_bytes, len);
	return 0;
}

/* @len bytes of input, which begin at byte @at of the item. */
static int feed(struct stream *st, size_t len, uint64_t at)
{
	ZSTD_inBuffer in = { st->in, len, 0 };
	bool more = true;

	while (in.pos < in.size || more) {
		ZSTD_outBuffer out = { st->out, OUT_LEN, 0 };
		size_t before = in.pos;
		int ret;

		/* At the end of a frame more input begins another. */
		if (in.pos == in.size && st->hint == 0 && before)
			break;
		st->hint = ZSTD_decompressStream(st->z, &out, &in);
		if (ZSTD_isError(st->hint))
			return bad(st, at + before,
				   ZSTD_getErrorName(st->hint));
		if (out.pos > st->most - st->item->len)
			return bad(st, at + before,
				   "it unpacks to more than the tensor has");
		if (ck_stopped())
			return ck_fail(st->err, EINTR,
				       "%s: unpacking was interrupted",
				       st->name);
		ret = write_out(st, out.pos);
		if (ret)
			return ret;
		more = out.pos == OUT_LEN;
		if (in.pos == before && !out.pos && in.pos < in.size)
			return bad(st, at + before, "no progress");
	}
	return 0;
}

static int decode(struct stream *st)
{
	struct ck_bytes b;
	uint64_t at = 0;
	int ret = ck_bytes_get(st->sp->r, st->src->parent, &b, st->err);

	if (ret)
		return ret;
	if (!ck_range_ok(st->src->off, st->src->len, b.len) || !st->src->len)
		ret = bad(st, 0, "lies outside of its file");
	while (!ret && at < st->src->len) {
		uint64_t n = CK_MIN(IN_LEN, st->src->len - at);

		ret = ck_bytes_read(st->sp->r, &b, st->in, n, st->src->off + at,
				    st->err);
		if (!ret)
			ret = feed(st, n, at);
		at += n;
	}
	if (!ret && st->hint)
		ret = bad(st, at, "ends inside a frame");
	ck_bytes_put(st->sp->r, &b);
	return ret;
}

int ck_decomp_cache_decode(struct ck_decomp_cache *sp,
			   struct ck_decomp_item *item, struct ck_err *err)
{
	const struct ck_src *src = &sp->r->in.img->srcs[item->src];
	struct stream st = { .sp = sp,
			     .item = item,
			     .src = src,
			     .name = ck_bytes_name(sp->r, item->src),
			     .hint = 1,
			     .most = sp->wanted[item->src],
			     .err = err };
	ck_auto_free unsigned char *buf = malloc(IN_LEN + OUT_LEN);
	int ret;

	if (src->codec != CK_CODEC_ZSTD)
		return ck_fail(err, EIO, "%s: unknown compression %u", st.name,
			       src->codec);
	st.z = ZSTD_createDStream();
	st.in = buf;
	st.out = buf + IN_LEN;
	if (!buf || !st.z)
		ret = ck_no_memory(err);
	else if (ZSTD_isError(ZSTD_DCtx_setParameter(st.z, ZSTD_d_windowLogMax,
						     MAX_WINDOW_LOG)))
		ret = ck_fail(err, EIO, "zstd: no limit of the window");
	else
		ret = decode(&st);
	ZSTD_freeDStream(st.z);
	return ret;
}
