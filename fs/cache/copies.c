/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c - which copies there are, and opening and closing them */
#include "fs/cache/copies_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MOST 1024u /* copies, which are looked through at each open */

/* A descriptor each: no more than a part of those that may be had. */
static unsigned most_files(void)
{
	struct rlimit r;

	return getrlimit(RLIMIT_NOFILE, &r) ?
		       1 :
		       (unsigned)CK_MIN((uint64_t)MOST, r.rlim_cur / 8);
}

struct fs_copies *fs_copies_new(const struct fs_copies_in *in)
{
	struct fs_copies *cs = calloc(1, sizeof(*cs));
	struct statvfs st;

	if (!cs)
		return NULL;
	pthread_mutex_init(&cs->lock, NULL);
	pthread_cond_init(&cs->filled, NULL);
	cs->in = *in;
	if (!cs->in.max && !fstatvfs(in->dir, &st))
		cs->in.max = st.f_bavail * st.f_frsize / 2;
	cs->most = most_files();
	return cs;
}

static void unmap(struct fs_copy *c)
{
	if (c->map)
		munmap(c->map, c->size);
	c->map = NULL;
}

static void free_copy(struct fs_copy *c)
{
	fs_passed_forget(c->of->in.passed, c->kernel);
	unmap(c);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

/* A lost mount closes no files. */
void fs_copies_free(struct fs_copies *cs)
{
	if (!cs)
		return;
	while (cs->first) {
		struct fs_copy *c = cs->first;

		cs->first = c->next;
		free_copy(c);
	}
	pthread_cond_destroy(&cs->filled);
	pthread_mutex_destroy(&cs->lock);
	free(cs);
}

/* ---- the list; all under the lock ---- */

static void say(struct fs_copies *cs)
{
	uint64_t whole = 0;

	for (const struct fs_copy *c = cs->first; c; c = c->next)
		whole += c->safe && !c->stale;
	atomic_store(&cs->in.said->whole, whole);
	atomic_store(&cs->in.said->held, cs->held);
}

static void unlink_copy(struct fs_copies *cs, struct fs_copy *c)
{
	struct fs_copy **at = &cs->first;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

static void drop(struct fs_copies *cs, struct fs_copy *c)
{
	unlink_copy(cs, c);
	cs->nr--;
	cs->held -= c->held;
	free_copy(c);
	say(cs);
}

bool fs_copies_drop_oldest(struct fs_copies *cs)
{
	struct fs_copy *oldest = NULL;

	for (struct fs_copy *c = cs->first; c; c = c->next)
		if (!c->users)
			oldest = c;
	if (oldest)
		drop(cs, oldest);
	return oldest;
}

/* Who has an old one open keeps that. */
static struct fs_copy *find(struct fs_copies *cs, const struct fs_copy_of *of)
{
	for (struct fs_copy *c = cs->first; c; c = c->next)
		if (c->ino == of->ino && c->serial == of->serial && !c->stale)
			return c;
	return NULL;
}

static struct fs_copy *add(struct fs_copies *cs, const struct fs_copy_of *of,
			   uint64_t size)
{
	uint64_t nr = size > cs->in.max ? 0 : (size - 1) / BLOCK + 1;
	struct fs_copy *c;

	while (cs->nr >= cs->most)
		if (!fs_copies_drop_oldest(cs))
			return NULL;
	c = calloc(1, sizeof(*c) + nr * sizeof(*c->block));
	if (!c)
		return NULL;
	c->of = cs;
	c->serial = of->serial;
	c->ino = of->ino;
	c->kernel = of->kernel;
	c->size = size;
	c->left = (uint32_t)nr;
	c->bad = !nr;
	c->stored = cs->in.stored ? NOT_ASKED : CK_NONE;
	c->fd = -1;
	c->next = cs->first;
	cs->first = c;
	cs->nr++;
	return c;
}

static void unuse(struct fs_copy *c)
{
	bool kept = c->stored < NOT_ASKED || (c->held && !c->bad);

	if (--c->users)
		return;
	unmap(c);
	if (!kept || c->stale)
		drop(c->of, c);
}

static void use(struct fs_copy *c)
{
	struct fs_copies *cs = c->of;

	unlink_copy(cs, c);
	c->next = cs->first;
	cs->first = c;
	c->users++;
}

/* Copies for the kernel, to be passed through, are none where it does not. */
static bool stores(struct fs_copies *cs)
{
	ck_auto_fd int fd = -1;

	if (!cs->asked && cs->in.memory) {
		fd = memfd_create("unshard-cache", MFD_CLOEXEC);
		cs->stores = fs_passed_can(cs->in.passed, fd);
	}
	cs->asked = true;
	return cs->stores || !cs->in.memory;
}

/* ---- opening and closing ---- */

/* Whose bytes are tensors', all of them, and many. */
static bool is_worth(struct fs_copies *cs, const struct fs_copy_of *of,
		     uint64_t *size, bool *store)
{
	struct ck_vfile file;

	if (!of->v->ops->file(of->v, of->nr, &file) || file.like)
		return false;
	*size = file.size;
	pthread_mutex_lock(&cs->lock);
	*store = stores(cs);
	pthread_mutex_unlock(&cs->lock);
	return !*store || *size >= BLOCK;
}

/* Where there are none, the page cache may keep what it has. */
static void by_pages(const struct fs_copy_of *of, struct fs_copy_open *out)
{
	uint64_t touch;

	/* pages that were read before are there: none of an unsettled one counts */
	out->keep = of->was_settled &&
		    !ck_ckpt_unchanged(of->ck, of->srcs, &touch, NULL) &&
		    ck_view_untouched(of->v, of->nr);
	out->how = out->keep ? FS_COPY_WHOLE : FS_COPY_NONE;
	ck_ckpt_count_cache(of->v->ck, out->keep, 0, 0);
}

/* In use.  NULL: there is no room for one more. */
static struct fs_copy *take(struct fs_copies *cs, const struct fs_copy_of *of,
			    uint64_t size)
{
	struct fs_copy *c;

	pthread_mutex_lock(&cs->lock);
	c = find(cs, of);
	if (!c)
		c = add(cs, of, size);
	if (c)
		use(c);
	pthread_mutex_unlock(&cs->lock);
	return c;
}

/* Looks at the shards; false: it is of what they were. */
static bool look(struct fs_copy *c, const struct fs_copy_of *of)
{
	struct fs_copies *cs = c->of;
	uint64_t touch;
	bool stale, shared;
	bool changed = ck_ckpt_unchanged(of->ck, of->srcs, &touch, NULL);

	pthread_mutex_lock(&cs->lock);
	if (!c->looked)
		c->touch = touch;
	c->looked = true;
	shared = !c->stale && c->users > 1;
	c->changed |= changed;
	stale = c->stale |= changed || touch != c->touch;
	say(cs);
	pthread_mutex_unlock(&cs->lock);
	if (stale && shared)
		fs_passed_leave(cs->in.passed, of->kernel);
	if (stale && !changed) /* whoever has pages of it is told */
		ck_ckpt_untouched(of->v->ck, CK_NONE);
	return !stale;
}

/* The stored file that is the same, and can be passed; -1: there is none. */
static int stored_file(struct fs_copy *c, const struct fs_copy_of *of)
{
	bool asked = c->stored != NOT_ASKED;
	uint32_t src = asked ? c->stored : ck_view_stored(of->v, of->nr);
	ck_auto_fd int fd = -1;

	if (src == CK_NONE || ck_ckpt_open_src(of->v->ck, src, &fd) ||
	    (!asked && !fs_passed_can(c->of->in.passed, fd)))
		src = asked ? src : CK_NONE;
	c->stored = src;
	return src == CK_NONE ? -1 : ck_steal_fd(fd);
}

/* By the kernel, from what is there; else by the worker. */
static int open_passed(struct fs_copy *c, const struct fs_copy_of *of,
		       struct fs_copy_open *out)
{
	ck_auto_fd int stored = stored_file(c, of);
	int fd = stored, ret;

	pthread_mutex_lock(&c->of->lock);
	out->how = c->safe		     ? FS_COPY_WHOLE :
		   c->bad || !of->settled    ? FS_COPY_NONE :
		   c->users > 1 && c->mapped ? FS_COPY_PAGES :
					       FS_COPY_PART;
	out->keep = out->how >= FS_COPY_PAGES && (!c->touch || c->begun);
	if (stored < 0 && c->safe)
		fd = c->fd;
	pthread_mutex_unlock(&c->of->lock);
	ret = fs_passed_open(c->of->in.passed, of->kernel, fd, stored < 0);
	out->how = ret > 0 ? FS_COPY_PASSED : out->how;
	return ret;
}

int fs_copies_open(struct fs_copies *cs, const struct fs_copy_of *of,
		   struct fs_copy_open *out)
{
	struct fs_copy *c;
	uint64_t size;
	bool store;
	int ret;

	*out = (struct fs_copy_open)FS_COPY_OPEN_NONE;
	if (!is_worth(cs, of, &size, &store))
		return 0;
	if (!store) {
		by_pages(of, out);
		return 0;
	}
	c = take(cs, of, size);
	ret = c && look(c, of) ?
		      open_passed(c, of, out) :
		      fs_passed_open(cs->in.passed, of->kernel, -1, false);
	pthread_mutex_lock(&cs->lock);
	if (c && (ret < 0 || out->how == FS_COPY_NONE)) {
		unuse(c);
		c = NULL;
	}
	pthread_mutex_unlock(&cs->lock);
	if (ret < 0)
		return ret;
	out->copy = c;
	out->ino = of->kernel;
	out->id = ret;
	if (out->how >= FS_COPY_WHOLE)
		ck_ckpt_count_cache(of->v->ck, 1, 0, 0);
	return 0;
}

void fs_copies_tell(struct fs_copies *cs, int code)
{
	pthread_mutex_lock(&cs->lock);
	if (!cs->told)
		fs_log("-o cache: %s: files that do not fit are not kept",
		       strerror(code));
	cs->told = true;
	pthread_mutex_unlock(&cs->lock);
}

/*
 * Under the lock, which is let go meanwhile.  Pages whose writing fails are dropped,
 * and would be read as zeros: so nobody reads a copy but who has seen it written,
 * until all of it is on storage.
 */
static void store(struct fs_copy *c)
{
	struct fs_copies *cs = c->of;
	int ret;

	c->syncing = true;
	pthread_mutex_unlock(&cs->lock);
	ret = cs->in.memory || !fdatasync(c->fd) ? 0 : errno;
	if (ret)
		fs_copies_tell(cs, ret);
	pthread_mutex_lock(&cs->lock);
	c->syncing = false;
	c->safe = !ret;
	c->bad = ret;
	say(cs);
}

void fs_copy_close(struct fs_copies *cs, const struct fs_copy_open *o)
{
	struct fs_copy *c = o->copy;

	if (!cs)
		return;
	fs_passed_close(cs->in.passed, o->ino, o->id);
	if (!c)
		return;
	pthread_mutex_lock(&cs->lock);
	if (c->users == 1 && !c->left && !c->bad && !c->safe && !c->stale)
		store(c);
	unuse(c);
	pthread_mutex_unlock(&cs->lock);
}
