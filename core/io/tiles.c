/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiles.c - stretches of tensors in memory, least recently used out first
 *
 * A tile that is being filled, or copied from, has users and stays.  Who
 * needs room, and finds only tiles in use, waits: nobody holds a tile while
 * he waits for another, so that somebody will always let one go.  A tile that
 * could not be filled stays for a while, empty, so that not every read of its
 * stretch tries again.
 */
#include "core/io/read_priv.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define GOOD_RUN 4096 /* bytes of the source that are worth a read */
#define MAX_BAD 64 /* empty tiles kept */
#define MAX_MISSED 256 /* reads before another try */

enum state { FILLING, READY, BAD };

struct tile {
	struct tile *prev, *next; /* the longest unused first */
	uint32_t t;
	enum state state;
	unsigned users;
	unsigned missed; /* BAD: times that it was of no use */
	uint64_t off, len;
	uint64_t since; /* on the clock of our own writes */
	unsigned char *bytes;
	struct ck_srcset srcs;
};

struct ck_tiles {
	struct ck_reader *r;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t max, held;
	unsigned nr_bad;
	struct tile list; /* the ring's head */
};

struct ck_tiles *ck_tiles_new(struct ck_reader *r, uint64_t max)
{
	struct ck_tiles *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->r = r;
	c->max = max;
	c->list.prev = c->list.next = &c->list;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	return c;
}

static void unlink_tile(struct tile *tile)
{
	tile->prev->next = tile->next;
	tile->next->prev = tile->prev;
}

static void link_last(struct ck_tiles *c, struct tile *tile)
{
	tile->prev = c->list.prev;
	tile->next = &c->list;
	tile->prev->next = tile;
	c->list.prev = tile;
}

static void drop(struct ck_tiles *c, struct tile *tile)
{
	if (tile->state == BAD)
		c->nr_bad--;
	else
		c->held -= tile->len;
	unlink_tile(tile);
	free(tile->bytes);
	free(tile);
}

void ck_tiles_free(struct ck_tiles *c)
{
	if (!c)
		return;
	while (c->list.next != &c->list)
		drop(c, c->list.next);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

const int64_t *ck_chunk_strides(const struct ck_reader *r, uint32_t chunk)
{
	const struct ck_catalog *img = r->in.img;
	const struct ck_layout *l = &img->layouts[img->chunks[chunk].layout];
	struct ck_place place = { 0 };

	if (l->flags & CK_LAYOUT_DEFERRED) {
		if (!r->in.resolved ||
		    ck_resolved_get(r->in.resolved, chunk, &place) !=
			    CK_RESOLVED_PLACED)
			return NULL;
		return place.stride;
	}
	return l->stride == CK_NONE ? NULL :
				      (const int64_t *)img->dims + l->stride;
}

/*
 * Bytes of a tile: so many steps along the axis whose elements are closest in
 * the source that they are a good run there; 0: no tile is worth it.
 */
static uint64_t tile_len(const struct ck_tiles *c, const struct ck_tensor *t,
			 uint32_t chunk)
{
	const struct ck_catalog *img = c->r->in.img;
	const struct ck_layout *l = &img->layouts[img->chunks[chunk].layout];
	const int64_t *stride = ck_chunk_strides(c->r, chunk);
	uint64_t elem = ck_dtype_info(t->dtype)->size;
	uint64_t near = UINT64_MAX, step = elem, best = 0, steps;

	if (!stride || !elem)
		return 0;
	for (unsigned d = t->grid_rank; d-- > 0;) {
		uint64_t far = ck_stride_size(stride[d]);

		if (far && far < near && img->dims[l->len + d] > 1) {
			near = far;
			best = step;
		}
		step *= img->dims[t->grid + d];
	}
	if (!best || near > GOOD_RUN)
		return 0;
	steps = CK_DIV_UP(GOOD_RUN, near * elem);
	return best * CK_MIN(steps, c->max / 4 / best);
}

static struct tile *find(struct ck_tiles *c, uint32_t t, uint64_t off,
			 uint64_t len)
{
	for (struct tile *i = c->list.prev; i != &c->list; i = i->prev)
		if (i->t == t && i->off == off && i->len == len)
			return i;
	return NULL;
}

/* Drops unused tiles until @len more bytes fit; false: all are in use. */
static bool make_room(struct ck_tiles *c, uint64_t len)
{
	struct tile *i = c->list.next;

	while (c->held + len > c->max && i != &c->list) {
		struct tile *next = i->next;

		if (!i->users)
			drop(c, i);
		i = next;
	}
	return c->held + len <= c->max;
}

/* A new tile, being filled by the caller, in the list; NULL: no memory. */
static struct tile *add(struct ck_tiles *c, uint32_t t, uint64_t off,
			uint64_t len)
{
	struct tile *tile = calloc(1, sizeof(*tile));

	if (tile)
		tile->bytes = malloc(len);
	if (!tile || !tile->bytes) {
		free(tile);
		return NULL;
	}
	tile->t = t;
	tile->off = off;
	tile->len = len;
	tile->users = 1;
	c->held += len;
	link_last(c, tile);
	return tile;
}

/* The tile, with the caller as a user; *fill: he is to fill it. */
static struct tile *get(struct ck_tiles *c, uint32_t t, uint64_t off,
			uint64_t len, bool *fill)
{
	struct tile *tile;

	*fill = false;
	pthread_mutex_lock(&c->lock);
	for (;;) {
		tile = find(c, t, off, len);
		if (tile && tile->state != FILLING) {
			tile->users++;
			unlink_tile(tile);
			link_last(c, tile);
			break;
		}
		if (!tile && make_room(c, len)) {
			tile = add(c, t, off, len);
			*fill = tile;
			break;
		}
		pthread_cond_wait(&c->changed, &c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return tile;
}

static void put(struct ck_tiles *c, struct tile *tile, bool stale)
{
	pthread_mutex_lock(&c->lock);
	if (tile->state == BAD && ++tile->missed > MAX_MISSED)
		stale = true;
	if (stale)
		tile->t = CK_NONE; /* nobody will find it */
	if (!--tile->users && tile->t == CK_NONE)
		drop(c, tile);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

static void drop_old_bad(struct ck_tiles *c)
{
	for (struct tile *i = c->list.next; i != &c->list; i = i->next)
		if (i->state == BAD && !i->users) {
			drop(c, i);
			return;
		}
}

static void fill_tile(struct ck_tiles *c, struct tile *tile)
{
	int ret;

	tile->since = ck_self_writes_clock(c->r->self_writes);
	ret = ck_reader_fill(c->r, tile->t, tile->bytes, tile->len, tile->off,
			     &tile->srcs, NULL);

	pthread_mutex_lock(&c->lock);
	if (!ret && tile->srcs.nr <= CK_SRCSET) {
		tile->state = READY;
	} else {
		c->held -= tile->len;
		free(tile->bytes);
		tile->bytes = NULL;
		tile->state = BAD;
		if (++c->nr_bad > MAX_BAD)
			drop_old_bad(c);
	}
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

/* Whether all that the tile was made of is still what was described. */
static bool holds(struct ck_tiles *c, const struct tile *tile)
{
	for (unsigned i = 0; i < tile->srcs.nr; i++) {
		struct ck_bytes b;

		if (ck_bytes_get(c->r, tile->srcs.v[i], &b, NULL))
			return false;
		ck_bytes_put(c->r, &b);
		/* then: a look at the file may find that it was touched */
		if (!ck_self_writes_still(c->r->self_writes, tile->srcs.v[i],
					  tile->since))
			return false;
	}
	return true;
}

static int copy(struct ck_tiles *c, uint32_t t, uint64_t tile_off,
		uint64_t tile_len, unsigned char *buf, uint64_t len,
		uint64_t off)
{
	bool fill, stale = false;
	struct tile *tile = get(c, t, tile_off, tile_len, &fill);
	int ret = -EREMOTE;

	if (!tile)
		return -EREMOTE;
	if (fill)
		fill_tile(c, tile);
	ck_stat_add(fill ? &c->r->stats.tile_misses : &c->r->stats.tile_hits,
		    1);
	if (tile->state == READY) {
		stale = !fill && !holds(c, tile);
		if (!stale) {
			memcpy(buf, tile->bytes + (off - tile_off), len);
			ret = 0;
		}
	}
	put(c, tile, stale);
	return ret;
}

int ck_tiles_read(struct ck_tiles *c, uint32_t t, uint32_t chunk,
		  unsigned char *buf, uint64_t len, uint64_t off)
{
	const struct ck_tensor *ten = &c->r->in.img->tensors[t];
	uint64_t size = tile_len(c, ten, chunk), end = off + len;

	if (!size)
		return -EREMOTE;
	while (off < end) {
		uint64_t start = off / size * size;
		uint64_t room = CK_MIN(size, ten->size - start);
		uint64_t n = CK_MIN(end, start + room) - off;
		int ret = copy(c, t, start, room, buf, n, off);

		if (ret)
			return ret;
		buf += n;
		off += n;
	}
	return 0;
}
