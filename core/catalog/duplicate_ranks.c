/* SPDX-License-Identifier: Apache-2.0 */
/*
 * duplicate_ranks.c - a sum for each rank of what its pieces hold, and of where
 * they go
 *
 * Ranks of one first sum and two second ones are what is looked for.  Piece by
 * piece, the same tensor in all ranks at a time: who is like no other any more
 * is out, so that of most ranks one piece or two are read.  Of each, SAMPLE
 * bytes in its middle, or all.
 */
#include "core/catalog/builder_priv.h"

#include "core/base/search.h"

#include <xxhash.h>

#define SAMPLE UINT64_C(4096)
#define BLOCK (UINT64_C(1) << 20)

struct unit {
	const struct ck_duplicate_piece *piece; /* nr */
	uint64_t nr;
	uint64_t places; /* a sum over the places of all */
	uint64_t what, where; /* of those read; of those that vary */
	uint32_t name;
	bool varied; /* some piece has more than one value */
};

struct finder {
	const struct ck_duplicate_ranks_in *in;
	CK_VEC(struct unit) unit;
	unsigned char *buf;
	XXH3_state_t *state;
};

bool ck_duplicate_extent(const struct ck_catalog *img, const struct ck_chunk *x,
			 unsigned rank, uint64_t *off, uint64_t *len)
{
	struct ck_chunk_at at;
	uint64_t end;

	ck_chunk_at(img, NULL, rank, x, &at);
	if (!at.bytes || !at.placed || !ck_chunk_extent(&at, off, &end))
		return false;
	*len = end - *off;
	return true;
}

/* Neighbours by name are alike, being moments or weights: in another order. */
static uint32_t turn_of(const struct ck_duplicate_piece *p)
{
	return p->tensor * UINT32_C(2654435761);
}

static int by_unit(const void *px, const void *py)
{
	const struct ck_duplicate_piece *x = px, *y = py;
	int c = ck_order2(x->unit, y->unit, turn_of(x), turn_of(y));

	return c ? c : ck_order2(x->src, y->src, x->off, y->off);
}

/*
 * As ck_duplicate_ranks_in.read, of any length; *alike: all elements are the
 * same.
 */
static int sum_bytes(const struct finder *f, const struct ck_duplicate_piece *p,
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

static int add_units(struct finder *f, const struct ck_duplicate_ranks *t,
		     struct ck_err *err)
{
	struct unit *u = NULL;

	for (size_t i = 0; i < t->v.nr; i++) {
		const struct ck_duplicate_piece *p = &t->v.v[i];

		if (!u || u->name != p->unit) {
			u = ck_vec_push(&f->unit);
			if (!u)
				return ck_no_memory(err);
			*u = (struct unit){ .piece = p, .name = p->unit };
		}
		u->nr++;
		u->places += mix(p->tensor, p->cell, 1);
	}
	return 0;
}

static int by_what(const void *px, const void *py)
{
	const struct unit *x = px, *y = py;
	int c = ck_order(x->nr, y->nr);

	if (!c)
		c = ck_order(x->what, y->what);
	return c ? c : ck_order(x->name, y->name);
}

static size_t group_end(const struct finder *f, size_t from)
{
	const struct unit *u = f->unit.v;
	size_t i = from + 1;

	while (i < f->unit.nr && u[i].nr == u[from].nr &&
	       u[i].what == u[from].what)
		i++;
	return i;
}

/* Keeps those that are like one which belongs elsewhere. */
static void drop_others(struct finder *f)
{
	struct unit *u = f->unit.v;
	size_t kept = 0;

	qsort(u, f->unit.nr, sizeof(*u), by_what);
	for (size_t i = 0, end; i < f->unit.nr; i = end) {
		bool elsewhere = false;

		end = group_end(f, i);
		for (size_t k = i; k < end; k++)
			elsewhere |= u[k].places != u[i].places;
		if (!elsewhere)
			continue;
		memmove(u + kept, u + i, (end - i) * sizeof(*u));
		kept += end - i;
	}
	f->unit.nr = kept;
}

static int read_piece(struct finder *f, struct unit *u, size_t i,
		      struct ck_err *err)
{
	const struct ck_duplicate_piece *p = &u->piece[i];
	uint64_t sum;
	bool alike;
	int ret = sum_bytes(f, p, &sum, &alike, err);

	if (ret == -ENOMEM)
		return ret;
	/* whoever cannot be read is like no other */
	u->what += ret ? mix(u->name, i, 2) : mix(p->tensor, p->len, sum);
	if (!ret && !alike) {
		u->where += mix(p->tensor, p->cell, 1);
		u->varied = true;
	}
	return 0;
}

static int read_all(struct finder *f, struct ck_err *err)
{
	bool more = true;
	int ret = 0;

	for (size_t i = 0; more && !ret; i++) {
		more = false;
		drop_others(f);
		for (size_t k = 0; k < f->unit.nr && !ret; k++) {
			if (i >= f->unit.v[k].nr)
				continue;
			more = true;
			ret = read_piece(f, &f->unit.v[k], i, err);
		}
	}
	return ret;
}

static int tell(const struct finder *f, struct ck_err *err)
{
	const struct unit *u = f->unit.v;
	int ret = 0;

	for (size_t i = 0, end; i < f->unit.nr && !ret; i = end) {
		end = group_end(f, i);
		for (size_t k = i + 1; k < end && !ret && u[i].varied; k++)
			if (u[k].where != u[i].where)
				ret = f->in->each(f->in->ctx, u[i].name,
						  u[k].name, u[k].nr, err);
	}
	return ret;
}

int ck_duplicate_ranks_find(struct ck_duplicate_ranks *t,
			    const struct ck_duplicate_ranks_in *in,
			    struct ck_err *err)
{
	ck_auto_free unsigned char *buf = reallocarray(NULL, 1, BLOCK);
	struct finder f = { .in = in, .buf = buf, .state = XXH3_createState() };
	int ret = 0;

	if (!buf || !f.state)
		ret = ck_no_memory(err);
	if (!ret && t->v.nr) {
		qsort(t->v.v, t->v.nr, sizeof(*t->v.v), by_unit);
		ret = add_units(&f, t, err);
	}
	if (!ret && f.unit.nr) {
		ret = read_all(&f, err);
		ret = ret ? ret : tell(&f, err);
	}
	XXH3_freeState(f.state);
	free(f.unit.v);
	return ret;
}
