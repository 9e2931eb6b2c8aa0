/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.c - nameless files that fill up block by block
 *
 *   ABSENT --a read that wants it--> FILLING --read, and written--> THERE
 *      ^------------a failure-----------+
 *
 * A read of a few bytes of a block that is not there does not fill it: faults of
 * a map at random would read a hundred times what they need.
 */
#include "fs/cache/copies.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/helpers.h"
#include "core/base/whole.h"
#include "fs/kernel/buf.h"
#include "fs/kernel/passthrough.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK ((uint64_t)FS_MAX_IO)
#define LEAST (32u << 10) /* what is worth a block */
#define MOST 1024u /* copies, which are looked through at each open */

enum state { ABSENT, FILLING, THERE };

struct fs_copy {
	struct fs_copies *of;
	struct fs_copy *next; /* the one that was opened before this */
	uint64_t serial, ino, size;
	unsigned opens; /* those that were answered; */
	unsigned passed; /* the kernel reads for these, */
	int id; /* by this number; 0: it was not asked yet */
	unsigned users; /* these, and those that are being answered */
	uint64_t touch; /* of the shards, see ck_ckpt_unchanged() */
	bool looked; /* that is known */
	bool changed; /* the shards are others by now */
	bool stale; /* the same, or they were touched */
	bool bad; /* nothing more is written to it */
	bool safe; /* it is whole, and on storage */
	int fd; /* -1: nothing was written yet */
	uint64_t held; /* bytes */
	uint32_t left; /* blocks that are not there */
	uint8_t block[];
};

struct fs_copies {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct fs_copies_in in;
	uint64_t held;
	unsigned nr, most;
	struct fs_copy *first;
	struct fs_cache_said *said;
	bool asked, stores; /* whether there are copies, or pages alone */
	bool told; /* that it cannot be written */
};

/* A descriptor each: no more than a part of those that may be had. */
static unsigned most_files(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return 1;
	return (unsigned)CK_MIN((uint64_t)MOST, (uint64_t)r.rlim_cur / 8);
}

static uint64_t half_of_free(int dir)
{
	struct statvfs st;

	return fstatvfs(dir, &st) ? 0 : st.f_bavail * st.f_frsize / 2;
}

struct fs_copies *fs_copies_new(const struct fs_copies_in *in)
{
	struct fs_copies *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return NULL;
	pthread_mutex_init(&cs->lock, NULL);
	pthread_cond_init(&cs->filled, NULL);
	cs->in = *in;
	if (!cs->in.max)
		cs->in.max = half_of_free(in->dir);
	cs->most = most_files();
	cs->said = &in->kernel->cache;
	return cs;
}

static void free_copy(struct fs_copy *c)
{
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
	if (cs->in.passthrough >= 0)
		close(cs->in.passthrough);
	pthread_cond_destroy(&cs->filled);
	pthread_mutex_destroy(&cs->lock);
	free(cs);
}

static void end_passing(struct fs_copies *cs)
{
	close(cs->in.passthrough);
	cs->in.passthrough = -1;
	atomic_store(&cs->said->passthrough, 0);
}

/* ---- the list; all under the lock ---- */

static void drop_passed(struct fs_copies *cs, int id)
{
	if (cs->in.passthrough >= 0 &&
	    fs_passthrough_drop(cs->in.passthrough, cs->in.dev, id) == -EPIPE)
		end_passing(cs);
}

static void say(struct fs_copies *cs)
{
	uint64_t whole = 0;

	for (const struct fs_copy *c = cs->first; c; c = c->next)
		whole += c->safe && !c->stale;
	atomic_store(&cs->said->whole, whole);
	atomic_store(&cs->said->held, cs->held);
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
	if (c->id)
		drop_passed(cs, c->id);
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

static struct fs_copy *find(struct fs_copies *cs, const struct fs_copy_of *of)
{
	for (struct fs_copy *c = cs->first; c; c = c->next)
		if (c->ino == of->ino && c->serial == of->serial)
			return c;
	return NULL;
}

static struct fs_copy *add(struct fs_copies *cs, const struct fs_copy_of *of,
			   uint64_t size)
{
	uint64_t nr = (size - 1) / BLOCK + 1;
	struct fs_copy *c;

	while (cs->nr >= cs->most)
		if (!drop_oldest(cs))
			return NULL;
	c = calloc(1, sizeof(*c) + nr);
	if (!c)
		return NULL;
	c->of = cs;
	c->serial = of->serial;
	c->ino = of->ino;
	c->size = size;
	c->left = (uint32_t)nr;
	c->fd = -1;
	c->next = cs->first;
	cs->first = c;
	cs->nr++;
	return c;
}

static void unuse(struct fs_copy *c)
{
	if (!--c->users && (c->bad || c->stale || !c->held))
		drop(c->of, c);
}

/* ---- passing through; all under the lock ---- */

/* Whatever says no once is not asked again. */
static int add_passed(struct fs_copies *cs, int fd)
{
	int id = -EPERM;

	if (cs->in.passthrough < 0)
		return 0;
	if (cs->in.kernel->passthrough && fd >= 0)
		id = fs_passthrough_add(cs->in.passthrough, cs->in.dev, fd);
	if (id > 0)
		atomic_store(&cs->said->passthrough, 1);
	else
		end_passing(cs);
	return CK_MAX(id, 0);
}

static bool stores(struct fs_copies *cs)
{
	ck_auto_fd int fd = -1;
	int id;

	if (cs->asked)
		return cs->stores;
	cs->asked = true;
	fd = memfd_create("unshard-cache", MFD_CLOEXEC);
	id = add_passed(cs, fd);
	if (id)
		drop_passed(cs, id);
	cs->stores = id || !cs->in.memory;
	return cs->stores;
}

/* One who has it open otherwise could map it no more. */
static bool passes(struct fs_copy *c)
{
	if (c->passed || c->opens)
		return c->passed;
	if (!c->id)
		c->id = add_passed(c->of, c->fd);
	return c->id;
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
	return !*store || (*size >= BLOCK && *size <= cs->in.max &&
			   *size / BLOCK < UINT32_MAX);
}

/* Under the lock: the copy is in use, and the shards were looked at. */
static int give(struct fs_copy *c, bool changed, uint64_t touch,
		struct fs_copy_open *out, struct ck_err *err)
{
	struct fs_copies *cs = c->of;

	if (!c->looked)
		c->touch = touch;
	c->looked = true;
	c->changed |= changed;
	c->stale |= changed || touch != c->touch;
	if (c->stale) {
		bool refused = c->opens && (c->changed || c->passed);

		unuse(c);
		say(cs);
		return refused ?
			       ck_fail(err, ESTALE,
				       "files of the checkpoint changed while "
				       "a file made of them is open") :
			       0;
	}
	out->copy = c;
	out->how = !c->safe  ? FS_COPY_PART :
		   passes(c) ? FS_COPY_PASSED :
			       FS_COPY_WHOLE;
	out->id = c->id;
	c->passed += out->how == FS_COPY_PASSED;
	c->opens++;
	if (cs->first != c) {
		unlink_copy(cs, c);
		c->next = cs->first;
		cs->first = c;
	}
	return 0;
}

/* Where there are none, the page cache may keep what it has. */
static enum fs_copy_how by_pages(const struct fs_copy_of *of)
{
	uint64_t touch;

	if (ck_ckpt_unchanged(of->v->ck, &touch, NULL) ||
	    !ck_view_untouched(of->v, of->nr))
		return FS_COPY_NONE;
	ck_ckpt_count_cache(of->v->ck, 1, 0, 0);
	return FS_COPY_WHOLE;
}

int fs_copies_open(struct fs_copies *cs, const struct fs_copy_of *of,
		   struct fs_copy_open *out, struct ck_err *err)
{
	bool changed = false, stale = false, store;
	uint64_t size, touch;
	struct fs_copy *c;
	int ret = 0;

	*out = (struct fs_copy_open){ .how = FS_COPY_NONE };
	if (!is_worth(cs, of, &size, &store))
		return 0;
	if (!store) {
		out->how = by_pages(of);
		return 0;
	}
	pthread_mutex_lock(&cs->lock);
	c = find(cs, of);
	if (!c)
		c = add(cs, of, size);
	if (c) {
		c->users++;
		pthread_mutex_unlock(&cs->lock);
		changed = ck_ckpt_unchanged(of->v->ck, &touch, NULL);
		pthread_mutex_lock(&cs->lock);
		ret = give(c, changed, touch, out, err);
		stale = !out->copy;
	}
	pthread_mutex_unlock(&cs->lock);
	if (stale && !changed) /* whoever has pages of it is told */
		ck_ckpt_untouched(of->v->ck, CK_NONE);
	if (out->how >= FS_COPY_WHOLE)
		ck_ckpt_count_cache(of->v->ck, 1, 0, 0);
	return ret;
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

void fs_copy_close(const struct fs_copy_open *o)
{
	struct fs_copy *c = o->copy;
	struct fs_copies *cs = c ? c->of : NULL;
	bool stored;

	if (!c)
		return;
	pthread_mutex_lock(&cs->lock);
	c->opens--;
	c->passed -= o->how == FS_COPY_PASSED;
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

/* Where the file system has no nameless files, the name is gone at once. */
static int make_file(int dir)
{
	char name[40];
	uint64_t lot;
	int fd;

	if (dir < 0)
		return memfd_create("unshard-cache", MFD_CLOEXEC);
	fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 ||
	    (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	if (getrandom(&lot, sizeof(lot), 0) != (ssize_t)sizeof(lot))
		return -1;
	snprintf(name, sizeof(name), ".unshard-spool-%016llx",
		 (unsigned long long)lot);
	fd = openat(dir, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		unlinkat(dir, name, 0);
	return fd;
}

/* Under the lock: -EDQUOT where all that is kept is open, and too much. */
static int make_room(struct fs_copy *c, uint64_t len)
{
	struct fs_copies *cs = c->of;

	while (cs->held + len > cs->in.max)
		if (!drop_oldest(cs))
			return -EDQUOT;
	if (c->fd < 0)
		c->fd = make_file(cs->in.dir);
	return c->fd < 0 ? -errno : 0;
}

/* Under the lock. */
static void count(struct fs_copy *c, uint64_t held)
{
	c->of->held += held - c->held;
	c->held = held;
	atomic_store(&c->of->said->held, c->of->held);
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
	while (c->block[b] == FILLING)
		if (!ck_stop_wait(&c->of->filled, &c->of->lock))
			return -EINTR;
	return 0;
}

/* Whether block @b is there, or else is to be filled, which begins. */
static int begin(struct fs_copy *c, uint32_t b, uint64_t len, bool *fill)
{
	int ret;

	pthread_mutex_lock(&c->of->lock);
	ret = await(c, b);
	*fill = c->block[b] == ABSENT && !c->bad && !c->stale &&
		len >= CK_MIN(LEAST, block_len(c, b));
	if (!ret && *fill)
		c->block[b] = FILLING;
	if (!ret && !*fill &&
	    (c->block[b] == ABSENT || (c->stale && !c->changed)))
		ret = -ENODATA;
	pthread_mutex_unlock(&c->of->lock);
	return ret;
}

static void end(struct fs_copy *c, uint32_t b, bool kept, bool interrupted)
{
	pthread_mutex_lock(&c->of->lock);
	c->block[b] = kept ? THERE : ABSENT;
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
	int ret = begin(c, p->b, p->len, &wanted);

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
