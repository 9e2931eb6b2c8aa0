/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder - what a catalog of very many chunks costs to make and to map
 *
 *	builder [CHUNKS [CHUNKS_A_TENSOR]]
 *
 * Tensors of two dimensions, cut into a mesh of deferred parts as a sharded
 * checkpoint lists them, 64 files.  Prints seconds of add and finish together,
 * of the map, bytes a chunk, and the peak of resident memory.
 */
#include "core/base/check.h"
#include "core/catalog/builder.h"
#include "core/catalog/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 64, SIDE = 128, ITEM = 20000 };

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Not the wall's: others may be at work on the machine. */
static double spent(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void die(const struct ck_err *err)
{
	fprintf(stderr, "builder: %s\n", err->msg);
	exit(1);
}

/* A mesh of rows x columns parts makes one tensor. */
static void add_tensor(struct ck_builder *b, unsigned tensor, uint64_t rows,
		       uint64_t cols, const uint32_t *src)
{
	const uint64_t shape[2] = { rows * SIDE, cols * SIDE };
	const uint64_t len[2] = { SIDE, SIDE };
	uint64_t start[2];
	char name[64];
	struct ck_part p = { .name = name,
			     .dtype = CK_DT_F32,
			     .rank = 2,
			     .shape = shape,
			     .start = start,
			     .len = len,
			     .item_len = ITEM + tensor % 7 };
	struct ck_err err;

	p.name_len = (size_t)snprintf(name, sizeof(name),
				      "model.layers.%u.mlp.weight", tensor);
	for (uint64_t i = 0; i < rows * cols; i++) {
		start[0] = i / cols * SIDE;
		start[1] = i % cols * SIDE;
		p.src = src[i % FILES];
		p.off = i / FILES * ITEM * 2;
		if (ck_builder_add(b, &p, &err))
			die(&err);
	}
}

static uint64_t columns(uint64_t nr)
{
	uint64_t c = 1;

	while (4 * c * c <= nr)
		c *= 2;
	return c;
}

static uint64_t fill(struct ck_builder *b, uint64_t chunks, uint64_t each)
{
	struct stat st = { .st_mode = S_IFREG | 0644,
			   .st_size = INT64_C(1) << 50 };
	uint64_t cols = columns(each), rows = CK_DIV_UP(each, cols), made = 0;
	uint32_t src[FILES];
	char name[64];
	struct ck_err err;

	for (unsigned i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "__%u_0.distcp", i);
		if (ck_builder_file(b, name, &st, &src[i], &err))
			die(&err);
	}
	for (unsigned t = 0; made < chunks; t++, made += rows * cols)
		add_tensor(b, t, rows, cols, src);
	return made;
}

int main(int argc, char **argv)
{
	uint64_t chunks = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
	uint64_t each = argc > 2 ? strtoull(argv[2], NULL, 0) : 1000;
	struct ck_err err;
	struct ck_builder *b = ck_builder_new(&err);
	int fd = memfd_create("catalog", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	struct ck_catalog img;
	struct rusage use;
	double t0 = now(), t1, t2, t3, cpu = spent();

	if (!b || fd < 0 || !each)
		return 2;
	chunks = fill(b, chunks, each);
	t1 = now();
	if (ck_builder_finish(b, "bench", fd, &err))
		die(&err);
	t2 = now();
	cpu = spent() - cpu;
	ck_builder_free(b);
	getrusage(RUSAGE_SELF, &use);
	if (ck_catalog_map(&img, fd, &err))
		die(&err);
	t3 = now();
	printf("result builder_seconds %.3f s\n", t2 - t0);
	printf("result builder_cpu_seconds %.3f s <=0.7\n", cpu);
	printf("result builder_add_seconds %.3f s\n", t1 - t0);
	printf("result image_map_seconds %.3f s\n", t3 - t2);
	printf("result image_bytes_a_chunk %.1f B <=150\n",
	       (double)img.size / (double)chunks);
	printf("result builder_peak_rss %.1f MiB\n",
	       (double)use.ru_maxrss / 1024);
	printf("tensors %u chunks %u problems %u\n", img.nr_tensors,
	       img.nr_chunks, img.nr_problems);
	ck_catalog_unmap(&img);
	close(fd);
	return 0;
}
