/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.c - compares small copies, and finds files that are of another save
 *
 * Each file is read once, in the order of its bytes.  What is larger is left
 * to "unshard verify --replicas".
 */
#include "core/format/nnscaler/priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_ONE (UINT64_C(1) << 20)
#define MAX_ALL (UINT64_C(64) << 20) /* what a mount reads for it */
#define MAX_READS (1u << 16)

static bool same_elements(const struct ck_nn_set *s,
			  const struct ck_nn_piece *a,
			  const struct ck_nn_piece *b)
{
	return a->name == b->name && a->lo == b->lo && a->hi == b->hi &&
	       a->flat == b->flat && a->dims_rank == b->dims_rank &&
	       !memcmp(s->dims.v + a->dims, s->dims.v + b->dims,
		       3 * (size_t)a->dims_rank * sizeof(*s->dims.v));
}

static uint64_t bytes_of(const struct ck_nn_set *s, const struct ck_nn_piece *p)
{
	uint64_t nr = p->hi - p->lo, size = ck_dtype_info(p->t.dtype)->size;

	if (!p->flat)
		nr = ck_nn_volume(&s->dims, &p->t);
	return nr > MAX_ONE ? UINT64_MAX : nr * size;
}

struct reads {
	CK_VEC(uint32_t) v; /* pieces */
	uint64_t bytes;
};

static bool wanted(const struct ck_nn_set *s, struct reads *r,
		   const struct ck_nn_piece *p)
{
	uint64_t size = bytes_of(s, p);

	if (p->absent || p->t.number || (!p->flat && !p->t.dense) || !size ||
	    size > MAX_ONE || r->bytes + size > MAX_ALL || r->v.nr == MAX_READS)
		return false;
	r->bytes += size;
	return true;
}

/* Copies follow each other among the sorted pieces. */
static int list_copies(struct ck_nn_set *s, struct reads *r, struct ck_err *err)
{
	struct ck_nn_piece *p = s->pieces.v;

	for (size_t i = 0, n; i < s->pieces.nr; i += n) {
		for (n = 1; i + n < s->pieces.nr &&
			    same_elements(s, &p[i], &p[i + n]);)
			n++;
		for (size_t k = i; n > 1 && k < i + n; k++) {
			if (p[k].t.number) {
				p[k].sum[0] = s->dims.v[p[k].t.dims];
				p[k].sum[1] = p[k].t.dtype;
				p[k].copy_checked = true;
			}
			if (!wanted(s, r, &p[k]))
				continue;
			if (!ck_vec_reserve(&r->v, 1))
				return ck_fail(err, ENOMEM,
					       "no memory to compare copies");
			r->v.v[r->v.nr++] = (uint32_t)k;
		}
	}
	return 0;
}

static int by_place(const void *pa, const void *pb, void *set)
{
	const struct ck_nn_set *s = set;
	const struct ck_nn_piece *a = &s->pieces.v[*(const uint32_t *)pa];
	const struct ck_nn_piece *b = &s->pieces.v[*(const uint32_t *)pb];

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return a->t.off < b->t.off ? -1 : a->t.off > b->t.off;
}

/* What cannot be read is not compared: reading it will say so. */
static void sum_one(const struct ck_nn_set *s, struct ck_source *src,
		    struct ck_nn_piece *p, char *room)
{
	uint64_t size = bytes_of(s, p);
	XXH128_hash_t sum;

	if (!ck_range_ok(p->t.off, size, (uint64_t)src->st.st_size) ||
	    ck_source_read(src, room, size, p->t.off, NULL))
		return;
	sum = XXH3_128bits_withSeed(room, size, p->t.xform);
	p->sum[0] = sum.low64;
	p->sum[1] = sum.high64;
	p->copy_checked = true;
}

static int sum_all(struct ck_nn_set *s, const struct reads *r,
		   struct ck_err *err)
{
	ck_auto_free char *room = malloc(MAX_ONE);
	struct ck_source *src = NULL;
	uint32_t open = UINT32_MAX;

	if (!room)
		return ck_fail(err, ENOMEM, "no memory to compare copies");
	for (size_t i = 0; i < r->v.nr; i++) {
		struct ck_nn_piece *p = &s->pieces.v[r->v.v[i]];

		if (p->rank != open) {
			int ret;

			ck_source_close(src);
			src = NULL;
			open = p->rank;
			ret = ck_dir_open(s->dir, s->ranks.v[open].file, &src,
					  NULL);
			if (ret == -ENOMEM)
				return ck_fail(err, ENOMEM,
					       "no memory to compare copies");
		}
		if (src)
			sum_one(s, src, p, room);
	}
	ck_source_close(src);
	return 0;
}

/* How often a rank's copies of weights were compared, and were the odd ones. */
struct votes {
	uint32_t compared, odd, lonely; /* lonely: nobody has a majority */
};

/* The first of the sum that more than half of the copies have; n: none. */
static size_t majority(const struct ck_nn_piece *p, size_t n)
{
	size_t nr = 0;

	for (size_t i = 0; i < n; i++)
		nr += p[i].copy_checked;
	for (size_t i = 0; i < n; i++) {
		size_t same = 0;

		for (size_t k = 0; p[i].copy_checked && k < n; k++)
			same += p[k].copy_checked &&
				!memcmp(p[i].sum, p[k].sum, sizeof(p->sum));
		if (2 * same > nr)
			return i;
		if (i > 64)
			break; /* no use in trying all of very many */
	}
	return n;
}

static void vote(struct votes *v, const struct ck_nn_piece *p, size_t n)
{
	size_t best = majority(p, n);

	for (size_t i = 0; i < n; i++) {
		struct votes *mine = &v[p[i].rank];

		if (!p[i].copy_checked)
			continue;
		mine->compared++;
		if (best < n && !memcmp(p[i].sum, p[best].sum, sizeof(p->sum)))
			continue;
		mine->odd++;
		mine->lonely += best == n;
	}
}

static void vote_all(struct ck_nn_set *s, struct votes *v)
{
	struct ck_nn_piece *p = s->pieces.v;

	for (size_t i = 0, n; i < s->pieces.nr; i += n) {
		for (n = 1; i + n < s->pieces.nr &&
			    same_elements(s, &p[i], &p[i + n]);)
			n++;
		if (n > 1 && p[i].weight && bytes_of(s, &p[i]) > 8)
			vote(v, p + i, n);
	}
}

static int drop(struct ck_nn_set *s, uint32_t rank, const struct votes *v,
		struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = s->ranks.v[rank].file };
	size_t kept = 0;

	for (size_t i = 0; i < s->pieces.nr; i++)
		if (s->pieces.v[i].rank != rank)
			s->pieces.v[kept++] = s->pieces.v[i];
	s->pieces.nr = kept;
	return ck_builder_problem(
		s->b, &p, err,
		"%u of its %u copies of weights differ from those of other ranks: it is of another save, and left aside",
		v->odd, v->compared);
}

/* Most of a file's copies differ: it cannot be of this save. */
static int drop_strangers(struct ck_nn_set *s, const struct votes *v,
			  struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < s->ranks.nr && !ret; i++) {
		if (v[i].odd < 2 || 2 * v[i].odd < v[i].compared)
			continue;
		if (2 * v[i].lonely >= v[i].odd)
			return ck_fail(
				err, EINVAL,
				"%s: %u of the %u copies of weights in %s differ from those of other ranks: these files are not of one save",
				s->dir->path, v[i].odd, v[i].compared,
				s->ranks.v[i].file);
		ret = drop(s, i, &v[i], err);
	}
	return ret;
}

int ck_nn_sums_read(struct ck_nn_set *s, struct ck_err *err)
{
	ck_auto_free struct votes *v = calloc(s->ranks.nr + 1, sizeof(*v));
	struct reads r = { 0 };
	int ret;

	if (!v)
		return ck_fail(err, ENOMEM, "no memory to compare copies");
	ret = list_copies(s, &r, err);
	if (!ret && r.v.nr) {
		qsort_r(r.v.v, r.v.nr, sizeof(*r.v.v), by_place, s);
		ret = sum_all(s, &r, err);
	}
	free(r.v.v);
	if (ret)
		return ret;
	/* all of them may be what broke off */
	if (ck_opts_get(s->dir->opts, CK_ANY_COPY))
		return 0;
	vote_all(s, v);
	return drop_strangers(s, v, err);
}
