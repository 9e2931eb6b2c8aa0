/* SPDX-License-Identifier: Apache-2.0 */
/* slices_missing.c - what is missing, for people: by rank, tensor and range */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/draft/dir_tree.h"
#include "core/root/openat_beneath.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RANKS_SAID 8
#define STEP CK_SLICES_SIBLING_STEP "/"

void ck_slices_lack(const struct ck_slices *sl, uint32_t piece,
		    struct ck_slices_lack *out)
{
	const struct ck_slice_plan_piece *p = &sl->plan.pieces[piece];
	struct ck_slice_plan_runs runs;

	*out = (struct ck_slices_lack){ 0 };
	ck_slice_plan_runs(&sl->plan, piece, &runs);
	for (uint64_t i = 0; i < runs.nr; i++) {
		uint64_t at = p->off + ck_slice_plan_run(&runs, i);
		uint64_t end = at + runs.len, from, to;

		for (; at < end; at = to) {
			ck_claims_gap(sl->claims, p->file, at, end, &from, &to);
			if (from < to && !out->bytes) {
				out->from = from - p->off;
				out->to = to - p->off;
			}
			out->bytes += to - from;
		}
	}
}

static void add_up(const struct ck_slices *sl,
		   const struct ck_slice_plan_rank *r,
		   const struct ck_slices_lack *v,
		   struct ck_slices_missing *out)
{
	*out = (struct ck_slices_missing){ .rank = r->rank, .slices = r->nr };
	for (uint32_t i = 0; i < r->nr; i++) {
		uint32_t piece = sl->plan.entries[r->first + i];
		uint32_t t = sl->plan.pieces[piece].tensor;

		out->whole += !v[piece].bytes;
		if (v[piece].bytes && !out->bytes) {
			out->tensor = ck_slice_plan_str(
				&sl->plan, sl->plan.tensors[t].name);
			out->from = v[piece].from;
			out->to = v[piece].to;
		}
		out->bytes += v[piece].bytes;
	}
}

static int list(struct ck_slices *sl, const struct ck_slices_lack *v,
		struct ck_slices_missing **out, size_t *nr, struct ck_err *err)
{
	struct ck_slices_missing one;
	size_t len = 0, k = 0;
	char *names;

	for (uint32_t i = 0; i < sl->plan.nr_ranks; i++) {
		add_up(sl, &sl->plan.ranks[i], v, &one);
		*nr += one.bytes != 0;
		len += one.bytes ? strlen(one.tensor) + 1 : 0;
	}
	*out = malloc(*nr * sizeof(**out) + len + 1);
	if (!*out)
		return ck_no_memory(err);
	names = (char *)(*out + *nr);
	for (uint32_t i = 0; i < sl->plan.nr_ranks; i++) {
		add_up(sl, &sl->plan.ranks[i], v, &one);
		if (!one.bytes)
			continue;
		(*out)[k] = one;
		(*out)[k++].tensor = names;
		names = stpcpy(names, one.tensor) + 1;
	}
	return 0;
}

/* Of each piece, once, for many ranks may hold it. */
static int look(struct ck_slices *sl, struct ck_slices_lack **out,
		struct ck_err *err)
{
	struct ck_slices_lack *v = calloc(sl->plan.nr_pieces + 1, sizeof(*v));
	int ret = v ? ck_claims_refresh(sl->claims, err) : ck_no_memory(err);

	if (ret) {
		free(v);
		return ret;
	}
	for (uint32_t i = 0; i < sl->plan.nr_pieces; i++)
		ck_slices_lack(sl, i, &v[i]);
	*out = v;
	return 0;
}

int ck_slices_lacks(struct ck_slices *sl, struct ck_slices_missing **out,
		    size_t *nr, struct ck_err *err)
{
	ck_auto_free struct ck_slices_lack *v = NULL;
	int ret = look(sl, &v, err);

	*out = NULL;
	*nr = 0;
	return ret ? ret : list(sl, v, out, nr, err);
}

static void report_holders(const struct ck_slices *sl, uint32_t piece, char *to,
			   size_t room)
{
	uint32_t t = sl->plan.pieces[piece].tensor;
	size_t n = 0, said = 0;

	*to = '\0';
	for (uint32_t r = 0; r < sl->plan.nr_ranks && n < room; r++) {
		uint32_t e = ck_slice_plan_find_entry(&sl->plan, r, t);

		if (e == CK_NONE || sl->plan.entries[e] != piece)
			continue;
		if (said++ < RANKS_SAID)
			n += (size_t)snprintf(to + n, room - n, "%s%" PRIu64,
					      said > 1 ? ", " : "",
					      sl->plan.ranks[r].rank);
	}
	if (said > RANKS_SAID && n < room)
		snprintf(to + n, room - n, " and %zu more", said - RANKS_SAID);
}

int ck_slices_refuse(const struct ck_slices *sl, uint32_t piece, uint64_t from,
		     uint64_t to, int code, const char *what,
		     struct ck_err *err)
{
	const struct ck_slice_plan_piece *p = &sl->plan.pieces[piece];
	char ranks[300];

	report_holders(sl, piece, ranks, sizeof(ranks));
	return ck_fail(
		err, code,
		"%.300s: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
		" %s (slice of rank%s %s)",
		ck_slice_plan_str(&sl->plan, sl->plan.tensors[p->tensor].name),
		from, to, p->len, what, strchr(ranks, ',') ? "s" : "", ranks);
}

int ck_slices_no_others(const struct ck_draft *s, struct ck_err *err)
{
	ck_auto_fd int dir = ck_beneath_dir(s->fd, CK_SLICES_SIBLING);
	ck_auto_dir_tree struct ck_dir_tree all = { 0 };
	int ret = dir < 0 ? 0 : ck_dir_tree_list(&all, dir, err);

	for (size_t i = 0; i < all.nr && !ret; i++) {
		const char *at = all.v[i].path;
		const char *in = isdigit((unsigned char)*at) ? "ranks/" : "";

		if (S_ISDIR(all.v[i].st.st_mode))
			continue;
		if (!strncmp(at, STEP, strlen(STEP)))
			at += strlen(STEP);
		ret = ck_fail(err, ENODATA,
			      "%s%.300s: no slice is called so; it is to be "
			      "renamed to one, or removed",
			      in, at);
	}
	return ret;
}

int ck_slices_check(struct ck_slices *sl, struct ck_err *err)
{
	ck_auto_free struct ck_slices_lack *v = NULL;
	int ret = look(sl, &v, err);

	/* in the order of tensors, as people look for them */
	for (uint32_t i = 0; i < sl->plan.nr_pieces && !ret; i++) {
		uint32_t piece = sl->by_tensor[i];

		if (v[piece].bytes)
			ret = ck_slices_refuse(sl, piece, v[piece].from,
					       v[piece].to, ENODATA,
					       "were not written", err);
	}
	return ret ? ret : ck_slices_no_others(sl->draft, err);
}
