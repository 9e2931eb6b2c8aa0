/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf.h - the wire form of protocol buffers, from bytes nobody vouches for
 *
 *   key = varint(number << 3 | wire type); 0: varint, 1: 8 bytes,
 *   2: varint length and that many bytes, 5: 4 bytes
 *
 * Fields come one after the other; a field of bytes can be entered, as a
 * message of its own, and is stepped over where it is not.  Nothing is kept
 * but a window of the input, however large it is; nothing recurses.
 */
#ifndef CK_PROTOBUF_H
#define CK_PROTOBUF_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_PB_DEPTH 32 /* messages in messages */
#define CK_PB_WINDOW 256

enum ck_pb_wire { CK_PB_VARINT, CK_PB_I64, CK_PB_LEN, CK_PB_I32 = 5 };

struct ck_pb_field {
	uint32_t number;
	enum ck_pb_wire wire;
	uint64_t value; /* of VARINT, I64, I32 */
	uint64_t off, len; /* LEN: where its bytes are */
};

struct ck_pb_in {
	/* Exactly @len bytes, which lie in [0, size). */
	int (*read)(void *ctx, void *buf, size_t len, uint64_t off,
		    struct ck_err *err);
	void *ctx;
	uint64_t size;
};

struct ck_pb {
	struct ck_pb_in in;
	uint64_t pos, end[CK_PB_DEPTH];
	unsigned depth;
	uint64_t window_off;
	size_t window_len;
	unsigned char window[CK_PB_WINDOW];
};

/*
 * @end: where the outermost message says that it ends, at most CK_SIZE_MAX;
 * it may lie past in->size, and then a field's bytes may do so too.
 */
void ck_pb_init(struct ck_pb *pb, const struct ck_pb_in *in, uint64_t end);
/* For ck_pb_in: ctx is the bytes. */
int ck_pb_read_mem(void *ctx, void *buf, size_t len, uint64_t off,
		   struct ck_err *err);

/*
 * 1: a field; 0: the message that was entered last ends here; -EINVAL with
 * the byte: no such thing, as groups; or what read() gave.
 */
int ck_pb_next(struct ck_pb *pb, struct ck_pb_field *f, struct ck_err *err);
/* The message in @f, which ck_pb_next() just gave and is LEN. */
int ck_pb_enter(struct ck_pb *pb, const struct ck_pb_field *f,
		struct ck_err *err);
/* To what follows the message that was entered last. */
void ck_pb_leave(struct ck_pb *pb);
/* Of packed numbers, which were entered: as ck_pb_next(). */
int ck_pb_packed(struct ck_pb *pb, uint64_t *value, struct ck_err *err);
/* The bytes of @f, which is LEN of at most @max; no NUL is added. */
int ck_pb_bytes(struct ck_pb *pb, const struct ck_pb_field *f, void *buf,
		size_t max, struct ck_err *err);

#endif
