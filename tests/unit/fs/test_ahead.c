/* SPDX-License-Identifier: Apache-2.0 */
/* A view whose byte i is i, made slowly, read through a stream. */
#include "fs/ahead.h"
#include "fs/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SIZE (UINT64_C(64) << 20)
#define BLOCK (UINT64_C(256) << 10)

static _Atomic unsigned made_blocks;
static unsigned delay_us;
static int fault;

static void at(const struct ck_view *v, uint32_t i, uint64_t off,
	       struct ck_span *out)
{
	(void)v;
	(void)i;
	*out = (struct ck_span){ CK_SPAN_MADE, 0, off, SIZE - off };
}

static int made(const struct ck_view *v, uint32_t i, void *buf, uint64_t len,
		uint64_t off, struct ck_err *err)
{
	unsigned char *to = buf;

	(void)v;
	(void)i;
	if (delay_us)
		usleep(delay_us);
	atomic_fetch_add(&made_blocks, 1);
	if (fault)
		return ck_fail(err, EIO, "a fault");
	for (uint64_t k = 0; k < len; k++)
		to[k] = (unsigned char)((off + k) % 251);
	return 0;
}

static const struct ck_view_ops ops = { .name = "t", .at = at, .made = made };
static struct ck_view view = { .ops = &ops };
static struct fs_ahead *a;
static struct fs_stream *s;

static void start(void)
{
	a = fs_ahead_new();
	cr_assert(a);
	s = fs_stream_open(a, &view, 0);
	cr_assert(s);
}

static void stop(void)
{
	fs_stream_close(s);
	fs_ahead_free(a);
	fs_buf_drain();
}
TestSuite(ahead, .init = start, .fini = stop);

static bool right(const unsigned char *buf, uint64_t off)
{
	for (uint64_t k = 0; k < BLOCK; k++)
		if (buf[k] != (off + k) % 251)
			return false;
	return true;
}

/* Waits for the block that was asked for; NULL where none ever comes. */
static void *take_soon(uint64_t off)
{
	for (int i = 0; i < 200; i++) {
		void *buf;

		usleep(1000);
		if (!atomic_load(&made_blocks))
			continue;
		usleep(20000); /* made, but maybe not handed over yet */
		buf = fs_stream_take(s, off, BLOCK);
		return buf;
	}
	return NULL;
}

Test(ahead, a_second_block_in_a_row_is_fetched)
{
	void *buf;

	fs_stream_next(s, 0, BLOCK, SIZE);
	usleep(20000);
	cr_expect_eq(made_blocks, 0, "one request is no row");
	fs_stream_next(s, BLOCK, BLOCK, SIZE);
	buf = take_soon(2 * BLOCK);
	cr_assert(buf);
	cr_expect(right(buf, 2 * BLOCK));
	fs_buf_put(buf);
	cr_expect_null(fs_stream_take(s, 2 * BLOCK, BLOCK), "given out twice");
}

Test(ahead, another_place_or_length_gets_nothing)
{
	fs_stream_next(s, 0, BLOCK, SIZE);
	fs_stream_next(s, BLOCK, BLOCK, SIZE);
	cr_expect_null(take_soon(3 * BLOCK));
	cr_expect_null(fs_stream_take(s, 2 * BLOCK, BLOCK),
		       "what was not wanted is dropped");
}

Test(ahead, what_is_being_fetched_is_waited_for)
{
	void *buf;

	delay_us = 50000;
	fs_stream_next(s, 0, BLOCK, SIZE);
	fs_stream_next(s, BLOCK, BLOCK, SIZE);
	usleep(20000);
	buf = fs_stream_take(s, 2 * BLOCK, BLOCK);
	cr_assert(buf);
	cr_expect(right(buf, 2 * BLOCK));
	fs_buf_put(buf);
	delay_us = 0;
}

Test(ahead, old_bytes_are_dropped)
{
	fs_stream_next(s, 0, BLOCK, SIZE);
	fs_stream_next(s, BLOCK, BLOCK, SIZE);
	usleep(200000);
	cr_expect_eq(made_blocks, 1);
	cr_expect_null(fs_stream_take(s, 2 * BLOCK, BLOCK));
}

Test(ahead, a_fault_is_left_to_the_request)
{
	fault = 1;
	fs_stream_next(s, 0, BLOCK, SIZE);
	fs_stream_next(s, BLOCK, BLOCK, SIZE);
	cr_expect_null(take_soon(2 * BLOCK));
	fault = 0;
}

Test(ahead, nothing_beyond_the_end_and_nothing_small)
{
	fs_stream_next(s, SIZE - 2 * BLOCK, BLOCK, SIZE);
	fs_stream_next(s, SIZE - BLOCK, BLOCK, SIZE);
	fs_stream_next(s, 0, 4096, SIZE);
	fs_stream_next(s, 4096, 4096, SIZE);
	usleep(20000);
	cr_expect_eq(made_blocks, 0);
}

Test(ahead, without_a_thread_there_are_no_streams)
{
	cr_expect_null(fs_stream_open(NULL, &view, 0));
	cr_expect_null(fs_stream_take(NULL, 0, BLOCK));
	fs_stream_next(NULL, 0, BLOCK, SIZE);
	fs_stream_close(NULL);
}
