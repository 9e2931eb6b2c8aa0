/* SPDX-License-Identifier: Apache-2.0 */
/* dstore.c - rooms, files that stay open, and what was found out of file systems */
#include "core/device/dstore.h"

#include "core/base/check.h"
#include "core/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 64 /* that stay open */
#define SYSTEMS 32 /* of more, the ring reads */
#define PROBE_MIN (UINT64_C(1) << 20)
#define PROBE_MAX (UINT64_C(4) << 20)
#define MEMORY (UINT64_C(64) << 20)

struct ck_dstore_file {
	struct system *on;
	dev_t dev;
	ino_t ino;
	int fd;
	void *file; /* of the device */
	unsigned refs;
	uint64_t used; /* when */
};

struct ck_dstore {
	struct ck_device *dev;
	uint64_t room;
	pthread_mutex_t lock;
	struct system {
		dev_t dev;
		enum { UNKNOWN, PROBING, USED, LEFT } state;
	} system[SYSTEMS];
	unsigned nr_systems, nr_rooms;
	uint64_t rooms[CK_DSTORE_ROOMS];
	bool busy[CK_DSTORE_ROOMS];
	struct ck_dstore_file *file[FILES];
	uint64_t turn;
	char why[256];
};

static const struct ck_device_ops *ops_of(const struct ck_dstore *ds)
{
	return ds->dev->ops;
}

struct ck_dstore *ck_dstore_new(struct ck_device *dev, uint64_t room)
{
	struct ck_dstore *ds;

	if (!dev->ops->files || dev->ops->files(dev->dev, NULL))
		return NULL;
	ds = calloc(1, sizeof(*ds));
	if (!ds)
		return NULL;
	ds->dev = dev;
	ds->room = room;
	pthread_mutex_init(&ds->lock, NULL);
	return ds;
}

static void close_file(struct ck_dstore *ds, struct ck_dstore_file *f)
{
	if (f->file)
		ops_of(ds)->file_close(ds->dev->dev, f->file);
	close(f->fd); /* not before: the device knows it by its number */
	free(f);
}

void ck_dstore_free(struct ck_dstore *ds)
{
	if (!ds)
		return;
	for (unsigned i = 0; i < FILES; i++)
		if (ds->file[i])
			close_file(ds, ds->file[i]);
	for (unsigned i = 0; i < ds->nr_rooms; i++)
		ops_of(ds)->file_room_free(ds->dev->dev, ds->rooms[i]);
	pthread_mutex_destroy(&ds->lock);
	free(ds);
}

void ck_dstore_why(struct ck_dstore *ds, char *out, size_t room)
{
	pthread_mutex_lock(&ds->lock);
	snprintf(out, room, "%s", ds->why);
	pthread_mutex_unlock(&ds->lock);
}

/* ---- rooms ---- */

static uint64_t free_room(struct ck_dstore *ds)
{
	unsigned most =
		(unsigned)CK_MIN((uint64_t)CK_DSTORE_ROOMS,
				 CK_MAX(MEMORY / ds->room, UINT64_C(1)));

	for (unsigned i = 0; i < ds->nr_rooms; i++)
		if (!ds->busy[i]) {
			ds->busy[i] = true;
			return ds->rooms[i];
		}
	if (ds->nr_rooms >= most ||
	    ops_of(ds)->file_room(ds->dev->dev, ds->room,
				  &ds->rooms[ds->nr_rooms], NULL))
		return 0;
	ds->busy[ds->nr_rooms] = true;
	return ds->rooms[ds->nr_rooms++];
}

uint64_t ck_dstore_room(struct ck_dstore *ds)
{
	uint64_t mem;

	pthread_mutex_lock(&ds->lock);
	mem = free_room(ds);
	pthread_mutex_unlock(&ds->lock);
	return mem;
}

void ck_dstore_give_back(struct ck_dstore *ds, uint64_t mem)
{
	pthread_mutex_lock(&ds->lock);
	for (unsigned i = 0; i < ds->nr_rooms; i++)
		if (ds->rooms[i] == mem)
			ds->busy[i] = false;
	pthread_mutex_unlock(&ds->lock);
}

/* ---- file systems; under the lock ---- */

static struct system *system_of(struct ck_dstore *ds, dev_t dev)
{
	for (unsigned i = 0; i < ds->nr_systems; i++)
		if (ds->system[i].dev == dev)
			return &ds->system[i];
	if (ds->nr_systems == SYSTEMS)
		return NULL;
	ds->system[ds->nr_systems].dev = dev;
	return &ds->system[ds->nr_systems++];
}

static void leave(struct ck_dstore *ds, struct system *s, const char *why)
{
	if (s->state != LEFT && !*ds->why)
		snprintf(ds->why, sizeof(ds->why), "%.255s", why);
	s->state = LEFT;
}

/* ---- files; under the lock ---- */

/* Its place, perhaps that of one that nobody has; NULL: all are in use. */
static struct ck_dstore_file **place_of(struct ck_dstore *ds,
					const struct stat *st)
{
	struct ck_dstore_file **free_one = NULL, **oldest = NULL;

	for (unsigned i = 0; i < FILES; i++) {
		struct ck_dstore_file *f = ds->file[i];

		if (f && f->dev == st->st_dev && f->ino == st->st_ino)
			return &ds->file[i];
		if (!f)
			free_one = &ds->file[i];
		else if (!f->refs && (!oldest || f->used < (*oldest)->used))
			oldest = &ds->file[i];
	}
	if (free_one || !oldest)
		return free_one;
	close_file(ds, *oldest);
	*oldest = NULL;
	return oldest;
}

static struct ck_dstore_file *open_file(struct ck_dstore *ds, struct system *s,
					const struct stat *st,
					const struct ck_dstore_in *in)
{
	struct ck_dstore_file *f = calloc(1, sizeof(*f));
	struct ck_err why = { 0 };

	if (!f)
		return NULL;
	f->on = s;
	f->dev = st->st_dev;
	f->ino = st->st_ino;
	f->fd = in->direct(in->fd);
	if (f->fd < 0)
		leave(ds, s, "a file cannot be opened with O_DIRECT");
	else if (ops_of(ds)->file_open(ds->dev->dev, f->fd, &f->file, &why))
		leave(ds, s, why.msg);
	if (s->state != LEFT)
		return f;
	if (f->fd >= 0)
		close(f->fd);
	free(f);
	return NULL;
}

/* ---- reads; without the lock ---- */

/* A read may be shorter than asked for; who reads on does so at a block. */
static bool read_all(struct ck_dstore *ds, const struct ck_dstore_file *file,
		     uint64_t room, uint64_t off, uint64_t len, uint64_t need,
		     struct ck_err *why)
{
	uint64_t got = 0;

	while (got < need) {
		int64_t n =
			ops_of(ds)->file_read(ds->dev->dev, file->file, room,
					      got, len - got, off + got, why);

		if (n < 0)
			return false;
		got += (uint64_t)n;
		if (got >= need || (n && !(n % (int64_t)CK_DSTORE_BLOCK)))
			continue;
		ck_fail(why, EIO, "a read ends after %llu of %llu bytes",
			(unsigned long long)got, (unsigned long long)need);
		return false;
	}
	return true;
}

/* ---- a probe; by one thread ---- */

static bool by_device(struct ck_dstore *ds, const struct ck_dstore_file *f,
		      uint64_t room, uint64_t off, uint64_t len, int64_t *ns,
		      struct ck_err *err)
{
	int64_t t0 = ck_now_ns();
	bool good = read_all(ds, f, room, off, len, len, err);

	*ns = CK_MIN(*ns, ck_now_ns() - t0);
	return good;
}

/* The two are at work together in a load, so the slower of them counts. */
static bool by_host(struct ck_dstore *ds, const struct ck_dstore_file *f,
		    const struct ck_dstore_in *in, uint64_t off, uint64_t len,
		    int64_t *ns)
{
	int64_t t0 = ck_now_ns(), t1, t2;

	if (pread(f->fd, in->host, len, (off_t)off) != (ssize_t)len)
		return false;
	t1 = ck_now_ns();
	if (ck_device_put(ds->dev, in->room, in->host, len, NULL))
		return false;
	t2 = ck_now_ns();
	*ns = CK_MIN(*ns, CK_MAX(t1 - t0, t2 - t1));
	return true;
}

/* Each other stretch of a file by the one and by the other; "": it is kept. */
static void probe(struct ck_dstore *ds, struct ck_dstore_file *f,
		  const struct ck_dstore_in *in, uint64_t len,
		  struct ck_err *why)
{
	int64_t device = INT64_MAX, host = INT64_MAX;

	for (unsigned i = 0; i < 4; i++) {
		bool is_host = i == 0 || i == 3;

		if (is_host && !by_host(ds, f, in, i * len, len, &host)) {
			ck_fail(why, EIO,
				"a file cannot be read with O_DIRECT");
			return;
		}
		if (!is_host &&
		    !by_device(ds, f, in->room, i * len, len, &device, why))
			return;
	}
	if (device > host)
		ck_fail(why, ETIME,
			"%llu KiB take it %lld us, and %lld by way of the host",
			(unsigned long long)(len >> 10),
			(long long)(device / 1000), (long long)(host / 1000));
}

/* Gives up the lock meanwhile. */
static void find_out(struct ck_dstore *ds, struct ck_dstore_file *f,
		     const struct ck_dstore_in *in, uint64_t size)
{
	uint64_t len = CK_MIN(CK_MIN(ds->room, PROBE_MAX), size / 4);
	struct ck_err why = { 0 };

	len = len / CK_DSTORE_BLOCK * CK_DSTORE_BLOCK;
	if (len < CK_MIN(PROBE_MIN, ds->room))
		return;
	f->on->state = PROBING;
	f->refs++;
	pthread_mutex_unlock(&ds->lock);
	probe(ds, f, in, len, &why);
	pthread_mutex_lock(&ds->lock);
	f->refs--;
	f->on->state = USED;
	if (why.code)
		leave(ds, f->on, why.msg);
}

/* ---- what is asked for ---- */

static struct ck_dstore_file *get(struct ck_dstore *ds, const struct stat *st,
				  const struct ck_dstore_in *in)
{
	struct system *s = system_of(ds, st->st_dev);
	struct ck_dstore_file **at;

	if (!s || s->state == LEFT || s->state == PROBING)
		return NULL;
	at = place_of(ds, st);
	if (at && !*at)
		*at = open_file(ds, s, st, in);
	if (!at || !*at)
		return NULL;
	if (s->state == UNKNOWN)
		find_out(ds, *at, in, (uint64_t)st->st_size);
	if (s->state != USED)
		return NULL;
	(*at)->refs++;
	(*at)->used = ++ds->turn;
	return *at;
}

struct ck_dstore_file *ck_dstore_get(struct ck_dstore *ds,
				     const struct ck_dstore_in *in)
{
	struct ck_dstore_file *f;
	struct stat st;

	if (fstat(in->fd, &st) || !S_ISREG(st.st_mode))
		return NULL;
	pthread_mutex_lock(&ds->lock);
	f = get(ds, &st, in);
	pthread_mutex_unlock(&ds->lock);
	return f;
}

void ck_dstore_put(struct ck_dstore *ds, struct ck_dstore_file *file)
{
	pthread_mutex_lock(&ds->lock);
	file->refs--;
	pthread_mutex_unlock(&ds->lock);
}

bool ck_dstore_read(struct ck_dstore *ds, struct ck_dstore_file *file,
		    uint64_t room, uint64_t off, uint64_t len, uint64_t need)
{
	struct ck_err why = { 0 };

	if (read_all(ds, file, room, off, len, need, &why))
		return true;
	pthread_mutex_lock(&ds->lock);
	leave(ds, file->on, why.msg);
	pthread_mutex_unlock(&ds->lock);
	return false;
}
