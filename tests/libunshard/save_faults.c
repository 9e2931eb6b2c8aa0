/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_faults - a save whose memory, disk or process fails
 *
 * Each allocation, each write and each fsync in turn; no room on the disk; writer
 * and publisher killed.  What was there before is whole after each, nothing of the
 * new one is seen before all of it is, and the next try ends it.
 */
#include "tests/lib/failalloc.h"
#include "tests/lib/faults.h"
#include "tests/lib/loadkit.h"
#include "tests/lib/savekit.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLICES 6
#define ROW 40000 /* bytes of each */

static void declare(unshard_save *s, int *ret, unshard_error *err)
{
	char name[SLICES][8];
	const uint64_t row = ROW;
	unshard_slice v[SLICES + 1];

	for (unsigned i = 0; i < SLICES; i++) {
		snprintf(name[i], sizeof(name[i]), "w%u", i);
		v[i] = sv_slice(name[i], "uint8", 1, &row, NULL, NULL);
	}
	v[SLICES] = sv_slice("o", NULL, 0, NULL, NULL, NULL);
	*ret = unshard_save_declare(s, v, SLICES + 1, err);
}

/* All but the publish; @told gets a byte before each call. */
static int write_all(unshard_save *s, int told, unshard_error *err)
{
	int ret;

	declare(s, &ret, err);
	for (unsigned i = 0; i < SLICES && !ret; i++) {
		const unshard_item one = sv_item(i, sv_big + i * ROW);

		if (told >= 0)
			LK_CHECK(write(told, "", 1) == 1);
		ret = unshard_save_write(s, &one, 1, err);
	}
	if (!ret)
		ret = unshard_save_object(s, "o", sv_big, 100, err);
	if (!ret && told >= 0)
		LK_CHECK(write(told, "", 1) == 1);
	if (!ret)
		ret = unshard_save_sync(s, err);
	return ret;
}

static void is_whole(unshard_ctx *ctx, const char *step)
{
	char name[8];

	for (unsigned i = 0; i < SLICES; i++) {
		snprintf(name, sizeof(name), "w%u", i);
		sv_holds(ctx, step, name, sv_big + i * ROW, ROW);
	}
}

static void publish(unshard_ctx *ctx, const char *step, uint32_t flags)
{
	unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s;
	unshard_error err;

	opts.flags = flags;
	s = sv_begin(ctx, step, &opts);
	sv_ok(write_all(s, -1, &err), &err);
	sv_ok(unshard_save_publish(s, &err), &err);
	unshard_save_free(s);
	is_whole(ctx, step);
}

/* ---- memory ---- */

static bool try_without_memory(unshard_ctx *ctx, const char *step,
			       unsigned long nth)
{
	const unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s = NULL;
	unshard_error err;
	bool happened;
	int ret;

	failalloc_arm(nth);
	ret = unshard_save_new(ctx, sv_dir, step, &opts, &s, &err);
	if (!ret)
		ret = write_all(s, -1, &err);
	if (ret && ret != -ENOMEM)
		fprintf(stderr, "allocation %lu: %s\n", nth, err.text);
	LK_CHECK(!ret || ret == -ENOMEM);
	happened = failalloc_happened();
	LK_CHECK(happened || !ret);
	unshard_save_free(s);
	return happened;
}

/* The first try makes the plan; with it there later ones only write. */
static void without_memory(unshard_ctx *ctx)
{
	unsigned long nth = 1;
	unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s;

	opts.flags = UNSHARD_ANEW;
	for (; try_without_memory(ctx, "memory", nth); nth++)
		if (nth % 2) { /* else it goes on with what is there */
			s = sv_begin(ctx, "memory", &opts);
			unshard_save_free(s);
		}
	publish(ctx, "memory", 0);
	printf("%lu allocations failed\n", nth - 1);
}

/* Behind the plan, which is there: of who opens it, writes and ends. */
static void without_memory_later(unshard_ctx *ctx)
{
	unshard_save_opts opts = sv_opts_of(0, 0);
	unsigned long nth = 0;
	unshard_save *s;
	unshard_error err;
	int ret;

	opts.flags = UNSHARD_ANEW;
	do {
		s = sv_begin(ctx, "memory-later", &opts);
		declare(s, &ret, &err);
		sv_ok(ret, &err);
		sv_ok(unshard_save_sync(s, &err), &err);
		unshard_save_free(s);
	} while (try_without_memory(ctx, "memory-later", ++nth));
	publish(ctx, "memory-later", 0);
	printf("%lu later ones failed\n", nth - 1);
}

/* ---- the disk ---- */

static void failing_writes(unshard_ctx *ctx)
{
	const unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s;
	unshard_error err;
	long nth = 1;
	int ret;

	for (bool more = true; more; nth++) {
		s = sv_begin(ctx, "writes", &opts);
		fault_set_kind(CK_FAULT_WRITE, nth, 1, nth % 2 ? EIO : ENOSPC);
		ret = write_all(s, -1, &err);
		more = !ck_faults[CK_FAULT_WRITE].left;
		fault_set_kind(CK_FAULT_WRITE, 0, 0, 0);
		LK_CHECK(more == (ret != 0) || ret == 0);
		LK_CHECK(!ret || ret == -EIO || ret == -ENOSPC);
		unshard_save_free(s);
		LK_CHECK(!sv_is_there("writes"));
		if (!ret)
			break;
	}
	publish(ctx, "writes", 0);
	printf("%ld writes failed\n", nth - 1);
}

/* Nobody may publish what may be lost. */
static void failing_sync(unshard_ctx *ctx)
{
	const unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s = sv_begin(ctx, "sync", &opts);
	unshard_error err;

	fault_set_kind(CK_FAULT_SYNC, 1, 1, EIO);
	sv_is(write_all(s, -1, &err), EIO, &err, "", "", "");
	fault_set_kind(CK_FAULT_SYNC, 0, 0, 0);
	sv_is(unshard_save_publish(s, &err), EIO, &err, "may be lost",
	      "only be thrown away", "");
	LK_CHECK(!sv_is_there("sync"));
	unshard_save_free(s);
	publish(ctx, "sync", UNSHARD_ANEW);
}

/* In a mount namespace of its own, on a file system of @kib. */
static int in_little_room(unshard_ctx *ctx, unsigned kib)
{
	const unshard_save_opts opts = sv_opts_of(0, 0);
	char how[40];
	unshard_save *s = NULL;
	unshard_error err;
	int ret;

	snprintf(how, sizeof(how), "size=%uk", kib);
	if (mount("none", sv_dir, "tmpfs", 0, how))
		return 77;
	ret = unshard_save_new(ctx, sv_dir, "full", &opts, &s, &err);
	if (!ret)
		ret = write_all(s, -1, &err);
	if (!ret)
		ret = unshard_save_publish(s, &err);
	if (ret && ret != -ENOSPC)
		fprintf(stderr, "%u KiB: %d: %s\n", kib, ret, err.text);
	LK_CHECK(!ret || ret == -ENOSPC);
	LK_CHECK(sv_is_there("full") == !ret);
	unshard_save_free(s);
	if (!ret)
		is_whole(ctx, "full");
	/* Rings that are being given up may hold it for a moment yet. */
	LK_CHECK(!umount2(sv_dir, MNT_DETACH));
	return !ret;
}

static void full_disk(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		unshard_ctx *ctx = sv_new_ctx();
		int ret = unshare(CLONE_NEWNS) ||
					  mount("none", "/", NULL,
						MS_REC | MS_PRIVATE, NULL) ?
				  77 :
				  0;

		for (unsigned kib = 4; kib < 1000 && !ret; kib += 12)
			ret = in_little_room(ctx, kib);
		_exit(ret);
	}
	LK_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		printf("full disk: skipped: no mounts here\n");
	else
		LK_CHECK(WEXITSTATUS(status) == 1);
}

/* ---- kill -9 ---- */

/* Of the writer, @nth of 60 moments: before a call, and somewhat into it. */
static void kill_writer(unsigned nth)
{
	const unshard_ctx_opts alone = {
		.size = sizeof(alone),
#ifdef __SANITIZE_THREAD__
		.threads = 1, /* more, behind a fork, it refuses */
#endif
		.helper = sv_parser
	};
	int told[2], status;
	char byte;
	pid_t pid;

	LK_CHECK(!pipe(told));
	pid = fork();
	if (!pid) {
		const unshard_save_opts opts = sv_opts_of(0, 0);
		unshard_ctx *ctx;
		unshard_save *s;
		unshard_error err;

		sv_ok(unshard_ctx_new(&ctx, &alone, &err), &err);
		s = sv_begin(ctx, "killed", &opts);
		_exit(write_all(s, told[1], &err) != 0);
	}
	close(told[1]);
	for (unsigned i = 0; i <= nth % (SLICES + 1); i++)
		LK_CHECK(read(told[0], &byte, 1) == 1);
	usleep(nth / (SLICES + 1) * 300);
	kill(pid, SIGKILL);
	LK_CHECK(waitpid(pid, &status, 0) == pid);
	LK_CHECK(WIFSIGNALED(status) || !WEXITSTATUS(status));
	close(told[0]);
	LK_CHECK(!sv_is_there("killed"));
}

static void killed_writers(unshard_ctx *ctx)
{
	char path[200];

	for (unsigned nth = 0; nth < 60; nth++) {
		kill_writer(nth);
		if (nth % 3 == 0)
			continue; /* the next goes on with what it left */
		publish(ctx, "killed", 0);
		is_whole(ctx, "old");
		snprintf(path, sizeof(path), "rm -r %s/killed", sv_dir);
		LK_CHECK(!system(path));
	}
}

/* A publisher that ends, or fails, before its @nth change of the disk. */
static unshard_ctx *with_fault(unsigned nth, int code)
{
	unshard_ctx_opts opts = { .size = sizeof(opts) };
	char path[200];
	unshard_error err;
	unshard_ctx *ctx;
	FILE *f;

	snprintf(path, sizeof(path), "%s/publisher", sv_dir);
	f = fopen(path, "w");
	LK_CHECK(f &&
		 fprintf(f,
			 "#!/bin/sh\nUNSHARD_PUBLISH_FAULT=%u:%d "
			 "exec %s\n",
			 nth, code, sv_parser) > 0 &&
		 !fchmod(fileno(f), 0755) && !fclose(f));
	opts.helper = path;
	sv_ok(unshard_ctx_new(&ctx, &opts, &err), &err);
	return ctx;
}

/* What is called so is the old one, or all of the new one. */
static bool is_new(unshard_ctx *ctx)
{
	char path[200];
	struct stat st;

	snprintf(path, sizeof(path), "%s/old/__0_1.distcp", sv_dir);
	if (stat(path, &st)) {
		sv_holds(ctx, "old", "w0", sv_big + 5, ROW);
		return false;
	}
	is_whole(ctx, "old");
	return true;
}

static void make_old(unshard_ctx *ctx)
{
	unshard_save_opts opts = sv_opts_of(0, 0);
	const unshard_slice v =
		sv_slice("w0", "uint8", 1, DIMS(ROW), NULL, NULL);
	unshard_save *s;
	unshard_error err;

	opts.flags = UNSHARD_REPLACE | UNSHARD_ANEW;
	s = sv_begin(ctx, "old", &opts);
	sv_ok(unshard_save_declare(s, &v, 1, &err), &err);
	sv_write_one(s, 0, sv_big + 5);
	sv_ok(unshard_save_publish(s, &err), &err);
	unshard_save_free(s);
}

static bool fail_publish(unshard_ctx *ctx, unsigned nth, int code)
{
	unshard_ctx *bad = with_fault(nth, code);
	unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_save *s;
	unshard_error err;
	int ret;

	opts.flags = UNSHARD_REPLACE;
	s = sv_begin(bad, "old", &opts);
	sv_ok(write_all(s, -1, &err), &err);
	ret = unshard_save_publish(s, &err);
	LK_CHECK(!ret || ret == -EINVAL || ret == -EIO);
	LK_CHECK(ret || is_new(ctx));
	is_new(ctx);
	unshard_save_free(s);
	if (ret) { /* ends what was begun, or does all of it */
		/* what could not be made durable is written anew */
		opts.flags = UNSHARD_REPLACE | (code ? UNSHARD_ANEW : 0);
		s = sv_begin(ctx, "old", &opts);
		sv_ok(write_all(s, -1, &err), &err);
		sv_ok(unshard_save_publish(s, &err), &err);
		unshard_save_free(s);
		LK_CHECK(is_new(ctx));
	}
	unshard_ctx_free(bad);
	return ret != 0;
}

static void killed_publishers(unshard_ctx *ctx)
{
	unsigned nth = 1;

	for (; nth < 100; nth++) {
		make_old(ctx);
		if (!fail_publish(ctx, nth, 0))
			break;
		make_old(ctx);
		fail_publish(ctx, nth, EIO);
	}
	LK_CHECK(nth > 5 && nth < 100);
	printf("%u publishers killed\n", nth - 1);
}

int main(int argc, char **argv)
{
	unshard_ctx *ctx;

	(void)argc;
	sv_set_up(argv[0]);
	full_disk();
	ctx = sv_new_ctx();
	publish(ctx, "old", 0);
	without_memory(ctx);
	without_memory_later(ctx);
	failing_writes(ctx);
	failing_sync(ctx);
	killed_writers(ctx);
	killed_publishers(ctx);
	unshard_ctx_free(ctx);
	sv_tear_down();
	return 0;
}
