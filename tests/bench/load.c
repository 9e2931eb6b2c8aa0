/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load CKPT THREADS whole|first|last - what a load costs, asked by lines
 *
 * All tensors, or the fourth eighth of each along its first or last dimension.
 * Each line of stdin is a word, and answered by seconds:
 *
 *	load       into touched memory
 *	scatter    as many threads, pread of the same extents, the same memory
 *	populate   new memory, by one madvise()
 *	fresh      new memory, loaded into
 *	cold       into touched memory, once the files are out of the page cache
 *	raw        the files, one after the other, once they are out of it
 *	open       the checkpoint once more, and its first element read
 *
 * or, of the last load, "bytes": bytes read for each that was wanted; "peak":
 * MiB of this process above the memory that is loaded into.
 */
#include "core/base/clock.h"
#include "core/ckpt/ckpt.h"
#include "core/lib/unshard.h"
#include "tests/lib/openckpt.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STRETCH (UINT64_C(4) << 20)

struct extent {
	int fd;
	uint64_t off, len, dst;
};

static unshard_ctx *ctx;
static unshard_ckpt *ck;
static unshard_item *item;
static uint32_t nr;
static uint64_t total;
static unsigned char *touched;
static const char *path;
static unsigned threads;
static struct extent *extents;
static size_t nr_extents;
static _Atomic size_t next_extent;
static unshard_stats stats;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "load: %s\n", what);
	exit(1);
}

static unsigned char *new_memory(void)
{
	unsigned char *p = mmap(NULL, total + 1, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(p != MAP_FAILED, "no memory");
	return p;
}

static double since(int64_t begun)
{
	return (double)(ck_now_ns() - begun) / 1e9;
}

/* Items of offsets from 0 on: load_into() moves them. */
static void make_items(const char *box)
{
	nr = unshard_tensors(ck);
	item = calloc(nr, sizeof(*item));
	for (uint32_t i = 0; i < nr; i++) {
		unshard_tensor t;
		uint64_t *start = calloc(16, sizeof(*start)), bytes;
		unsigned d;

		need(start && !unshard_tensor_at(ck, i, &t, sizeof(t)) &&
			     t.rank && t.rank <= 8,
		     "a tensor");
		d = *box == 'l' ? t.rank - 1 : 0;
		memcpy(start + 8, t.shape, t.rank * sizeof(*start));
		bytes = t.nbytes;
		if (*box != 'w') {
			start[8 + d] = t.shape[d] / 8;
			start[d] = 3 * start[8 + d];
			bytes = bytes / t.shape[d] * start[8 + d];
		}
		item[i] = (unshard_item){ .size = sizeof(*item),
					  .tensor = i,
					  .start = start,
					  .len = start + 8,
					  .mem = total };
		total += bytes;
	}
}

static double load_into(unsigned char *memory)
{
	unshard_error err;
	unshard_req *req;
	int64_t begun;
	double took;

	for (uint32_t i = 0; i < nr; i++)
		item[i].mem += (uintptr_t)memory;
	begun = ck_now_ns();
	need(!unshard_load(ck, item, nr, NULL, &req, &err) &&
		     !unshard_wait(req, -1, &err),
	     err.text);
	took = since(begun);
	stats = (unshard_stats){ .size = sizeof(stats) };
	unshard_req_stats(req, &stats);
	unshard_req_free(req);
	for (uint32_t i = 0; i < nr; i++)
		item[i].mem -= (uintptr_t)memory;
	return took;
}

static int by_place(const void *pa, const void *pb)
{
	const struct extent *a = pa, *b = pb;

	if (a->fd != b->fd)
		return a->fd < b->fd ? -1 : 1;
	return (a->off > b->off) - (a->off < b->off);
}

static int file_of(const struct ck_catalog *img, uint32_t src)
{
	static int fds[64];
	char name[4096];

	need(src < 64, "too many files");
	snprintf(name, sizeof(name), "%s/%s", path,
		 ck_catalog_str(img, img->srcs[src].name, NULL));
	if (!fds[src])
		fds[src] = open(name, O_RDONLY);
	need(fds[src] > 0, name);
	return fds[src];
}

/* Where the bytes of all tensors lie. */
static void find_extents(struct ck_ckpt *own)
{
	const struct ck_catalog *img = ck_ckpt_catalog(own);
	uint64_t base = 0;

	extents = calloc(1 << 20, sizeof(*extents));
	for (uint32_t i = 0; i < img->nr_tensors; i++) {
		struct ck_cursor cur;
		struct ck_seg seg;
		struct ck_err err;

		need(!ck_ckpt_resolve(own, i, &err), err.msg);
		ck_cursor_init(&cur, img, ck_ckpt_resolved(own),
			       &img->tensors[i], 0, img->tensors[i].size);
		while (ck_cursor_next(&cur, &seg)) {
			uint32_t src = img->chunks[seg.chunk].src;

			need(!seg.nax, "rows only");
			for (uint64_t at = 0; at < seg.run; at += STRETCH)
				extents[nr_extents++] = (struct extent){
					file_of(img, src), seg.src_off + at,
					seg.run - at < STRETCH ? seg.run - at :
								 STRETCH,
					base + seg.dst + at
				};
		}
		base += img->tensors[i].size;
	}
	qsort(extents, nr_extents, sizeof(*extents), by_place);
}

static void *scatter(void *arg)
{
	for (size_t i; (i = next_extent++) < nr_extents;) {
		const struct extent *e = &extents[i];

		for (uint64_t at = 0; at < e->len;) {
			ssize_t n = pread(e->fd, touched + e->dst + at,
					  e->len - at, (off_t)(e->off + at));

			need(n > 0, "pread");
			at += (uint64_t)n;
		}
	}
	return arg;
}

static double scatter_all(void)
{
	int64_t begun = ck_now_ns();
	pthread_t t[64];

	next_extent = 0;
	for (unsigned i = 0; i < threads; i++)
		need(!pthread_create(&t[i], NULL, scatter, NULL), "a thread");
	for (unsigned i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	return since(begun);
}

static double fresh(int load)
{
	unsigned char *p = new_memory();
	int64_t begun = ck_now_ns();
	double took;

	if (load) {
		took = load_into(p);
	} else {
		madvise(p, total, MADV_HUGEPAGE);
		need(!madvise(p, total, MADV_POPULATE_WRITE), "populate");
		took = since(begun);
	}
	munmap(p, total + 1);
	return took;
}

/* Puts the files that scatter() reads out of the page cache. */
static void forget(void)
{
	for (size_t i = 0; i < nr_extents; i++)
		if (!i || extents[i].fd != extents[i - 1].fd)
			need(!fsync(extents[i].fd) &&
				     !posix_fadvise(extents[i].fd, 0, 0,
						    POSIX_FADV_DONTNEED),
			     "fadvise");
}

static double raw(void)
{
	static unsigned char buf[1 << 20];
	int64_t begun;

	forget();
	begun = ck_now_ns();
	for (size_t i = 0; i < nr_extents; i++) {
		if (i && extents[i].fd == extents[i - 1].fd)
			continue;
		lseek(extents[i].fd, 0, SEEK_SET);
		while (read(extents[i].fd, buf, sizeof(buf)) > 0)
			;
	}
	return since(begun);
}

static double cold(void)
{
	forget();
	return load_into(touched);
}

static double open_again(void)
{
	int64_t begun = ck_now_ns();
	uint64_t start[8] = { 0 }, len[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	unsigned char byte[16];
	unshard_item first = { .size = sizeof(first),
			       .start = start,
			       .len = len,
			       .mem = (uintptr_t)byte };
	unshard_error err;
	unshard_ckpt *again;
	double took;

	need(!unshard_open(ctx, path, NULL, &again, &err) &&
		     !unshard_read(again, &first, &err),
	     err.text);
	took = since(begun);
	unshard_unref(again);
	return took;
}

static double peak(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	double kib = 0;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmHWM: %lf", &kib);
	if (f)
		fclose(f);
	return kib / 1024 - (double)total / 1048576;
}

static double answer(const char *word)
{
	if (!strcmp(word, "load"))
		return load_into(touched);
	if (!strcmp(word, "scatter"))
		return scatter_all();
	if (!strcmp(word, "populate"))
		return fresh(0);
	if (!strcmp(word, "fresh"))
		return fresh(1);
	if (!strcmp(word, "cold"))
		return cold();
	if (!strcmp(word, "raw"))
		return raw();
	if (!strcmp(word, "open"))
		return open_again();
	if (!strcmp(word, "bytes"))
		return (double)stats.storage / (double)stats.wanted;
	need(!strcmp(word, "peak"), word);
	return peak();
}

int main(int argc, char **argv)
{
	unshard_ctx_opts opts = { .size = sizeof(opts) };
	struct ck_opts none = { 0 };
	struct ck_ckpt *own;
	struct ck_err why;
	unshard_error err;
	char word[32];

	need(argc == 4, "CKPT THREADS whole|first|last");
	path = argv[1];
	threads = opts.threads = (unsigned)atoi(argv[2]);
	need(threads && threads <= 64, "THREADS");
	if (*argv[3] == 'w') {
		need(!open_ckpt(&own, path, &none, &why), why.msg);
		find_extents(own);
		ck_ckpt_close(own);
	}
	need(!unshard_ctx_new(&ctx, &opts, &err) &&
		     !unshard_open(ctx, path, NULL, &ck, &err),
	     err.text);
	make_items(argv[3]);
	touched = new_memory();
	memset(touched, 1, total);
	while (scanf("%31s", word) == 1) {
		printf("%.6f\n", answer(word));
		fflush(stdout);
	}
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	return 0;
}
