/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu - what a device does, and what a load makes of it: a line of JSON a step
 *
 *	gpu STEP DEVICE DIR [MIB]
 *
 * Needs no compiler of a vendor's, and no network.  DIR is where `make` puts a
 * checkpoint of MIB, which the other steps read.  Rates are GB/s (1e9), medians of
 * five after one that does not count.  See tests/bench/gpu.sh for the order.
 */
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/device/ring.h"
#include "core/lib/unshard.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#define ROUNDS 6 /* the first does not count */
#define FILES 4
#define TENSORS 8 /* of each file */
#define COLS 4096 /* of bfloat16 */
#define BLOCK (UINT64_C(8) << 20)

static const char *device, *dir;
static uint64_t mib;
static struct ck_err why;
static unshard_error err;

static void check(int ret, const char *line)
{
	if (!ret)
		return;
	printf("{\"error\": \"%s\"}\n", *line ? line : strerror(-ret));
	exit(1);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of ROUNDS values but the first. */
static double median(double *v)
{
	qsort(v + 1, ROUNDS - 1, sizeof(*v), by_value);
	return v[1 + (ROUNDS - 1) / 2];
}

static double seconds(int64_t since)
{
	return (double)(ck_now_ns() - since) / 1e9;
}

static struct ck_device *opened(void)
{
	struct ck_device *dev;

	check(ck_device_open(&dev, device, &why), why.msg);
	return dev;
}

static void *memory(size_t len, bool touched)
{
	void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(mem == MAP_FAILED ? -ENOMEM : 0, "");
	madvise(mem, len, MADV_HUGEPAGE);
	if (touched)
		memset(mem, 1, len);
	return mem;
}

/* ---- the device alone ---- */

static bool has_library(const char *name)
{
	void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);

	return lib;
}

static void inventory(void)
{
	struct rlimit lock = { 0 };
	struct utsname u;

	uname(&u);
	getrlimit(RLIMIT_MEMLOCK, &lock);
	printf("{\"kernel\": \"%s\", \"cpus\": %ld, \"memlock\": %llu, "
	       "\"libcuda\": %d, \"libcufile\": %d, \"libnccl\": %d}\n",
	       u.release, sysconf(_SC_NPROCESSORS_ONLN),
	       (unsigned long long)lock.rlim_cur, has_library("libcuda.so.1"),
	       has_library("libcufile.so.0"), has_library("libnccl.so.2"));
}

static void open_it(void)
{
	int64_t begun = ck_now_ns();
	struct ck_device *dev = opened();
	double first = seconds(begun), again;
	int node = dev->ops->node(dev->dev);

	ck_device_close(dev);
	begun = ck_now_ns();
	dev = opened();
	again = seconds(begun);
	ck_device_close(dev);
	printf("{\"first_ms\": %.2f, \"again_ms\": %.2f, \"numa_node\": %d}\n",
	       first * 1e3, again * 1e3, node);
}

/* GB/s of copies of @each bytes, 256 MiB of them or one. */
static double copy_rate(struct ck_device *dev, uint64_t mem, void *host,
			uint64_t each, uint64_t all, enum ck_device_way way)
{
	const struct ck_device_ops *ops = dev->ops;
	double v[ROUNDS];

	for (unsigned r = 0; r < ROUNDS; r++) {
		int64_t begun = ck_now_ns();
		void *stream, *event;

		check(ops->stream(dev->dev, &stream, &why), why.msg);
		for (uint64_t at = 0; at < all; at += each) {
			struct ck_device_copy c = { .run = each };

			c.dst = way == CK_DEVICE_IN ? mem + at :
						      (uintptr_t)host + at;
			c.src = way == CK_DEVICE_IN ? (uintptr_t)host + at :
						      mem + at;
			check(ops->copy(dev->dev, &c, 1, way, stream, &why),
			      why.msg);
		}
		check(ops->event(dev->dev, stream, &event, &why), why.msg);
		check(ops->wait(dev->dev, event, &why), why.msg);
		v[r] = (double)all / seconds(begun) / 1e9;
		ops->event_free(dev->dev, event);
		ops->stream_free(dev->dev, stream);
	}
	return median(v);
}

static void copies(bool pinned)
{
	struct ck_device *dev = opened();
	uint64_t all = UINT64_C(64) << 20, mem;
	void *host = memory(all, true);

	check(ck_device_alloc(dev, all, &mem, &why), why.msg);
	if (pinned)
		check(dev->ops->pin(dev->dev, host, all, &why), why.msg);
	printf("{");
	for (uint64_t each = 64 << 10; each <= all; each *= 32)
		printf("\"in_%llu_kib\": %.2f, ",
		       (unsigned long long)each >> 10,
		       copy_rate(dev, mem, host, each, all, CK_DEVICE_IN));
	printf("\"in_8192_kib\": %.2f, \"out_8192_kib\": %.2f}\n",
	       copy_rate(dev, mem, host, BLOCK, all, CK_DEVICE_IN),
	       copy_rate(dev, mem, host, BLOCK, all, CK_DEVICE_OUT));
	if (pinned)
		dev->ops->unpin(dev->dev, host);
	ck_device_close(dev);
}

static void pinned(void)
{
	copies(true);
}

static void pageable(void)
{
	copies(false);
}

static void pin_cost(void)
{
	struct ck_device *dev = opened();
	size_t len = (size_t)128 << 20;
	double ms[2];

	for (unsigned touched = 0; touched < 2; touched++) {
		void *mem = memory(len, touched);
		int64_t begun = ck_now_ns();

		check(dev->ops->pin(dev->dev, mem, len, &why), why.msg);
		ms[touched] = seconds(begun) * 1e3;
		dev->ops->unpin(dev->dev, mem);
		munmap(mem, len);
	}
	ck_device_close(dev);
	printf("{\"fresh_128_mib_ms\": %.2f, \"touched_128_mib_ms\": %.2f}\n",
	       ms[0], ms[1]);
}

static void landed(void *note, const struct ck_err *failed)
{
	(void)note;
	check(failed ? -failed->code : 0, failed ? failed->msg : "");
}

static void freed(void *arg)
{
	(void)arg;
}

/* Until all have landed. */
static void drain(struct ck_ring *ring)
{
	struct ck_ring_slot *all[16];

	for (unsigned i = 0; i < ck_ring_slots(ring); i++)
		all[i] = ck_ring_take(ring);
	for (unsigned i = 0; i < ck_ring_slots(ring); i++)
		ck_ring_give_back(all[i]);
}

/* Slots that nobody fills: what the ring by itself costs. */
static void ring_alone(void)
{
	struct ck_ring_in in = { .dev = opened(),
				 .slots = 16,
				 .chunk = BLOCK,
				 .landed = landed,
				 .freed = freed };
	uint64_t mem, all = UINT64_C(512) << 20;
	struct ck_ring *ring;
	double v[ROUNDS];

	check(ck_device_alloc(in.dev, BLOCK, &mem, &why), why.msg);
	check(ck_ring_new(&ring, &in, &why), why.msg);
	for (unsigned r = 0; r < ROUNDS; r++) {
		int64_t begun = ck_now_ns();

		for (uint64_t at = 0; at < all; at += BLOCK) {
			struct ck_ring_slot *slot = ck_ring_take(ring);
			struct ck_device_copy c = { .dst = mem,
						    .src = (uintptr_t)slot->mem,
						    .run = BLOCK };

			ck_ring_prepare(slot);
			ck_ring_copy(slot, CK_DEVICE_IN, &c, 1);
			ck_ring_submit(slot);
		}
		drain(ring);
		v[r] = (double)all / seconds(begun) / 1e9;
	}
	ck_ring_free(ring);
	ck_device_close(in.dev);
	printf("{\"rate\": %.2f}\n", median(v));
}

/* ---- a checkpoint ---- */

static uint64_t rows(void)
{
	return (mib << 20) / FILES / TENSORS / COLS / 2;
}

static void make_file(unsigned nr)
{
	uint64_t each = rows() * COLS * 2, len = 0;
	char path[4096], head[4096];
	uint64_t *buf = malloc(1 << 20), seed = nr + 1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/model-%05u-of-%05u.safetensors", dir,
		 nr + 1, FILES);
	f = fopen(path, "we");
	check(f && buf ? 0 : -errno, "");
	len = (uint64_t)snprintf(head + 8, sizeof(head) - 8, "{");
	for (unsigned t = 0; t < TENSORS; t++)
		len += (uint64_t)snprintf(
			head + 8 + len, sizeof(head) - 8 - len,
			"%s\"layers.%u.weight\":{\"dtype\":\"BF16\",\"shape\":"
			"[%llu,%u],\"data_offsets\":[%llu,%llu]}",
			t ? "," : "", nr * TENSORS + t,
			(unsigned long long)rows(), COLS,
			(unsigned long long)(t * each),
			(unsigned long long)((t + 1) * each));
	head[8 + len++] = '}';
	while ((8 + len) % 4096)
		head[8 + len++] = ' ';
	memcpy(head, &len, 8);
	check(fwrite(head, 1, 8 + len, f) == 8 + len ? 0 : -EIO, path);
	for (uint64_t at = 0; at < TENSORS * each; at += 1 << 20) {
		uint64_t n = CK_MIN(UINT64_C(1) << 20, TENSORS * each - at);

		for (unsigned i = 0; i < (1 << 20) / 8; i++)
			buf[i] = seed = seed * 6364136223846793005u + 1;
		check(fwrite(buf, 1, n, f) == n ? 0 : -EIO, path);
	}
	check(fflush(f) || fsync(fileno(f)) ? -errno : 0, path);
	fclose(f);
	free(buf);
}

static void make(void)
{
	for (unsigned i = 0; i < FILES; i++)
		make_file(i);
	printf("{\"bytes\": %llu}\n",
	       (unsigned long long)(rows() * COLS * 2 * TENSORS * FILES));
}

struct target {
	unshard_ctx *ctx;
	unshard_ckpt *ck;
	unshard_item item[FILES * TENSORS];
	uint64_t start[2], len[2]; /* of each */
	uint64_t mem, bytes;
	int32_t nr;
};

/* Memory for @share of each tensor's columns. */
static void aim(struct target *t, const char *where, unsigned share)
{
	unshard_open_opts oo = { .size = sizeof(oo),
				 .options = "sandbox=off",
				 .isolation = UNSHARD_IN_PROCESS };

	memset(t, 0, sizeof(*t));
	t->len[0] = rows();
	t->len[1] = COLS / share;
	t->bytes = rows() * t->len[1] * 2 * FILES * TENSORS;
	check(unshard_ctx_new(&t->ctx, NULL, &err), err.text);
	check(unshard_open(t->ctx, dir, &oo, &t->ck, &err), err.text);
	check(unshard_device_open(t->ctx, where, &t->nr, &err), err.text);
	check(unshard_device_alloc(t->ctx, t->nr, t->bytes, &t->mem, &err),
	      err.text);
	for (uint32_t i = 0; i < FILES * TENSORS; i++)
		t->item[i] =
			(unshard_item){ .size = sizeof(t->item[0]),
					.tensor = i,
					.start = t->start,
					.len = t->len,
					.mem = t->mem +
					       i * (t->bytes / FILES / TENSORS),
					.device = t->nr };
}

static void load(struct target *t, const char *options, unshard_stats *stats)
{
	unshard_load_opts lo = { .size = sizeof(lo), .options = options };
	unshard_req *req;

	check(unshard_load(t->ck, t->item, FILES * TENSORS, &lo, &req, &err),
	      err.text);
	check(unshard_wait(req, -1, &err), err.text);
	unshard_req_stats(req, stats);
	unshard_req_free(req);
}

static void load_rate(const char *where, const char *options, unsigned share)
{
	unshard_stats stats = { .size = sizeof(stats) };
	struct target t;
	double v[ROUNDS];

	aim(&t, where, share);
	for (unsigned r = 0; r < ROUNDS; r++) {
		int64_t begun = ck_now_ns();

		load(&t, options, &stats);
		v[r] = (double)t.bytes / seconds(begun) / 1e9;
	}
	printf("{\"rate\": %.2f, \"bytes\": %llu, \"storage\": %llu, "
	       "\"direct\": %llu, \"slots\": %u, \"why\": \"%s\"}\n",
	       median(v), (unsigned long long)t.bytes,
	       (unsigned long long)stats.storage,
	       (unsigned long long)stats.direct, stats.ring, stats.why);
	unshard_unref(t.ck);
	unshard_ctx_free(t.ctx);
}

static void resident(void)
{
	load_rate(device, NULL, 1);
}

static void direct(void)
{
	load_rate(device, "cache=direct", 1);
}

static void slices(void)
{
	load_rate(device, NULL, 8);
}

static void host(void)
{
	load_rate("host", NULL, 1);
}

static void verify(void)
{
	unshard_stats stats = { .size = sizeof(stats) };
	struct target t, plain;
	unsigned char *a, *b;

	aim(&t, device, 4);
	aim(&plain, "host", 4);
	load(&t, NULL, &stats);
	load(&plain, NULL, &stats);
	a = malloc(t.bytes);
	b = malloc(t.bytes);
	check(a && b ? 0 : -ENOMEM, "");
	check(unshard_device_copy(t.ctx, t.nr, UNSHARD_FROM_DEVICE, t.mem, a,
				  t.bytes, &err),
	      err.text);
	check(unshard_device_copy(plain.ctx, plain.nr, UNSHARD_FROM_DEVICE,
				  plain.mem, b, t.bytes, &err),
	      err.text);
	check(memcmp(a, b, t.bytes) ? -EIO : 0, "the bytes differ");
	printf("{\"same\": %llu}\n", (unsigned long long)t.bytes);
	free(a);
	free(b);
	unshard_unref(t.ck);
	unshard_ctx_free(t.ctx);
	unshard_unref(plain.ck);
	unshard_ctx_free(plain.ctx);
}

/* ---- storage alone ---- */

struct reader {
	pthread_t thread;
	unsigned nr;
	uint64_t bytes;
};

static void *read_file(void *arg)
{
	struct reader *r = arg;
	void *buf = memory(BLOCK, true);
	char path[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/model-%05u-of-%05u.safetensors", dir,
		 r->nr + 1, FILES);
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	check(fd < 0 ? -errno : 0, path);
	for (r->bytes = 0; (n = pread(fd, buf, BLOCK, (off_t)r->bytes)) > 0;)
		r->bytes += (uint64_t)n;
	check(n < 0 ? -errno : 0, path);
	close(fd);
	munmap(buf, BLOCK);
	return NULL;
}

/* The same files past the page cache, a thread each: what a load may reach. */
static void raw(void)
{
	struct reader r[FILES];
	double v[ROUNDS];

	for (unsigned round = 0; round < ROUNDS; round++) {
		int64_t begun = ck_now_ns();
		uint64_t all = 0;

		for (unsigned i = 0; i < FILES; i++) {
			r[i].nr = i;
			check(-pthread_create(&r[i].thread, NULL, read_file,
					      &r[i]),
			      "");
		}
		for (unsigned i = 0; i < FILES; i++) {
			pthread_join(r[i].thread, NULL);
			all += r[i].bytes;
		}
		v[round] = (double)all / seconds(begun) / 1e9;
	}
	printf("{\"rate\": %.2f}\n", median(v));
}

static const struct {
	const char *name;
	void (*run)(void);
} steps[] = {
	{ "inventory", inventory }, { "open", open_it },
	{ "pinned", pinned },	    { "pageable", pageable },
	{ "pin_cost", pin_cost },   { "ring", ring_alone },
	{ "make", make },	    { "host", host },
	{ "resident", resident },   { "raw", raw },
	{ "direct", direct },	    { "slices", slices },
	{ "verify", verify },
};

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	device = argv[2];
	dir = argv[3];
	mib = argc > 4 ? strtoull(argv[4], NULL, 10) : 1024;
	for (unsigned i = 0; i < CK_ARRAY_LEN(steps); i++)
		if (!strcmp(steps[i].name, argv[1])) {
			steps[i].run();
			return 0;
		}
	return 2;
}
