/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.c - nameless files that fill up block by block
 *
 *   ABSENT --a read that wants it--> FILLING --read, and written--> THERE
 *      ^------------a failure-----------+
 *
 * A read of a few bytes of a block that is not there does not fill it: faults of
 * a map at random would read a hundred times what they need.  Such reads do when
 * they have gone on in a row, or were of as many bytes as the block has.
 */
#include "fs/cache/copies.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/helpers.h"
#include "core/base/whole.h"
#include "fs/kernel/buf.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK ((uint64_t)FS_MAX_IO)
#define LEAST (32u << 10) /* what is worth a block */
#define MOST 1024u /* copies, which are looked through at each open */

enum state { ABSENT, FILLING, THERE };

struct block {
	uint32_t missed; /* bytes that were read of it, */
	uint32_t end; /* the last ones up to here, while it was not there */
	uint8_t state;
};

#define NOT_ASKED (CK_NONE - 1) /* no source, but not yet known to be none */

struct fs_copy {
	struct fs_copies *of;
	struct fs_copy *next; /* the one that was opened before this */
	uint64_t serial, ino, kernel, size;
	unsigned users; /* opens, and those that are being answered */
	_Atomic uint32_t stored; /* the source that is the same; CK_NONE */
	uint64_t
		touch; /* of the shards, see ck_ckpt_unchanged(); 0, or @begun to be */
	_Atomic bool mapped; /* the page cache asked for it */
	bool begun; /* read: the kernel has no pages of other bytes */
	bool looked; /* that is known */
	bool changed; /* the shards are others by now */
	bool stale; /* the same, or they were touched */
	bool bad; /* nothing more is written to it */
	bool safe; /* it is whole, and on storage */
	int fd; /* -1: nothing was written yet */
	uint64_t held; /* bytes */
	uint32_t left; /* blocks that are not there */
	struct block block[];
};

struct fs_copies {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct fs_copies_in in;
	uint64_t held;
	unsigned nr, most;
	struct fs_copy *first;
	bool asked, stores; /* whether there are copies, or pages alone */
	bool told; /* that it cannot be written */
};

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

static void free_copy(struct fs_copy *c)
{
	fs_passed_forget(c->of->in.passed, c->kernel);
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

/* The one that was opened the longest ago; false: all are open. */
static bool drop_oldest(struct fs_copies *cs)
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
		if (!drop_oldest(cs))
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

	if (!--c->users && (!kept || c->stale))
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

	out->keep = !ck_ckpt_unchanged(of->ck, of->srcs, &touch, NULL) &&
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
		   c->bad		     ? FS_COPY_NONE :
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

static void tell(struct fs_copies *cs, int code)
{
	pthread_mutex_lock(&cs->lock);
	if (!cs->told)
		fs_log("-o cache: %s: files that do not fit are not kept",
		       strerror(code));
	cs->told = true;
	pthread_mutex_unlock(&cs->lock);
}

/*
 * Pages whose writing fails are dropped, and would be read as zeros: so nobody
 * reads a copy but who has seen it written, until all of it is on storage.
 */
static bool is_stored(const struct fs_copy *c)
{
	if (c->of->in.memory || !fdatasync(c->fd))
		return true;
	tell(c->of, errno);
	return false;
}

void fs_copy_close(struct fs_copies *cs, const struct fs_copy_open *o)
{
	struct fs_copy *c = o->copy;
	bool stored;

	if (!cs)
		return;
	fs_passed_close(cs->in.passed, o->ino, o->id);
	if (!c)
		return;
	pthread_mutex_lock(&cs->lock);
	if (c->users == 1 && !c->left && !c->bad && !c->safe && !c->stale) {
		pthread_mutex_unlock(&cs->lock);
		stored = is_stored(c);
		pthread_mutex_lock(&cs->lock);
		c->safe = stored;
		c->bad = !stored;
		say(cs);
	}
	unuse(c);
	pthread_mutex_unlock(&cs->lock);
}

/* ---- blocks ---- */

static uint64_t block_len(const struct fs_copy *c, uint32_t b)
{
	return CK_MIN(BLOCK, c->size - b * BLOCK);
}

/* Under the lock: -EDQUOT where all that is kept is open, and too much. */
static int make_room(struct fs_copy *c, uint64_t len)
{
	struct fs_copies *cs = c->of;

	while (cs->held + len > cs->in.max)
		if (!drop_oldest(cs))
			return -EDQUOT;
	if (c->fd < 0)
		c->fd = cs->in.dir < 0 ?
				memfd_create("unshard-cache", MFD_CLOEXEC) :
				ck_fds_nameless(cs->in.dir);
	return c->fd < 0 ? -errno : 0;
}

static void count(struct fs_copy *c, uint64_t held)
{
	c->of->held += held - c->held;
	c->held = held;
	atomic_store(&c->of->in.said->held, c->of->held);
}

/* Writes block @b, which is @buf. */
static bool put(struct fs_copy *c, uint32_t b, const char *buf)
{
	struct fs_copies *cs = c->of;
	uint64_t len = block_len(c, b);
	int ret;

	pthread_mutex_lock(&cs->lock);
	ret = make_room(c, len);
	if (!ret)
		count(c, c->held + len);
	pthread_mutex_unlock(&cs->lock);
	if (ret == -EDQUOT)
		return false;
	if (!ret) {
		ret = ck_pwrite_whole(c->fd, buf, len, b * BLOCK);
		if (!ret)
			return true;
		pthread_mutex_lock(&cs->lock);
		count(c, c->held - len);
		pthread_mutex_unlock(&cs->lock);
	}
	tell(cs, -ret);
	return false;
}

/* Under the lock: until nobody fills block @b.  -EINTR: nobody wants it. */
static int await(struct fs_copy *c, uint32_t b)
{
	while (c->block[b].state == FILLING)
		if (!ck_stop_wait(&c->of->filled, &c->of->lock))
			return -EINTR;
	return 0;
}

/* Under the lock: whether bytes [at, at + len) of it are worth reading all. */
static bool is_wanted(struct block *k, uint64_t at, uint64_t len, uint64_t all)
{
	bool on = k->end == at;

	if (len >= CK_MIN(LEAST, all))
		return true;
	k->missed += (uint32_t)len;
	k->end = (uint32_t)(at + len);
	return k->missed >= (on ? LEAST : all);
}

/* Whether block @b is there, or else is to be filled, which begins. */
static int begin(struct fs_copy *c, uint32_t b, uint64_t at, uint64_t len,
		 bool *fill)
{
	struct block *k = &c->block[b];
	int ret;

	pthread_mutex_lock(&c->of->lock);
	c->begun = true;
	ret = await(c, b);
	*fill = !ret && k->state == ABSENT && !c->bad && !c->stale &&
		is_wanted(k, at, len, block_len(c, b));
	if (*fill)
		k->state = FILLING;
	else if (!ret && (k->state == ABSENT || (c->stale && !c->changed)))
		ret = -ENODATA;
	pthread_mutex_unlock(&c->of->lock);
	return ret;
}

static void end(struct fs_copy *c, uint32_t b, bool kept, bool interrupted)
{
	pthread_mutex_lock(&c->of->lock);
	c->block[b].state = kept ? THERE : ABSENT;
	c->left -= kept;
	c->bad |= !kept && !interrupted;
	pthread_cond_broadcast(&c->of->filled);
	pthread_mutex_unlock(&c->of->lock);
}

struct part {
	const struct ck_view *v;
	uint32_t nr, b;
	char *buf;
	uint64_t at, len; /* in the block */
};

/* The whole block is read, to be kept; what is wanted of it alone where not. */
static int fill(struct fs_copy *c, const struct part *p, struct ck_err *err)
{
	uint64_t len = block_len(c, p->b), off = p->b * BLOCK;
	char *whole = p->len == len ? p->buf : fs_buf_get();
	bool kept = false;
	int ret = -ENOMEM;

	if (whole)
		ret = ck_view_read(p->v, p->nr, whole, len, off, err);
	if (!ret)
		kept = put(c, p->b, whole);
	end(c, p->b, kept, ret == -EINTR);
	if (kept)
		ck_ckpt_count_cache(p->v->ck, 0, 0, len);
	if (whole == p->buf)
		return ret;
	if (!ret)
		memcpy(p->buf, whole + p->at, p->len);
	fs_buf_put(whole);
	if (!ret || ret == -EINTR)
		return ret;
	return ck_view_read(p->v, p->nr, p->buf, p->len, off + p->at, err);
}

static int read_part(struct fs_copy *c, const struct part *p,
		     struct ck_err *err)
{
	uint64_t off = p->b * BLOCK + p->at;
	bool wanted;
	int ret = begin(c, p->b, p->at, p->len, &wanted);

	if (ret == -EINTR)
		return ret;
	if (!ret && wanted)
		return fill(c, p, err);
	if (!ret &&
	    ck_pread_most(c->fd, p->buf, p->len, off) == (ssize_t)p->len) {
		ck_ckpt_count_cache(p->v->ck, 0, p->len, 0);
		return 0;
	}
	return ck_view_read(p->v, p->nr, p->buf, p->len, off, err);
}

void fs_copy_mapped(struct fs_copy *c)
{
	c->mapped = true;
}

int fs_copy_read(struct fs_copy *c, const struct ck_view *v, uint32_t nr,
		 void *buf, uint64_t len, uint64_t off, struct ck_err *err)
{
	struct part p = { .v = v, .nr = nr, .buf = buf };
	int ret = 0;

	if (!c)
		return ck_view_read(v, nr, buf, len, off, err);
	while (!ret && len) {
		p.b = (uint32_t)(off / BLOCK);
		p.at = off % BLOCK;
		p.len = CK_MIN(len, BLOCK - p.at);
		ret = read_part(c, &p, err);
		p.buf += p.len;
		off += p.len;
		len -= p.len;
	}
	return ret;
}
