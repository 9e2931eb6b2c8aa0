/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_steps - checkpoints that come and go while they are looked at
 *
 * Threads do what the kernel does: they look up entries and what is in them,
 * read, and give the references back in no order, while one replaces and
 * deletes entries.  What each sees is right or -ESTALE, and the thread
 * sanitizer watches; in the end nothing is kept that must not be.
 */
#include "core/base/str.h"
#include "fs/ops.h"
#include "tests/lib/mounteds.h"
#include "tests/lib/stepkit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More steps than are kept, so that some sleep; the first ones are replaced. */
enum { THREADS = 8, TURNS = 80, STEPS = FS_IDLE_MOUNTED + 8, CHURNED = 6 };

static struct stepkit kit;
static struct fs fs;
static _Atomic bool done;
static _Atomic unsigned good;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "race_steps: %s\n", what);
	exit(1);
}

static uint64_t look(uint64_t parent, const char *name)
{
	struct fuse_entry_param e;
	struct ck_err err;

	return fs_lookup(&fs, parent, name, &e, &err) ? 0 : e.ino;
}

static void read_tensor(uint64_t ino)
{
	unsigned char byte[4] = { 0 };
	struct ck_err err;
	fs_auto_ref r = { 0 };

	if (fs_find(&fs, ino, false, &r, &err)) {
		must(err.code == ESTALE, err.msg);
		return;
	}
	sched_yield();
	if (!ck_view_read(r.node.view, r.node.nr, byte, 4, 0, &err)) {
		must(!memcmp(byte, "abcd", 4), "other bytes");
		good++;
	}
}

/* The kernel forgets in any order, by several threads. */
static void *forget(void *arg)
{
	uint64_t *ino = arg;

	for (unsigned i = 0; i < 5; i++)
		if (ino[i])
			fs_forget(&fs, ino[i], 1);
	return NULL;
}

static void visit(unsigned nr)
{
	uint64_t ino[5] = { 0 }, other[5] = { 0 };
	pthread_t t;
	char name[32];

	snprintf(name, sizeof(name), "step-%u", nr);
	ino[0] = look(FS_INO_ROOT, name);
	if (!ino[0])
		return;
	other[0] = look(ino[0], "tensors");
	other[1] = look(ino[0], "shards");
	if (other[0])
		other[2] = look(other[0], "t");
	if (other[1])
		other[3] = look(other[1], "model.safetensors");
	if (other[2])
		read_tensor(other[2]);
	must(!pthread_create(&t, NULL, forget, other), "thread");
	forget(ino);
	pthread_join(t, NULL);
}

static void *run(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < TURNS; i++)
		visit((unsigned)rand_r(&seed) % (i % 2 ? STEPS : CHURNED));
	return NULL;
}

static void *churn(void *arg)
{
	unsigned seed = 7;

	while (!atomic_load(&done)) {
		unsigned nr = (unsigned)rand_r(&seed) % CHURNED;

		stepkit_drop(&kit, nr);
		usleep(1000);
		stepkit_put(&kit, nr, "abcd");
	}
	return arg;
}

int main(void)
{
	struct ck_opts opts = { 0 };
	struct ck_root root;
	const struct fs_mounted_table_in in = { .steps = &root,
						.kernel = &fs.kernel,
						.opts = &opts };
	pthread_t t[THREADS], writer;
	struct ck_err err;
	uint64_t files;

	stepkit_init(&kit);
	for (unsigned i = 0; i < STEPS; i++)
		stepkit_put(&kit, i, "abcd");
	ck_opts_add(&opts, "sandbox", "off");
	ck_opts_add(&opts, "engine", "plain");
	fs_kernel_setup(&fs.kernel, &opts);
	must(!ck_root_open(&root, kit.dir, &opts, &err), err.msg);
	must(!fs_mounted_table_new(&fs.table, &in, &err), err.msg);
	must(!pthread_create(&writer, NULL, churn, NULL), "thread");
	for (unsigned i = 0; i < THREADS; i++)
		must(!pthread_create(&t[i], NULL, run,
				     (void *)(uintptr_t)(i + 1)),
		     "thread");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	fs_mounted_table_total(fs.table, &files);
	free(fs_mounted_table_latest(fs.table));
	atomic_store(&done, true);
	pthread_join(writer, NULL);
	must(good > THREADS, "next to nothing could be read");
	must(fs_mounted_table_made(fs.table) <= FS_IDLE_MOUNTED,
	     "too many are kept");
	must(mounteds_nr(fs.table) == fs_mounted_table_made(fs.table),
	     "what nobody knows is kept, and sleeps");
	fs_mounted_table_free(fs.table);
	ck_root_close(&root);
	ck_opts_free(&opts);
	stepkit_free(&kit);
	return 0;
}
