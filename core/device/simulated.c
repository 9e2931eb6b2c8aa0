/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulated.c - a device for tests, which is as unkind as one may be
 *
 *	simulated:rate=200M,late=500,memory=1G,fail=copy:3:2:12
 *
 * A stream is a thread.  What is queued is done in order, not before @late
 * microseconds, and all streams of one way share @rate bytes a second.  Its
 * memory cannot be addressed by the process: the addresses that it gives out are
 * reserved pages that nobody may touch, its bytes lie elsewhere, and a copy past
 * an allocation fails as the whole device does from then on.  Memory of the host
 * is looked at when a copy is queued, and once more when it is done: where it is
 * not the same the device fails, for who changed it gave the buffer back early.
 * The @nth call of an operation, and @times - 1 more, fail with an errno: open,
 * pin, alloc, free, stream, copy, event or wait.
 */
#include "core/device/simulated_priv.h"

#include "core/base/check.h"
#include "core/base/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *const op_names[SIM_OPS] = { "open",	"pin",	  "alloc",
					       "free",	"stream", "copy",
					       "event", "wait" };

/* ---- what it is to do ---- */

static int read_fail(struct sim *sim, const char *text)
{
	char op[16] = "";
	int got = 0, n;

	sim->fail_times = 1;
	sim->fail_code = EIO;
	n = sscanf(text, "%15[a-z]:%lu%n:%lu%n:%lu%n", op, &sim->fail_at, &got,
		   &sim->fail_times, &got, &sim->fail_code, &got);
	for (unsigned i = 0; n >= 2 && i < SIM_OPS; i++)
		if (!strcmp(op, op_names[i])) {
			sim->fail_op = i;
			return text[got] ? -EINVAL : 0;
		}
	return -EINVAL;
}

static int read_arg(struct sim *sim, const char *arg)
{
	uint64_t late;

	if (!strncmp(arg, "rate=", 5))
		return ck_size_parse(arg + 5, &sim->rate) ? 0 : -EINVAL;
	if (!strncmp(arg, "memory=", 7))
		return ck_size_parse(arg + 7, &sim->memory) ? 0 : -EINVAL;
	if (!strncmp(arg, "late=", 5)) {
		if (!ck_decimal(arg + 5, strlen(arg + 5), 10000000, &late))
			return -EINVAL;
		sim->late_ns = (int64_t)late * 1000;
		return 0;
	}
	if (!strncmp(arg, "fail=", 5))
		return read_fail(sim, arg + 5);
	return ck_decimal(arg, strlen(arg), 1 << 16, &late) ? 0 : -EINVAL;
}

static int read_args(struct sim *sim, const char *args, struct ck_err *err)
{
	char one[64];

	while (*args) {
		size_t len = strcspn(args, ",");

		if (len >= sizeof(one))
			return ck_fail(err, EINVAL, "\"%.60s\" is too long",
				       args);
		memcpy(one, args, len);
		one[len] = '\0';
		if (read_arg(sim, one))
			return ck_fail(err, EINVAL,
				       "\"%s\": expected a number, rate=, "
				       "late=, memory= or fail=",
				       one);
		args += len + (args[len] == ',');
	}
	return 0;
}

int ck_sim_call(struct sim *sim, enum sim_op op, struct ck_err *err)
{
	uint64_t nth;
	int ret = 0;

	pthread_mutex_lock(&sim->lock);
	nth = ++sim->calls[op];
	if (sim->fail_at && op == sim->fail_op && nth >= sim->fail_at &&
	    nth - sim->fail_at < sim->fail_times)
		ret = ck_fail(err, (int)sim->fail_code,
			      "call %lu of %s fails, as it was told to",
			      (unsigned long)nth, op_names[op]);
	else if (sim->broken.code)
		ret = ck_fail_as(err, &sim->broken);
	pthread_mutex_unlock(&sim->lock);
	return ret;
}

void ck_sim_break(struct sim *sim, const char *why, uint64_t at)
{
	pthread_mutex_lock(&sim->lock);
	if (!sim->broken.code)
		ck_fail(&sim->broken, EREMOTEIO, "%s 0x%llx", why,
			(unsigned long long)at);
	pthread_mutex_unlock(&sim->lock);
}

/* ---- memory ---- */

static int sim_open(const char *args, void **dev, struct ck_err *err)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	int ret;

	if (!sim)
		return ck_no_memory(err);
	pthread_mutex_init(&sim->lock, NULL);
	sim->late_ns = 200000;
	ret = read_args(sim, args, err);
	if (!ret)
		ret = ck_sim_call(sim, SIM_OPEN, err);
	if (!ret) {
		*dev = sim;
		return 0;
	}
	pthread_mutex_destroy(&sim->lock);
	free(sim);
	return ret;
}

static void drop(struct sim_alloc *a)
{
	munmap((void *)(uintptr_t)a->at, a->mapped);
	munmap(a->bytes, a->mapped);
	free(a);
}

static void sim_close(void *dev)
{
	struct sim *sim = dev;

	while (sim->allocs) {
		struct sim_alloc *a = sim->allocs;

		sim->allocs = a->next;
		drop(a);
	}
	pthread_mutex_destroy(&sim->lock);
	free(sim);
}

static int pin(void *dev, void *mem, size_t len, struct ck_err *err)
{
	(void)mem, (void)len;
	return ck_sim_call(dev, SIM_PIN, err);
}

static void unpin(void *dev, void *mem)
{
	(void)dev, (void)mem;
}

static int sim_alloc(void *dev, size_t len, uint64_t *mem, struct ck_err *err)
{
	const size_t page = 4096;
	struct sim *sim = dev;
	struct sim_alloc *a;
	void *at, *bytes;
	int ret = ck_sim_call(sim, SIM_ALLOC, err);

	if (ret)
		return ret;
	a = calloc(1, sizeof(*a));
	if (!a || len > SIZE_MAX - 2 * page) {
		free(a);
		return ck_no_memory(err);
	}
	a->mapped = (len + 2 * page - 1) & ~(page - 1);
	at = mmap(NULL, a->mapped, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	bytes = mmap(NULL, a->mapped, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	a->at = (uintptr_t)at;
	a->bytes = bytes;
	a->len = len;
	pthread_mutex_lock(&sim->lock);
	if (at == MAP_FAILED || bytes == MAP_FAILED ||
	    (sim->memory && len > sim->memory - CK_MIN(sim->used, sim->memory)))
		ret = ck_fail(err, ENOMEM,
			      "%zu bytes of memory: it has %llu, of which "
			      "%llu are used",
			      len, (unsigned long long)sim->memory,
			      (unsigned long long)sim->used);
	if (!ret) {
		sim->used += len;
		a->next = sim->allocs;
		sim->allocs = a;
		*mem = a->at;
	}
	pthread_mutex_unlock(&sim->lock);
	if (ret) {
		if (at != MAP_FAILED)
			munmap(at, a->mapped);
		if (bytes != MAP_FAILED)
			munmap(bytes, a->mapped);
		free(a);
	}
	return ret;
}

static int sim_free(void *dev, uint64_t mem, struct ck_err *err)
{
	struct sim *sim = dev;
	struct sim_alloc **at, *a;
	int ret = ck_sim_call(sim, SIM_FREE, err);

	if (ret)
		return ret;
	pthread_mutex_lock(&sim->lock);
	for (at = &sim->allocs; *at && (*at)->at != mem; at = &(*at)->next)
		;
	a = *at;
	if (a) {
		*at = a->next;
		sim->used -= a->len;
	}
	pthread_mutex_unlock(&sim->lock);
	if (!a)
		return ck_fail(err, EINVAL, "no memory of it is at 0x%llx",
			       (unsigned long long)mem);
	drop(a);
	return 0;
}

unsigned char *ck_sim_bytes(struct sim *sim, uint64_t at, uint64_t len)
{
	unsigned char *found = NULL;

	pthread_mutex_lock(&sim->lock);
	for (struct sim_alloc *a = sim->allocs; a && !found; a = a->next)
		if (at >= a->at && ck_range_ok(at - a->at, len, a->len))
			found = a->bytes + (at - a->at);
	pthread_mutex_unlock(&sim->lock);
	return found;
}

static int probe(struct ck_err *err)
{
	(void)err;
	return 0;
}

static int node(void *dev)
{
	(void)dev;
	return -1;
}

const struct ck_device_ops ck_device_simulated = {
	.name = "simulated",
	.probe = probe,
	.open = sim_open,
	.close = sim_close,
	.pin = pin,
	.unpin = unpin,
	.alloc = sim_alloc,
	.free = sim_free,
	.stream = ck_sim_stream,
	.stream_free = ck_sim_stream_free,
	.copy = ck_sim_copy,
	.event = ck_sim_event,
	.wait = ck_sim_wait,
	.is_done = ck_sim_is_done,
	.after = ck_sim_after,
	.event_free = ck_sim_event_free,
	.node = node,
	.dlpack = 12, /* kDLExtDev */
};
