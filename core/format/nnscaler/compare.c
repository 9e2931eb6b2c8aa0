/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - small copies, which tell files that are of another save
 *
 * Each file is read once, in the order of its bytes.  What is larger is left
 * to "unshard verify --replicas".
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_ONE (UINT64_C(1) << 20)
#define MAX_ALL (UINT64_C(64) << 20) /* what a mount reads for it */
#define MAX_READS (1u << 16)

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
		nr = ck_nnscaler_copies(&p[i], n->pieces.nr - i);
		for (size_t k = i; nr > 1 && k < i + nr; k++) {
			if (!is_wanted(r, &p[k]))
				continue;
			if (!ck_vec_reserve(&r->v, 1))
				return ck_fail(err, ENOMEM, "no memory");
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
				return ck_fail(err, ENOMEM, "no memory");
		}
		if (src)
			sum_one(src, p, room);
	}
	return room ? 0 : ck_fail(err, ENOMEM, "no memory");
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

int ck_nnscaler_compare(struct nnscaler *n, struct ck_err *err)
{
	ck_auto_free struct votes *v = calloc(n->ranks.nr + 1, sizeof(*v));
	struct nnscaler_piece *p = n->pieces.v;
	struct reads r = { 0 };
	int ret =
		v ? list_copies(n, &r, err) : ck_fail(err, ENOMEM, "no memory");

	if (!ret && r.v.nr) {
		qsort(r.v.v, r.v.nr, sizeof(*r.v.v), by_place);
		ret = sum_all(n, &r, err);
	}
	free(r.v.v);
	/* with any copy: all of them may be what broke off */
	if (ret || ck_opts_get(n->dir->opts, CK_ANY_COPY))
		return ret;
	for (size_t i = 0, nr; i < n->pieces.nr; i += nr) {
		nr = ck_nnscaler_copies(&p[i], n->pieces.nr - i);
		if (nr > 1 && p[i].weight && bytes_of(&p[i]) > 8)
			vote(v, p + i, nr);
	}
	return drop_strangers(n, v, err);
}
