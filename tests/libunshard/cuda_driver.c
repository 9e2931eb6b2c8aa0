/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_driver - the "cuda" device on a driver that tests/fakes/cuda.c stands in for
 *
 * What there is not is said in one line, at once; what there is does all that a
 * load wants of it.  Each case is a process, for a library that is loaded stays.
 */
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/device/ring.h"
#include "core/lib/unshard.h"
#include "tests/lib/loadkit.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
#define AT_ONCE_MS 1000
#else
#define AT_ONCE_MS 5
#endif

/* The soname that is looked for is that of what is loaded already. */
static void use_fake(const char *script)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/fakes/libcuda.so.1", getenv("B"));
	LK_CHECK(!setenv("FAKE_CUDA", script, 1));
	if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
		fprintf(stderr, "%s\n", dlerror());
	LK_CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
}

static void in_child(void (*run)(const void *), const void *arg)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		run(arg);
		exit(0); /* a sanitizer looks for leaks */
	}
	LK_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
}

struct absent {
	const char *script; /* NULL: no library */
	const char *device, *line;
	bool in_caps; /* it can be known without starting the driver */
};

static void is_absent(const void *arg)
{
	const struct absent *a = arg;
	unshard_error err;
	unshard_ctx *ctx;
	char caps[16384];
	int64_t begun, best = INT64_MAX;
	int32_t nr;

	if (a->script)
		use_fake(a->script);
	LK_CHECK(!unshard_ctx_new(&ctx, NULL, &err));
	for (unsigned i = 0; i < 20; i++) {
		begun = ck_now_ns();
		LK_CHECK(unshard_device_open(ctx, a->device, &nr, &err) ==
			 -ENODEV);
		best = CK_MIN(best, ck_now_ns() - begun);
	}
	if (best > AT_ONCE_MS * INT64_C(1000000) ||
	    !strstr(err.text, a->line) || strchr(err.text, '\n'))
		fprintf(stderr, "%s: %lld ns: %s\n", a->line, (long long)best,
			err.text);
	LK_CHECK(best < AT_ONCE_MS * INT64_C(1000000));
	LK_CHECK(strstr(err.text, a->line) && !strchr(err.text, '\n'));
	LK_CHECK(unshard_ctx_caps(ctx, caps, sizeof(caps)) > 0);
	LK_CHECK(!!strstr(caps, "\"simulated\", \"cuda\"]") == !a->in_caps);
	LK_CHECK(!!strstr(caps, a->line) == a->in_caps);
	unshard_ctx_free(ctx);
}

static void absences(void)
{
	static const struct absent all[] = {
		{ NULL, "cuda", "libcuda.so.1: cannot open", true },
		{ "stub=1", "cuda:0",
		  "libcuda.so.1 is the stub that programs are linked with",
		  true },
		{ "init=34", "cuda",
		  "libcuda.so.1 is the stub that programs are linked with",
		  false },
		{ "version=10020", "cuda",
		  "libcuda.so.1: the driver is of CUDA 10.2, expected 11.0",
		  true },
		{ "init=100", "cuda",
		  "cuInit: no CUDA-capable device is detected "
		  "(CUDA_ERROR_NO_DEVICE, 100)",
		  false },
		{ "count=2", "cuda:7",
		  "device cuda:7: there are 2 CUDA devices here, counted from 0",
		  false },
	};
	void *there = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (there)
		printf("there is a driver here: its absence is not tried\n");
	for (unsigned i = 0; i < CK_ARRAY_LEN(all) && !there; i++)
		in_child(is_absent, &all[i]);
}

/* ---- one that works ---- */

static void load_once(struct ck_load_pool *pool, struct ck_device *dev,
		      struct ck_ring *ring, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u, mem[LK_MAX];
	struct ck_err err = { 0 };
	struct shardkit k;
	struct lk_load l;
	struct ck_load *load;

	lk_tensor(&k, state);
	sk_open(&k, "plain");
	lk_make(&l, &k, &state, 1 + (unsigned)seed % LK_MAX, false);
	l.in.ring = ring;
	for (unsigned i = 0; i < l.nr; i++) {
		struct lk_item *it = &l.v[i];

		LK_CHECK(!ck_device_alloc(dev, it->bytes, &mem[i], &err));
		LK_CHECK(!ck_device_put(dev, mem[i], it->mem, it->bytes, &err));
		l.item[i].mem =
			(void *)(uintptr_t)(mem[i] +
					    (uint64_t)((unsigned char *)
							       it->in.mem -
						       it->mem));
	}
	LK_CHECK(!ck_load_start(&load, pool, &l.in, NULL, &err));
	if (ck_load_wait(load, -1, NULL, &err))
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed,
			err.msg);
	LK_CHECK(!ck_load_wait(load, -1, NULL, &err));
	ck_load_free(load);
	for (unsigned i = 0; i < l.nr; i++) {
		struct lk_item *it = &l.v[i];

		LK_CHECK(!ck_device_get(dev, it->mem, mem[i], it->bytes, &err));
		LK_CHECK(!ck_device_free(dev, mem[i], &err));
		LK_CHECK(lk_whole(&l, i));
	}
	lk_free(&l);
	sk_free(&k);
}

struct many {
	unsigned nr;
	const char *script;
	bool batched;
};

static long batched(void)
{
	long (*get)(void);

	*(void **)&get = dlsym(RTLD_DEFAULT, "fake_cuda_batched");
	return get();
}

static void loads(const void *arg)
{
	const struct many *many = arg;
	const unsigned *nr = &many->nr;
	struct ck_load_pool *pool;
	struct ck_device *dev;
	struct ck_ring *ring;
	struct ck_err err = { 0 };

	use_fake(many->script);
	LK_CHECK(!ck_load_pool_new(&pool, 2, &err));
	LK_CHECK(!ck_device_open(&dev, "cuda:1", &err) && dev->ordinal == 1);
	LK_CHECK(!ck_load_ring_new(&ring, pool, dev, 3, CK_LOAD_CHUNK_MIN,
				   &err));
	for (unsigned seed = 1; seed <= *nr; seed++)
		load_once(pool, dev, ring, seed);
	LK_CHECK(!!batched() == many->batched);
	ck_ring_free(ring);
	ck_device_close(dev);
	ck_load_pool_free(pool);
}

static void is_full(const void *arg)
{
	struct ck_device *dev;
	struct ck_err err = { 0 };
	uint64_t mem;

	(void)arg;
	use_fake("device=memory=1M");
	LK_CHECK(!ck_device_open(&dev, "cuda", &err));
	LK_CHECK(ck_device_alloc(dev, 1 << 21, &mem, &err) == -ENOMEM);
	LK_CHECK(strstr(err.msg, "2097152 bytes of memory: it has 2000, of "
				 "which 1000 are left"));
	LK_CHECK(ck_device_free(dev, 12345, &err) == -EREMOTEIO);
	LK_CHECK(strstr(err.msg, "cuMemFree: unknown error"));
	ck_device_close(dev);
	LK_CHECK(ck_device_open(&dev, "cuda:x", &err) == -EINVAL);
}

int main(int argc, char **argv)
{
	unsigned nr = (argc > 1 ? (unsigned)atoi(argv[1]) : 200) / 4;

	absences();
	in_child(loads, &(struct many){ nr, "count=2,device=late=0", true });
	in_child(loads,
		 &(struct many){ nr / 2 + 1, "batch=1,count=2,device=late=0",
				 false });
	in_child(is_full, NULL);
	return 0;
}
