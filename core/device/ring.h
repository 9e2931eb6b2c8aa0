/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - buffers of the host on their way to a device
 *
 * A slot is free, taken by who fills it, or submitted: then it is free again once
 * the device has copied all that is in it, and not before.  There are so many
 * slots and no more.  Their memory is anonymous, on the device's NUMA node, and
 * pinned when it is first used; where that is refused it is not, and why() says so.
 *
 * Threads: any; a slot that is taken is one thread's.  What was submitted lands in
 * that order, on a thread of the ring's.
 */
#ifndef CK_RING_H
#define CK_RING_H

#include "core/device/device.h"

struct ck_ring;

struct ck_ring_slot {
	unsigned char *mem; /* chunk bytes of it */
	void *note; /* the user's, until it has landed */
	/* private */
	struct ck_ring_slot *next;
	struct ck_ring *ring;
	void *event;
	struct ck_err why; /* code 0: nothing failed */
	bool ready, pinned;
};

enum ck_ring_what { CK_RING_TAKEN, CK_RING_SUBMITTED, CK_RING_LANDED };

struct ck_ring_in {
	struct ck_device *dev;
	unsigned slots;
	uint64_t chunk; /* of whole pages */
	size_t note; /* bytes of a note */
	/* All that was queued of it is done, or, @why not NULL, was not. */
	void (*landed)(void *note, const struct ck_err *why);
	/* A slot became free; no lock is held. */
	void (*freed)(void *arg);
	void *arg;
	/* Told of everything, in order, under the ring's lock; or NULL. */
	void (*trace)(void *arg, enum ck_ring_what what, unsigned slot);
};

int ck_ring_new(struct ck_ring **out, const struct ck_ring_in *in,
		struct ck_err *err);
/* Waits for what is under way.  NULL: nothing. */
void ck_ring_free(struct ck_ring *ring);

const struct ck_device *ck_ring_device(const struct ck_ring *ring);
uint64_t ck_ring_chunk(const struct ck_ring *ring);
unsigned ck_ring_slots(const struct ck_ring *ring);
/* Why its memory is not pinned; "": it is, as far as it was used. */
const char *ck_ring_why(const struct ck_ring *ring);

/* How its device reads files itself; NULL: it does not. */
struct ck_dstore;
struct ck_dstore *ck_ring_dstore(const struct ck_ring *ring);

/*
 * What is copied from now on comes behind what is in @stream of the device, the
 * caller's, by now; nobody waits for that here.
 */
int ck_ring_behind(struct ck_ring *ring, void *stream, struct ck_err *err);

/* A free slot; NULL: none is. */
struct ck_ring_slot *ck_ring_try(struct ck_ring *ring);
/* Waits for one; who waits holds none. */
struct ck_ring_slot *ck_ring_take(struct ck_ring *ring);
/* Before it is filled: pins it, which takes a moment, and may be refused. */
void ck_ring_prepare(struct ck_ring_slot *slot);
/* Nothing was copied from it. */
void ck_ring_give_back(struct ck_ring_slot *slot);
/*
 * Queues copies from it, or inside the device's memory; where that fails it lands
 * as failed.
 */
void ck_ring_copy(struct ck_ring_slot *slot, enum ck_device_way way,
		  const struct ck_device_copy *copy, size_t nr);
/* Until what was queued of it is done; where that fails it lands as failed. */
void ck_ring_wait(struct ck_ring_slot *slot);
void ck_ring_submit(struct ck_ring_slot *slot);

#endif
