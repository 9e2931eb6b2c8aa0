/* SPDX-License-Identifier: Apache-2.0 */
/*
 * together - loads of several processes that read each byte once
 *
 * Each rank is a process, forked before there is a thread, and loads boxes of its
 * own, at random, of a tensor in files, in rounds of few blocks.  One of them is
 * killed, stopped, refused its bytes, or of another opinion, at a moment that the
 * test says by counting; the others must end, and what they call whole must be.
 */
#include "core/base/check.h"
#include "core/comm/comm.h"
#include "tests/lib/faults.h"
#include "tests/lib/loadkit.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 8
#define BLOCK CK_COMM_BLOCK_MIN
#define NOBODY 100

enum what { GOOD, KILL, STOP, FAIL, DIFFER, ABSENT, CANCEL, UNREADABLE };

/* How a world goes. */
struct plan {
	const char *kind;
	unsigned ranks;
	uint64_t seed;
	bool same; /* all want all of it */
	bool never_alone, direct, alone;
	enum what what;
	unsigned whom; /* rank to which that happens */
	long when; /* moment */
	int timeout_ms;
};

/* What became of a rank, where its parent sees it. */
struct outcome {
	int ret; /* of the load */
	bool ended; /* it came to its end */
	unsigned whole, failed; /* items */
	long moments;
	uint64_t read, received, moved;
	char line[CK_ERR_MAX], why[256];
};

static struct outcome *outcome; /* by rank, and shared */

/* What the load says of each item must be so. */
static void take_items(struct ck_load *load, const struct lk_load *l,
		       struct outcome *out)
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
			LK_CHECK(lk_whole(l, (unsigned)item));
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

static void set_fault(const struct plan *p)
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

static void be(const struct plan *p, unsigned rank, struct ck_comm *comm,
	       const char *const *address, struct lk_load *l)
{
	struct outcome *out = &outcome[rank];
	struct ck_load_pool *pool;
	struct ck_load_stats stats;
	struct ck_err err = { 0 };
	struct ck_load *load;

	ck_comm_fault.passed = 0;
	LK_CHECK(p->alone || !ck_comm_connect(comm, address, &err));
	if (p->what == ABSENT && rank == p->whom)
		pause();
	l->in.comm = p->alone ? NULL : comm;
	l->in.digest[0] = p->what == DIFFER && rank == p->whom;
	l->in.never_alone = p->never_alone;
	l->in.cache = p->direct ? CK_LOAD_DIRECT : CK_LOAD_CACHED;
	if (p->what == CANCEL && rank == p->whom)
		l->in.progress = stop_at_once;
	if (rank == p->whom)
		set_fault(p);
	LK_CHECK(!ck_load_pool_new(&pool, 2, &err));
	LK_CHECK(!ck_load_start(&load, pool, &l->in, NULL, &err));
	take_items(load, l, out);
	ck_load_stats(load, &stats);
	out->read = stats.source_bytes;
	memcpy(out->why, stats.why, sizeof(out->why));
	ck_load_free(load);
	ck_load_pool_free(pool);
	ck_comm_free(comm);
	out->received = stats.received;
	out->moments = ck_comm_fault.passed;
	out->ended = true;
}

/* ---- a world ---- */

struct world {
	struct shardkit k;
	struct lk_load l[RANKS];
	struct ck_comm *comm[RANKS];
	const char *address[RANKS];
	pid_t pid[RANKS];
};

static void make_world(struct world *w, const struct plan *p)
{
	uint64_t seed = p->seed;
	struct ck_comm_in in = { .kind = p->kind,
				 .host = "127.0.0.1",
				 .ranks = p->ranks,
				 .timeout_ms = p->timeout_ms,
				 .block = BLOCK };

	memset(outcome, 0, RANKS * sizeof(*outcome));
	lk_tensor(&w->k, p->seed);
	sk_open(&w->k, p->seed % 2 ? "plain" : "auto");
	for (unsigned i = 0; i < p->ranks; i++) {
		if (p->same)
			seed = p->seed;
		lk_make(&w->l[i], &w->k, &seed, 1 + p->seed % 4, p->same);
		in.rank = i;
		LK_CHECK(!ck_comm_new(&w->comm[i], &in, NULL));
		w->address[i] = ck_comm_address(w->comm[i]);
	}
}

/* Everyone else's sockets are his alone: by them a death is seen. */
static void start_world(struct world *w, const struct plan *p)
{
	for (unsigned i = 0; i < p->ranks; i++) {
		w->pid[i] = fork();
		LK_CHECK(w->pid[i] >= 0);
		if (w->pid[i])
			continue;
		for (unsigned k = 0; k < p->ranks; k++)
			if (k != i) {
				char *copy = strdup(w->address[k]);

				ck_comm_free(w->comm[k]);
				w->address[k] = copy;
			}
		be(p, i, w->comm[i], w->address, &w->l[i]);
		for (unsigned k = 0; k < p->ranks; k++)
			if (k != i)
				free((void *)(uintptr_t)w->address[k]);
		for (unsigned k = 0; k < p->ranks; k++)
			lk_free(&w->l[k]);
		exit(0);
	}
	for (unsigned i = 0; i < p->ranks; i++)
		ck_comm_free(w->comm[i]);
}

static void end_one(struct world *w, unsigned i, int expected)
{
	int status;

	LK_CHECK(waitpid(w->pid[i], &status, 0) == w->pid[i]);
	if (expected ? !WIFSIGNALED(status) || WTERMSIG(status) != expected :
		       status) {
		fprintf(stderr, "rank %u: status 0x%x\n", i, status);
		abort();
	}
}

static void end_world(struct world *w, const struct plan *p)
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

static void run_world(const struct plan *p, uint64_t *size)
{
	static struct world w;

	make_world(&w, p);
	start_world(&w, p);
	end_world(&w, p);
	if (size)
		*size = w.k.size;
	sk_free(&w.k);
}

static void all_whole(const struct plan *p, unsigned but)
{
	for (unsigned i = 0; i < p->ranks; i++) {
		const struct outcome *o = &outcome[i];

		if (i == but)
			continue;
		if (o->ret || !o->ended || o->failed)
			fprintf(stderr, "%s seed %llu rank %u of %u: %s\n",
				p->kind, (unsigned long long)p->seed, i,
				p->ranks, o->line);
		LK_CHECK(!o->ret && o->ended && !o->failed);
	}
}

/* Whole, or told that somebody did not come; how many were whole. */
static unsigned all_ended(const struct plan *p)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < p->ranks; i++) {
		const struct outcome *o = &outcome[i];

		LK_CHECK(o->ended && !o->failed);
		LK_CHECK(!o->ret || (o->ret == -ETIMEDOUT && !o->whole));
		nr += !o->ret;
	}
	return nr;
}

/* ---- what is tried ---- */

static const char *const kinds[] = { "shm", "tcp" };

/* Any boxes of any ranks; and where all want all, each byte is read once. */
static void whole(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct plan p = { .kind = kinds[i % 2],
				  .ranks =
					  (unsigned[]){ 2, 4, 8, 3 }[i / 2 % 4],
				  .seed = 100 + i,
				  .same = i / 2 % 3 == 0,
				  .direct = i % 5 == 0,
				  .never_alone = true,
				  .whom = NOBODY,
				  .timeout_ms = 60000 };
		uint64_t read = 0, low = UINT64_MAX, high = 0, size;

		run_world(&p, &size);
		all_whole(&p, NOBODY);
		for (unsigned k = 0; k < p.ranks; k++) {
			read += outcome[k].read;
			low = CK_MIN(low, outcome[k].read);
			high = CK_MAX(high, outcome[k].read);
			if (strncmp(outcome[k].why, "cache=", 6))
				LK_CHECK(!outcome[k].why[0]);
		}
		if (!p.same)
			continue;
		/* As many files as there are may begin within a page. */
		LK_CHECK(read <= size + 40 * 4096);
		LK_CHECK(high - low <= BLOCK);
	}
}

/* At moments from the first to the last of a load, @each of them, to any rank. */
static void at_moments(enum what what, unsigned worlds, unsigned each)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < worlds; i++) {
		struct plan p = { .kind = kinds[i % 2],
				  .ranks = 2 + i % 3,
				  .seed = 300 + i,
				  .same = i % 3 == 0,
				  .whom = i % (2 + i % 3),
				  .timeout_ms = 60000 };
		long moments;

		run_world(&p, NULL);
		all_whole(&p, NOBODY);
		moments = outcome[p.whom].moments;
		p.what = what;
		if (what == STOP)
			p.timeout_ms = 200;
		for (unsigned k = 0; k < each; k++) {
			p.when = 1 + (moments - 1) *
					     (1 + (long)k * worlds + i) /
					     (worlds * each);
			run_world(&p, NULL);
			if (what == STOP)
				nr += all_ended(&p);
			else
				all_whole(&p, what == KILL ? p.whom : NOBODY);
		}
	}
	LK_CHECK(what != STOP || nr);
}

/* Every rank says the same line, with both digests, and nothing is loaded. */
static void differ(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct plan p = { .kind = kinds[i % 2],
				  .ranks = 2 + i % 4,
				  .seed = 700 + i,
				  .what = DIFFER,
				  .whom = 1 + i % (1 + i % 4),
				  .timeout_ms = 60000 };

		run_world(&p, NULL);
		for (unsigned k = 0; k < p.ranks; k++) {
			LK_CHECK(outcome[k].ret == -ESTALE);
			LK_CHECK(!outcome[k].whole && !outcome[k].failed);
			LK_CHECK(!strcmp(outcome[k].line, outcome[0].line));
		}
		LK_CHECK(strstr(outcome[0].line,
				"00000000000000000000000000000001 and "
				"00000000000000000000000000000000"));
	}
}

/* Who never loads is named. */
static void absent(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct plan p = { .kind = kinds[i % 2],
				  .ranks = 3,
				  .seed = 800 + i,
				  .what = ABSENT,
				  .whom = i % 3,
				  .timeout_ms = 200 };
		char name[32];
		bool timed_out = false;

		run_world(&p, NULL);
		snprintf(name, sizeof(name), "rank %u of 3 ", p.whom);
		for (unsigned k = 0; k < p.ranks; k++) {
			const struct outcome *o = &outcome[k];

			if (k == p.whom)
				continue;
			/* Who learns of it from another one reads alone. */
			timed_out = timed_out || o->ret == -ETIMEDOUT;
			LK_CHECK(!o->ret || o->ret == -ETIMEDOUT);
			LK_CHECK(strstr(o->ret ? o->line : o->why, name));
		}
		LK_CHECK(timed_out);
	}
}

/* One gives up: the others are whole. */
static void cancel(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct plan p = { .kind = kinds[i % 2],
				  .ranks = 2 + i % 3,
				  .seed = 900 + i,
				  .what = CANCEL,
				  .whom = i % 2,
				  .timeout_ms = 60000 };

		run_world(&p, NULL);
		all_whole(&p, p.whom);
		LK_CHECK(!outcome[p.whom].ret ||
			 outcome[p.whom].ret == -ECANCELED);
	}
}

/* Reads of one fail, and it says so: all read these bytes by themselves. */
static void unreadable(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		struct plan p = { .kind = kinds[i % 2],
				  .ranks = 2 + i % 3,
				  .seed = 1000 + i,
				  .same = i % 2,
				  .what = UNREADABLE,
				  .whom = i % 2,
				  .when = 1 + i % 5,
				  .timeout_ms = 60000 };

		run_world(&p, NULL);
		all_whole(&p, p.whom);
		LK_CHECK(!outcome[p.whom].ret || outcome[p.whom].ret == -EIO);
	}
}

/* Six bytes of one of the files are other ones, and its time. */
static void spoil_one(const struct shardkit *k)
{
	DIR *d = opendir(k->dir);
	const struct dirent *e;

	LK_CHECK(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			break;
	LK_CHECK(e);
	sk_spoil(k, e->d_name, 0);
	closedir(d);
}

/* A file was replaced: each is told what a load alone is, and nobody else. */
static void lost(unsigned nr)
{
	unsigned any = 0;

	for (unsigned i = 0; i < nr; i++) {
		struct plan p = { .kind = kinds[i % 2],
				  .ranks = 2 + i % 3,
				  .seed = 1100 + i,
				  .alone = true,
				  .whom = NOBODY,
				  .timeout_ms = 60000 };
		static struct world w;
		struct outcome was[RANKS];

		make_world(&w, &p);
		spoil_one(&w.k);
		start_world(&w, &p);
		end_world(&w, &p);
		sk_free(&w.k);
		memcpy(was, outcome, sizeof(was));
		p.alone = false;
		make_world(&w, &p);
		spoil_one(&w.k);
		start_world(&w, &p);
		end_world(&w, &p);
		sk_free(&w.k);
		for (unsigned k = 0; k < p.ranks; k++) {
			LK_CHECK(outcome[k].whole == was[k].whole);
			LK_CHECK(outcome[k].failed == was[k].failed);
			LK_CHECK(outcome[k].ret == was[k].ret);
			any += was[k].failed;
		}
	}
	LK_CHECK(any);
}

int main(void)
{
	bool longer = getenv("UNSHARD_NIGHTLY");

	outcome = mmap(NULL, RANKS * sizeof(*outcome), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	LK_CHECK(outcome != MAP_FAILED);
	whole(longer ? 400 : 8);
	differ(longer ? 40 : 2);
	absent(longer ? 40 : 2);
	cancel(longer ? 80 : 4);
	unreadable(longer ? 200 : 6);
	lost(longer ? 100 : 6);
	at_moments(KILL, longer ? 20 : 4, longer ? 10 : 3);
	at_moments(STOP, longer ? 20 : 2, longer ? 10 : 3);
	at_moments(FAIL, longer ? 20 : 2, longer ? 10 : 3);
	return 0;
}
