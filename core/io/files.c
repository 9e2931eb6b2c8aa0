/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - open source files, least recently used out first
 *
 * An entry is an open file; entry_of[] finds it by source.  Entries nobody has
 * pinned are in a list, the longest unused at its head.  Opening and fstat
 * happen outside of the lock: a slow filesystem must not stop the others.
 */
#include "core/io/files.h"

#include "core/root/writer_lock.h"
#include "core/io/self_writes.h"

#include "core/base/auto.h"
#include "core/base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define MIN_OPEN 16
#define HOLD_TRIES 20

struct entry {
	int fd;
	uint32_t src;
	unsigned pins;
	uint32_t prev, next; /* idle list, or free list (next only) */
};

struct ck_files {
	struct ck_files_in in;
	const struct ck_catalog *img;
	pthread_mutex_t lock;
	unsigned max;
	_Atomic unsigned nr_open;
	uint32_t *entry_of; /* by source; CK_NONE: not open */
	CK_VEC(struct entry) entries;
	uint32_t idle_head, idle_tail, free_head;
};

static unsigned default_max(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur / 4 < MIN_OPEN)
		return MIN_OPEN;
	return rl.rlim_cur / 4 > 65536 ? 65536 : (unsigned)(rl.rlim_cur / 4);
}

struct ck_files *ck_files_new(const struct ck_files_in *in)
{
	const struct ck_catalog *img = in->img;
	struct ck_files *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->entry_of = malloc((img->nr_srcs + 1) * sizeof(*f->entry_of));
	if (!f->entry_of) {
		free(f);
		return NULL;
	}
	memset(f->entry_of, 0xff, img->nr_srcs * sizeof(*f->entry_of));
	f->in = *in;
	f->img = img;
	f->max = in->max ? in->max : default_max();
	f->idle_head = f->idle_tail = f->free_head = CK_NONE;
	pthread_mutex_init(&f->lock, NULL);
	return f;
}

/*
 * The attribute that says who holds it comes and goes; that is ours, as a write is.
 */
static int hold_file(const struct ck_files *f, uint32_t src, int fd,
		     const char *name, struct ck_err *err)
{
	struct ck_self_writes *w = f->in.self_writes;
	bool ours = !ck_self_writes_begin(w, src, fd, 0, NULL);
	int ret = 0;

	if (name)
		ret = ck_writer_lock_file(fd, name, err);
	else
		ck_writer_lock_file_end(fd);
	if (ours)
		ck_self_writes_end(w, src, fd);
	return ret;
}

/* None: nothing. */
static void shut(const struct ck_files *f, uint32_t src, int fd)
{
	if (fd < 0)
		return;
	if (f->in.write)
		hold_file(f, src, fd, NULL, NULL);
	close(fd);
}

void ck_files_free(struct ck_files *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->entries.nr; i++)
		shut(f, f->entries.v[i].src, f->entries.v[i].fd);
	pthread_mutex_destroy(&f->lock);
	free(f->entries.v);
	free(f->entry_of);
	free(f);
}

static void unlist(struct ck_files *f, const struct entry *s)
{
	struct entry *v = f->entries.v;

	*(s->prev == CK_NONE ? &f->idle_head : &v[s->prev].next) = s->next;
	*(s->next == CK_NONE ? &f->idle_tail : &v[s->next].prev) = s->prev;
}

static void list_last(struct ck_files *f, uint32_t i)
{
	struct entry *v = f->entries.v;

	v[i].prev = f->idle_tail;
	v[i].next = CK_NONE;
	*(v[i].prev == CK_NONE ? &f->idle_head : &v[v[i].prev].next) = i;
	f->idle_tail = i;
}

/* Takes an idle entry out of use; its descriptor is the caller's to shut. */
static int drop(struct ck_files *f, uint32_t i, uint32_t *src)
{
	struct entry *s = &f->entries.v[i];
	int fd = s->fd;

	*src = s->src;
	unlist(f, s);
	f->entry_of[s->src] = CK_NONE;
	s->fd = -1;
	s->next = f->free_head;
	f->free_head = i;
	f->nr_open--;
	return fd;
}

/* Closes the longest unused file; false: all are in use. */
static bool close_one(struct ck_files *f)
{
	uint32_t src = CK_NONE;
	int fd = -1;

	pthread_mutex_lock(&f->lock);
	if (f->idle_head != CK_NONE)
		fd = drop(f, f->idle_head, &src);
	pthread_mutex_unlock(&f->lock);
	shut(f, src, fd);
	return fd >= 0;
}

static const char *name_of(const struct ck_files *f, uint32_t src)
{
	return ck_catalog_str(f->img, f->img->srcs[src].name, NULL);
}

/*
 * Whether @st is the file that the catalog describes; what it is then.  Of a file
 * that we are writing, the times are not looked at.
 */
static int compare(const struct ck_files *f, uint32_t src,
		   const struct stat *st, enum ck_id_now *is,
		   struct ck_err *err)
{
	const struct ck_id id = ck_self_writes_id(f->in.self_writes, src);
	struct ck_id now = ck_id_of(st);
	const char *name = name_of(f, src);

	if (f->in.root->served)
		ck_id_as(&now, &id);
	*is = ck_id_compare(&id, &now);
	if (now.size < id.size)
		return ck_fail_at(err, EIO, name, now.size,
				  "%s: expected %llu bytes, found %llu", name,
				  (unsigned long long)id.size,
				  (unsigned long long)now.size);
	if (*is == CK_ID_ANOTHER)
		return ck_fail_at(err, ESTALE, name, CK_NOWHERE,
				  "%s: was replaced by another file", name);
	if (*is != CK_ID_SAME && now.size == id.size &&
	    ck_self_writes_busy(f->in.self_writes, src))
		*is = CK_ID_SAME;
	if (*is == CK_ID_CHANGED)
		return ck_fail_at(err, ESTALE, name, CK_NOWHERE,
				  "%s: was changed since it was described",
				  name);
	if (!st->st_nlink)
		return ck_fail_at(err, EIO, name, CK_NOWHERE, "%s: was deleted",
				  name);
	return 0;
}

static int check_fd(const struct ck_files *f, uint32_t src, int fd,
		    struct ck_err *err)
{
	struct ck_self_writes *self_writes = f->in.self_writes;
	enum ck_id_now is;
	struct stat st;
	uint64_t since;
	int ret;

	/* A write of ours may end between the look and the comparison. */
	do {
		since = ck_self_writes_clock(self_writes);
		if (fstat(fd, &st))
			return ck_fail_at(err, errno, name_of(f, src),
					  CK_NOWHERE, "%s: %s", name_of(f, src),
					  strerror(errno));
		ret = compare(f, src, &st, &is, err);
	} while (ret == -ESTALE &&
		 !ck_self_writes_still(self_writes, src, since));
	if (!ret && is == CK_ID_TOUCHED)
		ck_self_writes_touch(self_writes, src, fd);
	return ret;
}

static int open_src(struct ck_files *f, uint32_t src, int *out,
		    struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	enum ck_id_now is;
	struct stat st;
	int ret;

	while (f->nr_open >= f->max && close_one(f))
		;
	do
		ret = f->in.write ?
			      ck_root_open_write(f->in.root, name_of(f, src),
						 &fd, &st, err) :
			      ck_root_open_file(f->in.root, name_of(f, src),
						&fd, &st, err);
	while ((ret == -EMFILE || ret == -ENFILE) && close_one(f));
	if (ret && err)
		ck_err_place(err, name_of(f, src), CK_NOWHERE);
	if (ret == -ENOENT || ret == -ENOTDIR) {
		if (err)
			err->code = EIO;
		return -EIO;
	}
	/* A sandbox of one file lets nobody open the file that replaced it. */
	if (ret == -EACCES && !fstatat(f->in.root->fd, name_of(f, src), &st,
				       AT_SYMLINK_NOFOLLOW)) {
		int replaced = compare(f, src, &st, &is, err);

		return replaced ? replaced : ret;
	}
	if (!ret) /* our own writes change what is right: look again */
		ret = check_fd(f, src, fd, err);
	if (ret)
		return ret;
	*out = ck_steal_fd(fd);
	return 0;
}

/* The pinned entry of @src, or CK_NONE. */
static uint32_t pin(struct ck_files *f, uint32_t src, int *fd)
{
	uint32_t i = f->entry_of[src];

	if (i == CK_NONE)
		return CK_NONE;
	if (!f->entries.v[i].pins++)
		unlist(f, &f->entries.v[i]);
	*fd = f->entries.v[i].fd;
	return i;
}

/* An unused entry's number, or CK_NONE: no memory. */
static uint32_t new_entry(struct ck_files *f)
{
	uint32_t i = f->free_head;

	if (i != CK_NONE) {
		f->free_head = f->entries.v[i].next;
		return i;
	}
	if (!ck_vec_reserve(&f->entries, 1))
		return CK_NONE;
	return (uint32_t)f->entries.nr++;
}

/* Puts the pinned @fd into the table; another thread may have been first. */
static int insert(struct ck_files *f, uint32_t src, int *fd, struct ck_err *err)
{
	int mine = *fd;
	uint32_t i;

	pthread_mutex_lock(&f->lock);
	i = pin(f, src, fd);
	if (i == CK_NONE) {
		i = new_entry(f);
		if (i != CK_NONE) {
			f->entries.v[i] = (struct entry){ mine, src, 1, CK_NONE,
							  CK_NONE };
			f->entry_of[src] = i;
			f->nr_open++;
			mine = -1;
		}
	}
	pthread_mutex_unlock(&f->lock);
	if (mine >= 0)
		close(mine);
	if (i == CK_NONE)
		return ck_no_memory(err);
	return 0;
}

/* Gives up a pin on a file that is no longer the one described. */
static void put_changed(struct ck_files *f, uint32_t src)
{
	struct entry *s;
	int fd = -1;

	pthread_mutex_lock(&f->lock);
	s = &f->entries.v[f->entry_of[src]];
	if (!--s->pins) {
		list_last(f, f->entry_of[src]);
		fd = drop(f, f->entry_of[src], &src);
	}
	pthread_mutex_unlock(&f->lock);
	shut(f, src, fd);
}

/*
 * A file that was opened for writing is held.  Another thread of ours may have
 * opened it too, and been first, or be about to close it.
 */
static int hold(struct ck_files *f, uint32_t src, int *fd, bool *pinned,
		struct ck_err *err)
{
	const struct timespec moment = { .tv_nsec = 3000000 };
	int ret = 0, theirs = -1;

	for (int i = 0; f->in.write && i < HOLD_TRIES; i++) {
		if (i)
			nanosleep(&moment, NULL);
		ret = hold_file(f, src, *fd, name_of(f, src), err);
		if (ret != -EBUSY)
			break;
		pthread_mutex_lock(&f->lock);
		*pinned = pin(f, src, &theirs) != CK_NONE;
		pthread_mutex_unlock(&f->lock);
		if (!*pinned)
			continue;
		close(*fd);
		*fd = theirs;
		return 0;
	}
	if (ret)
		close(*fd);
	return ret;
}

int ck_files_get(struct ck_files *f, uint32_t src, int *fd, struct ck_err *err)
{
	bool pinned = false;
	uint32_t found;
	int ret, own;

	pthread_mutex_lock(&f->lock);
	found = pin(f, src, fd);
	pthread_mutex_unlock(&f->lock);
	if (found != CK_NONE) {
		if (!check_fd(f, src, *fd, NULL))
			return 0;
		/* Its name may lead to the described file again. */
		put_changed(f, src);
	}
	ret = open_src(f, src, fd, err);
	own = ret ? -1 : *fd;
	if (!ret)
		ret = hold(f, src, fd, &pinned, err);
	if (!ret && !pinned)
		ret = insert(f, src, fd, err);
	if (ret || (*fd == own && !f->in.write))
		return ret;
	/* The entry is another thread's, and older than our look; or we waited. */
	ret = check_fd(f, src, *fd, err);
	if (ret)
		ck_files_put(f, src);
	return ret;
}

void ck_files_put(struct ck_files *f, uint32_t src)
{
	int fd = -1;
	uint32_t i;

	pthread_mutex_lock(&f->lock);
	i = f->entry_of[src];
	if (!--f->entries.v[i].pins) {
		list_last(f, i);
		if (f->nr_open > f->max)
			fd = drop(f, f->idle_head, &src);
	}
	pthread_mutex_unlock(&f->lock);
	shut(f, src, fd);
}

int ck_files_recheck(const struct ck_files *f, uint32_t src, int fd,
		     struct ck_err *err)
{
	return check_fd(f, src, fd, err);
}
