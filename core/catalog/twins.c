/* SPDX-License-Identifier: Apache-2.0 */
/*
 * twins.c - a sum for each rank of what its pieces hold, and of where they go
 *
 * Ranks of one first sum and two second ones are what is looked for.  Of each
 * piece SAMPLE bytes in its middle are read, or all.
 */
#include "core/catalog/builder_priv.h"

#include <xxhash.h>

#define SAMPLE UINT64_C(4096)
#define BLOCK (UINT64_C(1) << 20)

struct unit {
	uint64_t what, where; /* sums over its pieces */
	uint64_t nr; /* pieces */
	uint32_t name;
	bool varied; /* some piece has more than one value */
};

struct finder {
	const struct ck_twins_in *in;
	CK_VEC(struct unit) unit;
	unsigned char *buf;
	XXH3_state_t *state;
};

bool ck_twin_extent(const struct ck_image *img, const struct ck_chunk *x,
		    unsigned rank, uint8_t elem, uint64_t *off, uint64_t *len)
{
	const struct ck_layout *l = &img->layouts[x->layout];
	uint64_t volume = ck_chunk_volume(img, x, rank);
	int64_t lo, hi;

	if (!volume || !elem || (l->flags & CK_LAYOUT_DEFERRED))
		return false;
	*off = x->off;
	*len = volume * elem;
	if (l->flags & CK_LAYOUT_FLAT)
		return true;
	if (!ck_stride_reach(img->dims + l->len,
			     (const int64_t *)(img->dims + l->stride), rank,
			     elem, &lo, &hi))
		return false;
	*off += (uint64_t)lo;
	*len = (uint64_t)(hi - lo);
	return true;
}

static int by_unit(const void *px, const void *py)
{
	const struct ck_twin_piece *x = px, *y = py;

	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	if (x->src != y->src)
		return x->src < y->src ? -1 : 1;
	return (x->off > y->off) - (x->off < y->off);
}

/* As ck_twins_in.read, of any length; *alike: all elements are the same. */
static int sum_bytes(const struct finder *f, const struct ck_twin_piece *p,
		     uint64_t *sum, bool *alike, struct ck_err *err)
{
	uint64_t elem = p->elem ? p->elem : 1, left = p->len, off = p->off;
	unsigned char first[32];

	if (!f->in->whole && left > SAMPLE) {
		off += (left / 2 - SAMPLE / 2) / elem * elem;
		left = SAMPLE;
	}
	*alike = true;
	XXH3_64bits_reset(f->state);
	for (bool begun = false; left; begun = true) {
		size_t n = (size_t)CK_MIN(left, BLOCK / elem * elem);
		int ret = f->in->read(f->in->ctx, p->src, f->buf, n, off, err);

		if (ret)
			return ret;
		if (!begun)
			memcpy(first, f->buf, CK_MIN(elem, n));
		if (n % elem || memcmp(first, f->buf, elem) ||
		    memcmp(f->buf, f->buf + elem, n - elem))
			*alike = false;
		XXH3_64bits_update(f->state, f->buf, n);
		off += n;
		left -= n;
	}
	*sum = XXH3_64bits_digest(f->state);
	return 0;
}

/* @x and @y as one number that neither alone decides. */
static uint64_t mix(uint64_t x, uint64_t y, uint64_t z)
{
	const uint64_t v[3] = { x, y, z };

	return XXH3_64bits(v, sizeof(v));
}

static int add_unit(struct finder *f, const struct ck_twin_piece *v, size_t nr,
		    struct ck_err *err)
{
	struct unit u = { .name = v->unit, .nr = nr };
	struct unit *slot;

	for (size_t i = 0; i < nr; i++) {
		uint64_t sum;
		bool alike;
		int ret = sum_bytes(f, &v[i], &sum, &alike, err);

		if (ret)
			return ret == -ENOMEM ? ret : 0;
		u.what += mix(v[i].tensor, v[i].len, sum);
		if (alike)
			continue;
		u.where += mix(v[i].tensor, v[i].cell, 1);
		u.varied = true;
	}
	if (!u.varied)
		return 0;
	slot = ck_vec_push(&f->unit);
	if (!slot)
		return ck_fail(err, ENOMEM, "no memory to compare ranks");
	*slot = u;
	return 0;
}

static int add_units(struct finder *f, const struct ck_twins *t,
		     struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0, next; i < t->v.nr && !ret; i = next) {
		for (next = i + 1; next < t->v.nr; next++)
			if (t->v.v[next].unit != t->v.v[i].unit)
				break;
		ret = add_unit(f, &t->v.v[i], next - i, err);
	}
	return ret;
}

static int by_what(const void *px, const void *py)
{
	const struct unit *x = px, *y = py;

	if (x->what != y->what)
		return x->what < y->what ? -1 : 1;
	return (x->name > y->name) - (x->name < y->name);
}

static int tell(const struct finder *f, struct ck_err *err)
{
	const struct unit *u = f->unit.v, *first = u;
	int ret = 0;

	for (size_t i = 1; i < f->unit.nr && !ret; i++)
		if (u[i].what != first->what || u[i].nr != first->nr)
			first = &u[i];
		else if (u[i].where != first->where)
			ret = f->in->each(f->in->ctx, first->name, u[i].name,
					  u[i].nr, err);
	return ret;
}

int ck_twins_find(struct ck_twins *t, const struct ck_twins_in *in,
		  struct ck_err *err)
{
	ck_auto_free unsigned char *buf = reallocarray(NULL, 1, BLOCK);
	struct finder f = { .in = in, .buf = buf, .state = XXH3_createState() };
	int ret = 0;

	if (!buf || !f.state)
		ret = ck_fail(err, ENOMEM, "no memory to compare ranks");
	if (!ret && t->v.nr) {
		qsort(t->v.v, t->v.nr, sizeof(*t->v.v), by_unit);
		ret = add_units(&f, t, err);
	}
	if (!ret && f.unit.nr) {
		qsort(f.unit.v, f.unit.nr, sizeof(*f.unit.v), by_what);
		ret = tell(&f, err);
	}
	XXH3_freeState(f.state);
	free(f.unit.v);
	return ret;
}
