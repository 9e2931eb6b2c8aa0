/* SPDX-License-Identifier: Apache-2.0 */
/* slot_priv.h - between slots.c (the table) and slot.c (one of them) */
#ifndef FS_SLOT_PRIV_H
#define FS_SLOT_PRIV_H

#include "fs/tree/slot.h"

#include <pthread.h>
#include <semaphore.h>

struct fs_slots {
	struct fs_slots_in in;
	const struct ck_root *root; /* of the directory, or of @one */
	struct ck_ckpt *one; /* the mount is this; NULL: a directory of many */
	pthread_mutex_t lock; /* the table, and what slot.h says of slots */
	pthread_mutex_t making; /* one parse at a time */
	struct fs_slot **v; /* FS_MAX_SLOTS, most of it never touched */
	struct fs_slot *first; /* all but number 0; @nr of them */
	uint32_t nr;
	uint32_t last; /* where to look for a free number first */
	uint32_t made; /* slots of the list that are parsed */
	uint64_t clock;
	sem_t crowded; /* posted when there are too many, or at the end */
	_Atomic bool ending;
};

/* Views, shards and documents of a slot whose ck or root is set. */
int fs_slot_fill(struct fs_slots *s, struct fs_slot *slot, struct ck_err *err);
/* Fills in slot->beside; the views are open. */
int fs_slot_list_beside(struct fs_slots *s, struct fs_slot *slot,
			struct ck_err *err);
/*
 * Parses entry slot->name, the first time or again; READY, FAILED with @why,
 * or ASLEEP.
 */
enum fs_slot_state fs_slot_make(struct fs_slots *s, struct fs_slot *slot,
				struct ck_err *why);
/* Under the lock: moves what it was made of to @husk, which is empty. */
void fs_slot_sleep(struct fs_slot *slot, struct fs_slot *husk);
/* Ends what a slot was made of, and no more. */
void fs_slot_end(struct fs_slots *s, struct fs_slot *slot);
/* Also what the documents of a directory or of a FAILED entry say. */
void fs_slot_text(void *ctx, unsigned id, struct ck_str *out);
void fs_slot_free(struct fs_slots *s, struct fs_slot *slot);
/*
 * Whether @now is the same folder or file, and nothing came or went in it; what
 * we wrote to it ourselves is no change.  The slot is pinned, or asleep under
 * the lock of making.
 */
bool fs_slot_same(struct fs_slots *s, struct fs_slot *slot,
		  const struct ck_step *now);
/*
 * Once it sleeps, nobody knows which changes were ours: takes down what is
 * there now.  The slot is pinned.
 */
void fs_slot_look_anew(struct fs_slots *s, struct fs_slot *slot);
/*
 * Whether the entry @now is still what @slot was made of.  One that was whole
 * is, until its folder changes; one that was not is looked at more closely,
 * once a second.
 */
bool fs_slot_current(struct fs_slots *s, struct fs_slot *slot,
		     const struct ck_step *now);

#endif
