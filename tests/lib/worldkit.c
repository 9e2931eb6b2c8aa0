/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/worldkit.h"

#include "core/base/check.h"
#include "core/comm/comm_priv.h"
#include "core/device/ring.h"
#include "tests/lib/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct wk_outcome *wk_outcome;

static struct meeting {
	pthread_barrier_t all;
	char address[WK_RANKS][CK_COMM_ADDRESS];
} * meeting; /* shared, too */

/* What a rank loads with, and to. */
struct setup {
	struct ck_load_pool *pool;
	struct ck_device *dev; /* NULL: memory of the host */
	struct ck_ring *ring;
	uint64_t mem[LK_MAX];
	struct lk_load *l;
};

static void set_up(struct setup *s, const struct wk_plan *p, struct lk_load *l)
{
	*s = (struct setup){ .l = l };
	LK_CHECK(!ck_load_pool_new(&s->pool, 2, NULL));
	if (p->alone || strcmp(p->kind, "nccl") || p->seed % 2)
		return;
	LK_CHECK(!ck_device_open(&s->dev, "cuda:0", NULL));
	LK_CHECK(!ck_load_ring_new(&s->ring, s->pool, s->dev, 3,
				   CK_LOAD_CHUNK_MIN, NULL));
	lk_move_in(l, s->dev, s->mem);
	l->in.ring = s->ring;
}

static void tear_down(struct setup *s)
{
	for (unsigned i = 0; s->dev && i < s->l->nr; i++)
		LK_CHECK(!ck_device_free(s->dev, s->mem[i], NULL));
	ck_ring_free(s->ring);
	ck_device_close(s->dev);
	ck_load_pool_free(s->pool);
}

static bool is_whole(const struct setup *s, unsigned item)
{
	return (!s->dev || lk_move_back(s->l, s->dev, s->mem, item)) &&
	       lk_whole(s->l, item);
}

/* What the load says of each item must be so. */
static void take_items(struct ck_load *load, const struct setup *s,
		       struct wk_outcome *out)
{
	struct ck_err err = { 0 };
	size_t item;
	int ret;

	for (;;) {
		item = SIZE_MAX;
		err.code = 0;
		ret = ck_load_next(load, 60000, &item, &err);
		LK_CHECK(ret != -ETIMEDOUT || err.code); /* refused */
		if (ret == 1 || (ret && item == SIZE_MAX))
			break;
		if (!ret) {
			LK_CHECK(is_whole(s, (unsigned)item));
			out->whole++;
		} else {
			out->failed++;
		}
	}
	out->ret = ck_load_wait(load, 0, NULL, &err);
	LK_CHECK(out->ret != -ETIMEDOUT || err.code);
	snprintf(out->line, sizeof(out->line), "%s", err.msg);
}

static int stop_at_once(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)done;
	(void)total;
	return 1;
}

static void set_fault(const struct wk_plan *p)
{
	ck_comm_fault.how = p->what == KILL ? SIGKILL :
			    p->what == STOP ? SIGSTOP :
			    p->what == FAIL ? -EIO :
					      0;
	if (p->what == UNREADABLE)
		fault_set(p->when, 1 + p->when % 7, EIO);
	else if (p->what != GOOD)
		ck_comm_fault.left = p->when;
}

/* 0, or what became of it is said. */
static int meet(const struct wk_plan *p, unsigned rank, struct ck_comm **comm)
{
	const struct ck_comm_in in = { .kind = p->kind,
				       .host = "127.0.0.1",
				       .device = "cuda:0",
				       .rank = rank,
				       .ranks = p->ranks,
				       .timeout_ms = p->meet_ms,
				       .block = WK_BLOCK };
	struct wk_outcome *out = &wk_outcome[rank];
	const char *address[WK_RANKS];
	struct ck_err err = { 0 };

	*comm = NULL;
	if (p->alone)
		return 0;
	if (p->script && (rank == p->whom || p->whom == WK_NOBODY))
		LK_CHECK(!setenv("FAKE_NCCL", p->script, 1));
	out->ret = ck_comm_new(comm, &in, &err);
	if (!out->ret)
		strcpy(meeting->address[rank], ck_comm_address(*comm));
	pthread_barrier_wait(&meeting->all);
	for (unsigned i = 0; i < p->ranks; i++)
		address[i] = meeting->address[i];
	if (!out->ret)
		out->ret = ck_comm_connect(*comm, address, &err);
	if (!out->ret)
		(*comm)->timeout_ms = p->timeout_ms;
	out->ended = out->ret;
	memcpy(out->line, err.msg, sizeof(out->line));
	return out->ret;
}

/* Of a library that the test has loaded by its name. */
static void *fake(const char *name)
{
	void *call = dlsym(RTLD_DEFAULT, name);

	LK_CHECK(call);
	return call;
}

static void count(struct wk_outcome *out)
{
	long (*moved)(const char *);
	long (*fetched)(void);

	*(void **)&moved = fake("fake_nccl_count");
	*(void **)&fetched = fake("fake_cuda_fetched");
	out->gathered = moved("gathered");
	out->sent = moved("sent");
	out->fetched = fetched();
}

static void load_all(const struct wk_plan *p, unsigned rank, struct lk_load *l,
		     struct wk_outcome *out)
{
	struct ck_load_stats stats;
	struct ck_load *load;
	struct setup s;

	set_up(&s, p, l);
	ck_comm_fault.passed = 0;
	if (rank == p->whom)
		set_fault(p);
	LK_CHECK(!ck_load_start(&load, s.pool, &l->in, NULL, NULL));
	take_items(load, &s, out);
	ck_load_stats(load, &stats);
	out->read = stats.source_bytes;
	memcpy(out->why, stats.why, sizeof(out->why));
	ck_load_free(load);
	count(out);
	tear_down(&s);
	out->received = stats.received;
}

static void be(const struct wk_plan *p, unsigned rank, struct lk_load *l)
{
	struct wk_outcome *out = &wk_outcome[rank];
	struct ck_comm *comm;

	if (!meet(p, rank, &comm)) {
		if (p->what == ABSENT && rank == p->whom)
			pause();
		l->in.comm = comm;
		l->in.digest[0] = p->what == DIFFER && rank == p->whom;
		l->in.never_alone = p->never_alone;
		l->in.cache = p->direct ? CK_LOAD_DIRECT : CK_LOAD_CACHED;
		if (p->what == CANCEL && rank == p->whom)
			l->in.progress = stop_at_once;
		load_all(p, rank, l, out);
	}
	ck_comm_free(comm);
	out->moments = ck_comm_fault.passed;
	out->ended = true;
}

/* ---- a world ---- */

void wk_make(struct wk_world *w, const struct wk_plan *p)
{
	uint64_t seed = p->seed;
	pthread_barrierattr_t attr;

	LK_CHECK(
		!pthread_barrierattr_init(&attr) &&
		!pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	memset(meeting, 0, sizeof(*meeting));
	LK_CHECK(!pthread_barrier_init(&meeting->all, &attr, p->ranks));
	memset(wk_outcome, 0, WK_RANKS * sizeof(*wk_outcome));
	lk_tensor(&w->k, p->seed);
	sk_open(&w->k, p->seed % 2 ? "plain" : "auto");
	for (unsigned i = 0; i < p->ranks; i++) {
		if (p->same)
			seed = p->seed;
		lk_make(&w->l[i], &w->k, &seed, 1 + p->seed % 4, p->same);
	}
}

void wk_start(struct wk_world *w, const struct wk_plan *p)
{
	for (unsigned i = 0; i < p->ranks; i++) {
		w->pid[i] = fork();
		LK_CHECK(w->pid[i] >= 0);
		if (w->pid[i])
			continue;
		be(p, i, &w->l[i]);
		for (unsigned k = 0; k < p->ranks; k++)
			lk_free(&w->l[k]);
		exit(0);
	}
}

static void end_one(struct wk_world *w, unsigned i, int expected)
{
	int status;

	LK_CHECK(waitpid(w->pid[i], &status, 0) == w->pid[i]);
	if (expected ? !WIFSIGNALED(status) || WTERMSIG(status) != expected :
		       status) {
		fprintf(stderr, "rank %u: status 0x%x\n", i, status);
		abort();
	}
}

void wk_end(struct wk_world *w, const struct wk_plan *p)
{
	bool stops = p->what == STOP || p->what == ABSENT;
	int status;

	if (p->what == STOP) /* or it came to its end before */
		LK_CHECK(waitpid(w->pid[p->whom], &status, WUNTRACED) > 0);
	for (unsigned i = 0; i < p->ranks; i++)
		if (!stops || i != p->whom)
			end_one(w, i,
				p->what == KILL && i == p->whom ? SIGKILL : 0);
	if (p->what == ABSENT)
		LK_CHECK(!kill(w->pid[p->whom], SIGKILL));
	if (p->what == STOP && WIFSTOPPED(status))
		LK_CHECK(!kill(w->pid[p->whom], SIGCONT));
	if (p->what == ABSENT || (p->what == STOP && WIFSTOPPED(status)))
		end_one(w, p->whom, p->what == ABSENT ? SIGKILL : 0);
	for (unsigned i = 0; i < p->ranks; i++)
		lk_free(&w->l[i]);
}

void wk_run(const struct wk_plan *p, uint64_t *size)
{
	static struct wk_world w;

	wk_make(&w, p);
	wk_start(&w, p);
	wk_end(&w, p);
	if (size)
		*size = w.k.size;
	sk_free(&w.k);
}

void wk_all_whole(const struct wk_plan *p, unsigned but)
{
	for (unsigned i = 0; i < p->ranks; i++) {
		const struct wk_outcome *o = &wk_outcome[i];

		if (i == but)
			continue;
		if (o->ret || !o->ended || o->failed)
			fprintf(stderr, "%s seed %llu rank %u of %u: %s\n",
				p->kind, (unsigned long long)p->seed, i,
				p->ranks, o->line);
		LK_CHECK(!o->ret && o->ended && !o->failed);
	}
}

unsigned wk_all_ended(const struct wk_plan *p)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < p->ranks; i++) {
		const struct wk_outcome *o = &wk_outcome[i];

		LK_CHECK(o->ended && !o->failed);
		LK_CHECK(!o->ret || (o->ret == -ETIMEDOUT && !o->whole));
		nr += !o->ret;
	}
	return nr;
}

void wk_use_fake(const char *file, const char *name)
{
	char path[300];

	LK_CHECK(!setenv("FAKE_CUDA", "device=late=20", 1));
	snprintf(path, sizeof(path), "%s/fakes/%s", getenv("B"), file);
	if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
		fprintf(stderr, "%s\n", dlerror());
	/* The soname that is looked for is that of what is loaded already. */
	LK_CHECK(dlopen(name, RTLD_NOW | RTLD_NOLOAD));
}

static void *shared(size_t len)
{
	void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	LK_CHECK(mem != MAP_FAILED);
	return mem;
}

void wk_begin(void)
{
	wk_outcome = shared(WK_RANKS * sizeof(*wk_outcome));
	meeting = shared(sizeof(*meeting));
	wk_use_fake("libcuda.so.1", "libcuda.so.1");
	wk_use_fake("libnccl.so.2", "libnccl.so.2");
}
