/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bad.c - parsers that die, hang and lie, files that change: each an error
 * with a line
 */
#include "core/base/check.h"
#include "tests/unit/lib/kit.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>

/* A program in @dir, of these lines of a shell; $REAL is the true one. */
static char *program(const char *dir, const char *lines)
{
	static char path[256];
	char real[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", real, sizeof(real) - 1);
	FILE *f;

	cr_assert_gt(n, 0);
	real[n] = '\0';
	*strrchr(real, '/') = '\0';
	snprintf(path, sizeof(path), "%s/parser", dir);
	f = fopen(path, "w");
	fprintf(f, "#!/bin/sh\nREAL=%s/unshard-parser\n%s\n", real, lines);
	fclose(f);
	cr_assert_eq(chmod(path, 0755), 0);
	return path;
}

/* Whether opening fails, and how; the line is in @err. */
static int open_by(const char *dir, const char *lines, const char *options,
		   unshard_error *err)
{
	unshard_open_opts oo = { .size = sizeof(oo), .options = options };
	unshard_ctx *ctx = kit_ctx(program(dir, lines));
	unshard_ckpt *ck;
	int ret = unshard_open(ctx, KIT_DCP, &oo, &ck, err);

	if (!ret)
		unshard_unref(ck);
	unshard_ctx_free(ctx);
	return ret;
}

Test(lib_bad, parsers, .timeout = 60)
{
	static const struct {
		const char *lines, *part;
		int ret;
	} all[] = {
		{ "exit 0", "ended without an answer", -EINVAL },
		{ "exit 7", "exit 7", -EINVAL },
		{ "kill -9 $$", "signal 9", -EINVAL },
		{ "kill -11 $$", "signal 11", -EINVAL },
		/* says that all went well, and gives nothing */
		{ "head -c 1028 /dev/zero >&3", "the catalog has 0 bytes",
		  -EINVAL },
		{ "head -c 1000 /dev/zero >&3", "ended without", -EINVAL },
		{ "exec 3>&-; exec sleep 0.1", "ended without", -EINVAL },
	};
	char *dir = kit_copy(KIT_DCP);

	for (size_t i = 0; i < CK_ARRAY_LEN(all); i++) {
		unshard_error err = { 0 };
		int ret = open_by(dir, all[i].lines, NULL, &err);

		cr_expect_eq(ret, all[i].ret, "%s: %d %s", all[i].lines, ret,
			     err.text);
		cr_expect(strstr(err.text, all[i].part), "%s: %s", all[i].lines,
			  err.text);
	}
	kit_remove(dir);
}

/* Whatever it writes as an answer is an error, of any number, with a line. */
Test(lib_bad, a_parser_that_answers_anything, .timeout = 60)
{
	char *dir = kit_copy(KIT_DCP);

	for (unsigned i = 0; i < 20; i++) {
		unshard_error err = { 0 };
		int ret = open_by(dir, "head -c 1028 /dev/urandom >&3", NULL,
				  &err);

		cr_expect_lt(ret, 0);
		cr_expect_gt(ret, -4096, "%d", ret);
		cr_expect_eq(err.code, -ret);
		cr_expect(err.text[0] && !strchr(err.text, '\n'));
	}
	kit_remove(dir);
}

Test(lib_bad, a_parser_that_hangs, .timeout = 60)
{
	char *dir = kit_copy(KIT_DCP);
	unshard_error err = { 0 };
	int ret = open_by(dir, "exec sleep 1000", "parse-time=1", &err);

	cr_expect_eq(ret, -ETIMEDOUT, "%d", ret);
	cr_expect(strstr(err.text, "took more than 10 s"), "%s", err.text);
	kit_remove(dir);
}

/* Opened by what another has described: this parser is only asked for items. */
static unshard_ckpt *open_described(unshard_ctx *ctx)
{
	unshard_open_opts oo = { .size = sizeof(oo) };
	unshard_ctx *whole = kit_ctx(NULL);
	unshard_ckpt *ck = kit_open(whole, KIT_DCP, NULL);
	unshard_error err;

	cr_assert_eq(unshard_image(ck, &oo.image_fd, NULL, &err), 0, "%s",
		     err.text);
	unshard_unref(ck);
	unshard_ctx_free(whole);
	ck = kit_open(ctx, KIT_DCP, &oo);
	close(oo.image_fd);
	return ck;
}

static void expect_items_by(const char *lines, const char *part)
{
	char *dir = kit_copy(KIT_DCP);
	unshard_error err = { 0 };
	unshard_ctx *ctx = kit_ctx(program(dir, lines));
	unshard_ckpt *ck = open_described(ctx);
	int ret;

	for (uint32_t i = 0; i < 12; i++) {
		free(kit_read(ck, i % 3, &ret, &err));
		cr_expect_eq(ret, -EIO, "%s: %d %s", lines, ret, err.text);
		cr_expect(err.text[0], "%s: no line", lines);
		cr_expect(!part || strstr(err.text, part), "%s: %s", lines,
			  err.text);
	}
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	kit_remove(dir);
}

#define READY "head -c 1028 /dev/zero >&3\n"

Test(lib_bad, items_by_who_lies, .timeout = 120)
{
	expect_items_by(READY "head -c 99999 /dev/urandom >&3; exec cat <&3",
			NULL);
	expect_items_by(READY "exit 0", NULL);
	expect_items_by(READY "kill -9 $$", NULL);
	expect_items_by(READY "head -c 100 /dev/zero >&3", NULL);
	/* all of them at byte 0, where nothing of them is */
	expect_items_by(READY "head -c 1000000 /dev/zero >&3; exec cat <&3",
			NULL);
}

static unsigned count_lines(const char *path)
{
	FILE *f = fopen(path, "r");
	unsigned nr = 0;

	for (int c; f && (c = getc(f)) != EOF;)
		nr += c == '\n';
	if (f)
		fclose(f);
	return nr;
}

Test(lib_bad, one_parser_describes_and_finds, .timeout = 60)
{
	char *dir = kit_copy(KIT_DCP), pids[128];
	unshard_ctx *ctx =
		kit_ctx(program(dir, "echo $$ >>$0.pids; exec $REAL"));
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	unshard_error err = { 0 };
	int ret, pid, none;
	siginfo_t how;
	FILE *f;

	for (uint32_t i = 0; i < 3; i++) {
		free(kit_read(ck, i, &ret, &err));
		cr_expect_eq(ret, 0, "%s", err.text);
	}
	snprintf(pids, sizeof(pids), "%s/parser.pids", dir);
	cr_expect_eq(count_lines(pids), 1);
	/* One that ends is no zombie, though nobody asks it anything. */
	f = fopen(pids, "r");
	cr_assert(f && fscanf(f, "%d", &pid) == 1);
	fclose(f);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	do
		none = waitid(P_PID, (id_t)pid, &how,
			      WEXITED | WNOHANG | WNOWAIT);
	while (!none);
	cr_expect_eq(errno, ECHILD);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	kit_remove(dir);
}

Test(lib_bad, who_ended_is_started_again, .timeout = 60)
{
	char *dir = kit_copy(KIT_DCP), pids[128];
	unshard_ctx *ctx =
		kit_ctx(program(dir, "echo $$ >>$0.pids; exec $REAL"));
	unshard_ckpt *ck = kit_open(ctx, KIT_DCP, NULL);
	unshard_error err = { 0 };
	int ret, pid;
	FILE *f;

	snprintf(pids, sizeof(pids), "%s/parser.pids", dir);
	f = fopen(pids, "r");
	cr_assert(f && fscanf(f, "%d", &pid) == 1);
	fclose(f);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	free(kit_read(ck, 0, &ret, &err));
	cr_expect_eq(ret, 0, "%s", err.text);
	cr_expect_eq(count_lines(pids), 2);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	kit_remove(dir);
}

static int cancel_fd;

static void on_alarm(int sig)
{
	uint64_t one = 1;

	(void)sig;
	if (write(cancel_fd, &one, sizeof(one)) < 0)
		abort();
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* As by ^C: a handler says so, and what hangs ends. */
Test(lib_bad, a_parser_that_hangs_is_cancelled, .timeout = 60)
{
	char *dir = kit_copy(KIT_DCP);
	unshard_ctx *ctx = kit_ctx(program(dir, "exec sleep 1000"));
	unshard_open_opts oo = { .size = sizeof(oo),
				 .cancel_fd = eventfd(0, EFD_NONBLOCK) };
	struct ck_str text = { 0 };
	unshard_error err = { 0 };
	uint64_t drop;
	double begun;
	unshard_ckpt *ck;

	signal(SIGALRM, on_alarm);
	cancel_fd = oo.cancel_fd;
	alarm(1);
	begun = seconds();
	cr_expect_eq(unshard_open(ctx, KIT_DCP, &oo, &ck, &err), -ECANCELED,
		     "%s", err.text);
	cr_expect_lt(seconds() - begun, 5);
	cr_expect(strstr(err.text, "cancelled"), "%s", err.text);
	cr_expect_eq(unshard_steps(ctx, KIT_DCP, &oo, kit_put, &text, &err),
		     -ECANCELED, "it is readable still");
	cr_assert_eq(read(oo.cancel_fd, &drop, sizeof(drop)), 8);
	alarm(1);
	cr_expect_eq(unshard_steps(ctx, KIT_DCP, &oo, kit_put, &text, &err),
		     -ECANCELED, "%s", err.text);
	close(oo.cancel_fd);
	ck_str_free(&text);
	unshard_ctx_free(ctx);
	kit_remove(dir);
}

/* A load whose items are not found is cancelled like any. */
Test(lib_bad, a_finder_that_hangs_is_cancelled, .timeout = 60)
{
	char *dir = kit_copy(KIT_DCP), buf[3][128];
	unshard_ctx *ctx = kit_ctx(
		program(dir, "head -c 1028 /dev/zero >&3; exec sleep 1000"));
	unshard_ckpt *ck = open_described(ctx);
	unshard_item items[3];
	unshard_error err = { 0 };
	unshard_req *req;
	double begun;

	for (unsigned i = 0; i < 3; i++)
		items[i] = (unshard_item){ .size = sizeof(*items),
					   .tensor = i,
					   .mem = (uintptr_t)buf[i] };
	cr_assert_eq(unshard_load(ck, items, 3, NULL, &req, &err), 0);
	cr_expect_eq(unshard_wait(req, 500, &err), -ETIMEDOUT);
	begun = seconds();
	unshard_cancel(req);
	cr_expect_eq(unshard_wait(req, -1, &err), -ECANCELED);
	cr_expect_eq(unshard_req_free(req), 0);
	cr_expect_lt(seconds() - begun, 5);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	kit_remove(dir);
}

static int read_after(const char *change, char *text)
{
	char *dir = kit_copy(KIT_DCP), path[128], cmd[256];
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_error err = { 0 };
	unshard_ckpt *ck;
	int ret;

	snprintf(path, sizeof(path), "%s/ck", dir);
	ck = kit_open(ctx, path, NULL);
	snprintf(cmd, sizeof(cmd), "cd %s/ck && %s", dir, change);
	cr_assert_eq(system(cmd), 0);
	free(kit_read(ck, unshard_find(ck, NULL, "T", 1), &ret, &err));
	strcpy(text, err.text);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	kit_remove(dir);
	return ret;
}

Test(lib_bad, files_that_change, .timeout = 60)
{
	char text[1024];

	cr_expect_eq(read_after("true", text), 0, "%s", text);
	cr_expect_lt(read_after("truncate -s 100 __0_0.distcp", text), 0);
	cr_expect(strstr(text, "__0_0.distcp"), "%s", text);
	cr_expect_lt(read_after("rm __0_0.distcp", text), 0);
	cr_expect(strstr(text, "__0_0.distcp"), "%s", text);
	cr_expect_lt(read_after("cp __0_0.distcp x && mv x __0_0.distcp", text),
		     0);
	cr_expect(strstr(text, "__0_0.distcp"), "%s", text);
	cr_expect_lt(read_after("rm -r ../ck", text), 0);
	cr_expect(text[0]);
}

/*
 * Where it is, as fields: a name that has the words of a line in it says nothing
 * there.  The one tensor lies in two files, of which the second is changed.
 */
static int read_forged(const char *change, unshard_error *err)
{
	static const char name[] =
		"x: file y.bin: bytes [7, 9): z: expected 3 bytes at byte 5";
	char *dir = kit_copy(KIT_DCP), cmd[1024], path[128];
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_ckpt *ck;
	int ret;

	snprintf(cmd, sizeof(cmd),
		 "cd %s/ck && rm -f * .metadata && printf '{\"%s\": "
		 "{\"dtype\": \"U8\", \"shape\": [100], \"data_offsets\": "
		 "[0, 100]}}' >h && printf '\\'$(printf %%03o $(wc -c <h))"
		 "'\\0\\0\\0\\0\\0\\0\\0' >model.safetensors && cat h "
		 ">>model.safetensors && head -c 100 /dev/zero "
		 ">>model.safetensors && rm h",
		 dir, name);
	cr_assert_eq(system(cmd), 0);
	snprintf(path, sizeof(path), "%s/ck", dir);
	ck = kit_open(ctx, path, NULL);
	snprintf(cmd, sizeof(cmd), "cd %s/ck && %s", dir, change);
	cr_assert_eq(system(cmd), 0);
	free(kit_read(ck, 0, &ret, err));
	cr_expect_str_eq(err->name, name);
	cr_expect_eq(err->tensor, 0);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	kit_remove(dir);
	return ret;
}

Test(lib_bad, names_forge_no_place, .timeout = 60)
{
	unshard_error err = { 0 };

	cr_expect_eq(read_forged("truncate -s 150 model.safetensors", &err),
		     -EIO, "%s", err.text);
	cr_expect_str_eq(err.file, "model.safetensors");
	cr_expect_eq(err.offset, 150, "%llu", (unsigned long long)err.offset);
	cr_expect_eq(read_forged("rm model.safetensors", &err), -EIO, "%s",
		     err.text);
	cr_expect_str_eq(err.file, "model.safetensors");
	cr_expect_eq(read_forged("cp model.safetensors m && "
				 "mv m model.safetensors",
				 &err),
		     -ESTALE, "%s", err.text);
	cr_expect_str_eq(err.file, "model.safetensors");
	cr_expect_neq(err.offset, UNSHARD_NOWHERE);
}

/* It was so when it was opened: what is there is read, the rest has a line. */
Test(lib_bad, a_file_that_was_cut_before, .timeout = 60)
{
	char *dir = kit_copy(KIT_DCP), path[128], cmd[256];
	unshard_ctx *ctx = kit_ctx(NULL);
	unshard_error err = { 0 };
	unshard_ckpt *ck;
	int ret;

	snprintf(path, sizeof(path), "%s/ck", dir);
	snprintf(cmd, sizeof(cmd), "truncate -s 100 %s/__1_0.distcp", path);
	cr_assert_eq(system(cmd), 0);
	ck = kit_open(ctx, path, NULL);
	free(kit_read(ck, unshard_find(ck, NULL, "st", 2), &ret, &err));
	cr_expect_lt(ret, 0);
	cr_expect(strstr(err.text, "__1_0.distcp") && strstr(err.text, "byte"),
		  "%s", err.text);
	cr_expect_str_eq(err.file, "__1_0.distcp");
	cr_expect_eq(err.offset, 100, "%s", err.text);
	cr_expect_str_eq(err.name, "st");
	free(kit_read(ck, unshard_find(ck, NULL, "T", 1), &ret, &err));
	cr_expect_eq(ret, 0, "%s", err.text);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	kit_remove(dir);
}

Test(lib_bad, boxes_that_are_none)
{
	unshard_ctx *ctx = kit_ctx(NULL);
	uint64_t start[2] = { 7, 0 }, len[2] = { 2, 4 };
	char buf[256];
	unshard_item item = { .size = sizeof(item),
			      .mem = (uintptr_t)buf,
			      .start = start,
			      .len = len };
	unshard_error err;
	unshard_ckpt *ck;

	ck = kit_open(ctx, KIT_DCP, NULL);
	item.tensor = unshard_find(ck, NULL, "st", 2);
	cr_expect_eq(unshard_read(ck, &item, &err), -EINVAL);
	cr_expect(err.text[0]);
	start[0] = UINT64_MAX;
	cr_expect_eq(unshard_read(ck, &item, &err), -EINVAL);
	start[0] = 6;
	cr_expect_eq(unshard_read(ck, &item, &err), 0, "%s", err.text);
	item.tensor = 9;
	cr_expect_eq(unshard_read(ck, &item, &err), -EINVAL);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}
