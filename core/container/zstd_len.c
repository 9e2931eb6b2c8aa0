/* SPDX-License-Identifier: Apache-2.0 */
/* zstd_len.c - PyTorch writes frames that do not say their own length */
#include "core/container/zstd_len.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <zstd.h>

#define PIECE ((size_t)64 << 10)
#define WINDOW_LOG_MAX 27

static void free_stream(ZSTD_DStream **z)
{
	ZSTD_freeDStream(*z);
}

struct state {
	struct ck_source *s;
	uint64_t off, left; /* of the input */
	uint64_t *spent, out;
	char *in_buf, *out_buf;
	size_t hint; /* 0: the frame is whole */
};

static int decode_piece(struct state *st, ZSTD_DStream *z, struct ck_err *err)
{
	ZSTD_inBuffer in = { st->in_buf, CK_MIN(st->left, PIECE), 0 };
	int ret = ck_source_read(st->s, st->in_buf, in.size, st->off, err);

	if (ret)
		return ret;
	st->off += in.size;
	st->left -= in.size;
	while (in.pos < in.size) {
		ZSTD_outBuffer out = { st->out_buf, PIECE, 0 };

		st->hint = ZSTD_decompressStream(z, &out, &in);
		if (ZSTD_isError(st->hint))
			return ck_fail(err, EINVAL, "%s: byte %" PRIu64 ": %s",
				       st->s->name, st->off,
				       ZSTD_getErrorName(st->hint));
		st->out += out.pos;
		*st->spent += out.pos;
		if (*st->spent > CK_ZSTD_LEN_TOTAL)
			return ck_fail(err, E2BIG, "%s: too much to decode",
				       st->s->name);
	}
	return 0;
}

int ck_zstd_length(struct ck_source *s, uint64_t off, uint64_t len,
		   uint64_t *spent, uint64_t *out, struct ck_err *err)
{
	__attribute__((cleanup(free_stream))) ZSTD_DStream *z =
		ZSTD_createDStream();
	ck_auto_free char *bufs = malloc(2 * PIECE);
	struct state st = { .s = s,
			    .off = off,
			    .left = len,
			    .spent = spent,
			    .in_buf = bufs,
			    .out_buf = bufs + PIECE,
			    .hint = 1 };

	if (!z || !bufs)
		return ck_no_memory(err);
	if (!ck_range_ok(off, len, (uint64_t)s->st.st_size))
		return ck_fail(err, EINVAL, "%s: ends inside", s->name);
	ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
	while (st.left) {
		int ret = decode_piece(&st, z, err);

		if (ret)
			return ret;
	}
	if (st.hint)
		return ck_fail(err, EINVAL, "%s: a zstd frame without its end",
			       s->name);
	*out = st.out;
	return 0;
}
