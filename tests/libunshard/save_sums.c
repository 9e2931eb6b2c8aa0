/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save_sums - the digests that a save makes while it writes
 *
 * A publish takes them: it reads next to nothing, and its manifest is the one that
 * reading all of it gives.  Where there is any doubt of them it reads, and what it
 * publishes is what is there.
 */
#include "core/manifest/manifest.h"
#include "core/seal/seal.h"
#include "core/slices/slices.h"
#include "tests/lib/loadkit.h"
#include "tests/lib/savekit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define LITTLE (MIB + (MIB >> 1)) /* what a publish reads anyway, and more */

static const struct {
	const char *name;
	uint64_t bytes;
} one[] = {
	{ "a", 9 * MIB }, { "b", 1000 }, { "c", 5 * MIB + 3 }, { "d", 1 },
	{ "e", 3 * MIB }, { "none", 0 }, { "f", 2 * MIB },
};
#define NR (sizeof(one) / sizeof(*one))
#define ALL (19 * MIB + 1004)
static unsigned char bytes[20 * MIB];

static const unsigned char *bytes_of(unsigned nr)
{
	return bytes + nr * 4097;
}

/* Of this process and of all that have ended below it. */
static uint64_t bytes_read(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	uint64_t n = 0;

	LK_CHECK(f && fscanf(f, "rchar: %" SCNu64, &n) == 1 && !fclose(f));
	return n;
}

static uint64_t publish(unshard_save *s)
{
	uint64_t before = bytes_read();
	unshard_error err;

	sv_ok(unshard_save_publish(s, &err), &err);
	return bytes_read() - before;
}

/* Of a device's memory no digests of tensors are made, so that these are read. */
static bool is_below(uint64_t nr, uint64_t most)
{
	return nr < most || getenv("UNSHARD_TEST_DEVICE");
}

static void path_of(const char *step, const char *file, char out[4096])
{
	snprintf(out, 4096, "%s/%s/%s", sv_dir, step, file);
}

/*
 * The manifest there is the one of what the files hold, but for when.  Who reads
 * them has threads behind a fork, which ThreadSanitizer cannot watch.
 */
static void is_sealed(const char *step)
{
	struct ck_root root, *of = &root;
	struct ck_opts opts = { 0 };
	struct ck_manifest was, now;
	struct ck_err err = { 0 };
	char path[4096];
	size_t len, at;
	void *fresh;

#ifdef __SANITIZE_THREAD__
	return;
#endif
	path_of(step, "", path);
	LK_CHECK(!ck_opts_add(&opts, "sandbox", "off"));
	LK_CHECK(!ck_root_open(of, path, &opts, &err));
	LK_CHECK(!ck_manifest_load(&was, of, &err));
	if (ck_seal_subprocess(of, &opts, NULL, &fresh, &len, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	LK_CHECK(!ck_manifest_parse(&now, fresh, len, &err));
	LK_CHECK(was.len == now.len && was.nr_tensors == now.nr_tensors);
	/* the head ends with when it was made, the whole with its own sum */
	for (at = 64; at < len - 16; at++)
		LK_CHECK(was.bytes[at] == now.bytes[at]);
	ck_manifest_free(&was);
	free(fresh);
	ck_root_close(of);
	ck_opts_free(&opts);
}

static unshard_save *begin(unshard_ctx *ctx, const char *format)
{
	unshard_save_opts opts = sv_opts_of(0, 0);
	unshard_slice v[NR];
	unshard_save *s;
	unshard_error err;

	opts.format = format;
	s = sv_begin(ctx, format, &opts);
	for (unsigned i = 0; i < NR; i++)
		v[i] = sv_slice(one[i].name, "uint8", 1, &one[i].bytes, NULL,
				NULL);
	sv_ok(unshard_save_declare(s, v, NR, &err), &err);
	return s;
}

static void write_all(unshard_save *s)
{
	unshard_item v[NR];
	unshard_error err;

	for (unsigned i = 0; i < NR; i++)
		v[i] = sv_item(i, bytes_of(i));
	sv_ok(unshard_save_write(s, v, NR, &err), &err);
}

static void holds(unshard_ctx *ctx, const char *step)
{
	for (unsigned i = 0; i < NR; i++)
		sv_holds(ctx, step, one[i].name, bytes_of(i), one[i].bytes);
}

static void remove_step(const char *step)
{
	char command[4200];

	snprintf(command, sizeof(command), "rm -r %s/%s", sv_dir, step);
	LK_CHECK(!system(command));
}

static void end(unshard_ctx *ctx, unshard_save *s, const char *step)
{
	unshard_save_free(s);
	is_sealed(step);
	holds(ctx, step);
	remove_step(step);
}

static void all_at_once(unshard_ctx *ctx, const char *format)
{
	unshard_save *s = begin(ctx, format);

	write_all(s);
	LK_CHECK(is_below(publish(s), LITTLE));
	end(ctx, s, format);
}

/* One after the other, from the last on; then some of them once more. */
static void one_by_one(unshard_ctx *ctx, const char *format)
{
	unshard_save *s = begin(ctx, format);

	for (unsigned i = NR; i-- > 0;)
		sv_write_one(s, i, bytes_of(i));
	sv_write_one(s, 4, bytes_of(4));
	LK_CHECK(is_below(publish(s), LITTLE));
	end(ctx, s, format);
}

static void write_part(unshard_save *s, unsigned nr, uint64_t from, uint64_t to)
{
	unshard_item part = sv_item(nr, bytes_of(nr) + from);
	unshard_error err;

	part.start = DIMS(from);
	part.len = DIMS(to - from);
	sv_ok(unshard_save_write(s, &part, 1, &err), &err);
}

/* Parts in any order, the same one twice, and some that overlap. */
static void in_parts(unshard_ctx *ctx, const char *format)
{
	unshard_save *s = begin(ctx, format);

	write_part(s, 0, 5 * MIB, 9 * MIB);
	write_part(s, 0, 0, 5 * MIB);
	for (unsigned i = 1; i < NR; i++)
		if (i != 4)
			sv_write_one(s, i, bytes_of(i));
	write_part(s, 4, 0, MIB);
	write_part(s, 4, 0, MIB);
	write_part(s, 4, MIB / 2, 2 * MIB);
	write_part(s, 4, 2 * MIB, 3 * MIB);
	/* a and e: their blocks and the tensors; of e the CRC as well */
	LK_CHECK(is_below(publish(s), 2 * 9 * MIB + 3 * 3 * MIB + LITTLE));
	end(ctx, s, format);
}

/* ---- doubt ---- */

/* Of the same size, and as if nothing had happened. */
static void change(const char *path, off_t at)
{
	int fd = open(path, O_RDWR);
	unsigned char byte;
	struct stat st;

	LK_CHECK(fd >= 0 && !fstat(fd, &st));
	LK_CHECK(pread(fd, &byte, 1, at) == 1);
	byte ^= 0x55;
	LK_CHECK(pwrite(fd, &byte, 1, at) == 1);
	LK_CHECK(!futimens(fd, (struct timespec[]){ st.st_atim, st.st_mtim }));
	close(fd);
}

static void behind_its_back(unshard_ctx *ctx)
{
	const off_t at = 7 * MIB; /* of the file, and in tensor a */
	unshard_save *s = begin(ctx, "dcp");
	unshard_error err;
	char path[4096];

	write_all(s);
	sv_ok(unshard_save_sync(s, &err), &err);
	path_of(".staging-dcp/files", "__0_0.distcp", path);
	change(path, at);
	LK_CHECK(publish(s) > ALL);
	is_sealed("dcp");
	path_of("dcp", "__0_0.distcp", path);
	change(path, at);
	unshard_save_free(s);
	for (unsigned i = 0; i < NR; i++)
		sv_holds_unsealed(ctx, "dcp", one[i].name, bytes_of(i),
				  one[i].bytes);
	remove_step("dcp");
}

/* Another claims bytes of it, of which nobody knows when they were written. */
struct another {
	struct ck_root root;
	struct ck_draft *d;
	struct ck_slices *sl;
};

static void claim(struct another *a, const char *step)
{
	const struct ck_slice whole = { .nr = 0 };
	struct ck_err err = { 0 };
	struct ck_opts opts = { 0 };
	unsigned char had[2];

	LK_CHECK(!ck_root_open(&a->root, sv_dir, &opts, &err));
	LK_CHECK(!ck_draft_open(&a->d, &a->root, step, &err));
	LK_CHECK(!ck_slices_open(&a->sl, a->d, &err));
	LK_CHECK(!ck_slice_read(a->sl, whole, had, 2, 0, false, &err));
	LK_CHECK(!ck_slice_write(a->sl, whole, had, 2, 0, false, &err));
}

static void go(struct another *a)
{
	ck_slices_close(a->sl);
	ck_draft_close(a->d);
	ck_root_close(&a->root);
}

static void by_another(unshard_ctx *ctx)
{
	unshard_save *s = begin(ctx, "dcp");
	struct another a;
	unshard_error why;

	write_all(s);
	claim(&a, "dcp");
	sv_ok(unshard_save_sync(s, &why), &why);
	go(&a);
	LK_CHECK(publish(s) > ALL);
	end(ctx, s, "dcp");
}

/* ---- at the same time ---- */

static void *write_beside(void *arg)
{
	write_all(arg);
	return NULL;
}

/* A sync says nothing of what a write has only begun to make digests of. */
static void while_it_syncs(unshard_ctx *ctx)
{
	for (unsigned turn = 0; turn < 8; turn++) {
		unshard_save *s = begin(ctx, "dcp");
		unshard_error err;
		pthread_t writer;

		LK_CHECK(!pthread_create(&writer, NULL, write_beside, s));
		while (pthread_tryjoin_np(writer, NULL))
			sv_ok(unshard_save_sync(s, &err), &err);
		publish(s);
		end(ctx, s, "dcp");
	}
}

/* ---- several ---- */

/* Rows of w each, all of r, and one tensor that nobody else has. */
static void declare_part(unshard_save *s, uint32_t rank)
{
	const char *const own[] = { "own.0", "own.1" };
	const unshard_slice v[] = {
		sv_slice("w", "uint8", 1, DIMS(2 * MIB), DIMS(rank * MIB),
			 DIMS(MIB)),
		sv_slice("r", "uint8", 1, DIMS(6 * MIB), NULL, NULL),
		sv_slice(own[rank], "uint8", 1, DIMS(5 * MIB), NULL, NULL),
	};
	unshard_error err;

	sv_ok(unshard_save_declare(s, v, 3, &err), &err);
}

/* @after: what is read to its end before anything is written; -1: nothing. */
static void save_part(uint32_t rank, int after)
{
	const unshard_save_opts opts = sv_opts_of(2, rank);
	unshard_ctx *ctx = sv_new_ctx();
	unshard_save *s = sv_begin(ctx, "ranks", &opts);
	const unshard_item v[] = {
		sv_item(0, bytes + rank * MIB),
		sv_item(1, bytes + 3),
		sv_item(2, bytes + 4 * MIB + rank),
	};
	unshard_error err;
	char byte;

	declare_part(s, rank);
	if (after >= 0) {
		sv_ok(unshard_save_write(s, v, 0, &err), &err);
		LK_CHECK(!read(after, &byte, 1));
	}
	sv_ok(unshard_save_write(s, v, 3, &err), &err);
	sv_ok(unshard_save_sync(s, &err), &err);
	unshard_save_free(s);
	unshard_ctx_free(ctx);
	_exit(0);
}

static void wait_for(pid_t pid)
{
	int status;

	LK_CHECK(waitpid(pid, &status, 0) == pid && !status);
}

/*
 * Rank @last writes when the other one has ended, whose journal it takes over;
 * 2: at the same time.  @beside: after another has claimed bytes of it.
 */
static void several(uint32_t last, bool beside)
{
	const unshard_save_opts opts = sv_opts_of(2, 0);
	unshard_ctx *ctx;
	struct another a;
	unshard_save *s;
	uint64_t nr;
	pid_t pid[2];
	int go_on[2];

	LK_CHECK(!pipe2(go_on, O_CLOEXEC));
	for (uint32_t r = 0; r < 2; r++) {
		fflush(NULL);
		pid[r] = fork();
		if (pid[r])
			continue;
		close(go_on[1]);
		save_part(r, r == last ? go_on[0] : -1);
	}
	close(go_on[0]);
	wait_for(pid[last == 0]);
	if (beside) {
		claim(&a, "ranks");
		go(&a);
	}
	close(go_on[1]);
	wait_for(pid[last != 0]);
	ctx = sv_new_ctx();
	s = sv_begin(ctx, "ranks", &opts);
	nr = publish(s);
	/* of w nobody had all, so that it is read; nothing else is */
	LK_CHECK(beside ? nr > 7 * MIB : is_below(nr, 2 * MIB + LITTLE));
	unshard_save_free(s);
	is_sealed("ranks");
	sv_holds(ctx, "ranks", "w", bytes, 2 * MIB);
	sv_holds(ctx, "ranks", "r", bytes + 3, 6 * MIB);
	sv_holds(ctx, "ranks", "own.1", bytes + 4 * MIB + 1, 5 * MIB);
	remove_step("ranks");
	unshard_ctx_free(ctx);
}

/* By a process that has no threads, for it forks. */
static void several_apart(uint32_t last, bool beside)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid) {
		wait_for(pid);
		return;
	}
	several(last, beside);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const char *const format[] = { "dcp", "safetensors" };
	unshard_ctx *ctx;

	(void)argc;
	sv_set_up(argv[0]);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	for (uint32_t last = 0; last <= 2; last++)
		several_apart(last, false);
	several_apart(1, true);
	ctx = sv_new_ctx();
	for (unsigned i = 0; i < 2; i++) {
		all_at_once(ctx, format[i]);
		one_by_one(ctx, format[i]);
		in_parts(ctx, format[i]);
	}
	behind_its_back(ctx);
	by_another(ctx);
	while_it_syncs(ctx);
	unshard_ctx_free(ctx);
	sv_tear_down();
	return 0;
}
