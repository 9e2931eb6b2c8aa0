/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gaps.c - which shards of DCP's HuggingFaceStorageWriter are not there
 *
 *	shard-RANK-model-K-of-N.safetensors
 *
 * A tensor is in files of one K only, of as many ranks as have a piece of it.
 * So a file of that K that is lost may have had more of each of its tensors.
 * That one is lost is seen by its damage, by its number where others of the
 * rank, or later ranks, are there, and by elements that no file has.
 */
#include "core/format/hf/set.h"

#include "core/base/auto.h"
#include "core/base/search.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "shards"
#define SHARD "shard-%05u-model-%05u-of-%05u.safetensors"

struct shard {
	struct ck_st_shard is;
	bool unusable;
};

static int by_file(const void *a, const void *b)
{
	const struct ck_st_shard *x = &((const struct shard *)a)->is;
	const struct ck_st_shard *y = &((const struct shard *)b)->is;

	return ck_order2(x->file, y->file, x->rank, y->rank);
}

static int list(struct shard *v, const struct ck_hf_set *s, unsigned *ranks,
		struct ck_err *err)
{
	*ranks = 0;
	for (size_t i = 0; i < s->files.nr; i++) {
		struct ck_st_shard *is = &v[i].is;

		v[i].unusable = !s->a.files.v[i].usable;
		if (!ck_st_is_shard(s->files.name[i], is) || !is->rank ||
		    !is->file || is->file > is->of)
			return ck_fail(err, EINVAL,
				       "%s: expected ranks and files that are "
				       "counted from 1",
				       s->files.name[i]);
		if (is->of != v[0].is.of)
			return ck_fail(err, EINVAL,
				       "%s: shards of two saves, this one and "
				       "%s: leave those of one",
				       s->files.name[i], s->files.name[0]);
		if (is->rank > *ranks)
			*ranks = is->rank;
	}
	return 0;
}

/* The files of one K, [v, v + nr), in order of their ranks. */
static struct ck_hf_gap first_gap(const struct shard *v, size_t nr,
				  unsigned ranks, bool told)
{
	struct ck_hf_gap g = { .file = v[0].is.file };

	for (size_t i = 0; i < nr; i++)
		if (v[i].unusable) {
			g.what = CK_HF_DAMAGED;
			g.rank = v[i].is.rank;
			return g;
		}
	if (told || nr >= ranks)
		return g;
	g.what = CK_HF_ABSENT;
	while (g.rank < nr && v[g.rank].is.rank == g.rank + 1)
		g.rank++;
	g.rank++;
	return g;
}

/* -o shards=N, and whether that many files are here. */
static int told(struct ck_hf_gaps *g, const struct ck_hf_set *s,
		struct ck_err *err)
{
	const char *value = ck_opts_use(s->a.dir->opts, OPTION);
	unsigned long nr;
	char *end;

	if (!value)
		return 0;
	nr = strtoul(value, &end, 10);
	if (!isdigit((unsigned char)*value) || *end)
		return ck_fail(err, EINVAL,
			       "-o " OPTION "=%s: expected the number of shard "
			       "files that were saved",
			       value);
	if (nr != s->files.nr)
		return ck_fail(err, EINVAL,
			       "%s: %zu shard files, and -o " OPTION
			       "=%s says how many were saved",
			       s->a.dir->path, s->files.nr, value);
	g->told = true;
	return 0;
}

int ck_hf_gaps_find(struct ck_hf_gaps *g, const struct ck_hf_set *s,
		    struct ck_err *err)
{
	ck_auto_free struct shard *v = calloc(s->files.nr + 1, sizeof(*v));
	unsigned ranks;
	size_t end;
	int ret;

	*g = (struct ck_hf_gaps){ .v = calloc(s->files.nr + 1, sizeof(*g->v)) };
	if (!v || !g->v)
		return ck_no_memory(err);
	ret = told(g, s, err);
	ret = ret ? ret : list(v, s, &ranks, err);
	if (ret)
		return ret;
	g->of = v[0].is.of;
	qsort(v, s->files.nr, sizeof(*v), by_file);
	for (size_t i = 0; i < s->files.nr; i = end) {
		for (end = i + 1; end < s->files.nr; end++)
			if (v[end].is.file != v[i].is.file)
				break;
		g->v[g->nr++] = first_gap(v + i, end - i, ranks, g->told);
	}
	return 0;
}

void ck_hf_gaps_free(struct ck_hf_gaps *g)
{
	free(g->v);
	*g = (struct ck_hf_gaps){ 0 };
}

struct ck_hf_gap *ck_hf_gaps_of(const struct ck_hf_gaps *g,
				const struct ck_hf_set *s, size_t i)
{
	struct ck_st_shard is = { 0 };

	ck_st_is_shard(s->files.name[i], &is);
	return &g->v[CK_LAST(k, 0, g->nr, g->v[k].file <= is.file)];
}

/* A K of which there is nothing took its tensors with it, names and all. */
static int say_no_file(const struct ck_hf_gaps *g, const struct ck_hf_set *s,
		       struct ck_err *err)
{
	unsigned k = 0;

	if (g->told || g->nr == g->of)
		return 0;
	while (k < g->nr && g->v[k].file == k + 1)
		k++;
	return ck_builder_report_file(
		s->a.b, CK_ERROR, NULL, err,
		"no shard-*-model-%05u-of-%05u.safetensors: "
		"what tensors it had is in no other file; -o " OPTION
		"=%zu says that nothing is missing",
		k + 1, g->of, s->files.nr);
}

int ck_hf_gaps_say(const struct ck_hf_gaps *g, const struct ck_hf_set *s,
		   struct ck_err *err)
{
	int ret = 0;

	if (!g->told)
		ret = ck_builder_report_file(
			s->a.b, CK_WARNING, NULL, err,
			"sharded files without an index: shapes are what the "
			"boxes span, and a last rank whose files are lost "
			"would not be noticed; -o " OPTION
			"=N says how many files were saved");
	return ret ? ret : say_no_file(g, s, err);
}

int ck_hf_gap_refuse(const struct ck_hf_gap *gap, const struct ck_hf_gaps *g,
		     struct ck_hf_set *s, struct ck_asm_tensor *t,
		     struct ck_err *err)
{
	if (gap->what == CK_HF_DAMAGED)
		return ck_asm_refuse(&s->a, t, err,
				     SHARD
				     " is damaged and may have had more of it: "
				     "nothing else tells its shape",
				     gap->rank, gap->file, g->of);
	if (gap->what == CK_HF_ABSENT)
		return ck_asm_refuse(
			&s->a, t, err,
			SHARD " is not there and may have had more of it: "
			      "nothing else tells its shape; -o " OPTION
			      "=%zu says that nothing is missing",
			gap->rank, gap->file, g->of, s->files.nr);
	return ck_asm_refuse(
		&s->a, t, err,
		"a shard-*-model-%05u-of-%05u.safetensors is missing, for "
		"elements of %.*s are in none, and may have had more of it: "
		"nothing else tells its shape; -o " OPTION
		"=%zu says that nothing is missing",
		gap->file, g->of,
		(int)(gap->name_len > 100 ? 100 : gap->name_len), gap->name,
		s->files.nr);
}
