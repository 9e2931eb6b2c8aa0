/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - slots, and the thread that waits for their events
 *
 * There is one stream.  Where a call of the device failed it is not known what of
 * the slot was copied, so the stream is emptied and made anew before the slot is
 * free again.
 */
#include "core/device/ring.h"

#include "core/base/check.h"
#include "core/device/dstore.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MPOL_PREFERRED 1

struct ck_ring {
	struct ck_ring_in in;
	struct ck_dstore *dstore; /* or NULL */
	unsigned char *mem;
	unsigned char *notes;
	struct ck_ring_slot *slot;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t freed; /* a slot was */
	pthread_cond_t work; /* for the thread */
	struct ck_ring_slot *free;
	struct ck_ring_slot *first, **last; /* submitted */
	pthread_mutex_t queue; /* of the stream; taken before lock */
	void *stream; /* NULL and is_dead: there is none */
	bool is_dead, end;
	struct ck_err why_dead;
	_Atomic bool unpinned;
	char why[256];
};

static const struct ck_device_ops *ops_of(const struct ck_ring *ring)
{
	return ring->in.dev->ops;
}

static void trace(struct ck_ring *ring, enum ck_ring_what what,
		  const struct ck_ring_slot *slot)
{
	if (ring->in.trace)
		ring->in.trace(ring->in.arg, what,
			       (unsigned)(slot - ring->slot));
}

/* Whatever is queued is done, or never will be. */
static void empty_stream(struct ck_ring *ring)
{
	const struct ck_device_ops *ops = ops_of(ring);

	pthread_mutex_lock(&ring->queue);
	if (!ring->is_dead) {
		ops->stream_free(ring->in.dev->dev, ring->stream);
		if (ops->stream(ring->in.dev->dev, &ring->stream,
				&ring->why_dead))
			ring->is_dead = true;
	}
	pthread_mutex_unlock(&ring->queue);
}

static void land(struct ck_ring *ring, struct ck_ring_slot *slot)
{
	const struct ck_device_ops *ops = ops_of(ring);
	void *dev = ring->in.dev->dev;

	if (!slot->why.code && ops->wait(dev, slot->event, &slot->why) &&
	    !slot->why.code)
		ck_fail(&slot->why, EIO, "it fails");
	if (slot->why.code)
		empty_stream(ring);
	if (slot->event)
		ops->event_free(dev, slot->event);
	slot->event = NULL;
	if (slot->why.code)
		ck_wrap(&slot->why, -slot->why.code, "device %s",
			ring->in.dev->name);
	ring->in.landed(slot->note, slot->why.code ? &slot->why : NULL);
}

static void set_free(struct ck_ring *ring, struct ck_ring_slot *slot)
{
	slot->next = ring->free;
	ring->free = slot;
	pthread_cond_signal(&ring->freed);
}

static void *wait_for_events(void *arg)
{
	struct ck_ring *ring = arg;

	pthread_mutex_lock(&ring->lock);
	while (ring->first || !ring->end) {
		struct ck_ring_slot *slot = ring->first;

		if (!slot) {
			pthread_cond_wait(&ring->work, &ring->lock);
			continue;
		}
		pthread_mutex_unlock(&ring->lock);
		land(ring, slot);
		pthread_mutex_lock(&ring->lock);
		ring->first = slot->next;
		if (!ring->first)
			ring->last = &ring->first;
		trace(ring, CK_RING_LANDED, slot);
		set_free(ring, slot);
		pthread_mutex_unlock(&ring->lock);
		ring->in.freed(ring->in.arg);
		pthread_mutex_lock(&ring->lock);
	}
	pthread_mutex_unlock(&ring->lock);
	return NULL;
}

static void bind_to_node(const struct ck_ring *ring, size_t len)
{
	int node = ops_of(ring)->node(ring->in.dev->dev);
	unsigned long mask[16] = { 0 };

	if (node < 0 || node >= (int)(sizeof(mask) * 8))
		return;
	mask[(unsigned)node / (sizeof(mask[0]) * 8)] |=
		1UL << (unsigned)node % (sizeof(mask[0]) * 8);
	/* Memory of another node is slower, and as good. */
	syscall(SYS_mbind, ring->mem, len, MPOL_PREFERRED, mask,
		sizeof(mask) * 8, 0);
}

static int make_slots(struct ck_ring *ring, struct ck_err *err)
{
	const struct ck_ring_in *in = &ring->in;
	size_t note = (in->note + 15) & ~(size_t)15;
	uint64_t len = 0;
	void *mem = MAP_FAILED;

	ring->slot = calloc(in->slots, sizeof(*ring->slot));
	ring->notes = calloc(in->slots, note + 1);
	if (ck_mul_ok(in->chunk, in->slots, &len))
		mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ring->mem = mem == MAP_FAILED ? NULL : mem;
	if (!ring->slot || !ring->notes || !ring->mem)
		return ck_no_memory(err);
	madvise(ring->mem, len, MADV_HUGEPAGE);
	bind_to_node(ring, len);
	for (unsigned i = in->slots; i-- > 0;) {
		struct ck_ring_slot *slot = &ring->slot[i];

		slot->mem = ring->mem + i * in->chunk;
		slot->note = ring->notes + i * note;
		slot->ring = ring;
		slot->next = ring->free;
		ring->free = slot;
	}
	return 0;
}

static void drop_memory(struct ck_ring *ring)
{
	const struct ck_ring_in *in = &ring->in;

	for (unsigned i = 0; ring->slot && i < in->slots; i++)
		if (ring->slot[i].pinned)
			ops_of(ring)->unpin(in->dev->dev, ring->slot[i].mem);
	if (ring->mem)
		munmap(ring->mem, in->chunk * in->slots);
	free(ring->slot);
	free(ring->notes);
	pthread_cond_destroy(&ring->work);
	pthread_cond_destroy(&ring->freed);
	pthread_mutex_destroy(&ring->queue);
	pthread_mutex_destroy(&ring->lock);
	free(ring);
}

/* Signals of the process are not for it. */
static int start(struct ck_ring *ring, struct ck_err *err)
{
	sigset_t all, was;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	ret = pthread_create(&ring->thread, NULL, wait_for_events, ring);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return ret ? ck_fail(err, ret, "a thread for device %s: %s",
			     ring->in.dev->name, strerror(ret)) :
		     0;
}

int ck_ring_new(struct ck_ring **out, const struct ck_ring_in *in,
		struct ck_err *err)
{
	struct ck_ring *ring = calloc(1, sizeof(*ring));
	int ret;

	if (!ring)
		return ck_no_memory(err);
	ring->in = *in;
	ring->last = &ring->first;
	pthread_mutex_init(&ring->lock, NULL);
	pthread_mutex_init(&ring->queue, NULL);
	pthread_cond_init(&ring->freed, NULL);
	pthread_cond_init(&ring->work, NULL);
	ret = make_slots(ring, err);
	if (!ret)
		ret = ck_wrap(
			err,
			in->dev->ops->stream(in->dev->dev, &ring->stream, err),
			"device %s", in->dev->name);
	if (ret) {
		drop_memory(ring);
		return ret;
	}
	ret = start(ring, err);
	if (ret) {
		in->dev->ops->stream_free(in->dev->dev, ring->stream);
		drop_memory(ring);
		return ret;
	}
	ring->dstore = ck_dstore_new(in->dev, in->chunk);
	*out = ring;
	return 0;
}

void ck_ring_free(struct ck_ring *ring)
{
	if (!ring)
		return;
	pthread_mutex_lock(&ring->lock);
	ring->end = true;
	pthread_cond_signal(&ring->work);
	pthread_mutex_unlock(&ring->lock);
	pthread_join(ring->thread, NULL);
	if (!ring->is_dead)
		ops_of(ring)->stream_free(ring->in.dev->dev, ring->stream);
	ck_dstore_free(ring->dstore);
	drop_memory(ring);
}

const struct ck_device *ck_ring_device(const struct ck_ring *ring)
{
	return ring->in.dev;
}

uint64_t ck_ring_chunk(const struct ck_ring *ring)
{
	return ring->in.chunk;
}

unsigned ck_ring_slots(const struct ck_ring *ring)
{
	return ring->in.slots;
}

/* Under the queue's lock. */
static int come_behind(struct ck_ring *ring, void *stream, struct ck_err *err)
{
	const struct ck_device_ops *ops = ops_of(ring);
	void *dev = ring->in.dev->dev, *event;
	int ret;

	if (ring->is_dead)
		return ck_fail_as(err, &ring->why_dead);
	ret = ops->event(dev, stream, &event, err);
	if (ret)
		return ret;
	ret = ops->after(dev, ring->stream, event, err);
	ops->event_free(dev, event);
	return ret;
}

int ck_ring_behind(struct ck_ring *ring, void *stream, struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&ring->queue);
	ret = come_behind(ring, stream, err);
	pthread_mutex_unlock(&ring->queue);
	return ck_wrap(err, ret, "device %s: the caller's stream",
		       ring->in.dev->name);
}

struct ck_dstore *ck_ring_dstore(const struct ck_ring *ring)
{
	return ring->dstore;
}

const char *ck_ring_why(const struct ck_ring *ring)
{
	return ring->unpinned ? ring->why : "";
}

/* Its memory, once; a slot that nobody else has. */
static void make_ready(struct ck_ring *ring, struct ck_ring_slot *slot)
{
	struct ck_err why = { 0 };

	if (slot->ready)
		return;
	slot->ready = true;
	/* Where it is refused the copies are slower, and as good. */
	if (!ring->unpinned && !ops_of(ring)->pin(ring->in.dev->dev, slot->mem,
						  ring->in.chunk, &why)) {
		slot->pinned = true;
		return;
	}
	pthread_mutex_lock(&ring->lock);
	if (!ring->unpinned)
		snprintf(ring->why, sizeof(ring->why),
			 "buffers are not pinned: %.200s", why.msg);
	ring->unpinned = true;
	pthread_mutex_unlock(&ring->lock);
}

static struct ck_ring_slot *take(struct ck_ring *ring, bool waits)
{
	struct ck_ring_slot *slot;

	pthread_mutex_lock(&ring->lock);
	while (waits && !ring->free)
		pthread_cond_wait(&ring->freed, &ring->lock);
	slot = ring->free;
	if (slot) {
		ring->free = slot->next;
		slot->next = NULL;
		slot->why.code = 0;
		trace(ring, CK_RING_TAKEN, slot);
	}
	pthread_mutex_unlock(&ring->lock);
	return slot;
}

struct ck_ring_slot *ck_ring_try(struct ck_ring *ring)
{
	return take(ring, false);
}

struct ck_ring_slot *ck_ring_take(struct ck_ring *ring)
{
	return take(ring, true);
}

void ck_ring_give_back(struct ck_ring_slot *slot)
{
	struct ck_ring *ring = slot->ring;

	pthread_mutex_lock(&ring->lock);
	trace(ring, CK_RING_LANDED, slot);
	set_free(ring, slot);
	pthread_mutex_unlock(&ring->lock);
}

void ck_ring_prepare(struct ck_ring_slot *slot)
{
	make_ready(slot->ring, slot);
}

static void queue_copies(struct ck_ring *ring, struct ck_ring_slot *slot,
			 enum ck_device_way way,
			 const struct ck_device_copy *copy, size_t nr)
{
	if (ring->is_dead)
		ck_fail_as(&slot->why, &ring->why_dead);
	else if (ops_of(ring)->copy(ring->in.dev->dev, copy, nr, way,
				    ring->stream, &slot->why) &&
		 !slot->why.code)
		ck_fail(&slot->why, EIO, "a copy fails");
}

void ck_ring_copy(struct ck_ring_slot *slot, enum ck_device_way way,
		  const struct ck_device_copy *copy, size_t nr)
{
	struct ck_ring *ring = slot->ring;

	if (!nr || slot->why.code)
		return;
	pthread_mutex_lock(&ring->queue);
	queue_copies(ring, slot, way, copy, nr);
	pthread_mutex_unlock(&ring->queue);
}

void ck_ring_wait(struct ck_ring_slot *slot)
{
	struct ck_ring *ring = slot->ring;
	const struct ck_device_ops *ops = ops_of(ring);
	void *dev = ring->in.dev->dev, *event = NULL;
	int ret = 0;

	pthread_mutex_lock(&ring->queue);
	if (!slot->why.code && !ring->is_dead)
		ret = ops->event(dev, ring->stream, &event, &slot->why);
	pthread_mutex_unlock(&ring->queue);
	if (event) {
		ret = ops->wait(dev, event, &slot->why);
		ops->event_free(dev, event);
	}
	if (ret && !slot->why.code)
		ck_fail(&slot->why, EIO, "it fails");
}

void ck_ring_submit(struct ck_ring_slot *slot)
{
	struct ck_ring *ring = slot->ring;

	/* Events, and slots, in the same order. */
	pthread_mutex_lock(&ring->queue);
	if (ring->is_dead && !slot->why.code)
		ck_fail_as(&slot->why, &ring->why_dead);
	slot->event = NULL;
	if (!slot->why.code &&
	    ops_of(ring)->event(ring->in.dev->dev, ring->stream, &slot->event,
				&slot->why) &&
	    !slot->why.code)
		ck_fail(&slot->why, EIO, "an event fails");
	pthread_mutex_lock(&ring->lock);
	slot->next = NULL;
	*ring->last = slot;
	ring->last = &slot->next;
	trace(ring, CK_RING_SUBMITTED, slot);
	pthread_cond_signal(&ring->work);
	pthread_mutex_unlock(&ring->lock);
	pthread_mutex_unlock(&ring->queue);
}
