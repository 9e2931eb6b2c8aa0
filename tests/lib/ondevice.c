/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ondevice.c - what --wrap makes of loads and saves of the host's memory
 *
 * With UNSHARD_TEST_DEVICE=NAME the items of each get memory of that device, which
 * is as theirs was; when one is finished, theirs is as the device's.  So any test
 * of the library is one of that device, and compares the same bytes.  Who ends
 * without a load or a save there has failed.
 */
#include "core/base/check.h"
#include "core/device/ring.h"
#include "core/geom/cast.h"
#include "core/geom/catalog.h"
#include "core/io/read.h"
#include "core/save/save_priv.h"
#include "tests/lib/failalloc.h"
#include "tests/lib/loadkit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST (UINT64_C(512) << 20) /* bytes of an item: more is not tried */

static struct ck_device *device, *parents;
static pid_t whose;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic long *moved; /* by all processes */
static pid_t first;

/* Memory of the host, and what stands for it. */
struct room {
	unsigned char *lo, *hi;
	uint64_t there;
};

struct load {
	struct load *next;
	struct ck_load *load;
	struct ck_ring *ring;
	struct ck_load_item *item;
	struct room *room; /* by place, apart */
	size_t nr, nr_rooms;
};

static struct load *loads; /* under the lock */

__attribute__((constructor)) static void begin(void)
{
	if (!getenv("UNSHARD_TEST_DEVICE"))
		return;
	moved = mmap(NULL, sizeof(*moved), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	LK_CHECK(moved != MAP_FAILED);
	first = getpid();
}

__attribute__((destructor)) static void end(void)
{
	if (!moved || getpid() != first)
		return;
	printf("%ld loads and saves by a device\n", *moved);
	fflush(stdout);
	if (!*moved)
		_exit(1);
}

static int open_device(struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (whose != getpid()) { /* its threads are not in a child */
		parents = device;
		ret = ck_device_open(&device, getenv("UNSHARD_TEST_DEVICE"),
				     err);
	}
	if (!ret)
		whose = getpid();
	pthread_mutex_unlock(&lock);
	return ret;
}

/* ---- memory ---- */

/* From the first element of a box: bytes of its memory; false: not to be tried. */
static bool span_of(const uint64_t *shape, unsigned rank, const uint64_t *start,
		    const uint64_t *len, const int64_t *stride, uint64_t elem,
		    void *mem, struct room *out)
{
	int64_t lo = 0, hi = (int64_t)elem, step = (int64_t)elem, span;
	uint64_t n;

	if (!mem || !elem)
		return false;
	for (unsigned d = rank; d-- > 0; step *= (int64_t)n) {
		n = len	  ? len[d] :
		    start ? shape[d] - CK_MIN(start[d], shape[d]) :
			    shape[d];
		if (!n || n > MOST ||
		    __builtin_mul_overflow(stride ? stride[d] * (int64_t)elem :
						    step,
					   (int64_t)n - 1, &span))
			return false;
		*(span < 0 ? &lo : &hi) += span;
		if (lo < -(int64_t)MOST || hi > (int64_t)MOST)
			return false;
	}
	out->lo = (unsigned char *)mem + lo;
	out->hi = (unsigned char *)mem + hi;
	return true;
}

static int by_place(const void *pa, const void *pb)
{
	const struct room *a = pa, *b = pb;

	return (a->lo > b->lo) - (a->lo < b->lo);
}

/* One of those that meet; returns how many there are. */
static size_t join(struct room *v, size_t nr)
{
	size_t to = 0;

	if (nr)
		qsort(v, nr, sizeof(*v), by_place);
	for (size_t i = 1; i < nr; i++) {
		if (v[i].lo <= v[to].hi)
			v[to].hi = CK_MAX(v[to].hi, v[i].hi);
		else
			v[++to] = v[i];
	}
	return nr ? to + 1 : 0;
}

static int move_in(struct room *v, size_t nr, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++) {
		size_t len = (size_t)(v[i].hi - v[i].lo);

		ret = ck_device_alloc(device, len, &v[i].there, err);
		if (!ret)
			ret = ck_device_put(device, v[i].there, v[i].lo, len,
					    err);
	}
	return ret;
}

static void move_back(const struct room *r)
{
	failalloc_apart = true;
	LK_CHECK(!ck_device_get(device, r->lo, r->there,
				(size_t)(r->hi - r->lo), NULL));
	failalloc_apart = false;
}

static void let_go(struct room *v, size_t nr)
{
	failalloc_apart = true;
	for (size_t i = 0; i < nr; i++)
		if (v[i].there)
			LK_CHECK(!ck_device_free(device, v[i].there, NULL));
	failalloc_apart = false;
	free(v);
}

static const struct room *room_of(const struct room *v, size_t nr,
				  const void *mem)
{
	for (size_t i = 0; i < nr; i++)
		if (v[i].lo <= (unsigned char *)mem &&
		    (unsigned char *)mem < v[i].hi)
			return &v[i];
	abort();
}

static uint64_t there(const struct room *v, size_t nr, void *mem)
{
	const struct room *r = room_of(v, nr, mem);

	return r->there + (uint64_t)((unsigned char *)mem - r->lo);
}

/* ---- loads ---- */

int __real_ck_load_start(struct ck_load **out, struct ck_load_pool *pool,
			 const struct ck_load_in *in, size_t *bad,
			 struct ck_err *err);
int __wrap_ck_load_start(struct ck_load **out, struct ck_load_pool *pool,
			 const struct ck_load_in *in, size_t *bad,
			 struct ck_err *err);
int __real_ck_load_next(struct ck_load *load, int timeout_ms, size_t *item,
			struct ck_err *err);
int __wrap_ck_load_next(struct ck_load *load, int timeout_ms, size_t *item,
			struct ck_err *err);
int __real_ck_load_wait(struct ck_load *load, int timeout_ms, size_t *item,
			struct ck_err *err);
int __wrap_ck_load_wait(struct ck_load *load, int timeout_ms, size_t *item,
			struct ck_err *err);
int __real_ck_load_free(struct ck_load *load);
int __wrap_ck_load_free(struct ck_load *load);
int __real_ck_load_read(struct ck_load_pool *pool, const struct ck_load_in *in,
			struct ck_err *err);
int __wrap_ck_load_read(struct ck_load_pool *pool, const struct ck_load_in *in,
			struct ck_err *err);

static void drop(struct load *l)
{
	if (!l)
		return;
	let_go(l->room, l->nr_rooms);
	ck_ring_free(l->ring);
	free(l->item);
	free(l);
}

/* NULL: what it is told is not as it should be, which a load says. */
static struct load *copy_of(const struct ck_load_in *in)
{
	const struct ck_catalog *img = ck_reader_settings(in->reader)->img;
	struct load *l = calloc(1, sizeof(*l));
	bool good = l;

	if (!l)
		return NULL;
	l->nr = in->nr;
	l->item = calloc(in->nr + 1, sizeof(*l->item));
	l->room = calloc(in->nr + 1, sizeof(*l->room));
	good = l->item && l->room;
	for (size_t i = 0; i < in->nr && good; i++) {
		const struct ck_load_item *it = &in->item[i];
		const struct ck_tensor *t = &img->tensors[it->tensor];
		enum ck_dtype dtype = it->dtype;

		good = it->tensor < img->nr_tensors;
		if (good && dtype == CK_DT_NONE)
			dtype = t->dtype;
		good = good &&
		       (dtype == t->dtype || ck_cast_has(t->dtype, dtype)) &&
		       span_of(img->dims + t->shape, t->rank, it->start,
			       it->len, it->stride, ck_dtype_info(dtype)->size,
			       it->mem, &l->room[i]);
		l->item[i] = *it;
	}
	if (good && in->nr) {
		l->nr_rooms = join(l->room, in->nr);
		return l;
	}
	drop(l);
	return NULL;
}

/* Its own allocations are none of what is tried. */
static int start(struct load *l, struct ck_load_pool *pool,
		 const struct ck_load_in *in, size_t *bad, struct ck_err *err)
{
	struct ck_load_in now = *in;
	int ret = ck_load_ring_new(&l->ring, pool, device, 3, CK_LOAD_CHUNK_MIN,
				   err);

	if (!ret)
		ret = move_in(l->room, l->nr_rooms, err);
	for (size_t i = 0; i < l->nr && !ret; i++)
		l->item[i].mem = (void *)(uintptr_t)there(l->room, l->nr_rooms,
							  in->item[i].mem);
	now.item = l->item;
	now.ring = l->ring;
	failalloc_apart = false;
	if (!ret)
		ret = __real_ck_load_start(&l->load, pool, &now, bad, err);
	failalloc_apart = true;
	/* as the host has it */
	for (size_t i = 0; i < l->nr; i++)
		l->item[i].mem = in->item[i].mem;
	return ret;
}

int __wrap_ck_load_start(struct ck_load **out, struct ck_load_pool *pool,
			 const struct ck_load_in *in, size_t *bad,
			 struct ck_err *err)
{
	struct load *l = NULL;
	int ret;

	if (moved && !in->ring) {
		failalloc_apart = true;
		LK_CHECK(!open_device(err));
		l = copy_of(in);
		failalloc_apart = false;
	}
	if (!l)
		return __real_ck_load_start(out, pool, in, bad, err);
	failalloc_apart = true;
	ret = start(l, pool, in, bad, err);
	failalloc_apart = false;
	if (ret) {
		drop(l);
		return ret;
	}
	++*moved;
	*out = l->load;
	pthread_mutex_lock(&lock);
	l->next = loads;
	loads = l;
	pthread_mutex_unlock(&lock);
	return 0;
}

static struct load *find(const struct ck_load *load, bool takes)
{
	struct load **at, *l;

	pthread_mutex_lock(&lock);
	for (at = &loads; *at && (*at)->load != load; at = &(*at)->next)
		;
	l = *at;
	if (l && takes)
		*at = l->next;
	pthread_mutex_unlock(&lock);
	return l;
}

static void all_back(const struct load *l)
{
	for (size_t i = 0; l && i < l->nr_rooms; i++)
		move_back(&l->room[i]);
}

int __wrap_ck_load_next(struct ck_load *load, int timeout_ms, size_t *item,
			struct ck_err *err)
{
	int ret = __real_ck_load_next(load, timeout_ms, item, err);
	const struct load *l = ret ? NULL : find(load, false);

	if (l)
		move_back(room_of(l->room, l->nr_rooms, l->item[*item].mem));
	return ret;
}

int __wrap_ck_load_wait(struct ck_load *load, int timeout_ms, size_t *item,
			struct ck_err *err)
{
	int ret = __real_ck_load_wait(load, timeout_ms, item, err);

	if (ret != -ETIMEDOUT && ret != -EDEADLK)
		all_back(find(load, false));
	return ret;
}

int __wrap_ck_load_free(struct ck_load *load)
{
	int ret = __real_ck_load_free(load);
	struct load *l = ret || !load ? NULL : find(load, true);

	all_back(l);
	drop(l);
	return ret;
}

int __wrap_ck_load_read(struct ck_load_pool *pool, const struct ck_load_in *in,
			struct ck_err *err)
{
	const struct ck_load_in nothing = { .reader = in->reader };
	struct ck_load *load;
	int ret;

	if (!moved || in->ring)
		return __real_ck_load_read(pool, in, err);
	ret = __real_ck_load_read(pool, &nothing, err); /* who may not wait */
	if (!ret)
		ret = __wrap_ck_load_start(&load, pool, in, NULL, err);
	if (ret)
		return ret;
	ret = __wrap_ck_load_wait(load, -1, NULL, err);
	__wrap_ck_load_free(load);
	return ret;
}

/* ---- saves ---- */

int __real_ck_save_write(struct ck_save *s, const struct ck_save_item *v,
			 size_t nr, size_t *bad, struct ck_err *err);
int __wrap_ck_save_write(struct ck_save *s, const struct ck_save_item *v,
			 size_t nr, size_t *bad, struct ck_err *err);

static bool rooms_of(const struct ck_save *s, const struct ck_save_item *v,
		     size_t nr, struct room *room)
{
	for (size_t i = 0; i < nr; i++) {
		const struct ck_save_slice *is;

		if (v[i].dev || v[i].slice >= s->declared.nr)
			return false;
		is = &s->declared.v[v[i].slice].is;
		if (!span_of(is->len, is->rank, NULL, v[i].len, v[i].stride,
			     ck_dtype_info(is->dtype)->size,
			     (void *)(uintptr_t)v[i].mem, &room[i]))
			return false;
	}
	return true;
}

int __wrap_ck_save_write(struct ck_save *s, const struct ck_save_item *v,
			 size_t nr, size_t *bad, struct ck_err *err)
{
	struct ck_save_item *now;
	struct room *room;
	size_t rooms;
	int ret;

	if (!moved)
		return __real_ck_save_write(s, v, nr, bad, err);
	failalloc_apart = true;
	room = calloc(nr + 1, sizeof(*room));
	now = calloc(nr + 1, sizeof(*now));
	LK_CHECK(room && now && !open_device(err));
	rooms = rooms_of(s, v, nr, room) ? join(room, nr) : 0;
	LK_CHECK(!move_in(room, rooms, err));
	for (size_t i = 0; i < nr; i++) {
		now[i] = v[i];
		if (!rooms) /* not as it should be, which a save says */
			continue;
		now[i].dev = device;
		now[i].mem = there(room, rooms, (void *)(uintptr_t)v[i].mem);
	}
	*moved += rooms != 0;
	failalloc_apart = false;
	ret = __real_ck_save_write(s, now, nr, bad, err);
	let_go(room, rooms);
	free(now);
	return ret;
}
