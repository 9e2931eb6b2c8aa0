/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decomp_cache.c - which decoded items there are, and the room they share
 *
 * Few decoders work at once, since each may need a window of 128 MiB; others
 * wait.  An item in use is never dropped; who finds no room is refused, not
 * kept waiting.  An item whose bytes are bad is remembered as such.
 */
#include "core/io/decomp_cache_priv.h"

#include "core/base/fds.h"
#include "core/base/helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_DECODERS 2

int ck_decomp_cache_new(struct ck_decomp_cache **out, struct ck_reader *r,
			const char *dir, uint64_t max, struct ck_err *err)
{
	struct ck_decomp_cache *sp = calloc(1, sizeof(*sp));
	struct rlimit rl;

	if (!sp)
		return ck_no_memory(err);
	sp->r = r;
	sp->max = max;
	sp->list.prev = sp->list.next = &sp->list;
	sp->path = strdup(dir);
	sp->max_fds = getrlimit(RLIMIT_NOFILE, &rl) ? 16 :
		      rl.rlim_cur / 8 > 1024	    ? 1024 :
						      (unsigned)rl.rlim_cur / 8;
	/* Checkpoints without compressed items need no spool: no error yet. */
	sp->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	sp->dir_errno = sp->dirfd < 0 ? errno : 0;
	pthread_mutex_init(&sp->lock, NULL);
	pthread_cond_init(&sp->changed, NULL);
	*out = sp;
	if (sp->path)
		return 0;
	ck_decomp_cache_free(sp);
	*out = NULL;
	return ck_no_memory(err);
}

static void drop(struct ck_decomp_cache *sp, struct ck_decomp_item *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	sp->held -= item->len;
	if (item->fd >= 0) {
		close(item->fd);
		sp->nr_fds--;
	}
	free(item->bad);
	free(item);
}

void ck_decomp_cache_free(struct ck_decomp_cache *sp)
{
	if (!sp)
		return;
	while (sp->list.next != &sp->list)
		drop(sp, sp->list.next);
	if (sp->dirfd >= 0)
		close(sp->dirfd);
	pthread_cond_destroy(&sp->changed);
	pthread_mutex_destroy(&sp->lock);
	free(sp->wanted);
	free(sp->path);
	free(sp);
}

/* Under the lock, once: a part of what is free. */
static void find_max(struct ck_decomp_cache *sp)
{
	struct statvfs vfs;

	if (sp->max)
		return;
	sp->max = UINT64_C(1) << 30;
	if (!fstatvfs(sp->dirfd, &vfs))
		sp->max = (uint64_t)vfs.f_bavail * vfs.f_frsize / 2;
}

bool ck_decomp_cache_reserve(struct ck_decomp_cache *sp,
			     struct ck_decomp_item *item, uint64_t more)
{
	struct ck_decomp_item *i;
	bool fits;

	pthread_mutex_lock(&sp->lock);
	i = sp->list.next;
	while (sp->held + more > sp->max && i != &sp->list) {
		struct ck_decomp_item *next = i->next;

		if (!i->users)
			drop(sp, i);
		i = next;
	}
	fits = more <= sp->max && sp->held <= sp->max - more;
	if (fits) {
		sp->held += more;
		item->len += more;
	}
	pthread_mutex_unlock(&sp->lock);
	return fits;
}

/* Drops the longest unused item that has a file; false: all are in use. */
static bool drop_one(struct ck_decomp_cache *sp)
{
	struct ck_decomp_item *i = sp->list.next;

	while (i != &sp->list && (i->users || i->fd < 0))
		i = i->next;
	if (i == &sp->list)
		return false;
	drop(sp, i);
	return true;
}

int ck_decomp_cache_nameless(struct ck_decomp_cache *sp, int *fd,
			     struct ck_err *err)
{
	int code = sp->dir_errno;

	*fd = -1;
	if (sp->dirfd >= 0) {
		*fd = ck_fds_nameless(sp->dirfd);
		code = errno;
	}
	return *fd >= 0 ? 0 :
			  ck_fail(err, code, "spool %s: %s; -o spool=DIR",
				  sp->path, strerror(code));
}

static int make(struct ck_decomp_cache *sp, struct ck_decomp_item *item,
		struct ck_err *err)
{
	if (sp->dirfd < 0)
		return ck_fail(err, EIO, "spool %s: %s; -o spool=DIR", sp->path,
			       strerror(sp->dir_errno));
	pthread_mutex_lock(&sp->lock);
	if (!sp->wanted)
		sp->wanted = ck_decomp_cache_wanted(sp->r->in.img);
	if (!sp->wanted) {
		pthread_mutex_unlock(&sp->lock);
		return ck_no_memory(err);
	}
	while (sp->nr_fds >= sp->max_fds && drop_one(sp))
		;
	do
		item->fd = ck_fds_nameless(sp->dirfd);
	while (item->fd < 0 && (errno == EMFILE || errno == ENFILE) &&
	       drop_one(sp));
	sp->nr_fds += item->fd >= 0;
	pthread_mutex_unlock(&sp->lock);
	if (item->fd < 0)
		return ck_fail(err, EIO, "spool %s: %s; -o spool=DIR", sp->path,
			       strerror(errno));
	return ck_decomp_cache_decode(sp, item, err);
}

static struct ck_decomp_item *find(struct ck_decomp_cache *sp, uint32_t src)
{
	struct ck_decomp_item *i = sp->list.prev;

	while (i != &sp->list && (i->src != src || i->old))
		i = i->prev;
	return i == &sp->list ? NULL : i;
}

static void link_last(struct ck_decomp_cache *sp, struct ck_decomp_item *item)
{
	item->prev = sp->list.prev;
	item->next = &sp->list;
	item->prev->next = item;
	sp->list.prev = item;
}

static struct ck_decomp_item *add(struct ck_decomp_cache *sp, uint32_t src)
{
	struct ck_decomp_item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	item->src = src;
	item->fd = -1;
	item->users = 1;
	item->decoding = true;
	sp->decoders++;
	find_max(sp);
	link_last(sp, item);
	return item;
}

/*
 * The item, with the caller as a user; item->decoding: he is to make it.  NULL:
 * -ENOMEM, or -EINTR.
 */
static struct ck_decomp_item *take(struct ck_decomp_cache *sp, uint32_t src,
				   int *ret)
{
	struct ck_decomp_item *item;

	*ret = -ENOMEM;

	pthread_mutex_lock(&sp->lock);
	for (;;) {
		item = find(sp, src);
		if (item && !item->decoding) {
			item->users++;
			item->prev->next = item->next;
			item->next->prev = item->prev;
			link_last(sp, item);
			break;
		}
		if (!item && sp->decoders < MAX_DECODERS) {
			item = add(sp, src);
			break;
		}
		if (!ck_stop_wait(&sp->changed, &sp->lock)) {
			item = NULL;
			*ret = -EINTR;
			break;
		}
	}
	pthread_mutex_unlock(&sp->lock);
	return item;
}

/* A failed item goes, but for one that will always be bad. */
static void finish(struct ck_decomp_cache *sp, struct ck_decomp_item *item,
		   bool failed)
{
	pthread_mutex_lock(&sp->lock);
	sp->decoders--;
	item->decoding = false;
	if (failed && item->bad) {
		sp->held -= item->len;
		item->len = 0;
		if (item->fd >= 0) {
			close(item->fd);
			sp->nr_fds--;
		}
		item->fd = -1;
		item->users--;
	} else if (failed) {
		drop(sp, item);
	}
	pthread_cond_broadcast(&sp->changed);
	pthread_mutex_unlock(&sp->lock);
}

/* What @item says to a user who did not make it. */
static int known(struct ck_decomp_cache *sp, struct ck_decomp_item *item,
		 struct ck_err *err)
{
	if (!item->bad)
		return 0;
	ck_fail(err, EIO, "%s", item->bad);
	ck_decomp_cache_put(sp, item);
	return -EIO;
}

void ck_decomp_cache_put(struct ck_decomp_cache *sp,
			 struct ck_decomp_item *item)
{
	pthread_mutex_lock(&sp->lock);
	item->users--;
	if (item->old && !item->users)
		drop(sp, item);
	pthread_mutex_unlock(&sp->lock);
}

void ck_decomp_cache_forget(struct ck_decomp_cache *sp, uint32_t src)
{
	const struct ck_src *srcs = sp->r->in.img->srcs;
	struct ck_decomp_item *i, *next;

	pthread_mutex_lock(&sp->lock);
	for (i = sp->list.next; i != &sp->list; i = next) {
		next = i->next;
		if (srcs[i->src].parent != src)
			continue;
		i->old = true;
		if (!i->users)
			drop(sp, i);
	}
	pthread_cond_broadcast(&sp->changed);
	pthread_mutex_unlock(&sp->lock);
}

int ck_decomp_cache_get(struct ck_decomp_cache *sp, uint32_t src,
			struct ck_bytes *b, struct ck_err *err)
{
	const struct ck_catalog *img = sp->r->in.img;
	uint32_t parent = img->srcs[src].parent;
	struct ck_decomp_item *item;
	struct ck_bytes pb;
	int ret;

	if (parent >= img->nr_srcs || img->srcs[parent].kind == CK_SRC_CODEC)
		return ck_fail(err, EIO, "source %u: compressed twice", src);
	/* What was decoded of a file is worth no more than the file. */
	ret = ck_bytes_get(sp->r, parent, &pb, err);
	if (ret)
		return ret;
	item = take(sp, src, &ret);
	if (!item) {
		ret = ck_fail(err, -ret, "%s: %s", ck_bytes_name(sp->r, src),
			      ret == -EINTR ? "unpacking was interrupted" :
					      "no memory");
	} else if (item->decoding) {
		ret = make(sp, item, err);
		finish(sp, item, ret);
	} else {
		ret = known(sp, item, err);
	}
	ck_bytes_put(sp->r, &pb);
	if (ret)
		return ret;
	b->fd = item->fd;
	b->len = item->len;
	b->spooled = item;
	return 0;
}
