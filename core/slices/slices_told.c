/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_told.c - what was said of shards, for a publish
 *
 * Nothing is believed for having been said: the file has to be the one it was, by
 * all of its times, and nobody else may claim bytes of it.  Else it is read.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/search.h"
#include "core/manifest/hash.h"

#include <string.h>
#include <sys/stat.h>

int ck_slices_told(struct ck_slices *sl, struct ck_err *err)
{
	int ret = ck_claims_told(sl->claims, &sl->told, err);

	for (uint32_t i = 0; i < sl->plan.nr_files && !ret; i++) {
		struct ck_claims_sums *s = &sl->told[i];
		ck_auto_fd int fd = -1;
		struct ck_id now;
		struct stat st;

		if (!s->good)
			continue;
		fd = ck_slices_shard(sl, i, false, NULL);
		s->good = fd >= 0 && !fstat(fd, &st);
		if (!s->good)
			continue;
		now = ck_id_of(&st);
		s->id.dev = now.dev;
		s->good = ck_id_compare(&s->id, &now) == CK_ID_SAME;
	}
	return ret;
}

const struct ck_claims_digest *ck_slices_told_digest(const struct ck_slices *sl,
						     uint32_t piece)
{
	const struct ck_claims_sums *s = &sl->told[sl->plan.pieces[piece].file];
	size_t at = CK_FIRST(i, 0, s->digest.nr, s->digest.v[i].piece >= piece);

	return s->good && at < s->digest.nr && s->digest.v[at].piece == piece ?
		       &s->digest.v[at] :
		       NULL;
}

static const char *copy(struct ck_hash_known *known, const char *s)
{
	return ck_arena_copy(&known->mem, s, strlen(s));
}

/* Its one piece is all of it. */
static void know_tensor(const struct ck_slices *sl, uint32_t t,
			struct ck_hash_known *known)
{
	const struct ck_slice_plan_tensor *is = &sl->plan.tensors[t];
	uint32_t piece = sl->by_tensor[sl->first_of[t]];
	const struct ck_slice_plan_piece *p = &sl->plan.pieces[piece];
	const struct ck_claims_digest *d;

	if (sl->first_of[t + 1] - sl->first_of[t] != 1 || p->flat ||
	    p->len != is->size)
		return;
	d = ck_slices_told_digest(sl, piece);
	if (!d)
		return;
	known->tensor[known->nr_tensors++] = (struct ck_hash_known_tensor){
		.name = copy(known, ck_slice_plan_str(&sl->plan, is->name)),
		.file = copy(known, ck_slices_file_name(sl, p->file)),
		.size = is->size,
		.digest = { .hi = d->hi, .lo = d->lo },
	};
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ck_hash_known_file *)a)->name,
		      ((const struct ck_hash_known_file *)b)->name);
}

int ck_slices_know(const struct ck_slices *sl, struct ck_hash_known *known,
		   struct ck_err *err)
{
	const struct ck_slice_plan *p = &sl->plan;

	known->file =
		ck_arena_alloc(&known->mem, p->nr_files * sizeof(*known->file));
	known->tensor = ck_arena_alloc(&known->mem,
				       p->nr_tensors * sizeof(*known->tensor));
	for (uint32_t i = 0; i < p->nr_files && !known->mem.failed; i++) {
		const struct ck_claims_sums *s = &sl->told[i];

		if (!s->good)
			continue;
		known->file[known->nr_files++] = (struct ck_hash_known_file){
			.name = copy(known, ck_slices_file_name(sl, i)),
			.id = s->id,
			.block = ck_arena_copy(&known->mem, s->block,
					       ck_claims_blocks(&p->files[i]) *
						       sizeof(*s->block)),
		};
	}
	for (uint32_t t = 0; t < p->nr_tensors && !known->mem.failed; t++)
		know_tensor(sl, t, known);
	if (known->mem.failed)
		return ck_no_memory(err);
	if (known->nr_files)
		qsort(known->file, known->nr_files, sizeof(*known->file),
		      by_name);
	return 0;
}
