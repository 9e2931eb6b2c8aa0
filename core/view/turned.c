/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turned.c - reading columns of a tensor as rows
 *
 * A tile is read as a box and turned; memory is bounded, whatever the size of
 * the matrix.  Who fills a band holds a lock, so that others who want the same
 * one wait for it; what is in one is looked up under another.
 */
#include "core/view/turned.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/geom/cast.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TILE_BYTES (UINT64_C(1) << 20)
#define BLOCK_BYTES (UINT64_C(1) << 20) /* turned at a time, as stored */
#define BAND_BYTES (UINT64_C(8) << 20)
#define WHOLE_BYTES (BAND_BYTES / 2) /* from so much on no band is kept */
#define NR_BANDS 2
#define KEPT_NS INT64_C(1000000000)

struct band {
	const struct ck_turned *of;
	uint64_t first, nr; /* elements */
	uint64_t seq; /* of writes, when it was read */
	int64_t at_ns;
	char *bytes; /* NULL: none yet */
};

struct ck_bands {
	pthread_mutex_t fill, look; /* in this order */
	struct band band[NR_BANDS];
	const struct ck_turned *last_of; /* what was asked for last */
	uint64_t last;
};

struct reading {
	const struct ck_view *v;
	const struct ck_turned *turned;
	uint8_t from; /* dtype as stored, and its size */
	unsigned size;
	char *tile;
};

/* Rows of a tile lie within one of the matrices that a tensor stacks. */
static void box_of(const struct reading *r, const struct ck_turn_tile *tile,
		   struct ck_box *box)
{
	const struct ck_tensor *t = &r->v->img->tensors[tile->ref];
	const uint64_t *shape = r->v->img->dims + t->shape;
	uint64_t at = tile->row, nr = tile->nr_rows;
	unsigned d = t->rank;

	*box = (struct ck_box){ .rank = t->rank };
	if (d && shape[d - 1] == r->turned->turn.cols) {
		box->start[--d] = tile->col;
		box->len[d] = tile->nr_cols;
	}
	for (; d--; at /= shape[d], nr = 1) {
		box->start[d] = at % shape[d];
		box->len[d] = nr;
	}
}

static int read_elements(const struct reading *r, uint64_t first, uint64_t nr,
			 char *out, struct ck_err *err)
{
	const struct ck_turn *t = &r->turned->turn;
	struct ck_turn_tile tile;
	struct ck_turn_walk w;
	struct ck_box box;
	int ret = 0;

	ck_turn_begin(&w, t, first, nr, TILE_BYTES / r->size);
	while (!ret && ck_turn_next(&w, &tile)) {
		uint64_t bytes = tile.nr_rows * tile.nr_cols * r->size;

		box_of(r, &tile, &box);
		ret = ck_ckpt_read_box(r->v->ck, tile.ref, &box, r->tile, bytes,
				       err);
		if (!ret)
			ck_turn_copy(t, &tile, r->size, r->tile, out);
	}
	if (!ret && !ck_turn_ended(&w))
		ret = ck_fail(err, EINVAL, "its rows are fewer than it says");
	return ret;
}

/* ---- bands ---- */

struct ck_bands *ck_bands_new(void)
{
	struct ck_bands *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	pthread_mutex_init(&b->fill, NULL);
	pthread_mutex_init(&b->look, NULL);
	return b;
}

void ck_bands_free(struct ck_bands *b)
{
	if (!b)
		return;
	for (unsigned i = 0; i < NR_BANDS; i++)
		free(b->band[i].bytes);
	pthread_mutex_destroy(&b->fill);
	pthread_mutex_destroy(&b->look);
	free(b);
}

/* Elements of a band; 0: not one shown row fits. */
static uint64_t band_nr(const struct reading *r)
{
	uint64_t rows = r->turned->turn.rows;

	return BAND_BYTES / r->size / rows * rows;
}

/* As much from @first on as a band has: how much that is. */
static uint64_t look(const struct reading *r, uint64_t first, uint64_t nr,
		     char *out)
{
	struct ck_bands *b = r->turned->bands;
	uint64_t seq = ck_ckpt_write_seq(r->v->ck), n = 0;
	int64_t now = ck_now_ns();

	pthread_mutex_lock(&b->look);
	for (unsigned i = 0; i < NR_BANDS && !n; i++) {
		const struct band *band = &b->band[i];

		if (band->of != r->turned || band->seq != seq ||
		    now - band->at_ns > KEPT_NS || first < band->first ||
		    first - band->first >= band->nr)
			continue;
		n = CK_MIN(nr, band->first + band->nr - first);
		memcpy(out, band->bytes + (first - band->first) * r->size,
		       n * r->size);
	}
	pthread_mutex_unlock(&b->look);
	return n;
}

/* Whether what is asked for now is near what was asked for last. */
static bool in_order(const struct reading *r, uint64_t first)
{
	struct ck_bands *b = r->turned->bands;
	uint64_t near = band_nr(r), from;
	bool yes;

	pthread_mutex_lock(&b->look);
	from = b->last > near ? b->last - near : 0;
	yes = near && b->last_of == r->turned && first >= from &&
	      first <= b->last + near;
	b->last_of = r->turned;
	b->last = first;
	pthread_mutex_unlock(&b->look);
	return yes;
}

static struct band *oldest(struct ck_bands *b)
{
	struct band *out = &b->band[0];

	for (unsigned i = 1; i < NR_BANDS; i++)
		if (b->band[i].at_ns < out->at_ns)
			out = &b->band[i];
	return out;
}

/* Reads the band that element @first is in; under the lock of filling. */
static int fill(const struct reading *r, uint64_t first, struct ck_err *err)
{
	const struct ck_turn *t = &r->turned->turn;
	struct ck_bands *b = r->turned->bands;
	struct band *band = oldest(b), made = { .of = r->turned };
	uint64_t nr = band_nr(r);
	int ret;

	made.first = first / nr * nr;
	made.nr = CK_MIN(nr, t->rows * t->cols - made.first);
	made.seq = ck_ckpt_write_seq(r->v->ck);
	pthread_mutex_lock(&b->look); /* nobody copies out of it any more */
	made.bytes = band->bytes;
	*band = (struct band){ 0 };
	pthread_mutex_unlock(&b->look);
	if (!made.bytes)
		made.bytes = malloc(BAND_BYTES);
	if (!made.bytes)
		return ck_no_memory(err);
	ret = read_elements(r, made.first, made.nr, made.bytes, err);
	made.at_ns = ret ? 0 : ck_now_ns();
	made.of = ret ? NULL : made.of;
	pthread_mutex_lock(&b->look);
	*band = made;
	pthread_mutex_unlock(&b->look);
	return ret;
}

/* As stored, but turned. */
static int read_banded(const struct reading *r, uint64_t first, uint64_t nr,
		       char *out, struct ck_err *err)
{
	struct ck_bands *b = r->turned->bands;
	uint64_t n;
	int ret = 0;

	/* Several threads of an export would take the bands from each other. */
	if (nr * r->size >= WHOLE_BYTES)
		return read_elements(r, first, nr, out, err);
	while (nr && !ret) {
		bool banded = in_order(r, first);

		n = look(r, first, nr, out);
		if (!n && !banded)
			return read_elements(r, first, nr, out, err);
		if (!n) {
			pthread_mutex_lock(&b->fill);
			n = look(r, first, nr, out);
			if (!n)
				ret = fill(r, first, err);
			if (!n && !ret)
				n = look(r, first, nr, out);
			pthread_mutex_unlock(&b->fill);
		}
		if (!n && !ret) /* somebody writes all the time */
			return read_elements(r, first, nr, out, err);
		first += n;
		nr -= n;
		out += n * r->size;
	}
	return ret;
}

/* ---- spans ---- */

/* @nr elements as they are shown, by way of @in where they are cast. */
static int read_shown(const struct reading *r, const struct ck_span *as,
		      uint64_t first, uint64_t nr, char *in, char *out,
		      struct ck_err *err)
{
	int ret;

	if (as->dtype == r->from)
		return read_banded(r, first, nr, out, err);
	ret = read_banded(r, first, nr, in, err);
	if (!ret)
		(as->saturate ? ck_cast_saturated :
				ck_cast)(r->from, in, as->dtype, out, nr);
	return ret;
}

int ck_turned_read(const struct ck_view *v, const struct ck_span *span,
		   void *buf, uint64_t len, struct ck_err *err)
{
	uint8_t from = v->img->tensors[span->turned->turn.run->ref].dtype;
	ck_auto_free char *tile = malloc(TILE_BYTES);
	uint64_t to = ck_dtype_info(span->dtype)->size, n;
	unsigned size = ck_dtype_info(from)->size;
	uint64_t block =
		len / to >= WHOLE_BYTES / size ? BAND_BYTES : BLOCK_BYTES;
	ck_auto_free char *in = malloc(block);
	struct reading r = { .v = v,
			     .turned = span->turned,
			     .from = from,
			     .size = size,
			     .tile = tile };
	char edge[16], *out = buf;
	int ret = 0;

	if (!tile || !in)
		return ck_no_memory(err);
	for (uint64_t off = span->off; len && !ret; off += n) {
		uint64_t first = off / to, skip = off % to;
		uint64_t nr = CK_MIN(block / r.size, len / to);

		if (skip || !nr) { /* a part of one element */
			ret = read_shown(&r, span, first, 1, in, edge, err);
			n = CK_MIN(to - skip, len);
			memcpy(out, edge + skip, ret ? 0 : n);
		} else {
			ret = read_shown(&r, span, first, nr, in, out, err);
			n = nr * to;
		}
		out += n;
		len -= n;
	}
	return ret;
}
