/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readonce CKPT KIND RANKS whole|first|last - ranks that load at one time
 *
 * KIND: shm or tcp, or "alone": without a communicator.  whole: each loads all
 * tensors; first, last: each its share of every one along that dimension.  Into
 * memory that was touched; of more than two ranks each has 256 MiB, and loads one
 * tensor over the other.  Past the page cache.
 *
 *	SECONDS READ SPREAD WANTED STORED FALLBACKS
 *
 * from when all have connected until the last has what it wants; READ: bytes from
 * storage by /proc/PID/io, of all ranks; SPREAD: the most that a rank read less the
 * least; WANTED: what all got; STORED: what the checkpoint has; FALLBACKS: ranks that
 * had to read alone.
 *
 * readonce - copy RANKS BYTES: seconds that RANKS processes take to copy so many
 * bytes each, on two processors.
 */
#include "core/base/clock.h"
#include "core/lib/unshard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 64
#define ROOM (UINT64_C(256) << 20)
#define SOURCE (UINT64_C(32) << 20)

static struct shared {
	pthread_barrier_t all;
	char address[RANKS][256];
	int64_t begun, ended[RANKS];
	uint64_t read[RANKS], wanted[RANKS], stored;
	int alone[RANKS];
} * shared;

static const char *path, *kind, *how;
static unsigned ranks;
static unshard_error err;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "readonce: %s: %s\n", what, err.text);
	_exit(1);
}

static unsigned char *touched(uint64_t len)
{
	unsigned char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(p != MAP_FAILED, "memory");
	madvise(p, len, MADV_HUGEPAGE);
	memset(p, 1, len);
	return p;
}

/* Bytes that storage gave to this process. */
static uint64_t read_bytes(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	unsigned long long n = 0;
	char line[128];

	need(f != NULL, "/proc/self/io");
	while (fgets(line, sizeof(line), f))
		sscanf(line, "read_bytes: %llu", &n);
	fclose(f);
	return n;
}

static unshard_item *make_items(const unshard_ckpt *ck, unsigned rank,
				uint32_t *nr, uint64_t *total)
{
	unshard_item *item;
	uint64_t *box;

	*nr = unshard_tensors(ck);
	item = calloc(*nr, sizeof(*item));
	box = calloc(*nr, 4 * sizeof(*box));
	*total = 0;
	for (uint32_t i = 0; i < *nr; i++, box += 4) {
		unsigned axis = strcmp(how, "first") ? 1 : 0;
		unshard_tensor t;
		uint64_t bytes;

		need(!unshard_tensor_at(ck, i, &t, sizeof(t)) && t.rank == 2,
		     "tensors of two dimensions");
		if (!rank)
			shared->stored += t.nbytes;
		memcpy(box + 2, t.shape, 2 * sizeof(*box));
		if (strcmp(how, "whole")) {
			uint64_t n = box[2 + axis];

			box[axis] = n * rank / ranks;
			box[2 + axis] = n * (rank + 1) / ranks - box[axis];
		}
		bytes = box[2] * box[3] * t.itemsize;
		item[i] = (unshard_item){ .size = sizeof(*item),
					  .tensor = i,
					  .start = box,
					  .len = box + 2,
					  .mem = *total };
		*total += bytes;
		need(bytes <= ROOM, "tensors of 256 MiB at most");
		if (ranks > 2 && *total > ROOM) { /* once more from its start */
			item[i].mem = 0;
			*total = bytes;
		}
	}
	return item;
}

static unshard_comm *meet(unshard_ctx *ctx, unsigned rank)
{
	const unshard_comm_opts opts = { .size = sizeof(opts),
					 .kind = kind,
					 .host = "127.0.0.1",
					 .rank = rank,
					 .ranks = ranks };
	const char *address[RANKS];
	unshard_comm *comm;

	if (!strcmp(kind, "alone"))
		return NULL;
	need(!unshard_comm_new(ctx, &opts, &comm, &err), "new");
	strcpy(shared->address[rank], unshard_comm_address(comm));
	pthread_barrier_wait(&shared->all);
	for (unsigned i = 0; i < ranks; i++)
		address[i] = shared->address[i];
	need(!unshard_comm_connect(comm, address, &err), "connect");
	return comm;
}

static void load(unsigned rank)
{
	unshard_ctx_opts opts = { .size = sizeof(opts), .local_ranks = ranks };
	unshard_load_opts lo = { .size = sizeof(lo),
				 .options = "cache=direct" };
	unshard_stats stats = { .size = sizeof(stats) };
	uint64_t total, before;
	unsigned char *mem;
	unshard_item *item;
	unshard_ctx *ctx;
	unshard_ckpt *ck;
	unshard_req *req;
	uint32_t nr;

	need(!unshard_ctx_new(&ctx, &opts, &err), "context");
	need(!unshard_open(ctx, path, NULL, &ck, &err), path);
	item = make_items(ck, rank, &nr, &total);
	mem = touched(ranks <= 2 ? total + 1 : ROOM);
	for (uint32_t i = 0; i < nr; i++)
		item[i].mem += (uintptr_t)mem;
	lo.comm = meet(ctx, rank);
	before = read_bytes();
	pthread_barrier_wait(&shared->all);
	if (!rank)
		shared->begun = ck_now_ns();
	need(!unshard_load(ck, item, nr, &lo, &req, &err), "load");
	need(!unshard_wait(req, -1, &err), "wait");
	shared->ended[rank] = ck_now_ns();
	unshard_req_stats(req, &stats);
	shared->wanted[rank] = stats.wanted;
	shared->alone[rank] = lo.comm && *stats.why;
	if (*stats.why)
		fprintf(stderr, "readonce: %s\n", stats.why);
	unshard_req_free(req);
	shared->read[rank] = read_bytes() - before;
	unshard_comm_free(lo.comm);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
}

/* ---- what two processors can copy ---- */

static void copy(unsigned rank, uint64_t bytes)
{
	uint64_t room = ranks <= 2 ? bytes : ROOM;
	unsigned char *from = touched(SOURCE), *to = touched(room);

	pthread_barrier_wait(&shared->all);
	if (!rank)
		shared->begun = ck_now_ns();
	for (uint64_t at = 0; at < bytes; at += SOURCE)
		memcpy(to + at % (room - SOURCE + 1), from,
		       bytes - at < SOURCE ? bytes - at : SOURCE);
	shared->ended[rank] = ck_now_ns();
}

static double run(uint64_t bytes)
{
	pthread_barrierattr_t attr;
	int64_t last = 0;

	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->all, &attr, ranks);
	for (unsigned i = 0; i < ranks; i++) {
		if (fork())
			continue;
		if (path)
			load(i);
		else
			copy(i, bytes);
		_exit(0);
	}
	for (unsigned i = 0; i < ranks; i++) {
		int status;

		/* Who waits for one that failed would wait for ever. */
		if (wait(&status) < 0 || status)
			exit(1);
	}
	for (unsigned i = 0; i < ranks; i++)
		if (shared->ended[i] > last)
			last = shared->ended[i];
	return (double)(last - shared->begun) / 1e9;
}

int main(int argc, char **argv)
{
	uint64_t low = UINT64_MAX, high = 0, read = 0, wanted = 0;
	double seconds;
	int alone = 0;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(shared != MAP_FAILED && (argc == 4 || argc == 5), "usage");
	if (argc == 4) {
		ranks = (unsigned)atoi(argv[2]);
		printf("%.4f\n", run(strtoull(argv[3], NULL, 10)));
		return 0;
	}
	path = argv[1];
	kind = argv[2];
	ranks = (unsigned)atoi(argv[3]);
	how = argv[4];
	need(ranks > 0 && ranks <= RANKS, "ranks");
	seconds = run(0);
	for (unsigned i = 0; i < ranks; i++) {
		low = shared->read[i] < low ? shared->read[i] : low;
		high = shared->read[i] > high ? shared->read[i] : high;
		read += shared->read[i];
		wanted += shared->wanted[i];
		alone += shared->alone[i];
	}
	printf("%.4f %llu %llu %llu %llu %d\n", seconds,
	       (unsigned long long)read, (unsigned long long)(high - low),
	       (unsigned long long)wanted, (unsigned long long)shared->stored,
	       alone);
	return 0;
}
