/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_layout.c - a layout comes by one thread, while others read what is there of
 * it, and close duplicates of the file
 *
 * Under ThreadSanitizer; a wrong answer aborts.
 */
#include "fs/draft/ops_draft.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READERS 2
#define CLOSES 10
#define SIZE ((uint64_t)1 << 20)
#define PIECE ((uint64_t)4096)

static struct fs_draft_ref step = { .ino = FS_DRAFT_LAYOUT };
static struct fs_open *layout;
static _Atomic bool ended;

static void want(bool ok, const char *what, int ret)
{
	if (ok)
		return;
	fprintf(stderr, "race_layout: %s: %d\n", what, ret);
	abort();
}

static void *reader(void *arg)
{
	char *buf = malloc(SIZE);

	want(buf, "malloc", 0);
	while (!atomic_load(&ended)) {
		size_t got = fs_open_text(layout, buf, SIZE, 0);

		want(got <= SIZE && got % PIECE == 0, "length", (int)got);
		for (size_t i = 0; i < got; i++)
			want(buf[i] == 'A', "another's memory", buf[i]);
	}
	free(buf);
	return arg;
}

static void *closer(void *arg)
{
	for (int i = 0; i < CLOSES; i++) {
		struct ck_err err = { 0 };
		int ret = fs_slices_flush(&step, layout, &err);

		want(!ret || ret == -EINVAL, err.msg, ret);
	}
	return arg;
}

static void write_all(void)
{
	char piece[PIECE];

	memset(piece, 'A', PIECE);
	for (uint64_t at = 0; at < SIZE; at += PIECE) {
		int ret = fs_slices_write(&step, layout, piece, PIECE, at,
					  false, NULL);

		want(!ret, "write", ret);
	}
}

int main(void)
{
	const struct fs_draft_tree_who me = { .uid = getuid(),
					      .gid = getgid() };
	char top[] = "/tmp/ck-race-XXXXXX";
	pthread_t thread[READERS + 1];
	struct ck_opts opts = { 0 };
	struct ck_err err = { 0 };
	struct ck_root root;
	int ret;

	want(mkdtemp(top), "mkdtemp", errno);
	ck_opts_add(&opts, "sandbox", "off");
	want(!ck_root_open(&root, top, &opts, &err), err.msg, 0);
	step.drafts = fs_drafts_new(&root, &opts);
	want(step.drafts, "fs_drafts_new", 0);
	ret = fs_drafts_mkdir(step.drafts, "step-1", 0700, &me, &step.s, &err);
	want(!ret, err.msg, ret);
	layout = fs_open_new();
	want(layout, "fs_open_new", 0);
	for (int i = 0; i < READERS; i++)
		pthread_create(&thread[i], NULL, reader, NULL);
	pthread_create(&thread[READERS], NULL, closer, NULL);
	write_all();
	pthread_join(thread[READERS], NULL);
	atomic_store(&ended, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	fs_open_free(layout);
	fs_draft_unpin(step.drafts, step.s);
	want(!fs_drafts_rmdir(step.drafts, "step-1"), "rmdir", 0);
	fs_drafts_free(step.drafts);
	ck_root_close(&root);
	ck_opts_free(&opts);
	return rmdir(top);
}
