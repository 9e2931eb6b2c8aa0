/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted_table.c - the table of mounted checkpoints, by number and by name
 *
 * Two locks: the table's is held for moments; the other while an entry is
 * parsed, so that a directory of many is not parsed by all threads at once.
 */
#include "fs/tree/mounted_priv.h"

#include "core/base/check.h"
#include "core/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define DESCRIPTORS 12 /* that a parsed one may want, */
#define OF_A_ROOT 4 /* and these of each root */

/* Where few files may be open, fewer checkpoints are kept than where many may. */
static uint32_t most_idle(const struct ck_root *root)
{
	uint64_t most = FS_IDLE_MOUNTED, each = DESCRIPTORS;
	struct rlimit r;

	for (; root; root = root->next)
		each += OF_A_ROOT;
	if (!getrlimit(RLIMIT_NOFILE, &r))
		most = CK_MIN(most, r.rlim_cur / each);
	return (uint32_t)CK_MAX(most, 1);
}

/*
 * A number that is free, the longest ago used first: what the kernel still has
 * to say about the mounted checkpoint that had it must not meet another one.
 */
static bool free_number(struct fs_mounted_table *s, uint32_t *nr)
{
	for (uint32_t i = 0; i < FS_MAX_MOUNTED; i++) {
		*nr = (s->last + i) % FS_MAX_MOUNTED;
		if (s->v[*nr])
			continue;
		s->last = *nr + 1;
		return true;
	}
	return false;
}

/* Under the lock.  -ENOMEM, or -ENFILE: no number is left. */
static int add_mounted(struct fs_mounted_table *s, const char *name,
		       struct fs_mounted **out)
{
	struct fs_mounted *mounted;
	uint32_t nr;

	if (!free_number(s, &nr))
		return -ENFILE;
	mounted = calloc(1, sizeof(*mounted));
	if (mounted && name)
		mounted->name = strdup(name);
	if (!mounted || (name && !mounted->name)) {
		free(mounted);
		return -ENOMEM;
	}
	mounted->nr = nr;
	mounted->root.fd = mounted->root.blobs_fd = -1;
	s->v[nr] = mounted;
	if (name) {
		mounted->next = s->first;
		s->first = mounted;
		if (++s->nr > FS_KNOWN_MOUNTED)
			sem_post(&s->crowded);
	}
	*out = mounted;
	return 0;
}

int fs_mounted_table_new(struct fs_mounted_table **out,
			 const struct fs_mounted_table_in *in,
			 struct ck_err *err)
{
	struct fs_mounted_table *s = calloc(1, sizeof(*s));
	struct fs_mounted *top;
	int ret;

	if (s)
		s->v = calloc(FS_MAX_MOUNTED, sizeof(*s->v));
	if (!s || !s->v) {
		free(s);
		return ck_no_memory(err);
	}
	s->in = *in;
	s->root = in->steps ? in->steps : ck_ckpt_root(in->ck);
	s->most = most_idle(s->root);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->making, NULL);
	sem_init(&s->crowded, 0, 0);
	ret = add_mounted(s, NULL, &top) ? ck_no_memory(err) : 0;
	if (!ret) {
		top->ck = in->ck;
		top->steps = in->steps;
		ret = fs_mounted_fill(s, top, err);
		atomic_store(&top->state, FS_MOUNTED_READY);
	}
	if (ret)
		fs_mounted_table_free(s); /* but not what it was given */
	else
		*out = s;
	return ret;
}

void fs_mounted_table_free(struct fs_mounted_table *s)
{
	if (!s)
		return;
	while (s->first) {
		struct fs_mounted *mounted = s->first;

		s->first = mounted->next;
		fs_mounted_free(s, mounted);
	}
	if (s->v[0])
		fs_mounted_free(s, s->v[0]);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->making);
	sem_destroy(&s->crowded);
	free(s->v);
	free(s);
}

/* Under the lock. */
static void pin(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	mounted->users++;
	mounted->used = ++s->clock;
}

struct fs_mounted *fs_mounted_table_pin(struct fs_mounted_table *s, uint32_t nr)
{
	struct fs_mounted *mounted;

	if (!nr)
		return s->v[0];
	if (nr >= FS_MAX_MOUNTED)
		return NULL;
	pthread_mutex_lock(&s->lock);
	mounted = s->v[nr];
	if (mounted)
		pin(s, mounted);
	pthread_mutex_unlock(&s->lock);
	return mounted;
}

void fs_mounted_pin(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	if (!mounted->name)
		return;
	pthread_mutex_lock(&s->lock);
	pin(s, mounted);
	pthread_mutex_unlock(&s->lock);
}

static bool is_made(const struct fs_mounted *mounted)
{
	int state = atomic_load(&mounted->state);

	return state == FS_MOUNTED_READY || state == FS_MOUNTED_FAILED;
}

/*
 * Under the lock: takes a mounted checkpoint that nobody refers to out of the
 * table.  What is made and is still there stays for who comes next.
 */
static struct fs_mounted *take_unused(struct fs_mounted_table *s,
				      struct fs_mounted *mounted)
{
	struct fs_mounted **at = &s->first;

	if (mounted->users || mounted->known ||
	    (is_made(mounted) && !mounted->gone))
		return NULL;
	while (*at != mounted)
		at = &(*at)->next;
	*at = mounted->next;
	s->nr--;
	s->made -= is_made(mounted);
	s->v[mounted->nr] = NULL;
	return mounted;
}

/* Under the lock: the made one that was used the longest ago, with no pin. */
static struct fs_mounted *longest_idle(const struct fs_mounted_table *s)
{
	struct fs_mounted *old = NULL;

	for (struct fs_mounted *mounted = s->first; mounted;
	     mounted = mounted->next)
		if (is_made(mounted) && !mounted->users &&
		    (!old || mounted->used < old->used))
			old = mounted;
	return old;
}

/* Puts one more to sleep while too many are made; false: there are not. */
static bool put_to_sleep(struct fs_mounted_table *s)
{
	struct fs_mounted evicted = { 0 }, *mounted = NULL, *unused;
	bool wrote = false;

	pthread_mutex_lock(&s->lock);
	if (s->made > s->most)
		mounted = longest_idle(s);
	if (mounted) {
		wrote = mounted->ck && ck_ckpt_last_wrote_ns(mounted->ck);
		if (mounted->ck)
			fs_counts_add(&mounted->past,
				      ck_ckpt_stats(mounted->ck));
		fs_mounted_sleep(mounted, &evicted);
		atomic_store(&mounted->state, FS_MOUNTED_ASLEEP);
		s->made--;
		mounted->users++;
	}
	pthread_mutex_unlock(&s->lock);
	if (!mounted)
		return false;
	fs_mounted_end(s, &evicted);
	if (wrote)
		fs_mounted_look_anew(s, mounted);
	pthread_mutex_lock(&s->lock);
	mounted->users--;
	unused = take_unused(s, mounted);
	pthread_mutex_unlock(&s->lock);
	if (unused)
		fs_mounted_free(s, unused);
	return true;
}

void fs_mounted_unpin(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	struct fs_mounted *unused;
	bool many;

	if (!mounted->name)
		return;
	pthread_mutex_lock(&s->lock);
	mounted->users--;
	unused = take_unused(s, mounted);
	many = s->made > s->most;
	pthread_mutex_unlock(&s->lock);
	if (unused)
		fs_mounted_free(s, unused);
	while (many)
		many = put_to_sleep(s);
}

void fs_mounted_know(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	if (!mounted->name)
		return;
	pthread_mutex_lock(&s->lock);
	mounted->known++;
	pthread_mutex_unlock(&s->lock);
}

void fs_mounted_forget(struct fs_mounted_table *s, struct fs_mounted *mounted,
		       uint64_t nr)
{
	if (!mounted->name)
		return;
	pthread_mutex_lock(&s->lock);
	mounted->known -= CK_MIN(mounted->known, nr);
	pthread_mutex_unlock(&s->lock);
}

int fs_mounted_table_list(struct fs_mounted_table *s,
			  const struct fs_mounted *in, struct ck_run_dir *out,
			  struct ck_err *err)
{
	return ck_run_dir_list_in(out, s->root, in->name ? in->name : "", err);
}

/* The mounted checkpoint of that name that is not gone, pinned; NULL: none. */
static struct fs_mounted *pin_named(struct fs_mounted_table *s,
				    const char *name)
{
	struct fs_mounted *mounted = s->first;

	while (mounted && (mounted->gone || strcmp(mounted->name, name)))
		mounted = mounted->next;
	if (mounted) {
		pin(s, mounted);
		mounted->told = false;
	}
	return mounted;
}

/* The pinned mounted checkpoint is not what the entry is any more. */
static void let_go(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	pthread_mutex_lock(&s->lock);
	mounted->gone = true;
	pthread_mutex_unlock(&s->lock);
	fs_mounted_unpin(s, mounted);
}

/* Under the lock. */
static int pin_new(struct fs_mounted_table *s, const char *name,
		   const struct ck_run_dir_entry *now, struct fs_mounted **out)
{
	int ret;

	*out = pin_named(s, name); /* another thread was quicker */
	if (*out)
		return 0;
	ret = add_mounted(s, name, out);
	if (ret)
		return ret;
	(*out)->seen = now->st;
	pin(s, *out);
	return 0;
}

int fs_mounted_table_entry(struct fs_mounted_table *s, const char *name,
			   struct fs_mounted **out)
{
	struct ck_run_dir_entry now = { 0 };
	bool there = ck_run_dir_look(&now, s->root, name);
	int ret = there ? 0 : -ENOENT;

	pthread_mutex_lock(&s->lock);
	*out = pin_named(s, name);
	pthread_mutex_unlock(&s->lock);
	if (*out && (!there || !fs_mounted_current(s, *out, &now))) {
		let_go(s, *out);
		*out = NULL;
	}
	if (there && !*out) {
		pthread_mutex_lock(&s->lock);
		ret = pin_new(s, name, &now, out);
		pthread_mutex_unlock(&s->lock);
	}
	ck_run_dir_entry_free(&now);
	return ret;
}

/* Under the lock of making. */
static enum fs_mounted_state make(struct fs_mounted_table *s,
				  struct fs_mounted *mounted)
{
	struct ck_err why = { 0 };
	bool first = atomic_load(&mounted->state) == FS_MOUNTED_NEW;
	enum fs_mounted_state state = fs_mounted_make(s, mounted, &why);

	pthread_mutex_lock(&s->lock);
	if (state == FS_MOUNTED_ASLEEP) {
		mounted->gone = true;
	} else {
		s->made++;
	}
	if (first && state == FS_MOUNTED_FAILED) {
		mounted->why = why;
		mounted->failed = true;
	}
	atomic_store(&mounted->state, state);
	pthread_mutex_unlock(&s->lock);
	return state;
}

enum fs_mounted_state fs_mounted_need(struct fs_mounted_table *s,
				      struct fs_mounted *mounted)
{
	enum fs_mounted_state state;

	if (is_made(mounted))
		return (enum fs_mounted_state)atomic_load(&mounted->state);
	pthread_mutex_lock(&s->making);
	state = is_made(mounted) ?
			(enum fs_mounted_state)atomic_load(&mounted->state) :
			make(s, mounted);
	pthread_mutex_unlock(&s->making);
	while (put_to_sleep(s))
		;
	return state;
}

bool fs_mounted_is_past(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	struct ck_run_dir_entry now = { 0 };
	bool past = mounted->name &&
		    (!ck_run_dir_look(&now, s->root, mounted->name) ||
		     !fs_mounted_same(s, mounted, &now));

	ck_run_dir_entry_free(&now);
	return past;
}

void fs_mounted_outdate(struct fs_mounted_table *s, struct fs_mounted *mounted)
{
	if (!mounted->name)
		return;
	pthread_mutex_lock(&s->lock);
	mounted->gone = true;
	pthread_mutex_unlock(&s->lock);
}

void fs_mounted_doubt(struct fs_mounted *mounted)
{
	atomic_store(&mounted->doubted, true);
}

double fs_settle = 10;

bool fs_mounted_was_settled(const struct fs_mounted *mounted,
			    const struct ck_ckpt *ck)
{
	int64_t since = ck_now_s() - mounted->made_s;

	return fs_settle <= 0 || ck_ckpt_settled(ck, fs_settle + (double)since);
}

/* Under the lock: the one used the longest ago that was not told yet. */
static struct fs_mounted *longest_unanswered(const struct fs_mounted_table *s)
{
	struct fs_mounted *old = NULL;
	uint32_t nr = 0;

	for (struct fs_mounted *mounted = s->first; mounted;
	     mounted = mounted->next) {
		if (mounted->told)
			continue;
		nr++;
		if (!old || mounted->used < old->used)
			old = mounted;
	}
	return nr > FS_KNOWN_MOUNTED ? old : NULL;
}

bool fs_mounted_table_crowded(struct fs_mounted_table *s, char name[256])
{
	struct fs_mounted *mounted;

	pthread_mutex_lock(&s->lock);
	mounted = longest_unanswered(s);
	if (mounted) {
		mounted->told = true;
		snprintf(name, 256, "%s", mounted->name);
	}
	pthread_mutex_unlock(&s->lock);
	return mounted;
}

bool fs_mounted_table_wait(struct fs_mounted_table *s)
{
	while (sem_wait(&s->crowded))
		;
	return !atomic_load(&s->ending);
}

void fs_mounted_table_end_wait(struct fs_mounted_table *s)
{
	atomic_store(&s->ending, true);
	sem_post(&s->crowded);
}

uint32_t fs_mounted_table_made(struct fs_mounted_table *s)
{
	uint32_t made;

	pthread_mutex_lock(&s->lock);
	made = s->made;
	pthread_mutex_unlock(&s->lock);
	return made;
}

static void add_total(const struct fs_mounted *mounted, uint64_t *total,
		      uint64_t *files)
{
	int state = atomic_load(&mounted->state);

	if (mounted->gone || mounted->failed || state == FS_MOUNTED_NEW)
		return;
	*files += mounted->files;
	if (!ck_add_ok(*total, mounted->total, total))
		*total = CK_SIZE_MAX;
}

uint64_t fs_mounted_table_total(struct fs_mounted_table *s, uint64_t *files)
{
	uint64_t total = 0;

	*files = 0;
	pthread_mutex_lock(&s->lock);
	add_total(s->v[0], &total, files);
	for (const struct fs_mounted *mounted = s->first; mounted;
	     mounted = mounted->next)
		add_total(mounted, &total, files);
	pthread_mutex_unlock(&s->lock);
	return total;
}
