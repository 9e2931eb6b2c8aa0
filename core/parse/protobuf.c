/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf.c - a window that moves over the wire form; see protobuf.h */
#include "core/parse/protobuf.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_VARINT 10 /* bytes of 64 bits by sevens */
#define MAX_NUMBER ((UINT32_C(1) << 29) - 1)

void ck_pb_init(struct ck_pb *pb, const struct ck_pb_in *in, uint64_t end)
{
	pb->in = *in;
	pb->pos = 0;
	pb->end[0] = end;
	pb->depth = 0;
	pb->window_off = 0;
	pb->window_len = 0;
}

int ck_pb_read_mem(void *ctx, void *buf, size_t len, uint64_t off,
		   struct ck_err *err)
{
	(void)err;
	memcpy(buf, (const unsigned char *)ctx + off, len);
	return 0;
}

static uint64_t end_of(const struct ck_pb *pb)
{
	return pb->end[pb->depth];
}

static int fill(struct ck_pb *pb, struct ck_err *err)
{
	uint64_t left = pb->in.size - pb->pos;
	size_t len = (size_t)CK_MIN(left, (uint64_t)CK_PB_WINDOW);

	pb->window_off = pb->pos;
	pb->window_len = 0;
	if (pb->in.read(pb->in.ctx, pb->window, len, pb->pos, err))
		return -1;
	pb->window_len = len;
	return 0;
}

/* The next byte of the message; -EINVAL where it or the input ends. */
static int get_byte(struct ck_pb *pb, unsigned char *out, struct ck_err *err)
{
	struct ck_err why = { .code = EIO };

	if (pb->pos >= end_of(pb))
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64
			       ": the message ends inside a number",
			       pb->pos);
	if (pb->pos >= pb->in.size)
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64
			       ": the file ends inside a record",
			       pb->pos);
	if (pb->pos - pb->window_off >= pb->window_len && fill(pb, &why)) {
		if (err)
			*err = why;
		return -why.code;
	}
	*out = pb->window[pb->pos++ - pb->window_off];
	return 0;
}

static int get_varint(struct ck_pb *pb, uint64_t *out, struct ck_err *err)
{
	uint64_t begin = pb->pos, value = 0;
	unsigned char c;

	for (unsigned i = 0; i < MAX_VARINT; i++) {
		int ret = get_byte(pb, &c, err);

		if (ret)
			return ret;
		if (i == MAX_VARINT - 1 && c > 1)
			break;
		value |= (uint64_t)(c & 0x7f) << (7 * i);
		if (!(c & 0x80)) {
			*out = value;
			return 0;
		}
	}
	return ck_fail(err, EINVAL,
		       "byte %" PRIu64 ": a number of more than 64 bits",
		       begin);
}

static int get_fixed(struct ck_pb *pb, unsigned len, uint64_t *out,
		     struct ck_err *err)
{
	unsigned char c;

	*out = 0;
	for (unsigned i = 0; i < len; i++) {
		int ret = get_byte(pb, &c, err);

		if (ret)
			return ret;
		*out |= (uint64_t)c << (8 * i);
	}
	return 0;
}

static int get_len(struct ck_pb *pb, struct ck_pb_field *f, struct ck_err *err)
{
	int ret = get_varint(pb, &f->len, err);

	if (ret)
		return ret;
	f->off = pb->pos;
	if (!ck_range_ok(f->off, f->len, end_of(pb)))
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64 ": a field of %" PRIu64
			       " bytes, where the message has %" PRIu64 " left",
			       f->off, f->len, end_of(pb) - f->off);
	pb->pos += f->len;
	return 0;
}

static int get_value(struct ck_pb *pb, struct ck_pb_field *f, unsigned wire,
		     uint64_t begin, struct ck_err *err)
{
	f->wire = (enum ck_pb_wire)wire;
	switch (wire) {
	case CK_PB_VARINT:
		return get_varint(pb, &f->value, err);
	case CK_PB_I64:
		return get_fixed(pb, 8, &f->value, err);
	case CK_PB_LEN:
		return get_len(pb, f, err);
	case CK_PB_I32:
		return get_fixed(pb, 4, &f->value, err);
	default:
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64
			       ": expected a field, found wire type %u",
			       begin, wire);
	}
}

int ck_pb_next(struct ck_pb *pb, struct ck_pb_field *f, struct ck_err *err)
{
	uint64_t begin = pb->pos, key;
	int ret;

	if (pb->pos >= end_of(pb) || (!pb->depth && pb->pos >= pb->in.size))
		return 0;
	ret = get_varint(pb, &key, err);
	if (ret)
		return ret;
	if (key >> 3 == 0 || key >> 3 > MAX_NUMBER)
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64
			       ": expected a field, found number %" PRIu64,
			       begin, key >> 3);
	*f = (struct ck_pb_field){ .number = (uint32_t)(key >> 3) };
	ret = get_value(pb, f, key & 7, begin, err);
	return ret ? ret : 1;
}

int ck_pb_enter(struct ck_pb *pb, const struct ck_pb_field *f,
		struct ck_err *err)
{
	if (pb->depth + 1 == CK_PB_DEPTH)
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64 ": nested deeper than %d",
			       f->off, CK_PB_DEPTH);
	pb->end[++pb->depth] = f->off + f->len;
	pb->pos = f->off;
	return 0;
}

void ck_pb_leave(struct ck_pb *pb)
{
	pb->pos = pb->end[pb->depth--];
}

int ck_pb_packed(struct ck_pb *pb, uint64_t *value, struct ck_err *err)
{
	int ret;

	if (pb->pos >= end_of(pb))
		return 0;
	ret = get_varint(pb, value, err);
	return ret ? ret : 1;
}

int ck_pb_bytes(struct ck_pb *pb, const struct ck_pb_field *f, void *buf,
		size_t max, struct ck_err *err)
{
	if (f->len > max)
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64 ": expected at most %zu bytes, "
			       "found %" PRIu64,
			       f->off, max, f->len);
	if (!ck_range_ok(f->off, f->len, pb->in.size))
		return ck_fail(err, EINVAL,
			       "byte %" PRIu64
			       ": the file ends inside a record",
			       pb->in.size);
	if (ck_range_ok(f->off, f->len, pb->window_off + pb->window_len) &&
	    f->off >= pb->window_off) {
		memcpy(buf, pb->window + (f->off - pb->window_off), f->len);
		return 0;
	}
	return f->len ? pb->in.read(pb->in.ctx, buf, f->len, f->off, err) : 0;
}
