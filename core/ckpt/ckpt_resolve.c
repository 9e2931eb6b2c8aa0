/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_resolve.c - where the bytes of a deferred item are
 *
 * A DCP item is a torch.save archive of one tensor: its payload may be
 * strided, and its archive is as untrusted as the index.  What the item says
 * must agree with what the index says, or its bytes are never served.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/check.h"
#include "core/base/search.h"
#include "core/container/torch_item.h"
#include "core/geom/chunk.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_LOOKS 256 /* files */

/* A source of the reader, as item parsers see it. */
struct reader_source {
	struct ck_source base;
	struct ck_reader *reader;
	uint32_t src;
};

static int reader_read_at(struct ck_source *s, void *buf, size_t len,
			  uint64_t off, struct ck_err *err)
{
	struct reader_source *rs = (struct reader_source *)s;

	return ck_reader_source(rs->reader, rs->src, buf, len, off, err);
}

static void reader_close(struct ck_source *s)
{
	(void)s; /* it lies on the stack */
}

static const struct ck_source_ops reader_ops = {
	.read_at = reader_read_at,
	.close = reader_close,
};

/* The tensor that chunk number @chunk belongs to. */
uint32_t ck_ckpt_tensor_of(const struct ck_catalog *img, uint32_t chunk)
{
	/* Chunks lie in the order of their tensors: ck_ckpt_serve() saw to it. */
	uint32_t t =
		CK_LAST(i, 0, img->nr_tensors, img->tensors[i].first <= chunk);

	while (t > 0 && !img->tensors[t].nr_all)
		t--;
	return t;
}

uint64_t ck_ckpt_item_len(const struct ck_catalog *img, uint32_t chunk)
{
	const struct ck_tensor *t =
		&img->tensors[ck_ckpt_tensor_of(img, chunk)];

	return ck_chunk_item(img, t->grid_rank, &img->chunks[chunk]);
}

/* What the index says of a chunk, as far as its item must agree. */
struct claim {
	const char *file; /* that the item is in, and where of it if packed */
	const struct ck_layout *layout;
	const uint64_t *lens;
	uint64_t flat_len, off, len;
	unsigned rank;
};

static int dims_line(char *to, size_t size, const uint64_t *v, unsigned nr)
{
	int n = snprintf(to, size, "[");

	for (unsigned i = 0; i < nr && n < (int)size - 24; i++)
		n += snprintf(to + n, size - (size_t)n, "%s%" PRIu64,
			      i ? ", " : "", v[i]);
	return n + snprintf(to + n, size - (size_t)n, "]");
}

static int bad_shape(const struct claim *c, const struct ck_torch_item *item,
		     struct ck_err *err)
{
	char want[256], got[256];

	dims_line(want, sizeof(want), c->lens, c->rank);
	dims_line(got, sizeof(got), item->shape, item->rank);
	return ck_fail(err, EINVAL,
		       "%s: the index says %s, the item at byte "
		       "%" PRIu64 " holds %s",
		       c->file, want, c->off, got);
}

static bool any_zero(const uint64_t *v, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		if (!v[i])
			return true;
	return false;
}

static bool strides_of(const struct claim *c, const struct ck_torch_item *item,
		       int64_t *stride)
{
	if (c->layout->flags & CK_LAYOUT_FLAT)
		return ck_item_match_axes(item, &c->flat_len, 1, stride) &&
		       (c->flat_len <= 1 || stride[0] == 1);
	if (any_zero(c->lens, c->rank) && any_zero(item->shape, item->rank)) {
		memset(stride, 0, c->rank * sizeof(*stride));
		return true;
	}
	return ck_item_match_axes(item, c->lens, c->rank, stride);
}

static int compare(const struct claim *c, const struct ck_torch_item *item,
		   struct ck_place *place, int64_t *stride, struct ck_err *err)
{
	const struct ck_dtype_info *want = ck_dtype_info(c->layout->dtype);
	const struct ck_dtype_info *got = ck_dtype_info(item->dtype);
	uint64_t skip;

	if (item->dtype != c->layout->dtype)
		return ck_fail(err, EINVAL,
			       "%s: the index says %s, the item at "
			       "byte %" PRIu64 " holds %s",
			       c->file, want->name, c->off, got->name);
	if (!strides_of(c, item, stride))
		return bad_shape(c, item, err);
	if (item->payload_off < c->off ||
	    !ck_range_ok(item->payload_off - c->off, item->payload_len,
			 c->len) ||
	    !ck_mul_ok(item->storage_offset, got->size, &skip) ||
	    skip > item->payload_len)
		return ck_fail(err, EINVAL,
			       "%s: the payload of the item at byte "
			       "%" PRIu64 " lies outside of it",
			       c->file, c->off);
	*place = (struct ck_place){
		.off = item->payload_off + skip,
		.stride = c->layout->flags & CK_LAYOUT_FLAT ? NULL : stride,
		.xform = item->xform,
	};
	return 0;
}

/* Failures that say nothing about the item: they may be gone next time. */
static bool may_pass(int ret)
{
	switch (-ret) {
	case EIO:
	case ESTALE:
	case ENOMEM:
	case ENOSPC:
	case EMFILE:
	case ENFILE:
	case EACCES:
	case EPERM:
	case EAGAIN:
	case EINTR:
		return true;
	default:
		return false;
	}
}

static int read_item(struct ck_ckpt *ck, uint32_t chunk, struct claim *claim,
		     struct ck_torch_item *item, struct ck_err *err)
{
	const struct ck_catalog *img = &ck->img;
	const struct ck_chunk *c = &img->chunks[chunk];
	struct reader_source s = {
		.base = { .ops = &reader_ops, .name = claim->file },
		.reader = ck->reader,
		.src = c->src,
	};
	uint64_t size;
	int ret = ck_reader_source_size(ck->reader, c->src, &size, err);

	if (ret)
		return ret;
	s.base.st.st_size = (off_t)size;
	s.base.st.st_mode = S_IFREG;
	if (img->srcs[c->src].kind !=
	    CK_SRC_FILE) /* decoded: it is all of it */
		claim->len = size - CK_MIN(claim->off, size);
	return ck_torch_item_read(&s.base, claim->off, claim->len, item, err);
}

static int name_item(const struct ck_catalog *img, uint32_t src,
		     struct ck_str *out, struct ck_err *err)
{
	const struct ck_src *s = &img->srcs[src];
	uint32_t name = ck_catalog_file_of(img, src);

	ck_str_puts(out, name == CK_NONE ? "(bytes of the index)" :
					   ck_catalog_str(img, name, NULL));
	if (s->kind == CK_SRC_CODEC)
		ck_str_fmt(out,
			   ": what the compressed item at byte %" PRIu64
			   " unpacks to",
			   s->off);
	return out->failed ? ck_no_memory(err) : 0;
}

static void report(struct ck_ckpt *ck, uint32_t chunk, const struct claim *c,
		   const struct ck_err *err)
{
	struct ck_runtime_problem p = {
		.tensor = ck_ckpt_tensor_of(&ck->img, chunk),
		.chunk = chunk,
		.off = c->off,
		.len = c->len,
		.reason = (char *)err->msg,
	};

	ck_runtime_problems_add(&ck->problems_found, &p);
}

static int settle(struct ck_ckpt *ck, uint32_t chunk, struct claim *claim,
		  struct ck_err *err)
{
	struct ck_torch_item item;
	struct ck_place place;
	int64_t stride[CK_MAX_RANK];
	ck_auto_str struct ck_str file = { 0 };
	int ret = name_item(&ck->img, ck->img.chunks[chunk].src, &file, err);

	claim->file = file.v;
	if (!ret)
		ret = read_item(ck, chunk, claim, &item, err);
	if (ret && may_pass(ret))
		return ret;
	if (!ret)
		ret = compare(claim, &item, &place, stride, err);
	if (!ret)
		return ck_resolved_put(ck->resolved, chunk, &place,
				       claim->rank);
	report(ck, chunk, claim, err);
	return ck_resolved_put_bad(ck->resolved, chunk, EIO);
}

static int resolve_here(struct ck_ckpt *ck, uint32_t chunk, struct ck_err *err)
{
	const struct ck_catalog *img = &ck->img;
	const struct ck_chunk *c = &img->chunks[chunk];
	const struct ck_tensor *t =
		&img->tensors[ck_ckpt_tensor_of(img, chunk)];
	struct claim claim = {
		.layout = &img->layouts[c->layout],
		.lens = img->dims + img->layouts[c->layout].len,
		.off = c->off,
		.len = ck_ckpt_item_len(img, chunk),
		.rank = t->grid_rank,
	};

	if (claim.layout->flags & CK_LAYOUT_FLAT) {
		const uint64_t *flat = img->dims + c->corner + t->grid_rank;

		claim.flat_len = flat[1] - flat[0];
	}
	return settle(ck, chunk, &claim, err);
}

int ck_ckpt_resolve_chunk(void *ctx, uint32_t chunk, struct ck_err *err)
{
	struct ck_ckpt *ck = ctx;
	uint64_t touches = ck_reader_touches(ck->reader);
	struct ck_err local;
	int ret;

	err = err ? err : &local;
	ret = ck->finder.find ? ck->finder.find(ck->finder.ctx, chunk, err) :
				resolve_here(ck, chunk, err);
	/* what was read of it may be old; whoever asked tries again */
	if (touches != ck_reader_touches(ck->reader))
		ck_resolved_forget(ck->resolved, chunk);
	return ret;
}

static bool is_as_described(struct ck_ckpt *ck, uint32_t src)
{
	const struct ck_src *s = &ck->img.srcs[src];

	if (s->kind == CK_SRC_CODEC)
		src = s->parent;
	else if (s->kind != CK_SRC_FILE || s->state != CK_OK)
		return true;
	return !ck_reader_look(ck->reader, src);
}

bool ck_ckpt_untouched(struct ck_ckpt *ck, uint32_t tensor)
{
	const struct ck_catalog *img = &ck->img;
	uint32_t first = 0, nr = img->nr_srcs;
	bool all = tensor == CK_NONE;

	if (ck->over)
		return ck_ckpt_untouched(ck->below.ck, CK_NONE);
	if (!all) {
		first = img->tensors[tensor].first;
		nr = img->tensors[tensor].nr_all;
	}
	if (nr > MAX_LOOKS)
		return false;
	for (uint32_t i = 0; i < nr; i++)
		if (!is_as_described(ck, all ? i : img->chunks[first + i].src))
			return false;
	return !ck_reader_forget_touched(ck->reader);
}

void ck_ckpt_on_touch(struct ck_ckpt *ck, const struct ck_ckpt_touched *call)
{
	ck->touched = *call;
}

void ck_ckpt_file_touched(void *ctx, uint32_t src)
{
	struct ck_ckpt *ck = ctx;
	const struct ck_catalog *img = &ck->img;

	for (uint32_t i = 0; i < img->nr_chunks; i++) {
		const struct ck_src *s = &img->srcs[img->chunks[i].src];

		if (img->chunks[i].src == src ||
		    (s->kind == CK_SRC_CODEC && s->parent == src))
			ck_resolved_forget(ck->resolved, i);
	}
	if (ck->touched.call)
		ck->touched.call(ck->touched.ctx, ck);
}

/* ---- items that another process finds ---- */

void ck_ckpt_find_items_by(struct ck_ckpt *ck,
			   const struct ck_item_finder *finder)
{
	ck->finder = *finder;
}

void ck_ckpt_find_item(struct ck_ckpt *ck, uint32_t chunk,
		       struct ck_found_item *out)
{
	const struct ck_catalog *img = &ck->img;
	struct ck_err err = { 0 };
	enum ck_resolved_state state = CK_RESOLVED_UNKNOWN;
	struct ck_place place;
	unsigned rank;

	*out = (struct ck_found_item){ .chunk = chunk, .ret = -EINVAL };
	if (chunk >= img->nr_chunks || !ck_ckpt_item_len(img, chunk))
		return;
	rank = img->tensors[ck_ckpt_tensor_of(img, chunk)].grid_rank;
	out->ret = ck_ckpt_resolve_chunk(ck, chunk, &err);
	if (!out->ret)
		state = ck_resolved_find(ck->resolved, chunk, &place, &err);
	if (!out->ret && state == CK_RESOLVED_UNKNOWN)
		out->ret = -err.code;
	out->bad = state == CK_RESOLVED_BAD;
	snprintf(out->why, sizeof(out->why), "%s", err.msg);
	out->off = err.file ? err.off : CK_NOWHERE;
	if (out->ret || out->bad)
		return;
	out->off = place.off;
	out->xform = place.xform;
	out->strided = place.stride;
	if (place.stride)
		memcpy(out->stride, place.stride, rank * sizeof(*place.stride));
}

/* Whether all elements of @chunk lie inside of its item, by these strides. */
static bool is_inside(const struct ck_catalog *img, uint32_t chunk,
		      const struct ck_found_item *item)
{
	const struct ck_chunk *c = &img->chunks[chunk];
	const struct ck_layout *l = &img->layouts[c->layout];
	const struct ck_tensor *t =
		&img->tensors[ck_ckpt_tensor_of(img, chunk)];
	const uint64_t *flat = img->dims + c->corner + t->grid_rank;
	const __int128 max = (__int128)CK_SIZE_MAX;
	__int128 low = item->off, high = low, elem;
	uint64_t volume = 1;

	if (item->off > CK_SIZE_MAX || item->xform > CK_XF_BYTESWAP)
		return false;
	elem = ck_dtype_info(l->dtype)->size;
	for (unsigned d = 0; d < t->grid_rank; d++) {
		uint64_t len = img->dims[l->len + d];
		__int128 far = item->strided && len ? item->stride[d] : 0;

		far *= len - 1;
		if (!ck_mul_ok(volume, len, &volume) || far < -max || far > max)
			return false;
		*(far < 0 ? &low : &high) += far * elem;
	}
	if (l->flags & CK_LAYOUT_FLAT) {
		if (item->strided)
			return false;
		volume = flat[1] - flat[0];
	}
	high += item->strided ? elem : (__int128)volume * elem;
	if (!volume)
		return true;
	/* Of what is decoded later nothing more is known yet. */
	if (img->srcs[c->src].kind == CK_SRC_CODEC)
		return low >= 0 && high <= (__int128)CK_SIZE_MAX;
	return low >= (__int128)c->off &&
	       high <= (__int128)c->off + ck_ckpt_item_len(img, chunk);
}

/* The byte that it names, if it is one of the item's, else where that begins. */
static void place_err(const struct ck_catalog *img,
		      const struct ck_found_item *item, struct ck_err *err)
{
	const struct ck_chunk *c = &img->chunks[item->chunk];
	const struct ck_src *s = &img->srcs[c->src];
	uint64_t len = ck_ckpt_item_len(img, item->chunk);

	if (s->kind == CK_SRC_FILE && err)
		ck_err_place(err, ck_catalog_str(img, s->name, NULL),
			     item->off >= c->off && item->off - c->off <= len ?
				     item->off :
				     c->off);
}

int ck_ckpt_put_item(struct ck_ckpt *ck, const struct ck_found_item *item,
		     struct ck_err *err)
{
	const struct ck_catalog *img = &ck->img;
	struct claim claim = { .off = 0 };
	struct ck_place place;
	struct ck_err why;

	if (item->chunk >= img->nr_chunks ||
	    !ck_ckpt_item_len(img, item->chunk))
		return ck_fail(err, EINVAL, "chunk %u is no item", item->chunk);
	ck_fail(err, item->ret ? -item->ret : EIO, "%.*s",
		(int)strnlen(item->why, sizeof(item->why)), item->why);
	place_err(img, item, err);
	if (item->ret)
		return item->ret < 0 && item->ret > -4096 ? item->ret : -EIO;
	if (!item->bad && is_inside(img, item->chunk, item)) {
		place = (struct ck_place){
			.off = item->off,
			.xform = item->xform,
			.stride = item->strided ? item->stride : NULL,
		};
		return ck_resolved_put(
			ck->resolved, item->chunk, &place,
			img->tensors[ck_ckpt_tensor_of(img, item->chunk)]
				.grid_rank);
	}
	if (!item->bad)
		ck_fail(err, EIO, "the parser says that it lies elsewhere");
	ck_fail(&why, EIO, "%s", err ? err->msg : item->why);
	claim.off = img->chunks[item->chunk].off;
	claim.len = ck_ckpt_item_len(img, item->chunk);
	report(ck, item->chunk, &claim, &why);
	return ck_resolved_put_bad(ck->resolved, item->chunk, EIO);
}
