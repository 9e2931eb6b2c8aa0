/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - from the pieces of all ranks to the parts of each tensor
 *
 * Pieces of one box are copies of each other, wholly or, where ranks share it
 * out, in stretches; stretches are cut where any of them begins, so that what
 * is the same elements is the same part.  Copies that were compared and differ
 * refuse the tensor.
 */
#include "core/format/nnscaler/priv.h"
#include "core/optim/groups.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CUTS (UINT64_C(1) << 22) /* parts that copies are cut into */

static int by_box(const struct ck_nn_set *s, const struct ck_nn_piece *a,
		  const struct ck_nn_piece *b)
{
	const uint64_t *x = s->dims.v + a->dims, *y = s->dims.v + b->dims;

	if (a->dims_rank != b->dims_rank)
		return a->dims_rank < b->dims_rank ? -1 : 1;
	for (unsigned d = 0; d < 3u * a->dims_rank; d++)
		if (x[d] != y[d])
			return x[d] < y[d] ? -1 : 1;
	return 0;
}

static int by_name(const void *pa, const void *pb, void *set)
{
	const struct ck_nn_piece *a = pa, *b = pb;
	int cmp;

	if (a->name != b->name)
		return a->name < b->name ? -1 : 1;
	cmp = by_box(set, a, b);
	if (cmp)
		return cmp;
	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* One tensor while its pieces are given. */
struct say {
	struct ck_nn_set *s;
	const char *name;
	size_t name_len;
	struct ck_nn_piece *p; /* of one box */
	size_t nr;
	uint64_t volume;
};

/* Elements [lo, hi) of a flat piece, or all of a piece with strides. */
static int part_add(const struct say *j, const struct ck_nn_piece *p,
		    uint64_t lo, uint64_t hi, struct ck_err *err)
{
	const uint64_t *d = j->s->dims.v + p->dims;
	const uint64_t flat[2] = { lo, hi };
	uint64_t size = ck_dtype_info(p->t.dtype)->size;
	bool whole = !lo && hi == j->volume;
	const struct ck_part part = {
		.name = j->name,
		.name_len = j->name_len,
		.src = p->t.src,
		.dtype = p->t.dtype,
		.xform = p->t.xform,
		.rank = p->dims_rank,
		.shape = d,
		.start = d + p->dims_rank,
		.len = d + 2 * (size_t)p->dims_rank,
		.stride = p->t.dense || p->flat ?
				  NULL :
				  (const int64_t *)(j->s->dims.v + p->t.dims +
						    p->t.rank),
		.flat = whole ? NULL : flat,
		.off = p->t.off + (p->absent ? 0 : (lo - p->lo) * size),
	};

	return ck_builder_add(j->s->b, &part, err);
}

static int by_value(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return a < b ? -1 : a > b;
}

/* Where stretches of this box begin and end, each once. */
static size_t find_cuts(const struct say *j, uint64_t *cut)
{
	size_t nr = 0, kept = 0;

	for (size_t i = 0; i < j->nr; i++) {
		cut[nr++] = j->p[i].lo;
		cut[nr++] = j->p[i].hi;
	}
	qsort(cut, nr, sizeof(*cut), by_value);
	for (size_t i = 0; i < nr; i++)
		if (!kept || cut[kept - 1] != cut[i])
			cut[kept++] = cut[i];
	return kept;
}

static size_t first_from(const uint64_t *cut, size_t nr, uint64_t lo)
{
	return CK_FIRST(i, 0, nr, cut[i] >= lo);
}

static int flats_add(const struct say *j, struct ck_err *err)
{
	ck_auto_free uint64_t *cut = calloc(2 * j->nr + 1, sizeof(*cut));
	uint64_t parts = 0;
	size_t nr;
	int ret = 0;

	if (!cut)
		return ck_fail(err, ENOMEM, "no memory for parts");
	nr = find_cuts(j, cut);
	for (size_t i = 0; i < j->nr && !ret; i++) {
		const struct ck_nn_piece *p = &j->p[i];
		size_t at = first_from(cut, nr, p->lo);

		for (; at + 1 < nr && cut[at] < p->hi && !ret; at++) {
			if (++parts > MAX_CUTS)
				return ck_builder_refuse(
					j->s->b, 0, j->name, j->name_len, err,
					"its copies are cut in over 2^22 ways");
			ret = part_add(j, p, cut[at], cut[at + 1], err);
		}
	}
	return ret;
}

/* Stretches and whole ones of the same box: whole ones are stretches too. */
static bool make_flat(struct say *j)
{
	bool any = false;

	for (size_t i = 0; i < j->nr; i++)
		any |= j->p[i].flat;
	for (size_t i = 0; any && i < j->nr; i++) {
		if (j->p[i].flat || !j->p[i].t.dense)
			continue;
		j->p[i].flat = true;
		j->p[i].hi = j->volume;
	}
	return any;
}

static int box_say(struct say *j, struct ck_err *err)
{
	const struct ck_part decl = {
		.name = j->name,
		.name_len = j->name_len,
		.dtype = j->p->t.dtype,
		.rank = j->p->dims_rank,
		.shape = j->s->dims.v + j->p->dims,
	};
	int ret = ck_builder_declare(j->s->b, &decl, err);

	if (!ret && make_flat(j))
		return flats_add(j, err);
	for (size_t i = 0; i < j->nr && !ret && j->volume; i++)
		ret = part_add(j, &j->p[i], 0, j->volume, err);
	return ret;
}

/* Two that were read, are the same elements and differ. */
static bool find_differing(const struct say *j, size_t *a, size_t *b)
{
	for (size_t i = 0; i < j->nr; i++)
		for (size_t k = i + 1; k < j->nr && j->p[k].lo == j->p[i].lo;
		     k++) {
			if (!j->p[i].copy_checked || !j->p[k].copy_checked ||
			    j->p[i].hi != j->p[k].hi)
				continue;
			if (memcmp(j->p[i].sum, j->p[k].sum,
				   sizeof(j->p[i].sum)) != 0) {
				*a = i;
				*b = k;
				return true;
			}
			break; /* the rest is compared with @k */
		}
	return false;
}

static struct ck_path_part part(const char *key, size_t len)
{
	return (struct ck_path_part){ key, len, -1 };
}

static int path_add(struct ck_nn_set *s, const struct ck_nn_piece *p,
		    const char *name, size_t len, const char *param,
		    size_t param_len, struct ck_err *err)
{
	const struct ck_optim_groups g = { .b = s->b, .dict = "optimizer" };
	bool state = p->state != CK_STRMAP_NONE;
	int64_t nr = ck_nn_number(s, p, param, param_len);
	struct ck_path_part parts[3];
	struct ck_strmap_key key = { 0 };
	unsigned depth = 0;

	if (state)
		key = s->names.map.v[p->state];
	if (nr >= 0)
		return ck_optim_state_path(&g, name, len, (uint64_t)nr, key.s,
					   key.len, err);
	parts[depth++] = state ? part("optimizer", 9) : part("model", 5);
	parts[depth++] = part(param, param_len);
	if (state)
		parts[depth++] = part(key.s, key.len);
	return ck_builder_path(s->b, 0, name, len, parts, depth, err);
}

/* All pieces p[0..nr) of one tensor, under @name. */
static int tensor_say(struct ck_nn_set *s, struct ck_nn_piece *p, size_t nr,
		      const char *name, size_t len, const char *param,
		      size_t param_len, struct ck_err *err)
{
	struct say j = { .s = s, .name = name, .name_len = len };
	int ret = 0;

	for (size_t i = 0, n; i < nr && !ret; i += n) {
		size_t a, b;

		for (n = 1; i + n < nr && !by_box(s, &p[i], &p[i + n]);)
			n++;
		j.p = p + i;
		j.nr = n;
		ck_dims_volume(s->dims.v + p[i].dims +
				       2 * (size_t)p[i].dims_rank,
			       p[i].dims_rank, &j.volume);
		if (!ck_dir_any_copy(s->dir) && find_differing(&j, &a, &b))
			return ck_builder_refuse(
				s->b, 0, name, len, err,
				"its copies in %s and %s differ (unshard heal)",
				s->ranks.v[j.p[a].rank].file,
				s->ranks.v[j.p[b].rank].file);
		ret = box_say(&j, err);
	}
	return ret ? ret : path_add(s, p, name, len, param, param_len, err);
}

/* Which names are tied: the held one that lends its bytes, and the others. */
struct ties {
	uint8_t *held; /* of names: files hold it */
	uint32_t *group; /* of names: its ties begin here; CK_STRMAP_NONE */
};

static void ties_free(struct ties *t)
{
	free(t->held);
	free(t->group);
}
#define auto_ties __attribute__((cleanup(ties_free)))

static int by_with(const void *pa, const void *pb)
{
	const struct ck_nn_tie *a = pa, *b = pb;

	if (a->with != b->with)
		return a->with < b->with ? -1 : 1;
	return a->name < b->name ? -1 : a->name > b->name;
}

static int ties_read(struct ck_nn_set *s, struct ties *t, struct ck_err *err)
{
	size_t nr = s->names.v.nr;

	t->held = calloc(nr + 1, 1);
	t->group = malloc((nr + 1) * sizeof(*t->group));
	if (!t->held || !t->group)
		return ck_fail(err, ENOMEM, "no memory for names");
	memset(t->group, 0xff, (nr + 1) * sizeof(*t->group));
	for (size_t i = 0; i < s->pieces.nr; i++)
		t->held[s->pieces.v[i].name] = 1;
	if (s->ties.nr)
		qsort(s->ties.v, s->ties.nr, sizeof(*s->ties.v), by_with);
	for (size_t i = 0, from = 0; i < s->ties.nr; i++) {
		if (s->ties.v[i].with != s->ties.v[from].with)
			from = i;
		t->group[s->ties.v[i].name] = (uint32_t)from;
	}
	return 0;
}

/* Gives the pieces of @p's name to the names tied with it that have none. */
static int ties_say(struct ck_nn_set *s, const struct ties *t,
		    struct ck_nn_piece *p, size_t nr, struct ck_err *err)
{
	uint32_t from = t->group[p->name];
	uint32_t lender = CK_STRMAP_NONE;
	int ret = 0;

	for (size_t i = from; i < s->ties.nr; i++) {
		uint32_t name = s->ties.v[i].name;

		if (s->ties.v[i].with != s->ties.v[from].with)
			break;
		if (t->held[name])
			lender = lender == CK_STRMAP_NONE ? name : lender;
	}
	for (size_t i = from; i < s->ties.nr && lender == p->name && !ret;
	     i++) {
		uint32_t name = s->ties.v[i].name;
		const struct ck_strmap_key *key = &s->names.map.v[name];

		if (s->ties.v[i].with != s->ties.v[from].with)
			break;
		if (!t->held[name])
			ret = tensor_say(s, p, nr, key->s, key->len, key->s + 6,
					 key->len - 6, err);
	}
	return ret;
}

static int say_all(struct ck_nn_set *s, const struct ties *t,
		   struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0, n; i < s->pieces.nr && !ret; i += n) {
		struct ck_nn_piece *p = &s->pieces.v[i];
		const struct ck_strmap_key *key = &s->names.map.v[p->name];
		const struct ck_strmap_key *param = &s->names.map.v[p->param];

		for (n = 1; i + n < s->pieces.nr && p[n].name == p->name;)
			n++;
		ret = tensor_say(s, p, n, key->s, key->len, param->s,
				 param->len, err);
		if (!ret && t->group[p->name] != CK_STRMAP_NONE)
			ret = ties_say(s, t, p, n, err);
	}
	return ret;
}

int ck_nn_pieces_say(struct ck_nn_set *s, struct ck_err *err)
{
	auto_ties struct ties t = { 0 };
	int ret;

	if (s->pieces.nr)
		qsort_r(s->pieces.v, s->pieces.nr, sizeof(*s->pieces.v),
			by_name, s);
	ret = ck_nn_sums_read(s, err);
	if (!ret)
		ret = ties_read(s, &t, err);
	return ret ? ret : say_all(s, &t, err);
}
