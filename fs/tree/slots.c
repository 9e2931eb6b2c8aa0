/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c - the table of slots, by number and by name
 *
 * Two locks: the table's is held for moments; the other while an entry is
 * parsed, so that a directory of many is not parsed by all threads at once.
 */
#include "fs/tree/slot_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Under the lock.  -ENOMEM, or -ENFILE: no number is left. */
static int add_slot(struct fs_slots *s, const char *name, struct fs_slot **out)
{
	struct fs_slot *slot;
	uint32_t nr;

	if (!free_number(s, &nr))
		return -ENFILE;
	slot = calloc(1, sizeof(*slot));
	if (slot && name)
		slot->name = strdup(name);
	if (!slot || (name && !slot->name)) {
		free(slot);
		return -ENOMEM;
	}
	slot->nr = nr;
	slot->root.fd = slot->root.blobs_fd = -1;
	s->v[nr] = slot;
	if (name) {
		slot->next = s->first;
		s->first = slot;
		if (++s->nr > FS_KNOWN_SLOTS)
			sem_post(&s->crowded);
	}
	*out = slot;
	return 0;
}

static int first_slot(struct fs_slots *s, struct fs_slot **out,
		      struct ck_err *err)
{
	int ret = add_slot(s, NULL, out);

	return ret ? ck_fail(err, -ret, "no memory for a mount") : 0;
}

int fs_slots_one(struct fs_slots **out, const struct fs_slots_in *in,
		 struct ck_ckpt *ck, struct ck_err *err)
{
	struct fs_slot *slot;
	int ret = new_table(out, in, err);

	if (ret)
		return ret;
	(*out)->one = ck;
	(*out)->root = ck_ckpt_root(ck);
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
	while (s->first) {
		struct fs_slot *slot = s->first;

		s->first = slot->next;
		fs_slot_free(s, slot);
	}
	if (s->v[0])
		fs_slot_free(s, s->v[0]);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->making);
	sem_destroy(&s->crowded);
	free(s->v);
	free(s);
}

/* Under the lock. */
static void pin(struct fs_slots *s, struct fs_slot *slot)
{
	slot->users++;
	slot->used = ++s->clock;
}

struct fs_slot *fs_slots_pin(struct fs_slots *s, uint32_t nr)
{
	struct fs_slot *slot;

	if (!nr)
		return s->v[0];
	if (nr >= FS_MAX_SLOTS)
		return NULL;
	pthread_mutex_lock(&s->lock);
	slot = s->v[nr];
	if (slot)
		pin(s, slot);
	pthread_mutex_unlock(&s->lock);
	return slot;
}

void fs_slot_pin(struct fs_slots *s, struct fs_slot *slot)
{
	if (!slot->name)
		return;
	pthread_mutex_lock(&s->lock);
	pin(s, slot);
	pthread_mutex_unlock(&s->lock);
}

static bool is_made(const struct fs_slot *slot)
{
	int state = atomic_load(&slot->state);

	return state == FS_SLOT_READY || state == FS_SLOT_FAILED;
}

/*
 * Under the lock: takes a slot that nobody refers to out of the table.  What
 * is made and is still there stays for who comes next.
 */
static struct fs_slot *take_unused(struct fs_slots *s, struct fs_slot *slot)
{
	struct fs_slot **at = &s->first;

	if (slot->users || slot->known || (is_made(slot) && !slot->gone))
		return NULL;
	while (*at != slot)
		at = &(*at)->next;
	*at = slot->next;
	s->nr--;
	s->made -= is_made(slot);
	s->v[slot->nr] = NULL;
	return slot;
}

/* Under the lock: the made one that was used the longest ago, with no pin. */
static struct fs_slot *longest_idle(const struct fs_slots *s)
{
	struct fs_slot *old = NULL;

	for (struct fs_slot *slot = s->first; slot; slot = slot->next)
		if (is_made(slot) && !slot->users &&
		    (!old || slot->used < old->used))
			old = slot;
	return old;
}

/* Puts one more to sleep while too many are made; false: there are not. */
static bool put_to_sleep(struct fs_slots *s)
{
	struct fs_slot husk = { 0 }, *slot = NULL, *unused;
	bool wrote = false;

	pthread_mutex_lock(&s->lock);
	if (s->made > FS_IDLE_SLOTS)
		slot = longest_idle(s);
	if (slot) {
		wrote = slot->ck && ck_ckpt_last_wrote_ns(slot->ck);
		fs_slot_sleep(slot, &husk);
		atomic_store(&slot->state, FS_SLOT_ASLEEP);
		s->made--;
		slot->users++;
	}
	pthread_mutex_unlock(&s->lock);
	if (!slot)
		return false;
	fs_slot_end(s, &husk);
	if (wrote)
		fs_slot_look_anew(s, slot);
	pthread_mutex_lock(&s->lock);
	slot->users--;
	unused = take_unused(s, slot);
	pthread_mutex_unlock(&s->lock);
	if (unused)
		fs_slot_free(s, unused);
	return true;
}

void fs_slot_unpin(struct fs_slots *s, struct fs_slot *slot)
{
	struct fs_slot *unused;
	bool many;

	if (!slot->name)
		return;
	pthread_mutex_lock(&s->lock);
	slot->users--;
	unused = take_unused(s, slot);
	many = s->made > FS_IDLE_SLOTS;
	pthread_mutex_unlock(&s->lock);
	if (unused)
		fs_slot_free(s, unused);
	while (many)
		many = put_to_sleep(s);
}

void fs_slot_know(struct fs_slots *s, struct fs_slot *slot)
{
	if (!slot->name)
		return;
	pthread_mutex_lock(&s->lock);
	slot->known++;
	pthread_mutex_unlock(&s->lock);
}

void fs_slot_forget(struct fs_slots *s, struct fs_slot *slot, uint64_t nr)
{
	if (!slot->name)
		return;
	pthread_mutex_lock(&s->lock);
	slot->known -= CK_MIN(slot->known, nr);
	pthread_mutex_unlock(&s->lock);
}

int fs_slots_list(struct fs_slots *s, const struct fs_slot *in,
		  struct ck_steps *out, struct ck_err *err)
{
	return ck_steps_list_in(out, s->root, in->name ? in->name : "", err);
}

/* The slot of that name that is not gone, pinned; NULL: none. */
static struct fs_slot *pin_named(struct fs_slots *s, const char *name)
{
	struct fs_slot *slot = s->first;

	while (slot && (slot->gone || strcmp(slot->name, name)))
		slot = slot->next;
	if (slot) {
		pin(s, slot);
		slot->told = false;
	}
	return slot;
}

/* The pinned slot is not what the entry is any more. */
static void let_go(struct fs_slots *s, struct fs_slot *slot)
{
	pthread_mutex_lock(&s->lock);
	slot->gone = true;
	pthread_mutex_unlock(&s->lock);
	fs_slot_unpin(s, slot);
}

/* Under the lock. */
static int pin_new(struct fs_slots *s, const char *name,
		   const struct ck_step *now, struct fs_slot **out)
{
	int ret;

	*out = pin_named(s, name); /* another thread was quicker */
	if (*out)
		return 0;
	ret = add_slot(s, name, out);
	if (ret)
		return ret;
	(*out)->seen = now->st;
	pin(s, *out);
	return 0;
}

int fs_slots_entry(struct fs_slots *s, const char *name, struct fs_slot **out)
{
	struct ck_step now = { 0 };
	bool there = ck_steps_look(&now, s->root, name);
	int ret = there ? 0 : -ENOENT;

	pthread_mutex_lock(&s->lock);
	*out = pin_named(s, name);
	pthread_mutex_unlock(&s->lock);
	if (*out && (!there || !fs_slot_current(s, *out, &now))) {
		let_go(s, *out);
		*out = NULL;
	}
	if (there && !*out) {
		pthread_mutex_lock(&s->lock);
		ret = pin_new(s, name, &now, out);
		pthread_mutex_unlock(&s->lock);
	}
	ck_step_free(&now);
	return ret;
}

/* Under the lock of making. */
static enum fs_slot_state make(struct fs_slots *s, struct fs_slot *slot)
{
	struct ck_err why = { 0 };
	bool first = atomic_load(&slot->state) == FS_SLOT_NEW;
	enum fs_slot_state state = fs_slot_make(s, slot, &why);

	pthread_mutex_lock(&s->lock);
	if (state == FS_SLOT_ASLEEP) {
		slot->gone = true;
	} else {
		s->made++;
	}
	if (first && state == FS_SLOT_FAILED) {
		slot->why = why;
		slot->failed = true;
	}
	atomic_store(&slot->state, state);
	pthread_mutex_unlock(&s->lock);
	return state;
}

enum fs_slot_state fs_slot_need(struct fs_slots *s, struct fs_slot *slot)
{
	enum fs_slot_state state;

	if (is_made(slot))
		return atomic_load(&slot->state);
	pthread_mutex_lock(&s->making);
	state = is_made(slot) ? (enum fs_slot_state)atomic_load(&slot->state) :
				make(s, slot);
	pthread_mutex_unlock(&s->making);
	while (put_to_sleep(s))
		;
	return state;
}

bool fs_slots_has(const struct fs_slots *s, const char *name)
{
	struct ck_step step = { 0 };
	bool has = ck_steps_look(&step, s->root, name);

	ck_step_free(&step);
	return has;
}

bool fs_slot_is_past(struct fs_slots *s, struct fs_slot *slot)
{
	struct ck_step now = { 0 };
	bool past = slot->name && (!ck_steps_look(&now, s->root, slot->name) ||
				   !fs_slot_same(s, slot, &now));

	ck_step_free(&now);
	return past;
}

void fs_slot_outdate(struct fs_slots *s, struct fs_slot *slot)
{
	if (!slot->name)
		return;
	pthread_mutex_lock(&s->lock);
	slot->gone = true;
	pthread_mutex_unlock(&s->lock);
}

/* Under the lock: the one used the longest ago that was not told yet. */
static struct fs_slot *longest_untold(const struct fs_slots *s)
{
	struct fs_slot *old = NULL;
	uint32_t nr = 0;

	for (struct fs_slot *slot = s->first; slot; slot = slot->next) {
		if (slot->told)
			continue;
		nr++;
		if (!old || slot->used < old->used)
			old = slot;
	}
	return nr > FS_KNOWN_SLOTS ? old : NULL;
}

bool fs_slots_crowded(struct fs_slots *s, char name[256])
{
	struct fs_slot *slot;

	pthread_mutex_lock(&s->lock);
	slot = longest_untold(s);
	if (slot) {
		slot->told = true;
		snprintf(name, 256, "%s", slot->name);
	}
	pthread_mutex_unlock(&s->lock);
	return slot;
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

/* *group: it is one. */
static bool is_whole_one(struct fs_slots *s, const char *name, bool *group)
{
	struct fs_slot *slot;
	bool whole;

	*group = false;
	if (fs_slots_entry(s, name, &slot))
		return false;
	if (atomic_load(&slot->state) == FS_SLOT_NEW)
		fs_slot_need(s, slot);
	whole = slot->whole && !slot->failed;
	*group = slot->steps;
	fs_slot_unpin(s, slot);
	return whole;
}

static bool is_whole_group(struct fs_slots *s, const char *group)
{
	bool whole = true, any = false, nested;
	struct ck_steps all;

	if (ck_steps_list_in(&all, s->root, group, NULL))
		return false;
	for (size_t i = 0; i < all.nr && whole; i++) {
		ck_auto_str struct ck_str name = { 0 };

		/* the state of a scheduler, and such */
		if (all.v[i].is_file && !all.parts)
			continue;
		any = true;
		ck_str_fmt(&name, "%s/%s", group, all.v[i].name);
		whole = !name.failed && is_whole_one(s, name.v, &nested);
	}
	if (whole && all.parts)
		whole = fs_slots_fit(s, group);
	ck_steps_free(&all);
	return whole && any;
}

/* Whether @name is a checkpoint that can be read in full, or all of such. */
static bool is_whole(struct fs_slots *s, const char *name)
{
	bool group;

	return is_whole_one(s, name, &group) ||
	       (group && is_whole_group(s, name));
}

char *fs_slots_latest(struct fs_slots *s)
{
	struct ck_steps all;
	char *name = NULL;

	if (ck_steps_list(&all, s->root, NULL))
		return NULL;
	for (size_t i = 0; !name && ck_steps_newest(&all, i); i++)
		if (is_whole(s, ck_steps_newest(&all, i)->name))
			name = strdup(ck_steps_newest(&all, i)->name);
	ck_steps_free(&all);
	return name;
}

static uint32_t read_nr(struct fs_slots *s, const uint32_t *nr)
{
	uint32_t now;

	pthread_mutex_lock(&s->lock);
	now = *nr;
	pthread_mutex_unlock(&s->lock);
	return now;
}

uint32_t fs_slots_made(struct fs_slots *s)
{
	return read_nr(s, &s->made);
}

uint32_t fs_slots_nr(struct fs_slots *s)
{
	return read_nr(s, &s->nr);
}

static void add_total(const struct fs_slot *slot, uint64_t *total,
		      uint64_t *files)
{
	int state = atomic_load(&slot->state);

	if (slot->gone || slot->failed || state == FS_SLOT_NEW)
		return;
	*files += slot->files;
	if (!ck_add_ok(*total, slot->total, total))
		*total = CK_SIZE_MAX;
}

uint64_t fs_slots_total(struct fs_slots *s, uint64_t *files)
{
	uint64_t total = 0;

	*files = 0;
	pthread_mutex_lock(&s->lock);
	add_total(s->v[0], &total, files);
	for (const struct fs_slot *slot = s->first; slot; slot = slot->next)
		add_total(slot, &total, files);
	pthread_mutex_unlock(&s->lock);
	return total;
}
