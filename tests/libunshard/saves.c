/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves - new checkpoints from memory, by unshard_save_*, read again
 *
 * Tensors of several dtypes, in one piece, cut among ranks that are processes of
 * their own, held by several, in strides and in memory of a device.
 */
#include "tests/lib/loadkit.h"
#include "tests/lib/savekit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS 480
#define COLS 64

/* ---- one process ---- */

static void declare_all(unshard_save *s)
{
	const unshard_slice v[] = {
		sv_slice("w", "float32", 2, DIMS(ROWS, COLS), NULL, NULL),
		sv_slice("half", "bfloat16", 1, DIMS(1000), NULL, NULL),
		sv_slice("scalar", "int64", 0, NULL, NULL, NULL),
		sv_slice("none", "float32", 2, DIMS(0, 7), NULL, NULL),
		sv_slice("cube", "uint8", 3, DIMS(5, 6, 7), NULL, NULL),
	};
	unshard_error err;

	sv_ok(unshard_save_declare(s, v, 5, &err), &err);
}

/* Turned, so that each element is gathered, and in boxes. */
static void write_cube(unshard_save *s)
{
	const int64_t stride[] = { 1, 5, -30 };
	unsigned char turned[210];
	unshard_item one = sv_item(4, turned + 6 * 30);
	unshard_error err;

	for (int i = 0; i < 210; i++)
		turned[(6 - i % 7) * 30 + i / 7 % 6 * 5 + i / 42] = sv_big[i];
	one.stride = stride;
	one.start = DIMS(0, 0, 0);
	one.len = DIMS(2, 6, 7);
	sv_ok(unshard_save_write(s, &one, 1, &err), &err);
	one.start = DIMS(2, 0, 0);
	one.len = DIMS(3, 6, 3);
	one.mem += 2;
	sv_ok(unshard_save_write(s, &one, 1, &err), &err);
	one.start = DIMS(2, 0, 3);
	one.len = DIMS(3, 6, 4);
	one.mem -= 3 * 30;
	sv_ok(unshard_save_write(s, &one, 1, &err), &err);
}

static void one_alone(const char *format)
{
	bool dcp = !strcmp(format, "dcp");
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s;
	unshard_error err;

	opts.format = format;
	s = sv_begin(ctx, format, &opts);
	declare_all(s);
	sv_write_one(s, 0, sv_big);
	sv_write_one(s, 1, sv_big + 7);
	sv_write_one(s, 2, sv_big + 64);
	sv_write_one(s, 3, NULL);
	write_cube(s);
	LK_CHECK(!sv_is_there(format));
	sv_ok(unshard_save_publish(s, &err), &err);
	sv_ok(unshard_save_publish(s, &err), &err); /* as often as one likes */
	LK_CHECK(sv_is_there(format));
	sv_holds(ctx, format, "w", sv_big, ROWS * COLS * 4);
	sv_holds(ctx, format, "half", sv_big + 7, 2000);
	sv_holds(ctx, format, "scalar", sv_big + 64, 8);
	sv_holds(ctx, format, "cube", sv_big, 210);
	sv_holds(ctx, format, "none", sv_big, 0);
	unshard_save_free(s);
	sv_is(unshard_save_new(ctx, sv_dir, format, &opts, &s, &err), EEXIST,
	      &err, "exists", format, "");
	unshard_ctx_free(ctx);
	printf("%s: one alone%s\n", format, dcp ? "" : ", too");
}

/* Objects, and where all of it stood. */
static void objects(void)
{
	static const char pickle[] = "\x80\x02K\x2a.",
			  other[] = "\x80\x02K\x2b.";
	unshard_open_opts how = { .size = sizeof(how) };
	unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save *s = sv_begin(ctx, "objects", &opts);
	unshard_slice v[] = {
		sv_slice("a.0", "uint8", 1, DIMS(100), NULL, NULL),
		sv_slice("step", NULL, 0, NULL, NULL, NULL),
		sv_slice("later", NULL, 0, NULL, NULL, NULL),
	};
	char got[100], path[4096];
	unshard_ckpt *ck;
	unshard_error err;
	size_t len;

	v[0].path = "[\"a\", 0]";
	sv_ok(unshard_save_declare(s, v, 3, &err), &err);
	sv_write_one(s, 0, sv_big);
	sv_ok(unshard_save_object(s, "step", pickle, 5, &err), &err);
	sv_ok(unshard_save_object(s, "step", pickle, 5, &err), &err);
	sv_is(unshard_save_object(s, "step", other, 5, &err), EBADMSG, &err,
	      "step", "bytes 0 to 5", "before");
	sv_is(unshard_save_object(s, "nobody", other, 5, &err), ENOENT, &err,
	      "nobody", "was not declared", "");
	sv_is(unshard_save_publish(s, &err), ENODATA, &err, "not complete",
	      "object later", "was not written");
	sv_ok(unshard_save_object(s, "later", other, 5, &err), &err);
	sv_ok(unshard_save_publish(s, &err), &err);
	unshard_save_free(s);
	snprintf(path, sizeof(path), "%s/objects", sv_dir);
	sv_ok(unshard_open(ctx, path, &how, &ck, &err), &err);
	sv_ok(unshard_object(ck, "step", got, sizeof(got), &len, &err), &err);
	LK_CHECK(len == 5 && !memcmp(got, pickle, 5));
	sv_ok(unshard_object(ck, "later", got, sizeof(got), &len, &err), &err);
	LK_CHECK(len == 5 && !memcmp(got, other, 5));
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

/* ---- several ---- */

/* @part(rank) in a process each; its exit status is awaited. */
static void each(uint32_t ranks, void (*part)(uint32_t rank, uint32_t ranks))
{
	pid_t pid[16];
	int status;

	for (uint32_t r = 0; r < ranks; r++) {
		fflush(NULL);
		pid[r] = fork();
		LK_CHECK(pid[r] >= 0);
		if (!pid[r]) {
			part(r, ranks);
			_exit(0);
		}
	}
	for (uint32_t r = 0; r < ranks; r++)
		LK_CHECK(waitpid(pid[r], &status, 0) == pid[r] && !status);
}

/* Rows of w, a copy of b each, and two boxes of t at each: its corners. */
static void declare_part(unshard_save *s, uint32_t rank, uint32_t ranks)
{
	uint64_t rows = ROWS / ranks;
	uint64_t half = 30 / ranks;
	const unshard_slice v[] = {
		sv_slice("w", "float32", 2, DIMS(ROWS, COLS),
			 DIMS(rank * rows, 0), DIMS(rows, COLS)),
		sv_slice("b", "float32", 1, DIMS(COLS), NULL, NULL),
		sv_slice("t", "uint8", 2, DIMS(30, 2), DIMS(rank * half, 0),
			 DIMS(half, 1)),
		sv_slice("t", "uint8", 2, DIMS(30, 2),
			 DIMS((ranks - 1 - rank) * half, 1), DIMS(half, 1)),
	};
	unshard_error err;

	sv_ok(unshard_save_declare(s, v, 4, &err), &err);
}

/* Columns of t, whose bytes are those of sv_big. */
static void write_column(unshard_save *s, uint32_t nr, uint64_t from,
			 uint64_t column)
{
	const int64_t stride[] = { 2, 1 };
	unshard_item one = sv_item(nr, sv_big + from * 2 + column);
	unshard_error err;

	one.stride = stride;
	sv_ok(unshard_save_write(s, &one, 1, &err), &err);
}

static void write_part(unshard_save *s, uint32_t rank, uint32_t ranks)
{
	uint64_t half = 30 / ranks;

	sv_write_one(s, 0, sv_big + rank * (ROWS / ranks) * COLS * 4);
	sv_write_one(s, 1, sv_big + 100);
	write_column(s, 2, rank * half, 0);
	write_column(s, 3, (ranks - 1 - rank) * half, 1);
}

static void save_part(uint32_t rank, uint32_t ranks)
{
	const unshard_save_opts opts = sv_opts_of(ranks, rank);
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save *s = sv_begin(ctx, "ranks", &opts);
	unshard_error err;

	declare_part(s, rank, ranks);
	write_part(s, rank, ranks);
	sv_ok(unshard_save_sync(s, &err), &err);
	unshard_save_free(s);
	unshard_ctx_free(ctx);
}

static uint64_t bytes_of(const char *step, const char *file)
{
	char path[4096];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s/%s", sv_dir, step, file);
	LK_CHECK(!stat(path, &st));
	return (uint64_t)st.st_size;
}

static void several(void)
{
	const unshard_save_opts opts = sv_opts_of(3, 0);
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save *s;
	unshard_error err;
	uint64_t bytes = 0;
	char file[40];

	each(3, save_part);
	s = sv_begin(ctx, "ranks", &opts);
	declare_part(s, 0, 3);
	sv_ok(unshard_save_publish(s, &err), &err);
	unshard_save_free(s);
	sv_holds(ctx, "ranks", "w", sv_big, ROWS * COLS * 4);
	sv_holds(ctx, "ranks", "b", sv_big + 100, COLS * 4);
	sv_holds(ctx, "ranks", "t", sv_big, 60);
	/* the copies once: each tensor begins at a multiple of 4 KiB */
	for (unsigned r = 0; r < 6; r++) {
		snprintf(file, sizeof(file), "__%u_0.distcp", r);
		bytes += bytes_of("ranks", file);
	}
	LK_CHECK(bytes < ROWS * COLS * 4 + 12 * 8192);
	unshard_ctx_free(ctx);
}

/* ---- memory of a device, and a fork ---- */

static void device(void)
{
	const int64_t turned[] = { 1, 64 };
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save_opts opts = sv_opts_of(0, 0);
	const unshard_slice v[] = {
		sv_slice("plain", "uint8", 1, DIMS(5000), NULL, NULL),
		sv_slice("turned", "float32", 2, DIMS(64, 16), NULL, NULL),
	};
	unshard_item one[] = { sv_item(0, NULL), sv_item(1, NULL) };
	uint32_t back[64 * 16];
	unshard_save *s;
	unshard_error err;
	uint64_t mem;
	int32_t nr;

	sv_ok(unshard_device_open(ctx, "simulated", &nr, &err), &err);
	sv_ok(unshard_device_alloc(ctx, nr, 5000, &mem, &err), &err);
	sv_ok(unshard_device_copy(ctx, nr, UNSHARD_TO_DEVICE, mem, sv_big, 5000,
				  &err),
	      &err);
	s = sv_begin(ctx, "device", &opts);
	sv_ok(unshard_save_declare(s, v, 2, &err), &err);
	for (unsigned i = 0; i < 2; i++) {
		one[i].mem = mem;
		one[i].device = nr;
	}
	one[1].stride = turned;
	sv_ok(unshard_save_write(s, one, 2, &err), &err);
	one[0].device = 9;
	sv_is(unshard_save_write(s, one, 1, &err), ENODEV, &err, "device 9", "",
	      "");
	sv_ok(unshard_save_publish(s, &err), &err);
	unshard_save_free(s);
	for (unsigned i = 0; i < 64 * 16; i++)
		memcpy(&back[i], sv_big + (i / 16 + i % 16 * 64) * 4, 4);
	sv_holds(ctx, "device", "plain", sv_big, 5000);
	sv_holds(ctx, "device", "turned", back, sizeof(back));
	unshard_ctx_free(ctx);
}

static void forked(void)
{
	unshard_ctx *ctx = sv_new_ctx();
	const unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s = sv_begin(ctx, "forked", &opts);
	unshard_error err;
	int status;
	pid_t pid = fork();

	if (!pid) {
		unshard_slice v = sv_slice("w", "uint8", 0, NULL, NULL, NULL);
		unshard_item one = sv_item(0, sv_big);
		bool told =
			unshard_save_declare(s, &v, 1, &err) == -ECHILD &&
			unshard_save_write(s, &one, 1, &err) == -ECHILD &&
			unshard_save_object(s, "o", "", 0, &err) == -ECHILD &&
			unshard_save_sync(s, &err) == -ECHILD &&
			unshard_save_publish(s, &err) == -ECHILD;

		unshard_save_free(s);
		_exit(!told);
	}
	LK_CHECK(waitpid(pid, &status, 0) == pid && !status);
	unshard_save_free(s);
	unshard_ctx_free(ctx);
}

int main(int argc, char **argv)
{
	(void)argc;
	sv_set_up(argv[0]);
	one_alone("dcp");
	one_alone("safetensors");
	objects();
	several();
	device();
	forked();
	sv_tear_down();
	return 0;
}
