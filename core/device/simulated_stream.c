/* SPDX-License-Identifier: Apache-2.0 */
/* simulated_stream.c - threads that do late what was queued; see simulated.c */
#include "core/device/simulated_priv.h"

#include "core/base/check.h"
#include "core/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct event {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned refs;
	bool fired;
};

struct job {
	struct job *next;
	enum { DO_COPY, DO_EVENT, DO_AFTER, DO_CALL } what;
	enum ck_device_way way;
	int64_t queued;
	struct ck_device_copy copy;
	uint64_t hash; /* of the host's bytes */
	struct event *event;
	void (*call)(void *arg);
	void *arg;
};

struct stream {
	struct sim *sim;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct job *first, **last;
	bool end;
};

static uint64_t hash_host(const struct ck_device_copy *copy)
{
	struct ck_device_runs it = { copy, 0, 0 };
	uint64_t dst, src, hash = 0;

	while (ck_device_run(&it, &dst, &src))
		hash = XXH3_64bits_withSeed((const void *)(uintptr_t)src,
					    copy->run, hash);
	return hash;
}

static uint64_t span_of(const struct ck_device_copy *c, bool dst)
{
	uint64_t all = c->run;

	for (unsigned i = 0; i < c->nax; i++)
		all += (c->ax[i].n - 1) * (dst ? c->ax[i].dst : c->ax[i].src);
	return all;
}

static void do_copy(struct sim *sim, const struct job *job)
{
	const struct ck_device_copy *c = &job->copy;
	struct ck_device_runs it = { c, 0, 0 };
	unsigned char *to = (void *)(uintptr_t)c->dst;
	const unsigned char *from = (const void *)(uintptr_t)c->src;
	uint64_t dst, src;

	if (job->way == CK_DEVICE_IN && hash_host(c) != job->hash) {
		ck_sim_break(sim, "a buffer changed before it was copied, at",
			     c->src);
		return;
	}
	if (job->way != CK_DEVICE_OUT)
		to = ck_sim_bytes(sim, c->dst, span_of(c, true));
	if (job->way != CK_DEVICE_IN)
		from = ck_sim_bytes(sim, c->src, span_of(c, false));
	if (!to || !from) {
		ck_sim_break(sim, "a copy outside of its memory, at",
			     to ? c->src : c->dst);
		return;
	}
	while (ck_device_run(&it, &dst, &src))
		memmove(to + (dst - c->dst), from + (src - c->src), c->run);
}

static void sleep_until(int64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) ==
	       EINTR)
		;
}

/* When the copy, which the streams of its way share the rate with, ends. */
static int64_t ends_at(struct sim *sim, const struct job *job)
{
	int64_t begin =
		CK_MAX(job->queued + sim->late_ns, sim->busy_until[job->way]);
	uint64_t n = ck_device_copy_bytes(&job->copy);

	if (sim->rate)
		begin += (int64_t)((double)n * 1e9 / (double)sim->rate);
	return begin;
}

static void unref(struct event *e)
{
	bool last;

	pthread_mutex_lock(&e->lock);
	last = !--e->refs;
	pthread_mutex_unlock(&e->lock);
	if (!last)
		return;
	pthread_cond_destroy(&e->changed);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

static void wait_fired(struct event *e)
{
	pthread_mutex_lock(&e->lock);
	while (!e->fired)
		pthread_cond_wait(&e->changed, &e->lock);
	pthread_mutex_unlock(&e->lock);
}

static void do_job(struct sim *sim, struct job *job)
{
	int64_t end;

	switch (job->what) {
	case DO_COPY:
		pthread_mutex_lock(&sim->lock);
		end = ends_at(sim, job);
		sim->busy_until[job->way] = end;
		pthread_mutex_unlock(&sim->lock);
		if (end > ck_now_ns())
			sleep_until(end);
		do_copy(sim, job);
		break;
	case DO_EVENT:
		pthread_mutex_lock(&job->event->lock);
		job->event->fired = true;
		pthread_cond_broadcast(&job->event->changed);
		pthread_mutex_unlock(&job->event->lock);
		unref(job->event);
		break;
	case DO_AFTER:
		wait_fired(job->event);
		unref(job->event);
		break;
	case DO_CALL:
		job->call(job->arg);
		break;
	}
}

static void *run_stream(void *arg)
{
	struct stream *s = arg;

	pthread_mutex_lock(&s->lock);
	while (s->first || !s->end) {
		struct job *job = s->first;

		if (!job) {
			pthread_cond_wait(&s->changed, &s->lock);
			continue;
		}
		pthread_mutex_unlock(&s->lock);
		do_job(s->sim, job);
		pthread_mutex_lock(&s->lock);
		s->first = job->next;
		if (!s->first)
			s->last = &s->first;
		free(job);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int ck_sim_stream(void *dev, void **out, struct ck_err *err)
{
	struct stream *s;
	int ret = ck_sim_call(dev, SIM_STREAM, err);

	if (ret)
		return ret;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ck_no_memory(err);
	s->sim = dev;
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	ret = pthread_create(&s->thread, NULL, run_stream, s);
	if (!ret) {
		*out = s;
		return 0;
	}
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return ck_fail(err, ret, "a thread for a stream: %s", strerror(ret));
}

void ck_sim_stream_free(void *dev, void *stream)
{
	struct stream *s = stream;

	(void)dev;
	pthread_mutex_lock(&s->lock);
	s->end = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* A copy of @job, at the end of the stream. */
static int queue(struct stream *s, const struct job *job, struct ck_err *err)
{
	struct job *own = malloc(sizeof(*own));

	if (!own)
		return ck_no_memory(err);
	*own = *job;
	own->next = NULL;
	own->queued = ck_now_ns();
	pthread_mutex_lock(&s->lock);
	*s->last = own;
	s->last = &own->next;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static bool is_well_formed(const struct ck_device_copy *c)
{
	uint64_t run = c->run;

	for (unsigned i = c->nax; i-- > 0;) {
		if (i > 1 || !c->ax[i].n || c->ax[i].dst < run ||
		    c->ax[i].src < run)
			return false;
		run = (c->ax[i].n - 1) * CK_MIN(c->ax[i].dst, c->ax[i].src) +
		      run;
	}
	return c->run;
}

int ck_sim_copy(void *dev, const struct ck_device_copy *copy, size_t nr,
		enum ck_device_way way, void *stream, struct ck_err *err)
{
	int ret = ck_sim_call(dev, SIM_COPY, err);

	for (size_t i = 0; !ret && i < nr; i++) {
		struct job job = { .what = DO_COPY,
				   .way = way,
				   .copy = copy[i] };

		if (!is_well_formed(&copy[i]))
			return ck_fail(err, EINVAL,
				       "copy %zu of %zu: its steps are shorter "
				       "than what they step over",
				       i, nr);
		if (way == CK_DEVICE_IN)
			job.hash = hash_host(&copy[i]);
		ret = queue(stream, &job, err);
	}
	return ret;
}

int ck_sim_event(void *dev, void *stream, void **out, struct ck_err *err)
{
	struct event *e;
	int ret = ck_sim_call(dev, SIM_EVENT, err);

	if (ret)
		return ret;
	e = calloc(1, sizeof(*e));
	if (!e)
		return ck_no_memory(err);
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
	e->refs = 2;
	ret = queue(stream, &(struct job){ .what = DO_EVENT, .event = e }, err);
	if (ret) {
		e->refs = 1;
		unref(e);
		return ret;
	}
	*out = e;
	return 0;
}

int ck_sim_wait(void *dev, void *event, struct ck_err *err)
{
	wait_fired(event);
	return ck_sim_call(dev, SIM_WAIT, err);
}

int ck_sim_is_done(void *dev, void *event, struct ck_err *err)
{
	struct event *e = event;
	bool fired;
	int ret;

	pthread_mutex_lock(&e->lock);
	fired = e->fired;
	pthread_mutex_unlock(&e->lock);
	ret = fired ? ck_sim_call(dev, SIM_WAIT, err) : 0;
	return ret ? ret : fired;
}

int ck_sim_call_in(void *stream, void (*call)(void *arg), void *arg)
{
	return queue(stream,
		     &(struct job){ .what = DO_CALL, .call = call, .arg = arg },
		     NULL);
}

int ck_sim_after(void *dev, void *stream, void *event, struct ck_err *err)
{
	struct event *e = event;
	int ret;

	(void)dev;
	pthread_mutex_lock(&e->lock);
	e->refs++;
	pthread_mutex_unlock(&e->lock);
	ret = queue(stream, &(struct job){ .what = DO_AFTER, .event = e }, err);
	if (ret)
		unref(e);
	return ret;
}

void ck_sim_event_free(void *dev, void *event)
{
	(void)dev;
	unref(event);
}
