/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c - the table of slots, by number and by name
 *
 * Two locks: the table's is held for moments; the other while an entry is
 * parsed, so that a directory of many is not parsed by all threads at once.
 */
#include "fs/slot_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int new_table(struct fs_slots **out, const struct fs_slots_in *in,
		     struct ck_err *err)
{
	struct fs_slots *s = calloc(1, sizeof(*s));

	if (s)
		s->v = calloc(FS_MAX_SLOTS, sizeof(*s->v));
	if (!s || !s->v) {
		free(s);
		return ck_fail(err, ENOMEM, "no memory for a mount");
	}
	s->in = *in;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->making, NULL);
	sem_init(&s->crowded, 0, 0);
	*out = s;
	return 0;
}

/*
 * A number that is free, the longest ago used first: what the kernel still
 * has to say about the slot that had it must not meet another one.
 */
static bool free_number(struct fs_slots *s, uint32_t *nr)
{
	for (uint32_t i = 0; i < FS_MAX_SLOTS; i++) {
		*nr = (s->last + i) % FS_MAX_SLOTS;
		if (s->v[*nr])
			continue;
		s->last = *nr + 1;
		return true;
	}
	return false;
}

/* Under the lock.  NULL: no memory, or no number left. */
static struct fs_slot *add_slot(struct fs_slots *s, const char *name)
{
	struct fs_slot *slot;
	uint32_t nr;

	slot = free_number(s, &nr) ? calloc(1, sizeof(*slot)) : NULL;
	if (!slot)
		return NULL;
	slot->nr = nr;
	slot->root.fd = slot->root.blobs_fd = -1;
	if (name) {
		slot->name = strdup(name);
		if (!slot->name) {
			free(slot);
			return NULL;
		}
	}
	s->v[nr] = slot;
	s->nr = CK_MAX(s->nr, nr + 1);
	return slot;
}

static int first_slot(struct fs_slots *s, struct fs_slot **out,
		      struct ck_err *err)
{
	*out = add_slot(s, NULL);
	return *out ? 0 : ck_fail(err, ENOMEM, "no memory for a mount");
}

int fs_slots_one(struct fs_slots **out, const struct fs_slots_in *in,
		 struct ck_ckpt *ck, struct ck_err *err)
{
	struct fs_slot *slot;
	int ret = new_table(out, in, err);

	if (ret)
		return ret;
	(*out)->one = ck;
	ret = first_slot(*out, &slot, err);
	if (!ret) {
		slot->ck = ck;
		ret = fs_slot_fill(*out, slot, err);
		atomic_store(&slot->state, FS_SLOT_READY);
	}
	if (ret) {
		fs_slots_free(*out);
		*out = NULL; /* the session ends what it was given */
	}
	return ret;
}

int fs_slots_steps(struct fs_slots **out, const struct fs_slots_in *in,
		   const struct ck_root *root, struct ck_err *err)
{
	struct fs_slot *slot;
	int ret = new_table(out, in, err);

	if (ret)
		return ret;
	(*out)->root = root;
	ret = first_slot(*out, &slot, err);
	if (!ret) {
		slot->steps = true;
		ret = fs_slot_fill(*out, slot, err);
		atomic_store(&slot->state, FS_SLOT_READY);
	}
	if (ret) {
		fs_slots_free(*out);
		*out = NULL; /* the session ends what it was given */
	}
	return ret;
}

void fs_slots_free(struct fs_slots *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->nr; i++)
		if (s->v[i])
			fs_slot_free(s, s->v[i]);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->making);
	sem_destroy(&s->crowded);
	free(s->v);
	free(s);
}

struct fs_slot *fs_slots_at(struct fs_slots *s, uint32_t nr)
{
	/* the kernel asks only for what it knows, which is not freed */
	return nr < FS_MAX_SLOTS ? s->v[nr] : NULL;
}

int fs_slots_list(struct fs_slots *s, struct ck_steps *out, struct ck_err *err)
{
	return ck_steps_list(out, s->root, err);
}

/*
 * Under the lock: takes a slot that nobody refers to out of the table.  What
 * is still there stays for who comes next, while there are few.
 */
static struct fs_slot *drop_if_unused(struct fs_slots *s, struct fs_slot *slot)
{
	if (atomic_load(&slot->refs) ||
	    (!slot->gone && s->made <= FS_IDLE_SLOTS))
		return NULL;
	s->v[slot->nr] = NULL;
	s->made -= atomic_load(&slot->state) != FS_SLOT_NEW;
	return slot;
}

/* Under the lock: the slot of that name that is not gone. */
static struct fs_slot *named(struct fs_slots *s, const char *name)
{
	for (uint32_t i = 1; i < s->nr; i++)
		if (s->v[i] && !s->v[i]->gone && !strcmp(s->v[i]->name, name))
			return s->v[i];
	return NULL;
}

static struct fs_slot *entry_now(struct fs_slots *s, const char *name,
				 const struct ck_step *now,
				 struct fs_slot **old)
{
	struct fs_slot *slot = named(s, name);

	*old = NULL;
	if (slot && (!now || !fs_slot_current(s, slot, now))) {
		slot->gone = true;
		*old = drop_if_unused(s, slot);
		slot = NULL;
	}
	if (!slot && now) {
		slot = add_slot(s, name);
		if (slot)
			slot->seen = now->st;
	}
	if (slot) {
		atomic_fetch_add(&slot->refs, 1);
		slot->told = false;
		fs_slot_touch(slot);
	}
	return slot;
}

struct fs_slot *fs_slots_entry(struct fs_slots *s, const char *name)
{
	struct ck_step now = { 0 };
	bool there = ck_steps_look(&now, s->root, name);
	struct fs_slot *slot, *old;

	pthread_mutex_lock(&s->lock);
	slot = entry_now(s, name, there ? &now : NULL, &old);
	pthread_mutex_unlock(&s->lock);
	ck_step_free(&now);
	if (old)
		fs_slot_free(s, old);
	return slot;
}

void fs_slot_get(struct fs_slot *slot)
{
	atomic_fetch_add(&slot->refs, 1);
}

void fs_slot_put(struct fs_slots *s, struct fs_slot *slot, uint64_t nr)
{
	struct fs_slot *unused = NULL;

	if (!slot->name)
		return;
	/* under the lock: the last reference is what keeps it from others */
	pthread_mutex_lock(&s->lock);
	if (atomic_fetch_sub(&slot->refs, nr) == nr)
		unused = drop_if_unused(s, slot);
	pthread_mutex_unlock(&s->lock);
	if (unused)
		fs_slot_free(s, unused);
}

enum fs_slot_state fs_slot_need(struct fs_slots *s, struct fs_slot *slot)
{
	enum fs_slot_state state = atomic_load(&slot->state);

	if (state != FS_SLOT_NEW)
		return state;
	pthread_mutex_lock(&s->making);
	state = atomic_load(&slot->state);
	if (state == FS_SLOT_NEW) {
		state = fs_slot_make(s, slot);
		pthread_mutex_lock(&s->lock);
		atomic_store(&slot->state, state);
		if (++s->made > FS_IDLE_SLOTS)
			sem_post(&s->crowded);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&s->making);
	return state;
}

bool fs_slot_is_past(struct fs_slots *s, const struct fs_slot *slot)
{
	struct ck_step now = { 0 };
	bool past = slot->name && (!ck_steps_look(&now, s->root, slot->name) ||
				   !fs_slot_same(slot, &now));

	ck_step_free(&now);
	return past;
}

void fs_slot_touch(struct fs_slot *slot)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	atomic_store_explicit(&slot->used_ns,
			      t.tv_sec * INT64_C(1000000000) + t.tv_nsec,
			      memory_order_relaxed);
}

/* Under the lock: the made slot that was used the longest ago. */
static struct fs_slot *oldest(const struct fs_slots *s, uint32_t *nr)
{
	struct fs_slot *old = NULL;

	*nr = 0;
	for (uint32_t i = 1; i < s->nr; i++) {
		struct fs_slot *slot = s->v[i];

		if (!slot || slot->gone || slot->told ||
		    atomic_load(&slot->state) == FS_SLOT_NEW)
			continue;
		++*nr;
		if (!old ||
		    atomic_load(&slot->used_ns) < atomic_load(&old->used_ns))
			old = slot;
	}
	return old;
}

bool fs_slots_crowded(struct fs_slots *s, char name[256])
{
	struct fs_slot *slot, *unused;
	uint32_t nr;

	for (;;) {
		pthread_mutex_lock(&s->lock);
		slot = oldest(s, &nr);
		unused = NULL;
		if (nr > FS_IDLE_SLOTS) {
			unused = drop_if_unused(s, slot);
			slot->told = !unused;
			snprintf(name, 256, "%s", slot->name);
		}
		pthread_mutex_unlock(&s->lock);
		if (!unused)
			return nr > FS_IDLE_SLOTS;
		fs_slot_free(s, unused);
	}
}

bool fs_slots_wait(struct fs_slots *s)
{
	while (sem_wait(&s->crowded))
		;
	return !atomic_load(&s->ending);
}

void fs_slots_end_wait(struct fs_slots *s)
{
	atomic_store(&s->ending, true);
	sem_post(&s->crowded);
}

char *fs_slots_latest(struct fs_slots *s)
{
	struct ck_steps all;
	char *name = NULL;

	if (ck_steps_list(&all, s->root, NULL))
		return NULL;
	for (size_t i = 0; !name && ck_steps_newest(&all, i); i++) {
		const struct ck_step *step = ck_steps_newest(&all, i);
		struct fs_slot *slot = fs_slots_entry(s, step->name);

		if (!slot)
			continue;
		if (fs_slot_need(s, slot) == FS_SLOT_READY && slot->whole)
			name = strdup(slot->name);
		fs_slot_put(s, slot, 1);
	}
	ck_steps_free(&all);
	return name;
}

uint32_t fs_slots_made(struct fs_slots *s)
{
	uint32_t nr;

	pthread_mutex_lock(&s->lock);
	nr = s->made;
	pthread_mutex_unlock(&s->lock);
	return nr;
}

uint64_t fs_slots_total(struct fs_slots *s, uint64_t *files)
{
	uint64_t total = 0;

	*files = 0;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->nr; i++) {
		const struct fs_slot *slot = s->v[i];

		if (!slot || atomic_load(&slot->state) != FS_SLOT_READY ||
		    !slot->img)
			continue;
		*files += slot->img->nr_tensors;
		if (!ck_add_ok(total, slot->total, &total))
			total = CK_SIZE_MAX;
	}
	pthread_mutex_unlock(&s->lock);
	return total;
}
