/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_read.c - nameless files that fill up block by block
 *
 *   ABSENT --a read that wants it--> FILLING --read, and written--> THERE
 *      ^------------a failure-----------+
 *
 * A read of a few bytes of a block that is not there does not fill it: faults of
 * a map at random would read a hundred times what they need.  Such reads do when
 * they have gone on in a row, or were of as many bytes as the block has.
 */
#include "fs/cache/copies_priv.h"

#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/helpers.h"
#include "core/base/whole.h"
#include "fs/kernel/buf.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE UINT64_C(4096)
#define LEAST (32u << 10) /* what is worth a block */

static uint64_t block_len(const struct fs_copy *c, uint32_t b)
{
	return CK_MIN(BLOCK, c->size - b * BLOCK);
}

/* Under the lock: -EDQUOT where all that is kept is open, and too much. */
static int make_room(struct fs_copy *c, uint64_t len)
{
	struct fs_copies *cs = c->of;

	while (cs->held + len > cs->in.max)
		if (!fs_copies_drop_oldest(cs))
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
	fs_copies_tell(cs, -ret);
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
static bool is_wanted(struct fs_copy_block *k, uint64_t at, uint64_t len,
		      uint64_t all)
{
	bool on = k->end == at;

	if (len >= CK_MIN(LEAST, all))
		return true;
	k->missed += (uint32_t)len;
	k->end = (uint32_t)(at + len);
	return k->missed >= (on ? LEAST : all);
}

/* Under the lock: who has it open while the shards were touched reads these. */
static bool is_read(const struct fs_copy *c)
{
	return !c->bad && !c->syncing && (!c->stale || c->changed);
}

/* Whether block @b is there, or else is to be filled, which begins. */
static int begin(struct fs_copy *c, uint32_t b, uint64_t at, uint64_t len,
		 bool *fill)
{
	struct fs_copy_block *k = &c->block[b];
	int ret;

	pthread_mutex_lock(&c->of->lock);
	c->begun = true;
	ret = await(c, b);
	*fill = !ret && k->state == ABSENT && !c->bad && !c->stale &&
		is_wanted(k, at, len, block_len(c, b));
	if (*fill)
		k->state = FILLING;
	else if (!ret && (k->state == ABSENT || !is_read(c)))
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

/* Under the lock: whether all of it is there, once nobody fills any of it. */
static bool is_there(struct fs_copy *c, uint64_t off, uint64_t len)
{
	uint64_t last = (off + len - 1) / BLOCK;

	for (uint64_t b = off / BLOCK; is_read(c) && b <= last; b++)
		if (await(c, (uint32_t)b) || c->block[b].state != THERE)
			return false;
	return is_read(c);
}

/* Under the lock: NULL: it cannot be mapped. */
static const char *mapping(struct fs_copy *c)
{
	void *at;

	if (c->map)
		return c->map;
	at = mmap(NULL, c->size, PROT_READ, MAP_SHARED, c->fd, 0);
	c->map = at == MAP_FAILED ? NULL : at;
	return c->map;
}

/*
 * Pages that cannot be had are known before, for then there are still the shards; and
 * what the kernel copies from is mapped once, however many readers there are.
 */
const void *fs_copy_at(struct fs_copy *c, const struct ck_view *v, uint64_t len,
		       uint64_t off)
{
	uint64_t in_page = off % PAGE;
	const char *at = NULL;
	struct stat st;

	if (!c || !len)
		return NULL;
	pthread_mutex_lock(&c->of->lock);
	c->begun = true;
	if (is_there(c, off, len))
		at = mapping(c);
	pthread_mutex_unlock(&c->of->lock);
	if (!at || fstat(c->fd, &st) || (uint64_t)st.st_size < off + len ||
	    madvise((void *)(uintptr_t)(at + off - in_page), in_page + len,
		    MADV_POPULATE_READ))
		return NULL;
	ck_ckpt_count_cache(v->ck, 0, len, 0);
	return at + off;
}

bool fs_copy_has(struct fs_copy *c, uint64_t len, uint64_t off)
{
	uint64_t last = (off + len - 1) / BLOCK;
	bool has;

	pthread_mutex_lock(&c->of->lock);
	has = is_read(c);
	for (uint64_t b = off / BLOCK; has && b <= last; b++)
		has = c->block[b].state != ABSENT;
	pthread_mutex_unlock(&c->of->lock);
	return has;
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
