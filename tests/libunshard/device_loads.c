/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_loads - loads into memory of the simulated device, byte by byte
 *
 * As load_plans, but that the device copies late, fails when it is told to, and
 * fails by itself where a buffer is used again too early or a copy goes astray.
 * What the ring did is looked at, too: in which order, and not how fast.
 */
#include "core/base/check.h"
#include "core/device/ring.h"
#include "tests/lib/failalloc.h"
#include "tests/lib/faults.h"
#include "tests/lib/loadkit.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct setup {
	struct ck_load_pool *pool;
	struct ck_device *dev;
	struct ck_ring *ring;
};

static void set_up(struct setup *s, const char *device, unsigned threads,
		   unsigned slots, uint64_t chunk)
{
	struct ck_err err = { 0 };

	if (ck_load_pool_new(&s->pool, threads, &err) ||
	    ck_device_open(&s->dev, device, &err) ||
	    ck_load_ring_new(&s->ring, s->pool, s->dev, slots, chunk, &err)) {
		fprintf(stderr, "%s: %s\n", device, err.msg);
		abort();
	}
}

static void tear_down(struct setup *s)
{
	ck_ring_free(s->ring);
	ck_device_close(s->dev);
	ck_load_pool_free(s->pool);
}

/* Items' memory is the device's, which is as theirs was. */
static void move_in(struct setup *s, struct lk_load *l, uint64_t *mem)
{
	l->in.ring = s->ring;
	lk_move_in(l, s->dev, mem);
}

/* False: the device, as it was told to, gives its memory to nobody. */
static bool move_out(struct setup *s, struct lk_load *l, const uint64_t *mem)
{
	bool all = true;

	for (unsigned i = 0; i < l->nr; i++) {
		all = lk_move_back(l, s->dev, mem, i) && all;
		ck_device_free(s->dev, mem[i], NULL);
	}
	return all;
}

static struct ck_load *start_load(struct setup *s, struct lk_load *l)
{
	struct ck_err err = { 0 };
	struct ck_load *load;
	size_t bad;

	if (ck_load_start(&load, s->pool, &l->in, &bad, &err)) {
		fprintf(stderr, "item %zu: %s\n", bad, err.msg);
		abort();
	}
	return load;
}

static void plans(unsigned nr)
{
	static const char *devices[] = { "simulated:late=0",
					 "simulated:late=300", "host" };

	for (unsigned seed = 1; seed <= nr; seed++) {
		uint64_t state = seed * 0x9e3779b97f4a7c15u, mem[LK_MAX];
		struct ck_load_stats stats;
		struct ck_err err = { 0 };
		struct shardkit k;
		struct lk_load l;
		struct ck_load *load;
		struct setup s;
		size_t item;

		set_up(&s, devices[seed % 3], 1 + seed % 4, 1 + seed % 5,
		       CK_LOAD_CHUNK_MIN << seed % 3);
		lk_tensor(&k, state);
		sk_open(&k, seed % 2 ? "plain" : "auto");
		lk_make(&l, &k, &state, 1 + seed % LK_MAX, false);
		l.in.cache = seed / 2 % 3;
		move_in(&s, &l, mem);
		load = start_load(&s, &l);
		if (ck_load_wait(load, -1, &item, &err))
			fprintf(stderr, "seed %u: item %zu: %s\n", seed, item,
				err.msg);
		LK_CHECK(!ck_load_wait(load, -1, &item, &err));
		ck_load_stats(load, &stats);
		LK_CHECK(stats.done == stats.wanted && !stats.left_to_reader);
		ck_load_free(load);
		LK_CHECK(move_out(&s, &l, mem));
		for (unsigned i = 0; i < l.nr; i++)
			LK_CHECK(lk_whole(&l, i));
		tear_down(&s);
		lk_free(&l);
		sk_free(&k);
	}
}

static void make_big(struct shardkit *k, struct lk_load *l)
{
	uint64_t state = 77;

	sk_init(k, CK_DT_BF16, 2, (uint64_t[]){ 700, 3000 });
	sk_cut(k, 1, 3);
	sk_open(k, "auto");
	lk_make(l, k, &state, 6, false);
}

/* What one load comes to where the device, or storage, fails. */
static int try_load(const char *device, struct shardkit *k, struct lk_load *l,
		    char *line)
{
	struct ck_err err = { 0 };
	uint64_t mem[LK_MAX];
	struct ck_load *load;
	struct setup s;
	size_t item;
	int ret, got;

	lk_reset(l);
	l->in.reader = k->r;
	set_up(&s, device, 2, 3, CK_LOAD_CHUNK_MIN);
	move_in(&s, l, mem);
	load = start_load(&s, l);
	ret = ck_load_wait(load, -1, &item, &err);
	memcpy(line, err.msg, CK_ERR_MAX);
	while ((got = ck_load_next(load, -1, &item, &err)) != 1)
		LK_CHECK(got <= 0);
	ck_load_free(load);
	got = move_out(&s, l, mem);
	for (unsigned i = 0; i < l->nr && !ret && got; i++)
		LK_CHECK(lk_whole(l, i));
	tear_down(&s);
	return ret;
}

/* Each call of the device fails, once and for ever; nothing hangs or is lost. */
static void failures(unsigned nr)
{
	static const char *ops[] = { "copy", "event", "wait", "pin" };
	char device[80], line[CK_ERR_MAX];
	struct shardkit k;
	struct lk_load l;

	make_big(&k, &l);
	for (unsigned i = 0; i < nr; i++) {
		const char *op = ops[i % 4];
		unsigned at = 7 + i / 4; /* six are move_in()'s */
		int ret;

		snprintf(device, sizeof(device),
			 "simulated:late=0,fail=%s:%u:%u:12", op,
			 i % 4 == 3 ? 1 : at, i % 2 ? 1 : 1000);
		ret = try_load(device, &k, &l, line);
		LK_CHECK(!ret || (ret == -ENOMEM && i % 4 != 3));
		LK_CHECK(!ret || strstr(line, "device simulated:late=0,fail="));
		LK_CHECK(i >= 4 || i == 3 || ret);
	}
	snprintf(device, sizeof(device), "simulated:late=0");
	for (unsigned at = 1; at <= nr; at++) {
		fault_set((long)at, 1 + at % 50, EIO);
		LK_CHECK(!try_load(device, &k, &l, line) ||
			 strstr(line, "Input/output"));
		fault_set(0, 0, 0);
	}
	lk_free(&l);
	sk_free(&k);
}

/* Long runs past the page cache, into slots: well, and where each read fails once. */
static void into_slots(unsigned nr)
{
	uint64_t state = 5;
	struct shardkit k;
	struct lk_load l;

	sk_init(&k, CK_DT_BF16, 2, (uint64_t[]){ 1500, 2048 });
	sk_cut(&k, 0, 2);
	sk_open(&k, "auto");
	lk_make(&l, &k, &state, 2, true);
	l.in.cache = CK_LOAD_DIRECT;
	for (unsigned at = 0; at <= nr; at++) {
		uint64_t mem[LK_MAX];
		struct ck_load_stats stats;
		struct ck_load *load;
		struct setup s;

		lk_reset(&l);
		set_up(&s, "simulated:late=0", 2, 3, UINT64_C(4) << 20);
		move_in(&s, &l, mem);
		fault_set(at, 1, at % 2 ? EIO : 512);
		load = start_load(&s, &l);
		LK_CHECK(!ck_load_wait(load, -1, NULL, NULL));
		fault_set(0, 0, 0);
		ck_load_stats(load, &stats);
		LK_CHECK(stats.direct || *stats.why);
		ck_load_free(load);
		LK_CHECK(move_out(&s, &l, mem));
		LK_CHECK(lk_whole(&l, 0) && lk_whole(&l, 1));
		tear_down(&s);
	}
	lk_free(&l);
	sk_free(&k);
}

static void cancels(unsigned nr)
{
	struct shardkit k;
	struct lk_load l;

	make_big(&k, &l);
	for (unsigned at = 0; at < nr; at++) {
		uint64_t mem[LK_MAX];
		struct ck_load_stats stats = { 0 };
		struct ck_load *load;
		struct setup s;
		int ret;

		lk_reset(&l);
		set_up(&s, "simulated:late=100", 3, 2, CK_LOAD_CHUNK_MIN);
		move_in(&s, &l, mem);
		load = start_load(&s, &l);
		while (stats.source_ops < at && stats.done < stats.wanted + !at)
			ck_load_stats(load, &stats);
		ck_load_cancel(load);
		ret = ck_load_wait(load, -1, NULL, NULL);
		LK_CHECK(!ret || ret == -ECANCELED);
		ck_load_free(load);
		/* the memory may go at once: nothing writes to it any more */
		for (unsigned i = 0; i < l.nr; i++)
			LK_CHECK(!ck_device_free(s.dev, mem[i], NULL));
		tear_down(&s);
	}
	lk_free(&l);
	sk_free(&k);
}

static void allocations(void)
{
	struct ck_err err = { 0 };
	struct shardkit k;
	struct lk_load l;
	bool more = true;

	make_big(&k, &l);
	for (unsigned long nth = 1; more; nth++) {
		struct ck_load *load = NULL;
		uint64_t mem[LK_MAX];
		struct setup s;
		size_t item;
		int ret;

		lk_reset(&l);
		set_up(&s, "simulated:late=0", 2, 3, CK_LOAD_CHUNK_MIN);
		move_in(&s, &l, mem);
		failalloc_arm(nth);
		ret = ck_load_start(&load, s.pool, &l.in, &item, &err);
		LK_CHECK(!ret || ret == -ENOMEM);
		if (load)
			ret = ck_load_wait(load, -1, &item, &err);
		LK_CHECK(!ret || ret == -ENOMEM);
		more = failalloc_happened();
		ck_load_free(load);
		LK_CHECK(move_out(&s, &l, mem));
		for (unsigned i = 0; i < l.nr && !ret; i++)
			LK_CHECK(lk_whole(&l, i));
		tear_down(&s);
	}
	lk_free(&l);
	sk_free(&k);
}

/* ---- what the ring does ---- */

#define SLOTS 4

static struct {
	enum { IS_FREE, IS_TAKEN, IS_SUBMITTED } state[SLOTS];
	unsigned submitted[64], nr_submitted, nr_landed; /* their order */
	unsigned both; /* taken while others were being copied */
	_Atomic unsigned freed;
} ring_was;

static void watch(void *arg, enum ck_ring_what what, unsigned slot)
{
	unsigned copied = 0;

	(void)arg;
	LK_CHECK(slot < SLOTS);
	for (unsigned i = 0; i < SLOTS; i++)
		copied += ring_was.state[i] == IS_SUBMITTED;
	switch (what) {
	case CK_RING_TAKEN:
		LK_CHECK(ring_was.state[slot] == IS_FREE);
		ring_was.state[slot] = IS_TAKEN;
		ring_was.both += copied > 0;
		break;
	case CK_RING_SUBMITTED:
		LK_CHECK(ring_was.state[slot] == IS_TAKEN);
		ring_was.state[slot] = IS_SUBMITTED;
		ring_was.submitted[ring_was.nr_submitted++ % 64] = slot;
		break;
	case CK_RING_LANDED:
		LK_CHECK(ring_was.state[slot] == IS_SUBMITTED);
		LK_CHECK(ring_was.submitted[ring_was.nr_landed++ % 64] == slot);
		ring_was.state[slot] = IS_FREE;
		break;
	}
}

static void nothing_landed(void *note, const struct ck_err *why)
{
	(void)note;
	LK_CHECK(!why);
}

static void count_freed(void *arg)
{
	(void)arg;
	ring_was.freed++;
}

/*
 * 200 slots through four, each filled with a number of its own: none is handed
 * out before the device has copied it, and they land in their order.
 */
static void ring_order(void)
{
	struct ck_ring_in in = { .slots = SLOTS,
				 .chunk = 65536,
				 .landed = nothing_landed,
				 .freed = count_freed,
				 .trace = watch };
	unsigned char *back = malloc(200 * 65536);
	struct ck_err err = { 0 };
	struct ck_ring *ring;
	uint64_t mem;

	LK_CHECK(back &&
		 !ck_device_open(&in.dev, "simulated:late=100,rate=2G", &err));
	LK_CHECK(!ck_device_alloc(in.dev, 200 * 65536, &mem, &err));
	LK_CHECK(!ck_ring_new(&ring, &in, &err));
	for (unsigned i = 0; i < 200; i++) {
		struct ck_ring_slot *slot = ck_ring_take(ring);
		struct ck_device_copy copy = { .dst = mem + i * 65536,
					       .src = (uintptr_t)slot->mem,
					       .run = 65536 };

		ck_ring_prepare(slot);
		memset(slot->mem, (int)i, 65536);
		ck_ring_copy(slot, CK_DEVICE_IN, &copy, 1);
		ck_ring_submit(slot);
	}
	ck_ring_free(ring);
	LK_CHECK(ring_was.nr_landed == 200 && ring_was.freed == 200);
	LK_CHECK(ring_was.both > 100);
	LK_CHECK(!ck_device_get(in.dev, back, mem, 200 * 65536, &err));
	for (unsigned i = 0; i < 200 * 65536; i++)
		LK_CHECK(back[i] == i / 65536);
	ck_device_close(in.dev);
	free(back);
}

/* The device itself sees what is used too early, and what goes astray. */
static void guards(void)
{
	unsigned char *buf = calloc(1, 4096);
	struct ck_device_copy copy = { .run = 4096 };
	struct ck_err err = { 0 };
	struct ck_device *dev;
	void *stream, *event;
	uint64_t mem;

	LK_CHECK(buf);
	for (unsigned i = 0; i < 2; i++) {
		LK_CHECK(!ck_device_open(&dev, "simulated:late=20000", &err));
		LK_CHECK(!ck_device_alloc(dev, 4096, &mem, &err));
		LK_CHECK(!dev->ops->stream(dev->dev, &stream, &err));
		copy.src = (uintptr_t)buf;
		copy.dst = mem + i;
		LK_CHECK(!dev->ops->copy(dev->dev, &copy, 1, CK_DEVICE_IN,
					 stream, &err));
		LK_CHECK(!dev->ops->event(dev->dev, stream, &event, &err));
		if (!i)
			*(volatile unsigned char *)buf = 7;
		LK_CHECK(dev->ops->wait(dev->dev, event, &err) == -EREMOTEIO);
		LK_CHECK(strstr(err.msg, i ? "outside" : "changed before"));
		dev->ops->event_free(dev->dev, event);
		dev->ops->stream_free(dev->dev, stream);
		ck_device_close(dev);
	}
	free(buf);
	LK_CHECK(!ck_device_open(&dev, "simulated:memory=1M", &err));
	LK_CHECK(!ck_device_alloc(dev, 1 << 20, &mem, &err));
	LK_CHECK(ck_device_alloc(dev, 1, &mem, &err) == -ENOMEM);
	LK_CHECK(strstr(err.msg, "1048576 are used"));
	ck_device_close(dev);
	LK_CHECK(ck_device_open(&dev, "abacus", &err) == -ENODEV);
	LK_CHECK(ck_device_open(&dev, "simulated:weight=3", &err) == -EINVAL);
}

int main(int argc, char **argv)
{
	unsigned nr = argc > 1 ? (unsigned)atoi(argv[1]) : 200;

	guards();
	ring_order();
	plans(nr);
	failures(nr / 2);
	into_slots(8);
	cancels(nr / 4);
	allocations();
	return 0;
}
