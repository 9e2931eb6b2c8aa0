/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view whose byte i is i, made when the test says so.  One thread fetches, on
 * any machine, so that a block that it begins says that those before it are
 * there; nothing here depends on time.
 */
#include "fs/cache/ahead.h"
#include "fs/kernel/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#define SIZE (UINT64_C(64) << 20)
#define BLOCK (UINT64_C(256) << 10)

/* The fetching thread says that it is at work, and waits to be let go on. */
static sem_t at_work, go_on;
static int fault;
static uint64_t fault_off; /* the piece that it is in; 0: all */
static _Atomic unsigned begun[64]; /* fetches of each block of that length */
static uint64_t length = BLOCK;

static void at(const struct ck_view *v, uint32_t i, uint64_t off,
	       struct ck_span *out)
{
	(void)v;
	(void)i;
	out->kind = CK_SPAN_MADE;
	out->off = off;
	out->len = SIZE - off;
}

static int made(const struct ck_view *v, uint32_t i, void *buf, uint64_t len,
		uint64_t off, struct ck_err *err)
{
	unsigned char *to = buf;

	(void)v;
	(void)i;
	begun[off / length]++;
	sem_post(&at_work);
	sem_wait(&go_on);
	if (fault &&
	    (!fault_off || (off <= fault_off && fault_off - off < len)))
		return ck_fail(err, EIO, "a fault");
	for (uint64_t k = 0; k < len; k++)
		to[k] = (unsigned char)((off + k) % 251);
	return 0;
}

static const struct ck_view_ops ops = { .name = "t", .at = at, .made = made };
static struct ck_view view = { .ops = &ops };
static struct fs_ahead *a;
static struct fs_stream *s;

static void start_with(unsigned threads)
{
	a = fs_ahead_new(threads);
	cr_assert(a);
	s = fs_stream_open(a, &view, 0, NULL);
	cr_assert(s);
}

static void start(void)
{
	sem_init(&at_work, 0, 0);
	sem_init(&go_on, 0, 0);
	fs_ahead_fresh_ns = INT64_MAX;
	length = BLOCK;
	start_with(1);
}

static void let_go(void)
{
	for (int i = 0; i < 64; i++)
		sem_post(&go_on);
}

static void stop(void)
{
	let_go();
	fs_stream_close(s);
	fs_ahead_free(a);
	fs_buf_drain();
}
TestSuite(ahead, .init = start, .fini = stop);

static bool right_to(const unsigned char *buf, uint64_t off, uint64_t len)
{
	for (uint64_t k = 0; k < len; k++)
		if (buf[k] != (off + k) % 251)
			return false;
	return true;
}

static bool right(const unsigned char *buf, uint64_t off)
{
	return right_to(buf, off, BLOCK);
}

static void row(struct fs_stream *of, uint64_t len)
{
	fs_stream_next(of, 9 * len, len, SIZE); /* so that 0 begins no row */
	fs_stream_next(of, 0, len, SIZE);
	fs_stream_next(of, len, len, SIZE);
}

/* Two requests in a row, and the thread fetching the block behind them. */
static void begin_row(void)
{
	row(s, BLOCK);
	sem_wait(&at_work);
}

static void expect_taken(uint64_t off)
{
	void *buf = fs_stream_take(s, off, BLOCK);

	cr_assert(buf, "%llu", (unsigned long long)off);
	cr_expect(right(buf, off));
	fs_buf_put(buf);
}

Test(ahead, a_second_block_in_a_row_is_fetched_and_given_once)
{
	begin_row();
	sem_post(&go_on);
	expect_taken(2 * BLOCK);
	cr_expect_null(fs_stream_take(s, 2 * BLOCK, BLOCK), "given twice");
}

/* Nobody asks while the thread goes on to the block behind the next one. */
Test(ahead, two_blocks_in_a_row_and_no_third)
{
	begin_row();
	let_go();
	sem_wait(&at_work);
	for (uint64_t off = 2 * BLOCK; off < 9 * BLOCK; off += BLOCK) {
		expect_taken(off);
		cr_expect(!begun[off / BLOCK + 2]);
		fs_stream_next(s, off, BLOCK, SIZE);
		sem_wait(&at_work);
		cr_expect(begun[off / BLOCK + 2] == 1);
	}
}

Test(ahead, one_block_of_each_where_many_are_read)
{
	struct fs_stream *of[12];

	for (unsigned i = 0; i < 12; i++) {
		of[i] = fs_stream_open(a, &view, 0, NULL);
		row(of[i], BLOCK);
	}
	let_go();
	for (unsigned i = 0; i < 16; i++)
		sem_wait(&at_work);
	for (unsigned i = 0; i < 12; i++)
		fs_stream_close(of[i]);
	cr_expect(begun[2] == 12 && begun[3] == 4, "%u, %u", begun[2],
		  begun[3]);
	/* and what they held is free again */
	begin_row();
	sem_wait(&at_work);
	cr_expect(begun[2] == 13 && begun[3] == 5);
}

/* 1 MiB in pieces: a thread is held up in the first, the rest is shared. */
#define LONG (4 * BLOCK)

static void *take_long(void *out)
{
	*(void **)out = fs_stream_take(s, 2 * LONG, LONG);
	return NULL;
}

/* What a request gets that comes while the thread is in the first piece. */
static void *taken_meanwhile(void)
{
	pthread_t request;
	void *buf = NULL;

	length = LONG;
	row(s, LONG);
	sem_wait(&at_work);
	cr_assert(!pthread_create(&request, NULL, take_long, &buf));
	sem_wait(&at_work); /* the request is in a piece too */
	let_go();
	pthread_join(request, NULL);
	return buf;
}

static void start_over(void)
{
	fs_stream_close(s);
	s = fs_stream_open(a, &view, 0, NULL);
	while (!sem_trywait(&at_work))
		;
	while (!sem_trywait(&go_on))
		;
}

Test(ahead, a_request_fetches_what_the_thread_has_not_begun)
{
	void *buf = taken_meanwhile();

	cr_assert(buf);
	cr_expect(right_to(buf, 2 * LONG, LONG));
	cr_expect(begun[2] == 3, "%u pieces", begun[2]);
	fs_buf_put(buf);
}

Test(ahead, a_fault_in_any_piece_is_left_to_the_request)
{
	fault = 1;
	for (unsigned i = 0; i < 4; i++) {
		fault_off = 2 * LONG + i * BLOCK;
		cr_expect_null(taken_meanwhile(), "piece %u", i);
		start_over();
	}
	fault = 0;
	/* and the next block is fetched as ever */
	fs_buf_put(taken_meanwhile());
}

/* What is left of them is not fetched: the next row's block comes first. */
Test(ahead, closed_with_pieces_that_nobody_began)
{
	unsigned pieces;

	length = LONG;
	row(s, LONG);
	sem_wait(&at_work);
	let_go();
	start_over();
	pieces = begun[2];
	cr_expect(pieces >= 1 && pieces <= 4, "%u pieces", pieces);
	length = BLOCK;
	begin_row();
	sem_post(&go_on);
	expect_taken(2 * BLOCK);
	cr_expect(begun[2] == pieces + 1, "%u after %u", begun[2], pieces);
}

Test(ahead, another_place_or_length_gets_nothing_and_does_not_wait)
{
	begin_row();
	cr_expect_null(fs_stream_take(s, 9 * BLOCK, BLOCK));
	cr_expect_null(fs_stream_take(s, 2 * BLOCK, BLOCK / 2));
	sem_post(&go_on);
	expect_taken(2 * BLOCK);
	cr_expect(!begun[3], "nobody went there");
}

/* The thread ends what it is at, and begins the next. */
static void one_on(void)
{
	sem_post(&go_on);
	sem_wait(&at_work);
}

Test(ahead, what_is_not_wanted_is_dropped)
{
	begin_row();
	one_on();
	cr_expect(begun[2] == 1 && begun[3] == 1);
	/* the first is ready, and dropped by asking for another place */
	cr_assert_null(fs_stream_take(s, 9 * BLOCK, BLOCK));
	row(s, BLOCK);
	one_on();
	cr_expect(begun[2] == 2 && begun[3] == 1);
	/* now the second */
	cr_assert_null(fs_stream_take(s, 9 * BLOCK, BLOCK));
	row(s, BLOCK);
	one_on();
	cr_expect(begun[2] == 2 && begun[3] == 2);
}

Test(ahead, old_bytes_are_dropped)
{
	fs_ahead_fresh_ns = 0;
	begin_row();
	sem_post(&go_on);
	cr_expect_null(fs_stream_take(s, 2 * BLOCK, BLOCK));
}

Test(ahead, a_fault_is_left_to_the_request)
{
	fault = 1;
	begin_row();
	sem_post(&go_on);
	cr_expect_null(fs_stream_take(s, 2 * BLOCK, BLOCK));
	fault = 0;
}

Test(ahead, the_first_block_of_a_file_begins_a_row)
{
	fs_stream_next(s, 0, BLOCK, SIZE);
	let_go();
	for (uint64_t off = BLOCK; off < 3 * BLOCK; off += BLOCK) {
		sem_wait(&at_work);
		expect_taken(off);
	}
}

Test(ahead, no_row_nothing_beyond_the_end_nothing_small)
{
	fs_stream_next(s, 4 * BLOCK, BLOCK, SIZE);
	fs_stream_next(s, 7 * BLOCK, BLOCK, SIZE);
	fs_stream_next(s, SIZE - BLOCK, BLOCK, SIZE);
	fs_stream_next(s, 0, 4096, SIZE);
	fs_stream_next(s, 4096, 4096, SIZE);
	/* what would have been queued before this row would come first */
	begin_row();
	let_go();
	expect_taken(2 * BLOCK);
	for (unsigned i = 0; i < 64; i++)
		cr_expect(!begun[i] || i == 2 || i == 3, "%u", i);
}

Test(ahead, the_last_block_is_as_long_as_the_file)
{
	unsigned char *buf;

	fs_stream_next(s, BLOCK, BLOCK, 3 * BLOCK - 1000);
	fs_stream_next(s, 0, BLOCK, 3 * BLOCK - 1000);
	fs_stream_next(s, BLOCK, BLOCK, 3 * BLOCK - 1000);
	let_go();
	sem_wait(&at_work);
	buf = fs_stream_take(s, 2 * BLOCK, BLOCK - 1000);
	cr_assert(buf);
	cr_expect(right_to(buf, 2 * BLOCK, BLOCK - 1000));
	fs_buf_put(buf);
	cr_expect(!begun[3]);
}

Test(ahead, closed_while_the_block_is_being_fetched)
{
	struct fs_stream *other = fs_stream_open(a, &view, 0, NULL);

	begin_row();
	row(other, BLOCK);
	fs_stream_close(other); /* only queued: at once */
	one_on();
	cr_expect(begun[2] == 1 && begun[3] == 1,
		  "the closed one's is fetched");
}

Test(ahead, several_threads)
{
	enum { BLOCKS = 24 };

	fs_stream_close(s);
	fs_ahead_free(a);
	start_with(4);
	let_go();
	fs_stream_next(s, 0, BLOCK, SIZE);
	for (uint64_t i = 1; i < BLOCKS; i++) {
		sem_wait(&at_work); /* once for each that is begun, in order */
		expect_taken(i * BLOCK);
		fs_stream_next(s, i * BLOCK, BLOCK, SIZE);
	}
	for (unsigned i = 1; i < BLOCKS; i++)
		cr_expect(begun[i] == 1, "%u", i);
}

Test(ahead, without_a_thread_there_are_no_streams)
{
	cr_expect_null(fs_stream_open(NULL, &view, 0, NULL));
	cr_expect_null(fs_stream_take(NULL, 0, BLOCK));
	fs_stream_next(NULL, 0, BLOCK, SIZE);
	fs_stream_close(NULL);
}
