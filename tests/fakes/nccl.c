/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c - a libnccl.so.2 beside the libcuda.so.1 of cuda.c, with scripted faults
 *
 * FAKE_NCCL="version=22809,id=1,init=1,never=1,async=3,group=3,hang=3,abort=1":
 * another version; no id; a start that fails, or never ends; the group, counted from
 * 1, that NCCL fails with later or refuses, or that no rank hears of; an abort that
 * never returns.  With -DOLD it lacks a call.
 *
 * Ranks are processes of a node and talk by a file in shared memory, with a queue from
 * each to each; what a group moves is done late, in the stream's order, by the
 * stream's thread, which waits for others until NCCL is told to abort: as NCCL's
 * kernels do.  What NCCL does not allow is refused: blocking communicators, other
 * types, messages of unlike lengths, memory that is not the device's.
 */
#include "core/comm/nccl_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#ifdef OLD
#define ncclCommInitRankConfig ncclCommInitRankOnce
#endif
#define DECLARE(ret, name, args) API ret name args;
CK_NCCL_CALLS(DECLARE)

/* Of the fake libcuda. */
unsigned char *fake_cuda_bytes(uint64_t mem, size_t len);
int fake_cuda_call_in(void *stream, void (*call)(void *arg), void *arg);

#define RANKS 16
#define ROOM 65536 /* of a queue */
#define OPS 4096
#define UNHANDLED 1
#define SYSTEM 2
#define INVALID 4
#define USAGE 5

struct queue {
	_Atomic uint64_t put, got;
	unsigned char byte[ROOM];
};
struct meeting {
	_Atomic unsigned came, left;
	struct queue queue[RANKS][RANKS]; /* from, to */
};

struct op {
	bool sends, said; /* its length */
	int peer;
	unsigned char *mem;
	uint64_t len, done;
};
struct group {
	struct ncclComm *comm;
	long nr_group;
	unsigned nr;
	struct op op[];
};

struct ncclComm {
	struct meeting *m;
	char path[64];
	int rank, ranks;
	_Atomic bool abort, never;
	_Atomic unsigned state, running;
	long groups;
};

/* For tests: groups of this process that were an all-gather, and messages sent. */
API long fake_nccl_count(const char *what);
static _Atomic long gathered, sent;

long fake_nccl_count(const char *what)
{
	return *what == 'g' ? gathered : sent;
}

static _Thread_local struct group *group;
static _Thread_local int depth;
static _Thread_local void *group_stream;
static _Thread_local struct ncclComm *group_comm;

static long told(const char *name)
{
	const char *at = getenv("FAKE_NCCL");
	size_t len = strlen(name);

	for (; at && *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at, name, len) && at[len] == '=')
			return strtol(at + len + 1, NULL, 10);
	return 0;
}

/* Another process, or thread, has to do something now. */
static void rest(void)
{
	const struct timespec t = { 0, 50000 };

	nanosleep(&t, NULL);
}

API unsigned ncclGetVersion(int *version)
{
	*version = told("version") ? (int)told("version") : 22809;
	return CK_NCCL_SUCCESS;
}

API unsigned ncclGetUniqueId(struct ck_nccl_id *id)
{
	uint64_t name = 0;

	if (told("id") || getrandom(&name, sizeof(name), 0) < 0)
		return SYSTEM;
	memset(id, 0, sizeof(*id));
	snprintf(id->bytes, sizeof(id->bytes), "/dev/shm/fake-nccl-%016llx",
		 (unsigned long long)name);
	return CK_NCCL_SUCCESS;
}

API const char *ncclGetErrorString(unsigned result)
{
	return result == SYSTEM ? "unhandled system error" : "an error";
}

API const char *ncclGetLastError(struct ncclComm *comm)
{
	return comm ? "a fault that was asked for" : "";
}

/* ---- coming and going ---- */

/* Until all have come. */
static void *meet(void *arg)
{
	struct ncclComm *c = arg;

	c->m->came++;
	while (c->m->came < (unsigned)c->ranks && !c->abort)
		rest();
	while (c->never && !c->abort)
		rest();
	if (!c->abort)
		c->state = CK_NCCL_SUCCESS;
	c->running--;
	return NULL;
}

static struct meeting *open_meeting(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *m = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, sizeof(struct meeting)))
		m = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE,
			 MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return m == MAP_FAILED ? NULL : m;
}

API unsigned ncclCommInitRankConfig(struct ncclComm **out, int ranks,
				    struct ck_nccl_id id, int rank,
				    struct ck_nccl_config *config)
{
	struct ncclComm *c;
	pthread_t thread;

	if (told("init"))
		return UNHANDLED;
	if (config->magic != CK_NCCL_MAGIC || config->blocking ||
	    config->version != CK_NCCL_OLDEST ||
	    config->size != sizeof(*config) || ranks > RANKS || rank >= ranks ||
	    !fake_cuda_bytes(0, 0))
		return INVALID;
	c = calloc(1, sizeof(*c));
	if (!c)
		return SYSTEM;
	snprintf(c->path, sizeof(c->path), "%.60s", id.bytes);
	c->m = open_meeting(c->path);
	c->rank = rank;
	c->ranks = ranks;
	c->never = told("never");
	c->state = CK_NCCL_IN_PROGRESS;
	c->running = 1;
	if (!c->m || pthread_create(&thread, NULL, meet, c)) {
		free(c);
		return SYSTEM;
	}
	pthread_detach(thread);
	*out = c;
	return CK_NCCL_IN_PROGRESS;
}

API unsigned ncclCommGetAsyncError(struct ncclComm *c, unsigned *state)
{
	*state = c->state;
	return CK_NCCL_SUCCESS;
}

API unsigned ncclCommAbort(struct ncclComm *c)
{
	unlink(c->path); /* the others have it, or never will */
	while (told("abort"))
		rest();
	c->abort = true;
	while (c->running)
		rest();
	munmap(c->m, sizeof(*c->m));
	free(c);
	return CK_NCCL_SUCCESS;
}

/* ---- bytes ---- */

static uint64_t push(struct queue *q, const unsigned char *from, uint64_t len)
{
	uint64_t put = q->put, room = ROOM - (put - q->got);

	len = len < room ? len : room;
	for (uint64_t i = 0; i < len; i++)
		q->byte[(put + i) % ROOM] = from[i];
	q->put = put + len;
	return len;
}

static uint64_t pull(struct queue *q, unsigned char *to, uint64_t len)
{
	uint64_t got = q->got, there = q->put - got;

	len = len < there ? len : there;
	for (uint64_t i = 0; i < len; i++)
		to[i] = q->byte[(got + i) % ROOM];
	q->got = got + len;
	return len;
}

/* True: it moved something, or failed. */
static bool step(struct ncclComm *c, struct op *op)
{
	struct queue *q = op->sends ? &c->m->queue[c->rank][op->peer] :
				      &c->m->queue[op->peer][c->rank];
	uint64_t len = op->len, n;

	if (!op->said) {
		unsigned char *head = (unsigned char *)&len;

		if (op->sends ? ROOM - (q->put - q->got) < sizeof(len) :
				q->put - q->got < sizeof(len))
			return false;
		op->said = op->sends ? push(q, head, sizeof(len)) :
				       pull(q, head, sizeof(len));
		if (len != op->len)
			c->state = USAGE;
		return true;
	}
	n = op->sends ? push(q, op->mem + op->done, op->len - op->done) :
			pull(q, op->mem + op->done, op->len - op->done);
	op->done += n;
	return n;
}

/* Whether an earlier one of the same way has to be done first. */
static bool is_behind(const struct group *g, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (g->op[k].peer == g->op[i].peer &&
		    g->op[k].sends == g->op[i].sends &&
		    g->op[k].done < g->op[k].len)
			return true;
	return false;
}

/* In the stream. */
static void run(void *arg)
{
	struct group *g = arg;
	struct ncclComm *c = g->comm;
	bool more = true, hangs = g->nr_group == told("hang");

	if (g->nr_group == told("async"))
		c->state = SYSTEM;
	while (more && !c->abort) {
		bool moved = false;

		more = hangs || c->state == SYSTEM || c->state == USAGE;
		for (unsigned i = 0; i < g->nr && !more; i++)
			if (g->op[i].done < g->op[i].len)
				more = true;
		for (unsigned i = 0; i < g->nr && !hangs; i++)
			if (g->op[i].done < g->op[i].len && !is_behind(g, i))
				moved |= step(c, &g->op[i]);
		if (more && !moved)
			rest();
	}
	free(g);
	c->running--;
}

/* ---- groups ---- */

API unsigned ncclGroupStart(void)
{
	if (!depth++) {
		group = calloc(1, sizeof(*group) + OPS * sizeof(struct op));
		group_stream = NULL;
		group_comm = NULL;
	}
	return group ? CK_NCCL_SUCCESS : SYSTEM;
}

static unsigned add(bool sends, const void *mem, size_t len, unsigned type,
		    int peer, struct ncclComm *c, void *stream)
{
	unsigned char *at = fake_cuda_bytes((uintptr_t)mem, len);

	if (!depth || type != CK_NCCL_INT8 || peer < 0 || peer >= c->ranks ||
	    (group_comm && group_comm != c) ||
	    (group_stream && group_stream != stream) || group->nr == OPS)
		return USAGE;
	if (!at)
		return INVALID;
	group_comm = c;
	group_stream = stream;
	group->op[group->nr++] = (struct op){
		.sends = sends, .peer = peer, .mem = at, .len = len
	};
	return CK_NCCL_SUCCESS;
}

API unsigned ncclSend(const void *mem, size_t nr, unsigned type, int to,
		      struct ncclComm *comm, struct CUstream_st *stream)
{
	sent++;
	return add(true, mem, nr, type, to, comm, stream);
}

API unsigned ncclRecv(void *mem, size_t nr, unsigned type, int from,
		      struct ncclComm *comm, struct CUstream_st *stream)
{
	return add(false, mem, nr, type, from, comm, stream);
}

/* In place alone, as it is asked for here. */
API unsigned ncclAllGather(const void *from, void *to, size_t nr, unsigned type,
			   struct ncclComm *c, struct CUstream_st *stream)
{
	unsigned char *all = to;
	unsigned code = all + (size_t)c->rank * nr == from ? 0 : INVALID;

	gathered++;
	for (int i = 0; i < c->ranks && !code; i++) {
		if (i == c->rank)
			continue;
		code = add(true, from, nr, type, i, c, stream);
		if (!code)
			code = add(false, all + (size_t)i * nr, nr, type, i, c,
				   stream);
	}
	return code;
}

API unsigned ncclGroupEnd(void)
{
	struct ncclComm *c = group_comm;
	struct group *g = group;

	if (!depth || --depth)
		return depth < 0 ? USAGE : CK_NCCL_SUCCESS;
	group = NULL;
	if (!c || c->state == SYSTEM || ++c->groups == told("group")) {
		free(g);
		return c ? SYSTEM : CK_NCCL_SUCCESS;
	}
	g->comm = c;
	g->nr_group = c->groups;
	c->running++;
	if (fake_cuda_call_in(group_stream, run, g)) {
		c->running--;
		free(g);
		return SYSTEM;
	}
	return CK_NCCL_IN_PROGRESS;
}
