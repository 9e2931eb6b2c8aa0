/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_write - writers of the same bytes, readers with two blocks ahead, and
 * files written anew
 *
 * Tensor w is stored twice.  Four threads write slots of it at random and sync
 * now and then, one writes a block and reads it ahead, two read front to back,
 * two write tensor v anew.  At the end both copies agree, and the thread
 * sanitizer watches.
 */
#include "core/ckpt/ckpt.h"
#include "core/seal/seal.h"
#include "core/view/replace.h"
#include "fs/cache/ahead.h"
#include "fs/kernel/buf.h"
#include "tests/lib/manifests.h"
#include "tests/lib/openckpt.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define W (6 * MIB)
#define V ((size_t)300000)
#define SLOT ((size_t)70001)

enum { WRITERS = 4, TURNS = 40, READERS = 2, ANEW = 2, OWN = 1 };
enum { THREADS = WRITERS + READERS + ANEW + OWN };

static char dir[] = "/tmp/race-write.XXXXXX";
static struct ck_ckpt *ck;
static struct fs_ahead *ahead;
static struct ck_view *view;
static uint32_t w, v;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "race_write: %s\n", what);
	exit(1);
}

static const char *path(const char *name)
{
	static char at[128];

	snprintf(at, sizeof(at), "%s/%s", dir, name);
	return at;
}

static void put_copy(const char *name)
{
	char head[300];
	int len = snprintf(head, sizeof(head),
			   "{\"v\": {\"dtype\": \"U8\", \"shape\": [%zu], "
			   "\"data_offsets\": [0, %zu]}, \"w\": {\"dtype\": "
			   "\"U8\", \"shape\": [%zu], \"data_offsets\": "
			   "[%zu, %zu]}}",
			   V, V, W, V, V + W);
	uint64_t le = (uint64_t)len;
	FILE *f = fopen(path(name), "w");

	must(f && fwrite(&le, 8, 1, f) == 1 && fwrite(head, 1, le, f) == le &&
		     !fflush(f) &&
		     !ftruncate(fileno(f), (off_t)(8 + le + V + W)) &&
		     !fclose(f),
	     name);
}

static void put_all(void)
{
	FILE *f;

	must(mkdtemp(dir) != NULL, "mkdtemp");
	put_copy("dp0.safetensors");
	put_copy("dp1.safetensors");
	f = fopen(path("unshard-layout.json"), "w");
	must(f &&
		     fputs("{\"unshard_layout\": 1, \"mesh\": {\"axes\": "
			   "[{\"name\": \"dp\", \"size\": 2}]}, \"files\": "
			   "[{\"path\": \"dp{dp}.safetensors\", \"kind\": "
			   "\"safetensors\"}], \"tensors\": [{\"name\": \"w\", "
			   "\"placement\": {\"dp\": \"replicate\"}}, {\"name\": "
			   "\"v\", \"placement\": {\"dp\": \"replicate\"}}]}",
			   f) >= 0 &&
		     !fclose(f),
	     "layout");
}

static void seal(void)
{
	struct ck_opts opts = { 0 };
	struct ck_err err = { 0 };
	struct ck_manifest_new *n;
	struct ck_seal_in in;
	int fd = open(dir, O_RDONLY | O_DIRECTORY);

	ck_opts_add(&opts, "sandbox", "off");
	must(!open_ckpt(&ck, dir, &opts, &err), err.msg);
	in = (struct ck_seal_in){ .ck = ck };
	must(!ck_manifest_new(&n, 0, &err) && !ck_seal(&in, n, &err) &&
		     !manifest_save(n, fd, CK_MANIFEST_NAME, &err),
	     err.msg);
	ck_ckpt_close(ck);
	close(fd);
	ck_opts_free(&opts);
}

/* As the file system writes: past the page cache, and what pages of a map have. */
static int planned(struct ck_edit *e, const void *buf, uint64_t off, bool page,
		   struct ck_err *err)
{
	struct ck_wplan *p = calloc(1, sizeof(*p));
	int ret;

	must(p != NULL, "memory");
	p->buf = buf;
	p->page = page;
	ret = ck_view_plan(view, w - view->first, p, SLOT, off, err);
	if (!page && !ret)
		ck_wplan_newer(p);
	if (!ret)
		ret = ck_wplan_run(p, e, err);
	ck_wplan_free(p);
	return ret;
}

static void writer(unsigned me)
{
	struct ck_edit *e = ck_ckpt_edit(ck);
	unsigned char *buf = malloc(SLOT);
	unsigned lot = me;
	struct ck_err err = { 0 };

	must(e && buf, "memory");
	memset(buf, (int)me + 1, SLOT);
	for (unsigned i = 0; i < TURNS; i++) {
		uint64_t off;

		lot = lot * 1103515245 + 12345;
		off = (lot >> 8) % ((W - MIB) / SLOT) * SLOT;
		must(!planned(e, buf, off, i % 3 == 1, &err), err.msg);
		if (i % 16 == me)
			must(!ck_ckpt_sync(ck, e, &err), err.msg);
	}
	must(!ck_ckpt_flush_checksums(ck, e, &err), err.msg);
	ck_ckpt_edit_end(e);
	free(buf);
}

/* Its own bytes are never older than its own write. */
static void own(void)
{
	struct fs_stream *s =
		fs_stream_open(ahead, view, w - view->first, NULL);
	struct ck_edit *e = ck_ckpt_edit(ck);
	unsigned char *buf = malloc(MIB), *got;
	struct ck_err err = { 0 };

	must(e && buf && s, "memory");
	for (unsigned i = 1; i < TURNS; i++) {
		fs_stream_next(s, W - 3 * MIB, MIB, W);
		fs_stream_next(s, W - 2 * MIB, MIB, W);
		memset(buf, (int)i, MIB);
		must(!ck_ckpt_write(ck, e, w, buf, MIB, W - MIB, &err),
		     err.msg);
		got = fs_stream_take(s, W - MIB, MIB);
		must(!got || !memcmp(got, buf, MIB), "an old block");
		fs_buf_put(got);
	}
	ck_ckpt_edit_end(e);
	fs_stream_close(s);
	free(buf);
}

static void reader(void)
{
	for (unsigned turn = 0; turn < TURNS / 8; turn++) {
		struct fs_stream *s =
			fs_stream_open(ahead, view, w - view->first, NULL);

		for (uint64_t off = 0; off < W; off += MIB) {
			unsigned char *got = fs_stream_take(s, off, MIB);

			fs_stream_next(s, off, MIB, W);
			usleep(500);
			for (size_t k = 0; got && off < W - MIB && k < MIB; k++)
				must(got[k] <= WRITERS, "bytes of nobody");
			fs_buf_put(got);
		}
		fs_stream_close(s);
	}
}

static void anew(unsigned me)
{
	struct ck_edit *e = ck_ckpt_edit(ck);
	unsigned char *buf = malloc(V);
	struct ck_err err = { 0 };

	must(e && buf, "memory");
	for (unsigned i = 0; i < TURNS / 4; i++) {
		struct ck_replace *r;
		struct ck_wplan *done;

		memset(buf, (int)(2 * i + me), V);
		must(!ck_replace_new(&r, view, v - view->first, e, &err),
		     err.msg);
		must(!ck_replace_write(r, buf, V, 0, &err) &&
			     !ck_replace_close(r, &done, &err) && done,
		     err.msg);
		ck_wplan_free(done);
		ck_replace_free(r);
	}
	ck_ckpt_edit_end(e);
	free(buf);
}

static void *run(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	if (me < WRITERS)
		writer(me);
	else if (me < WRITERS + READERS)
		reader();
	else if (me < WRITERS + READERS + ANEW)
		anew(me - WRITERS - READERS);
	else
		own();
	return NULL;
}

static void compare(void)
{
	char cmd[200];

	snprintf(cmd, sizeof(cmd), "cmp %s/dp0.safetensors %s/dp1.safetensors",
		 dir, dir);
	must(!system(cmd), "the copies differ");
	must(access(path(".unshard-edited"), F_OK), "it is being edited");
}

static void race(const char *engine, const char *verify)
{
	const struct ck_view_ops *const *ops = ck_views;
	struct ck_opts opts = { 0 };
	struct ck_err err = { 0 };
	pthread_t t[THREADS];

	ck_opts_add(&opts, "sandbox", "off");
	ck_opts_add(&opts, "engine", engine);
	ck_opts_add(&opts, "rw", "");
	if (verify)
		ck_opts_add(&opts, "verify", "");
	must(!open_ckpt(&ck, dir, &opts, &err), err.msg);
	while (strcmp((*ops)->name, "tensors") != 0)
		ops++;
	must(!ck_view_open(&view, *ops, ck, 0, &opts, &err) && view, err.msg);
	w = view->first + view->ops->find(view, "w", 1);
	v = view->first + view->ops->find(view, "v", 1);
	must(w < 2 && v < 2, "tensors");
	ahead = fs_ahead_new(0);
	for (uintptr_t i = 0; i < THREADS; i++)
		must(!pthread_create(&t[i], NULL, run, (void *)i), "thread");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	fs_ahead_free(ahead);
	ck_view_close(view);
	must(!ck_ckpt_end(ck, &err), err.msg);
	ck_ckpt_close(ck);
	ck_opts_free(&opts);
	compare();
}

int main(void)
{
	char cmd[64];

	fs_ahead_fresh_ns = INT64_MAX;
	put_all();
	race("plain", NULL);
	seal();
	race("uring", NULL);
	race("plain", "verify");
	fs_buf_drain();
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd) != 0;
}
