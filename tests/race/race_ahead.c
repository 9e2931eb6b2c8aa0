/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_ahead - blocks that threads of the mount and requests fetch together
 *
 * Six readers go through files front to back, jump, and close while blocks are
 * under way; two of them share a file.  What each gets is checked, and the
 * thread sanitizer watches.
 */
#include "fs/cache/ahead.h"
#include "fs/kernel/buf.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE (UINT64_C(24) << 20)
#define BLOCK ((size_t)1 << 20)

enum { READERS = 6, TURNS = 12 };

static struct fs_ahead *a;
static struct fs_stream *shared;

static void at(const struct ck_view *v, uint32_t i, uint64_t off,
	       struct ck_span *out)
{
	(void)v;
	(void)i;
	out->kind = CK_SPAN_MADE;
	out->off = off;
	out->len = SIZE - off;
}

/* Each 4 KiB hold their number; some pieces of file 1 fail. */
static int made(const struct ck_view *v, uint32_t i, void *buf, uint64_t len,
		uint64_t off, struct ck_err *err)
{
	(void)v;
	if (i == 1 && (off >> 18) % 7 == 3)
		return ck_fail(err, 5, "a fault");
	for (uint64_t k = 0; k < len; k += 4096)
		memset((char *)buf + k, (int)((off + k) >> 12),
		       len - k < 4096 ? len - k : 4096);
	return 0;
}

static const struct ck_view_ops ops = { .name = "t", .at = at, .made = made };
static struct ck_view view = { .ops = &ops };

static void one_block(struct fs_stream *s, uint64_t off, unsigned *hits)
{
	unsigned char *buf = fs_stream_take(s, off, BLOCK);

	fs_stream_next(s, off, BLOCK, SIZE);
	usleep(buf ? 100 : 300); /* it is answered; or fetched, too */
	if (!buf)
		return;
	for (uint64_t k = 0; k < BLOCK; k += 4096) {
		if (buf[k] == (unsigned char)((off + k) >> 12))
			continue;
		fprintf(stderr, "race_ahead: wrong bytes at %llu\n",
			(unsigned long long)(off + k));
		exit(1);
	}
	++*hits;
	fs_buf_put(buf);
}

static void *reader(void *ctx)
{
	unsigned me = *(unsigned *)ctx, hits = 0;

	for (unsigned turn = 0; turn < TURNS; turn++) {
		struct fs_stream *s = me < 2 ? shared : NULL;

		if (!s)
			s = fs_stream_open(a, &view, me == 2, NULL);
		for (uint64_t off = 0; off < SIZE; off += BLOCK)
			one_block(s, (off >> 20) % 9 == 8 ? 0 : off, &hits);
		if (me >= 2)
			fs_stream_close(s);
	}
	if (me > 2 && !hits) {
		fprintf(stderr, "race_ahead: nothing was fetched ahead\n");
		exit(1);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[READERS];
	unsigned me[READERS];

	fs_ahead_fresh_ns = INT64_MAX;
	a = fs_ahead_new(0);
	shared = fs_stream_open(a, &view, 0, NULL);
	for (unsigned i = 0; i < READERS; i++) {
		me[i] = i;
		if (pthread_create(&thread[i], NULL, reader, &me[i]))
			return 1;
	}
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	fs_stream_close(shared);
	fs_ahead_free(a);
	fs_buf_drain();
	return 0;
}
