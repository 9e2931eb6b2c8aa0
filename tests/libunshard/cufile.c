/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile - loads to a "cuda" device with cuFile beside it, as tests/fakes/ have both
 *
 * Whatever cuFile does, or refuses, the bytes are right; what reads them is said.
 * Each case is a process, for a library that is loaded stays.
 */
#include "core/base/check.h"
#include "core/lib/unshard.h"
#include "tests/lib/loadkit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS 300
#define COLS 3001 /* no row begins where a block does */
#define TENSORS 4
#define ONE ((uint64_t)ROWS * COLS * 4)
#define BUSY 75 /* how a case ends that is to be tried once more */
#define TURNS 20

static char path[300];
static unshard_error err;

static void ok(int ret)
{
	if (ret)
		fprintf(stderr, "%d: %s\n", ret, err.text);
	LK_CHECK(!ret);
}

static uint32_t value(uint64_t i)
{
	return (uint32_t)(i * 2654435761u ^ i >> 7);
}

/* Four tensors of 3.4 MiB in one file of safetensors. */
static void write_file(void)
{
	char head[1024];
	int n = snprintf(head, sizeof(head), "{");
	uint64_t len;
	FILE *f = fopen(path, "w");

	LK_CHECK(f);
	for (unsigned i = 0; i < TENSORS; i++)
		n += snprintf(head + n, sizeof(head) - (size_t)n,
			      "%s\"t%u\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
			      "\"data_offsets\":[%llu,%llu]}",
			      i ? "," : "", i, ROWS, COLS,
			      (unsigned long long)(i * ONE),
			      (unsigned long long)((i + 1) * ONE));
	n += snprintf(head + n, sizeof(head) - (size_t)n, "}");
	len = (uint64_t)n;
	fwrite(&len, 8, 1, f);
	fwrite(head, 1, len, f);
	for (uint64_t i = 0; i < TENSORS * ONE / 4; i++) {
		uint32_t v = value(i);

		fwrite(&v, 4, 1, f);
	}
	LK_CHECK(!fflush(f) && !fsync(fileno(f)) && !fclose(f));
}

static void use_fake(const char *name)
{
	char lib[300];

	snprintf(lib, sizeof(lib), "%s/fakes/%s", getenv("B"), name);
	if (!dlopen(lib, RTLD_NOW | RTLD_GLOBAL))
		fprintf(stderr, "%s\n", dlerror());
	LK_CHECK(dlopen(name, RTLD_NOW | RTLD_NOLOAD));
}

static long count(const char *what)
{
	void *lib = dlopen("libcufile.so.0", RTLD_NOW | RTLD_NOLOAD);
	long (*get)(const char *);

	LK_CHECK(lib);
	*(void **)&get = dlsym(lib, "fake_cufile_count");
	LK_CHECK(get);
	return get(what);
}

/* ---- one load ---- */

struct place {
	uint64_t row, col, rows, cols; /* of a tensor */
	int64_t gap; /* elements between rows in memory */
};

/* Tensor i's @p to a megabyte times i, plus an odd place. */
static uint64_t memory_of(unsigned i)
{
	return i * (ONE + 65536) + 4 * i;
}

static void load(unshard_ctx *ctx, const struct place *p, const char *options,
		 unshard_stats *stats)
{
	unshard_open_opts oo = { .size = sizeof(oo),
				 .options = "sandbox=off",
				 .isolation = UNSHARD_IN_PROCESS };
	unshard_load_opts lo = { .size = sizeof(lo), .options = options };
	uint64_t start[2] = { p->row, p->col }, len[2] = { p->rows, p->cols };
	uint64_t all = memory_of(TENSORS), mem;
	int64_t stride[2] = { (int64_t)p->cols + p->gap, 1 };
	unshard_item item[TENSORS];
	uint32_t *got = calloc(1, all);
	unshard_ckpt *ck;
	unshard_req *req;
	int32_t nr;

	LK_CHECK(got);
	ok(unshard_open(ctx, path, &oo, &ck, &err));
	ok(unshard_device_open(ctx, "cuda", &nr, &err));
	ok(unshard_device_alloc(ctx, nr, all, &mem, &err));
	ok(unshard_device_copy(ctx, nr, UNSHARD_TO_DEVICE, mem, got, all,
			       &err));
	for (unsigned i = 0; i < TENSORS; i++)
		item[i] = (unshard_item){ .size = sizeof(item[i]),
					  .tensor = i,
					  .start = start,
					  .len = len,
					  .mem = mem + memory_of(i),
					  .stride = stride,
					  .device = nr };
	ok(unshard_load(ck, item, TENSORS, &lo, &req, &err));
	ok(unshard_wait(req, -1, &err));
	*stats = (unshard_stats){ .size = sizeof(*stats) };
	ok(unshard_req_stats(req, stats));
	unshard_req_free(req);
	ok(unshard_device_copy(ctx, nr, UNSHARD_FROM_DEVICE, mem, got, all,
			       &err));
	ok(unshard_device_free(ctx, nr, mem, &err));
	for (unsigned i = 0; i < TENSORS; i++)
		for (uint64_t r = 0; r < p->rows; r++) {
			const uint32_t *row = got + memory_of(i) / 4 +
					      r * (uint64_t)stride[0];

			for (uint64_t c = 0; c < (uint64_t)stride[0]; c++) {
				uint64_t at = i * ONE / 4 +
					      (p->row + r) * COLS + p->col + c;
				bool in = c < p->cols;

				if (row[c] != (in ? value(at) : 0))
					fprintf(stderr, "%u %llu %llu\n", i,
						(unsigned long long)r,
						(unsigned long long)c);
				LK_CHECK(row[c] == (in ? value(at) : 0));
			}
		}
	unshard_unref(ck);
	free(got);
}

/* ---- cases ---- */

struct tried {
	const char *script; /* NULL: there is no cuFile */
	const char *options;
	enum { ALL, SOME, NONE } by_device;
	long reads; /* at most; 0: none of all */
	const char *caps; /* in them afterwards */
	const char *why; /* of the load; NULL: "" */
};

static const struct place whole = { 0, 0, ROWS, COLS, 0 };

static unshard_ctx *context(void)
{
	unshard_ctx_opts opts = {
		.size = sizeof(opts), .chunk = 1 << 20, .depth = 4, .threads = 2
	};
	unshard_ctx *ctx;

	ok(unshard_ctx_new(&ctx, &opts, &err));
	return ctx;
}

/* It was measured which is the faster. */
static const char timed[] = "KiB take it ";

/*
 * Which it is to be is set by what the device's copies take; where it came out
 * otherwise, the machine had other things to do meanwhile.
 */
static void end_if_busy(unshard_ctx *ctx, bool slower)
{
	char caps[16384];

	LK_CHECK(unshard_ctx_caps(ctx, caps, sizeof(caps)) > 0);
	if (!strstr(caps, timed) == !slower)
		return;
	unshard_ctx_free(ctx);
	exit(BUSY);
}

static void one_case(const void *arg)
{
	const struct tried *t = arg;
	unshard_ctx *ctx = context();
	unshard_stats s;
	char caps[16384];

	use_fake("libcuda.so.1");
	if (t->script && !strncmp(t->script, "unset", 5))
		LK_CHECK(!unsetenv("CUFILE_ENV_PATH_JSON"));
	if (t->script) {
		LK_CHECK(!setenv("FAKE_CUFILE", t->script, 1));
		use_fake("libcufile.so.0");
	}
	load(ctx, &whole, t->options, &s);
	end_if_busy(ctx, !strcmp(t->caps, timed));
	if (t->by_device == ALL) /* now that it is known to be the faster */
		load(ctx, &whole, t->options, &s);
	LK_CHECK(unshard_ctx_caps(ctx, caps, sizeof(caps)) > 0);
	if (!strstr(caps, t->caps) || strcmp(s.why, t->why ? t->why : ""))
		fprintf(stderr, "%s: %s\n%s\n", t->script, s.why,
			strstr(caps, "\"cufile\""));
	LK_CHECK(strstr(caps, t->caps));
	LK_CHECK(!strcmp(s.why, t->why ? t->why : ""));
	if (t->by_device == ALL)
		LK_CHECK(s.by_device >= s.wanted - (1 << 20) &&
			 s.by_device <= s.storage);
	else if (t->by_device == SOME)
		LK_CHECK(s.by_device && s.by_device < s.wanted);
	else
		LK_CHECK(!s.by_device);
	LK_CHECK(s.storage >= s.wanted && s.storage <= s.wanted * 102 / 100);
	LK_CHECK(!t->script || count("reads") <= t->reads || !t->reads);
	unshard_ctx_free(ctx);
	LK_CHECK(!t->script || (!count("files") && !count("rooms")));
}

#define FAILED "the device's own reads failed: the rest went by way of the host"

static void in_child(void (*run)(const void *), const void *arg)
{
	int status = BUSY << 8;

	for (unsigned turn = 0; turn < TURNS && status == BUSY << 8; turn++) {
		pid_t pid = fork();

		if (!pid) {
			run(arg);
			exit(0); /* a sanitizer looks for leaks */
		}
		LK_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	}
	LK_CHECK(!status);
}

static void cases(void)
{
	static const struct tried all[] = {
		{ NULL, "cache=direct", NONE, 0,
		  "\"cufile\": \"libcufile.so.0: cannot open", NULL },
		{ "unset=1", "cache=direct", NONE, 0,
		  "the driver nvidia-fs is not loaded, and neither", NULL },
		{ "driver=5001", "cache=direct", NONE, 0,
		  "cuFileDriverOpen: the driver nvidia-fs is not loaded (5001)",
		  NULL },
		{ "compat=1", "cache=direct", NONE, 0,
		  "its compatibility mode is on", NULL },
		{ "", "cache=direct", ALL, 0, "\"cufile\": true", NULL },
		{ "short=65536", "cache=direct", ALL, 0, "\"cufile\": true",
		  NULL },
		{ "", "cache=direct,cufile=off", NONE, 0, "\"cufile\": true",
		  NULL },
		{ "slow=400000", "cache=direct", NONE, 2, timed, NULL },
		{ "register=5008", "cache=direct", NONE, 0,
		  "cuFileHandleRegister: not on this file, or its file system "
		  "(5008)",
		  NULL },
		{ "room=5036", "cache=direct", NONE, 0, "\"cufile\": true",
		  NULL },
		{ "eio=6", "cache=direct", SOME, 0,
		  "cuFileRead: Input/output error", FAILED },
		{ "fail=9", "cache=direct", SOME, 0,
		  "cuFileRead: internal error (5030)", FAILED },
	};
	void *there = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
	bool is_set = !access("/proc/driver/nvidia-fs", F_OK) ||
		      !access("/etc/cufile.json", F_OK);

	for (unsigned i = 0; i < CK_ARRAY_LEN(all); i++)
		if (i > 1 || (i && !is_set) || (!i && !there))
			in_child(one_case, &all[i]);
}

/* Boxes and memory with gaps; a cold file, and one in the page cache. */
static void shapes(const void *arg)
{
	static const struct place all[] = {
		{ 0, 0, ROWS, COLS, 5 },
		{ 7, 0, 211, COLS, 0 },
		{ 1, 3, 290, 2987, 11 },
		{ 0, 0, ROWS, 40, 0 }, /* too little of it is wanted */
	};
	unshard_ctx *ctx = context();
	unshard_stats s;

	(void)arg;
	use_fake("libcuda.so.1");
	LK_CHECK(!setenv("FAKE_CUFILE", "", 1));
	use_fake("libcufile.so.0");
	for (unsigned i = 0; i < CK_ARRAY_LEN(all); i++) {
		load(ctx, &all[i], "cache=direct", &s);
		end_if_busy(ctx, false);
		LK_CHECK(!!s.by_device == (i < 3));
	}
	load(ctx, &whole, "cache=auto", &s); /* the page cache is warm by now */
	load(ctx, &whole, "cache=auto", &s);
	LK_CHECK(s.by_device < s.wanted / 2);
	unshard_ctx_free(ctx);
}

int main(void)
{
	snprintf(path, sizeof(path), "%s/cufile-%d.safetensors", getenv("B"),
		 getpid());
	write_file();
	LK_CHECK(!setenv("CUFILE_ENV_PATH_JSON", "/dev/null", 1));
	/* Copies from the host are slow, so that cuFile is the faster. */
	LK_CHECK(!setenv("FAKE_CUDA", "device=late=0+rate=32M", 1));
	cases();
	in_child(shapes, NULL);
	unlink(path);
	return 0;
}
