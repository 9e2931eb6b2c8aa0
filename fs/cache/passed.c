/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/cache/passed.h"

#include "fs/kernel/passthrough.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUCKETS 64

/* An inode that is open. */
struct inode {
	struct inode *next;
	uint64_t ino;
	unsigned opens; /* by which the worker reads; */
	unsigned passed; /* the kernel, @id, which is this file: */
	int id;
	dev_t dev;
	ino_t file;
	bool left; /* see fs_passed_leave() */
	bool rests; /* @id is kept while nobody has it open */
};

struct fs_passed {
	pthread_mutex_t lock;
	struct fs_passed_in in;
	struct inode *bucket[BUCKETS];
	unsigned nr_left;
};

struct fs_passed *fs_passed_new(const struct fs_passed_in *in)
{
	struct fs_passed *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->in = *in;
	return p;
}

/* A lost mount closes no files. */
void fs_passed_free(struct fs_passed *p)
{
	if (!p)
		return;
	for (unsigned i = 0; i < BUCKETS; i++)
		while (p->bucket[i]) {
			struct inode *n = p->bucket[i];

			p->bucket[i] = n->next;
			free(n);
		}
	if (p->in.worker >= 0)
		close(p->in.worker);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* ---- the kernel; all under the lock ---- */

static void end_passing(struct fs_passed *p)
{
	close(p->in.worker);
	p->in.worker = -1;
	atomic_store(&p->in.kernel->cache.passthrough, 0);
}

/*
 * 0: not this one; where nobody may, or nobody answers, that is not asked again.
 */
static int add(struct fs_passed *p, int fd)
{
	int id = -EPERM;

	if (p->in.worker < 0)
		return 0;
	if (p->in.kernel->passthrough)
		id = fs_passthrough_add(p->in.worker, p->in.dev, fd);
	if (id > 0)
		atomic_store(&p->in.kernel->cache.passthrough, 1);
	else if (id == -EPERM || id == -EPIPE)
		end_passing(p);
	return id > 0 ? id : 0;
}

static void drop(struct fs_passed *p, int id)
{
	if (p->in.worker >= 0 &&
	    fs_passthrough_drop(p->in.worker, p->in.dev, id) == -EPIPE)
		end_passing(p);
}

bool fs_passed_can(struct fs_passed *p, int fd)
{
	int id;

	pthread_mutex_lock(&p->lock);
	id = fd < 0 ? 0 : add(p, fd);
	if (id)
		drop(p, id);
	pthread_mutex_unlock(&p->lock);
	return id;
}

/* ---- inodes; all under the lock ---- */

static struct inode **slot_of(struct fs_passed *p, uint64_t ino)
{
	struct inode **at = &p->bucket[(ino ^ ino >> 32) % BUCKETS];

	while (*at && (*at)->ino != ino)
		at = &(*at)->next;
	return at;
}

static struct inode *get(struct fs_passed *p, uint64_t ino)
{
	struct inode **at = slot_of(p, ino);

	if (!*at)
		*at = calloc(1, sizeof(**at));
	if (*at)
		(*at)->ino = ino;
	return *at;
}

static void put(struct fs_passed *p, struct inode **at)
{
	struct inode *n = *at;

	if (n->opens || n->passed || (n->rests && !n->left))
		return;
	if (n->id)
		drop(p, n->id);
	p->nr_left -= n->left;
	*at = n->next;
	free(n);
}

static void leave(struct fs_passed *p, struct inode *n)
{
	p->nr_left += !n->left;
	n->left = true;
}

static int open_passed(struct fs_passed *p, struct inode *n, int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || st.st_dev != n->dev ||
	    st.st_ino != n->file)
		leave(p, n);
	if (n->left)
		return -ESTALE;
	n->passed++;
	return n->id;
}

/* The first who has it open. */
static int open_first(struct fs_passed *p, struct inode *n, int fd, bool rests)
{
	struct stat st = { 0 };
	bool any = fd >= 0 && !fstat(fd, &st);

	if (n->id && (!any || st.st_dev != n->dev || st.st_ino != n->file)) {
		drop(p, n->id);
		n->id = 0;
	}
	if (any && !n->id)
		n->id = add(p, fd);
	n->rests = rests && n->id;
	n->dev = st.st_dev;
	n->file = st.st_ino;
	n->passed += n->id > 0;
	n->opens += !n->id;
	return n->id;
}

static int open_more(struct inode *n)
{
	if (n->left)
		return -ESTALE;
	n->opens++;
	return 0;
}

int fs_passed_open(struct fs_passed *p, uint64_t ino, int fd, bool rests)
{
	struct inode *n;
	int ret = -ENOMEM;

	pthread_mutex_lock(&p->lock);
	n = get(p, ino);
	if (n)
		ret = n->passed ? open_passed(p, n, fd) :
		      n->opens	? open_more(n) :
				  open_first(p, n, fd, rests);
	pthread_mutex_unlock(&p->lock);
	return ret;
}

void fs_passed_close(struct fs_passed *p, uint64_t ino, int id)
{
	struct inode **at;

	if (id == FS_NOT_PASSED)
		return;
	pthread_mutex_lock(&p->lock);
	at = slot_of(p, ino);
	(*at)->passed -= id > 0;
	(*at)->opens -= !id;
	put(p, at);
	pthread_mutex_unlock(&p->lock);
}

void fs_passed_forget(struct fs_passed *p, uint64_t ino)
{
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < FS_INO_TURNS; i++) {
		struct inode **at = slot_of(p, fs_ino_turn(ino, i));

		if (!*at)
			continue;
		(*at)->rests = false;
		put(p, at);
	}
	pthread_mutex_unlock(&p->lock);
}

void fs_passed_leave(struct fs_passed *p, uint64_t ino)
{
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < FS_INO_TURNS; i++) {
		struct inode *n = *slot_of(p, fs_ino_turn(ino, i));

		if (n)
			leave(p, n);
	}
	pthread_mutex_unlock(&p->lock);
}

uint64_t fs_passed_ino(struct fs_passed *p, uint64_t ino)
{
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; p->nr_left && i < FS_INO_TURNS; i++) {
		const struct inode *n = *slot_of(p, fs_ino_turn(ino, i));

		if (!n || !n->left) {
			ino = fs_ino_turn(ino, i);
			break;
		}
	}
	pthread_mutex_unlock(&p->lock);
	return ino;
}
