/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_fs - what libfuse's workers share: documents, names, reply buffers
 *
 * Eight threads look up, list, forget and read; what each sees is checked, and
 * the thread sanitizer watches.
 */
#include "core/ckpt/ckpt.h"
#include "fs/kernel/buf.h"
#include "fs/tree/shards.h"
#include "fs/tree/tree.h"
#include "fs/tree/virt.h"
#include "tests/lib/openckpt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, TURNS = 40, TENSORS = 1500, NAMES = 20 };

static char dir[] = "/tmp/race-fs.XXXXXX";
static struct ck_ckpt *ck;
static struct fs_kernel kernel;
static struct fs_virt *virt;
static struct fs_shards *shards;
static uint64_t catalog_size;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "race_fs: %s\n", what);
	exit(1);
}

static void put_file(const char *name, const char *bytes, size_t len)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	must(f && fwrite(bytes, 1, len, f) == len && !fclose(f), path);
}

static void put_all(void)
{
	struct ck_str all = { 0 }, head = { 0 };
	uint64_t len;
	char name[32];

	ck_str_puts(&head, "{");
	for (unsigned i = 0; i < TENSORS; i++)
		ck_str_fmt(&head,
			   "%s\"layers.%u\": {\"dtype\": \"U8\", "
			   "\"shape\": [4], \"data_offsets\": [%u, %u]}",
			   i ? ", " : "", i, 4 * i, 4 * i + 4);
	ck_str_puts(&head, "}");
	len = head.len;
	ck_str_add(&all, &len, 8);
	ck_str_add(&all, head.v, head.len);
	for (unsigned i = 0; i < TENSORS; i++)
		ck_str_add(&all, "abcd", 4);
	put_file("model.safetensors", all.v, all.len);
	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		put_file(name, name, strlen(name));
	}
	ck_str_free(&all);
	ck_str_free(&head);
}

static void use_buffer(unsigned me)
{
	unsigned char *buf = fs_buf_get();

	must(buf != NULL, "no buffer");
	memset(buf, (int)me, 9000);
	sched_yield();
	for (unsigned i = 0; i < 9000; i++)
		must(buf[i] == me, "a buffer is given out twice");
	fs_buf_put(buf);
}

static void use_virt(unsigned id)
{
	struct fs_virt_file *f;
	char *buf = malloc(70000);
	uint64_t size, off = 0;
	struct ck_err err;
	size_t got;

	must(!fs_virt_size(virt, id, &size, &err), "size");
	must(id != FS_VIRT_CATALOG || size == catalog_size, "catalog's size");
	must(!fs_virt_open(virt, id, NULL, &f, &err), "open");
	do {
		must(!fs_virt_read(f, buf, 70000, off, &got, &err), "read");
		off += got;
	} while (got);
	must(off >= size, "a document ends early");
	fs_virt_close(f);
	free(buf);
}

static void use_shards(unsigned turn)
{
	struct fs_shard_list *l;
	struct ck_err err;
	struct stat st;
	char name[32];
	uint64_t ino;
	int fd;

	snprintf(name, sizeof(name), "n%u", turn % NAMES);
	must(!fs_shards_lookup(shards, FS_INO_SHARDS, name, &ino, &st, &err),
	     "lookup");
	must(!fs_shards_stat(shards, ino, &st, &err), "stat");
	must((size_t)st.st_size == strlen(name), "another file");
	must(!fs_shards_open(shards, ino, &fd, &st, &err), "open");
	close(fd);
	must(!fs_shards_list(shards, FS_INO_SHARDS, &l, &err), "list");
	must(l->nr == NAMES + 3, "entries");
	fs_shards_list_free(l);
	fs_shards_forget(shards, ino, 1);
}

static void *run(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	unsigned char byte[4];
	struct ck_err err;

	for (unsigned i = 0; i < TURNS; i++) {
		use_buffer(me);
		use_shards(i + me);
		must(!ck_ckpt_read(ck, i, byte, 4, 0, &err), "read");
		use_virt(FS_VIRT_STATS);
		use_virt(FS_VIRT_PROBLEMS_JSON);
		if (i % 8 == me % 8)
			use_virt(FS_VIRT_CATALOG);
	}
	return NULL;
}

static struct fs_virt *new_virt(void)
{
	const struct fs_virt_in in = { .ck = ck, .kernel = &kernel };

	return fs_virt_new(&in);
}

static void measure(void)
{
	struct fs_virt *alone = new_virt();
	struct ck_err err;

	must(alone &&
		     !fs_virt_size(alone, FS_VIRT_CATALOG, &catalog_size, &err),
	     "catalog");
	fs_virt_free(alone);
}

int main(void)
{
	struct ck_opts opts = { 0 };
	pthread_t t[THREADS];
	struct ck_err err;
	char cmd[64];

	must(mkdtemp(dir) != NULL, "mkdtemp");
	put_all();
	ck_opts_add(&opts, "sandbox", "off");
	ck_opts_add(&opts, "engine", "plain");
	must(!open_ckpt(&ck, dir, &opts, &err), err.msg);
	fs_kernel_setup(&kernel, &opts);
	virt = new_virt();
	shards = fs_shards_new(ck_ckpt_root(ck));
	must(virt && shards, "no memory");
	measure();
	for (unsigned i = 0; i < THREADS; i++)
		must(!pthread_create(&t[i], NULL, run, (void *)(uintptr_t)i),
		     "thread");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	fs_buf_drain();
	fs_shards_free(shards);
	fs_virt_free(virt);
	ck_ckpt_close(ck);
	ck_opts_free(&opts);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd) != 0;
}
