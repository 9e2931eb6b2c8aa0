/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - from the pieces of all ranks to the parts of each tensor
 *
 * Pieces of one box are copies of each other, wholly or, where ranks share it
 * out, in stretches; stretches are cut where any of them begins, so that what
 * is the same elements is the same part.  Copies that were compared and differ
 * refuse the tensor.
 *
 * Small copies are compared, each file read once, in the order of its bytes;
 * they tell files that are of another save.  What is larger is left to "unshard
 * verify --replicas".
 */
#include "core/format/nnscaler/nnscaler.h"
#include "core/optim/groups.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_ONE (UINT64_C(1) << 20)
#define MAX_ALL (UINT64_C(64) << 20) /* what a mount reads for it */
#define MAX_READS (1u << 16)
#define MAX_CUTS (UINT64_C(1) << 22) /* parts that copies are cut into */

/* ---- names ---- */

struct ck_str *ck_nnscaler_text(struct nnscaler *n, const char *begin)
{
	n->text.len = 0;
	ck_str_puts(&n->text, begin);
	return &n->text;
}

struct nnscaler_name *ck_nnscaler_name(struct nnscaler *n)
{
	struct nnscaler_name *name, **to;
	uint32_t at = CK_STRMAP_NONE;

	if (!n->text.failed)
		at = ck_strmap_keep(&n->map, &n->mem, n->text.v, n->text.len);
	if (at < n->names.nr)
		return n->names.v[at];
	name = ck_arena_alloc(&n->mem, sizeof(*name));
	to = at == CK_STRMAP_NONE || !name ? NULL : ck_vec_push(&n->names);
	if (!to) {
		n->mem.failed = true;
		n->none = (struct nnscaler_name){ .s = "model.", .len = 6 };
		return &n->none;
	}
	name->s = n->map.v[at].s;
	name->len = n->map.v[at].len;
	name->nr = at;
	return *to = name;
}

/* ---- pieces ---- */

const uint64_t *ck_nnscaler_whole(struct nnscaler *n, const uint64_t *shape,
				  unsigned rank)
{
	size_t len = rank * sizeof(*shape);
	uint64_t *box = ck_arena_alloc(&n->mem, 3 * len);

	if (box && rank) {
		memcpy(box, shape, len);
		memcpy(box + 2 * (size_t)rank, shape, len);
	}
	return box;
}

void ck_nnscaler_piece(struct nnscaler *n, const struct nnscaler_piece *p)
{
	struct nnscaler_piece *to = ck_vec_push(&n->pieces);

	n->mem.failed |= !to;
	if (to)
		*to = *p;
}

void ck_nnscaler_forget(struct nnscaler *n, uint32_t rank)
{
	size_t kept = 0;

	for (size_t i = 0; i < n->pieces.nr; i++)
		if (n->pieces.v[i].rank != rank)
			n->pieces.v[kept++] = n->pieces.v[i];
	n->pieces.nr = kept;
}

static int by_box(const struct nnscaler_piece *a,
		  const struct nnscaler_piece *b)
{
	if (a->dims != b->dims)
		return a->dims < b->dims ? -1 : 1;
	for (unsigned d = 0; d < 3u * a->dims; d++)
		if (a->box[d] != b->box[d])
			return a->box[d] < b->box[d] ? -1 : 1;
	return 0;
}

static int by_name(const void *pa, const void *pb)
{
	const struct nnscaler_piece *a = pa, *b = pb;
	int cmp;

	if (a->name != b->name)
		return a->name->nr < b->name->nr ? -1 : 1;
	cmp = by_box(a, b);
	if (cmp)
		return cmp;
	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* How many of p[0..nr) are pieces of the first one's box. */
static size_t nr_of_box(const struct nnscaler_piece *p, size_t nr)
{
	size_t n = 1;

	while (n < nr && !by_box(p, &p[n]))
		n++;
	return n;
}

/* How many of p[0..nr) are the same elements as the first. */
static size_t nr_of_copies(const struct nnscaler_piece *p, size_t nr)
{
	size_t n = 1;

	while (n < nr && p->name == p[n].name && p->lo == p[n].lo &&
	       p->hi == p[n].hi && p->flat == p[n].flat && !by_box(p, &p[n]))
		n++;
	return n;
}

/* ---- copies ---- */

static uint64_t bytes_of(const struct nnscaler_piece *p)
{
	uint64_t nr = p->flat ? p->hi - p->lo : ck_nnscaler_volume(&p->x);

	return nr > MAX_ONE ? UINT64_MAX : nr * ck_dtype_info(p->x.dtype)->size;
}

struct reads {
	CK_VEC(struct nnscaler_piece *) v;
	uint64_t bytes;
};

static bool is_wanted(struct reads *r, const struct nnscaler_piece *p)
{
	uint64_t size = bytes_of(p);

	if (p->absent || p->compared || (!p->flat && p->x.stride) || !size ||
	    size > MAX_ONE || r->bytes + size > MAX_ALL || r->v.nr == MAX_READS)
		return false;
	r->bytes += size;
	return true;
}

/* Copies follow each other among the sorted pieces. */
static int list_copies(struct nnscaler *n, struct reads *r, struct ck_err *err)
{
	struct nnscaler_piece *p = n->pieces.v;

	for (size_t i = 0, nr; i < n->pieces.nr; i += nr) {
		nr = nr_of_copies(&p[i], n->pieces.nr - i);
		for (size_t k = i; nr > 1 && k < i + nr; k++) {
			if (!is_wanted(r, &p[k]))
				continue;
			if (!ck_vec_reserve(&r->v, 1))
				return ck_no_memory(err);
			r->v.v[r->v.nr++] = &p[k];
		}
	}
	return 0;
}

static int by_place(const void *pa, const void *pb)
{
	const struct nnscaler_piece *a = *(struct nnscaler_piece *const *)pa;
	const struct nnscaler_piece *b = *(struct nnscaler_piece *const *)pb;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return a->x.off < b->x.off ? -1 : a->x.off > b->x.off;
}

/* What cannot be read is not compared: reading it will say so. */
static void sum_one(struct ck_source *src, struct nnscaler_piece *p, char *room)
{
	uint64_t size = bytes_of(p);
	XXH128_hash_t sum;

	if (!ck_range_ok(p->x.off, size, (uint64_t)src->st.st_size) ||
	    ck_source_read(src, room, size, p->x.off, NULL))
		return;
	sum = XXH3_128bits_withSeed(room, size, p->x.xform);
	p->sum[0] = sum.low64;
	p->sum[1] = sum.high64;
	p->compared = true;
}

static int sum_all(struct nnscaler *n, const struct reads *r,
		   struct ck_err *err)
{
	ck_auto_free char *room = malloc(MAX_ONE);
	ck_auto_source struct ck_source *src = NULL;
	uint32_t open = NNSCALER_NO_RANK;

	for (size_t i = 0; room && i < r->v.nr; i++) {
		struct nnscaler_piece *p = r->v.v[i];

		if (p->rank != open) {
			ck_source_close(src);
			src = NULL;
			open = p->rank;
			if (ck_dir_open(n->dir, n->ranks.v[open].file, &src,
					NULL) == -ENOMEM)
				return ck_no_memory(err);
		}
		if (src)
			sum_one(src, p, room);
	}
	return room ? 0 : ck_no_memory(err);
}

/* ---- votes ---- */

/* How often a rank's copies of weights were compared, and were the odd ones. */
struct votes {
	uint32_t compared, odd, lonely; /* lonely: nobody has a majority */
};

static bool same_sum(const struct nnscaler_piece *a,
		     const struct nnscaler_piece *b)
{
	return a->compared && b->compared &&
	       !memcmp(a->sum, b->sum, sizeof(a->sum));
}

/* The first of the sum that more than half of the copies have; @nr: none. */
static size_t find_majority(const struct nnscaler_piece *p, size_t nr)
{
	size_t compared = 0;

	for (size_t i = 0; i < nr; i++)
		compared += p[i].compared;
	/* no use in trying all of very many */
	for (size_t i = 0; i < CK_MIN(nr, 66); i++) {
		size_t same = 0;

		for (size_t k = 0; k < nr; k++)
			same += same_sum(&p[i], &p[k]);
		if (2 * same > compared)
			return i;
	}
	return nr;
}

static void vote(struct votes *v, const struct nnscaler_piece *p, size_t nr)
{
	size_t best = find_majority(p, nr);

	for (size_t i = 0; i < nr; i++) {
		struct votes *mine = &v[p[i].rank];

		if (!p[i].compared)
			continue;
		mine->compared++;
		if (best < nr && same_sum(&p[i], &p[best]))
			continue;
		mine->odd++;
		mine->lonely += best == nr;
	}
}

/* A file of whose copies most differ cannot be of this save. */
static int drop_strangers(struct nnscaler *n, const struct votes *v,
			  struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < n->ranks.nr && !ret; i++) {
		const struct ck_problem_in p = { .severity = CK_ERROR,
						 .file = n->ranks.v[i].file };

		if (v[i].odd < 2 || 2 * v[i].odd < v[i].compared)
			continue;
		if (2 * v[i].lonely >= v[i].odd)
			return ck_fail(
				err, EINVAL,
				"%s: %u of the %u copies of weights in %s differ from those of other ranks: these files are not of one save",
				n->dir->path, v[i].odd, v[i].compared, p.file);
		ck_nnscaler_forget(n, i);
		ret = ck_builder_problem(
			n->b, &p, err,
			"%u of its %u copies of weights differ from those of other ranks: it is of another save, and left aside",
			v[i].odd, v[i].compared);
	}
	return ret;
}

static int compare(struct nnscaler *n, struct ck_err *err)
{
	ck_auto_free struct votes *v = calloc(n->ranks.nr + 1, sizeof(*v));
	struct nnscaler_piece *p = n->pieces.v;
	struct reads r = { 0 };
	int ret = v ? list_copies(n, &r, err) : ck_no_memory(err);

	if (!ret && r.v.nr) {
		qsort(r.v.v, r.v.nr, sizeof(*r.v.v), by_place);
		ret = sum_all(n, &r, err);
	}
	free(r.v.v);
	/* with any copy: all of them may be what broke off */
	if (ret || ck_opts_get(n->dir->opts, CK_ANY_COPY))
		return ret;
	for (size_t i = 0, nr; i < n->pieces.nr; i += nr) {
		nr = nr_of_copies(&p[i], n->pieces.nr - i);
		if (nr > 1 && p[i].weight && bytes_of(&p[i]) > 8)
			vote(v, p + i, nr);
	}
	return drop_strangers(n, v, err);
}

/* ---- parts ---- */

/* Some pieces of one box of a tensor, which may have another name of it. */
struct tensor {
	struct nnscaler *n;
	const struct nnscaler_name *name;
	struct nnscaler_piece *p;
	size_t nr;
	uint64_t volume;
};

/* Elements [lo, hi) of a flat piece, or all of a piece with strides. */
static int add_part(const struct tensor *j, const struct nnscaler_piece *p,
		    uint64_t lo, uint64_t hi, struct ck_err *err)
{
	const uint64_t flat[2] = { lo, hi };
	uint64_t size = ck_dtype_info(p->x.dtype)->size;
	const struct ck_part part = {
		.name = j->name->s,
		.name_len = j->name->len,
		.src = p->x.src,
		.dtype = p->x.dtype,
		.xform = p->x.xform,
		.rank = p->dims,
		.shape = p->box,
		.start = p->box + p->dims,
		.len = p->box + 2 * (size_t)p->dims,
		.stride = p->flat ? NULL : p->x.stride,
		.flat = !lo && hi == j->volume ? NULL : flat,
		.off = p->x.off + (p->absent ? 0 : (lo - p->lo) * size),
	};

	return ck_builder_add(j->n->b, &part, err);
}

static int by_value(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return a < b ? -1 : a > b;
}

/* Where stretches of this box begin and end, each once. */
static size_t find_cuts(const struct tensor *j, uint64_t *cut)
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

static int add_stretches(const struct tensor *j, struct ck_err *err)
{
	ck_auto_free uint64_t *cut = calloc(2 * j->nr + 1, sizeof(*cut));
	uint64_t parts = 0;
	size_t nr;
	int ret = 0;

	if (!cut)
		return ck_no_memory(err);
	nr = find_cuts(j, cut);
	for (size_t i = 0; i < j->nr && !ret; i++) {
		const struct nnscaler_piece *p = &j->p[i];
		size_t at = CK_FIRST(k, 0, nr, cut[k] >= p->lo);

		for (; at + 1 < nr && cut[at] < p->hi && !ret; at++) {
			if (++parts > MAX_CUTS)
				return ck_builder_refuse(
					j->n->b, 0, j->name->s, j->name->len,
					err,
					"its copies are cut in over 2^22 ways");
			ret = add_part(j, p, cut[at], cut[at + 1], err);
		}
	}
	return ret;
}

/* Stretches and whole ones of the same box: whole ones are stretches too. */
static bool make_flat(struct tensor *j)
{
	bool any = false;

	for (size_t i = 0; i < j->nr; i++)
		any |= j->p[i].flat;
	for (size_t i = 0; any && i < j->nr; i++) {
		if (j->p[i].flat || j->p[i].x.stride)
			continue;
		j->p[i].flat = true;
		j->p[i].hi = j->volume;
	}
	return any;
}

static int add_box(struct tensor *j, struct ck_err *err)
{
	const struct ck_part decl = {
		.name = j->name->s,
		.name_len = j->name->len,
		.dtype = j->p->x.dtype,
		.rank = j->p->dims,
		.shape = j->p->box,
	};
	int ret = ck_builder_declare(j->n->b, &decl, err);

	if (!ret && make_flat(j))
		return add_stretches(j, err);
	for (size_t i = 0; i < j->nr && !ret && j->volume; i++)
		ret = add_part(j, &j->p[i], 0, j->volume, err);
	return ret;
}

/* Two that were read, are the same elements and differ. */
static bool find_differing(const struct tensor *j, size_t *a, size_t *b)
{
	for (size_t i = 0; i < j->nr; i++)
		for (size_t k = i + 1; k < j->nr && j->p[k].lo == j->p[i].lo;
		     k++) {
			if (!j->p[i].compared || !j->p[k].compared ||
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

/* The way in the saved structure: model/NAME, optimizer/NAME/STATE. */
static int add_path(struct nnscaler *n, const struct nnscaler_piece *p,
		    const struct nnscaler_name *name, struct ck_err *err)
{
	const struct ck_optim_groups g = { .b = n->b, .dict = "optimizer" };
	const struct nnscaler_name *state = p->state;
	size_t skip = !state ? 6 : p->raw ? 0 : 10;
	size_t len = name->len - skip - (state ? state->len + 1 : 0);
	const struct ck_path_part parts[] = {
		{ state ? "optimizer" : "model", state ? 9 : 5, -1 },
		{ name->s + skip, len, -1 },
		{ state ? state->s : NULL, state ? state->len : 0, -1 },
	};
	int64_t nr = -1;
	uint32_t at;

	if (state && n->numbered && n->merged) {
		nr = p->id;
	} else if (state && n->numbered) {
		at = ck_strmap_get(&n->numbers, name->s + skip, len);
		nr = at == CK_STRMAP_NONE ? -1 : (int64_t)at;
	}
	if (nr >= 0)
		return ck_optim_state_path(&g, name->s, name->len, (uint64_t)nr,
					   state->s, state->len, err);
	return ck_builder_path(n->b, 0, name->s, name->len, parts,
			       state ? 3 : 2, err);
}

/* All pieces p[0..nr) of one tensor, under @name. */
static int add_tensor(struct nnscaler *n, struct nnscaler_piece *p, size_t nr,
		      const struct nnscaler_name *name, struct ck_err *err)
{
	struct tensor j = { .n = n, .name = name };
	size_t a, b;
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i += j.nr) {
		j.p = p + i;
		j.nr = nr_of_box(j.p, nr - i);
		ck_dims_volume(j.p->box + 2 * (size_t)j.p->dims, j.p->dims,
			       &j.volume);
		if (!ck_dir_any_copy(n->dir) && find_differing(&j, &a, &b))
			return ck_builder_refuse(
				n->b, 0, name->s, name->len, err,
				"its copies in %s and %s differ (unshard heal)",
				n->ranks.v[j.p[a].rank].file,
				n->ranks.v[j.p[b].rank].file);
		ret = add_box(&j, err);
	}
	return ret ? ret : add_path(n, p, name, err);
}

/* Gives the pieces of @p's name to the names tied with it that have none. */
static int add_ties(struct nnscaler *n, struct nnscaler_piece *p, size_t nr,
		    struct ck_err *err)
{
	const struct nnscaler_tie *tie = p->name->tie;
	const struct nnscaler_name *lender = p->name;
	int ret = 0;

	for (size_t i = 0; i < tie->nr; i++)
		if (tie->names[i]->held && tie->names[i]->nr < lender->nr)
			lender = tie->names[i];
	for (size_t i = 0; i < tie->nr && lender == p->name && !ret; i++)
		if (!tie->names[i]->held)
			ret = add_tensor(n, p, nr, tie->names[i], err);
	return ret;
}

int ck_nnscaler_add_pieces(struct nnscaler *n, struct ck_err *err)
{
	int ret;

	if (n->pieces.nr)
		qsort(n->pieces.v, n->pieces.nr, sizeof(*n->pieces.v), by_name);
	ret = compare(n, err);
	for (size_t i = 0; i < n->names.nr; i++)
		n->names.v[i]->held = false;
	for (size_t i = 0; i < n->pieces.nr; i++)
		n->names.v[n->pieces.v[i].name->nr]->held = true;
	for (size_t i = 0, nr; i < n->pieces.nr && !ret; i += nr) {
		struct nnscaler_piece *p = &n->pieces.v[i];

		for (nr = 1; i + nr < n->pieces.nr && p[nr].name == p->name;)
			nr++;
		ret = add_tensor(n, p, nr, p->name, err);
		if (!ret && p->name->tie)
			ret = add_ties(n, p, nr, err);
	}
	return ret;
}
