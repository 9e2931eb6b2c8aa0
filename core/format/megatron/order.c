/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - args.rank in the rank files against the names of their folders
 *
 * Process ranks count tensor ranks fastest, then expert ranks, then stages;
 * with --use-tp-pp-dp-mapping stages come before expert ranks.  In both, of
 * two folders that differ in one number the higher one is of the higher rank.
 * The converters under Megatron-LM's tools/ run as one process, which gives
 * all folders the same rank: then only their contents tell copies.
 */
#include "core/base/auto.h"
#include "core/format/megatron/priv.h"
#include "core/assemble/file_same.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum field { TP, PP, EP, NR_FIELDS };

static unsigned number(const struct ck_mg_rank *r, unsigned field)
{
	return field == TP ? r->tp : field == PP ? r->pp : r->ep;
}

/* Those that differ in @last alone become neighbours. */
static int by_last(const void *pa, const void *pb, void *last)
{
	const struct ck_mg_rank *a = *(struct ck_mg_rank *const *)pa;
	const struct ck_mg_rank *b = *(struct ck_mg_rank *const *)pb;
	unsigned field = *(const unsigned *)last;

	for (unsigned i = 0; i < NR_FIELDS; i++) {
		unsigned f = (field + 1 + i) % NR_FIELDS;

		if (number(a, f) != number(b, f))
			return number(a, f) < number(b, f) ? -1 : 1;
	}
	return 0;
}

static int by_process(const void *pa, const void *pb)
{
	const struct ck_mg_rank *a = *(struct ck_mg_rank *const *)pa;
	const struct ck_mg_rank *b = *(struct ck_mg_rank *const *)pb;

	if (a->args.rank != b->args.rank)
		return a->args.rank < b->args.rank ? -1 : 1;
	return strcmp(a->dir, b->dir);
}

static bool differ_in_one(const struct ck_mg_rank *a,
			  const struct ck_mg_rank *b, unsigned field)
{
	for (unsigned f = 0; f < NR_FIELDS; f++)
		if ((number(a, f) != number(b, f)) != (f == field))
			return false;
	return true;
}

static int check_twice(const struct ck_mg_load *ld, struct ck_mg_rank **v,
		       size_t nr, struct ck_err *err)
{
	bool one_process;

	qsort(v, nr, sizeof(*v), by_process);
	one_process = nr && v[0]->args.rank == v[nr - 1]->args.rank;
	for (size_t i = 1; i < nr; i++) {
		int same = v[i - 1]->args.rank == v[i]->args.rank;

		if (same && one_process)
			same = ck_dir_same(ld->dir, v[i - 1]->file, v[i]->file,
					   err);
		if (same < 0)
			return same;
		if (same)
			return ck_fail(
				err, EINVAL,
				"%s: %s and %s are both of rank %" PRId64
				" by their args: one is a copy in the wrong folder",
				ld->dir->path, v[i - 1]->file, v[i]->file,
				v[i]->args.rank);
	}
	return one_process ? 1 : 0;
}

int ck_mg_order_check(const struct ck_mg_load *ld, struct ck_err *err)
{
	ck_auto_free struct ck_mg_rank **v =
		calloc(ld->ranks.nr + 1, sizeof(struct ck_mg_rank *));
	size_t nr = 0;
	int ret;

	if (!v)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	for (size_t i = 0; i < ld->ranks.nr; i++)
		if (ld->ranks.v[i].usable && ld->ranks.v[i].args.rank >= 0)
			v[nr++] = &ld->ranks.v[i];
	ret = check_twice(ld, v, nr, err);
	/* expert ranks split in a way unknown may be in any order */
	if (ret || !ld->etp)
		return ret < 0 ? ret : 0;
	for (unsigned field = 0; field < NR_FIELDS; field++) {
		qsort_r(v, nr, sizeof(struct ck_mg_rank *), by_last, &field);
		for (size_t i = 1; i < nr; i++)
			if (differ_in_one(v[i - 1], v[i], field) &&
			    v[i - 1]->args.rank > v[i]->args.rank)
				return ck_fail(
					err, EINVAL,
					"%s: args.rank is %" PRId64
					" in %s, expected more than the %" PRId64
					" in %s: their folders are swapped, or not of one run",
					ld->dir->path, v[i]->args.rank,
					v[i]->file, v[i - 1]->args.rank,
					v[i - 1]->file);
	}
	return 0;
}
