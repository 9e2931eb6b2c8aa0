/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves.c - the saves in the folders of ranks: one is chosen, or all listed
 *
 *   rank_0/CKP-1_32.ckpt rank_0/CKP-2_32.ckpt    rank_1/..
 *
 * Listed by names alone.  Files that belong to one save but are called
 * differently (net.ckpt, optimizer.ckpt) are no steps: names must have an epoch
 * and a step, or differ in their numbers only.
 */
#include "core/format/mindspore/mindspore.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/suffix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN 5

/* ---- the keys of all files ---- */

void ck_mindspore_keys_free(struct mindspore_keys *k)
{
	free(k->v.v);
	free(k->of.v);
	ck_arena_free(&k->mem);
	ck_strmap_free(&k->names);
	*k = (struct mindspore_keys){ .numbered = false };
}

/*
 * Numbers in names as numbers: net-9 before net-10.  *alike: they differ in
 * nothing else.
 */
static int compare_names(const char *a, const char *b, bool *alike)
{
	int way = 0;

	while (*a && *b) {
		char *a_end = (char *)a + 1, *b_end = (char *)b + 1;
		int here = (*a > *b) - (*a < *b);

		*alike = !here;
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			unsigned long long x = strtoull(a, &a_end, 10);
			unsigned long long y = strtoull(b, &b_end, 10);

			here = (x > y) - (x < y);
			*alike = true;
		}
		way = way ? way : here;
		if (!*alike)
			return way;
		a = a_end;
		b = b_end;
	}
	*alike = *a == *b;
	return way ? way : (*a != 0) - (*b != 0);
}

static bool is_later(const struct mindspore_key *a,
		     const struct mindspore_key *b)
{
	bool alike;

	if (a->epoch != b->epoch)
		return a->epoch > b->epoch;
	if (a->number != b->number)
		return a->number > b->number;
	return compare_names(a->name, b->name, &alike) > 0;
}

/*
 * Whether names say that they are two steps, and not files of one save:
 * "iter_99.ckpt", "iter_100.ckpt".
 */
static bool are_steps(const struct mindspore_key *a,
		      const struct mindspore_key *b)
{
	bool alike;

	compare_names(a->name, b->name, &alike);
	return alike || (a->epoch && b->epoch);
}

/* That @file, of @rank, is of the save @name. */
static bool add_key(struct mindspore_keys *k, const char *name, uint32_t file,
		    uint32_t rank)
{
	uint32_t at = (uint32_t)k->of.nr, nr;
	struct mindspore_key *key;

	if (!ck_vec_reserve(&k->v, 1) || !ck_vec_reserve(&k->of, 1))
		return false;
	nr = ck_strmap_keep(&k->names, &k->mem, name, strlen(name));
	if (nr == CK_STRMAP_NONE)
		return false;
	key = &k->v.v[nr];
	k->of.v[k->of.nr++] =
		(struct mindspore_key_file){ file, CK_STRMAP_NONE };
	if (nr < k->v.nr) {
		k->of.v[key->last].next = at;
	} else {
		*key = (struct mindspore_key){ .name = k->names.v[nr].s,
					       .first = at };
		if (ck_mindspore_epoch_in(name, &key->epoch, &key->number))
			key->epoch++;
		k->v.nr++;
	}
	key->last = at;
	if (key->last_rank != rank + 1) {
		key->last_rank = rank + 1;
		key->nr_ranks++;
	}
	return true;
}

/* All keys of @f: names, or with @numbered patterns.  Free it in any case. */
static int collect_keys(struct mindspore_keys *k,
			const struct mindspore_found *f, bool numbered,
			struct ck_err *err)
{
	*k = (struct mindspore_keys){ .numbered = numbered };
	for (uint32_t i = 0; i < f->file.nr; i++) {
		const struct mindspore_file *file = &f->file.v[i];
		ck_auto_str struct ck_str name = { 0 };

		for (size_t n = 0; ck_mindspore_key(&name, file->base,
						    file->rank, numbered, n);
		     n++)
			if (name.failed || !add_key(k, name.v, i, file->rank))
				return ck_no_memory(err);
	}
	return 0;
}

/* How many ranks the key has that most of them have. */
static size_t most_ranks(const struct mindspore_keys *k)
{
	size_t nr = 0;

	for (size_t i = 0; i < k->v.nr; i++)
		nr = CK_MAX(nr, k->v.v[i].nr_ranks);
	return nr;
}

/* Names, or patterns of names if more ranks have one of these, come first. */
static int collect_both(struct mindspore_keys k[2],
			const struct mindspore_found *f, struct ck_err *err)
{
	int ret = collect_keys(&k[0], f, false, err);

	k[1] = (struct mindspore_keys){ .numbered = true };
	if (!ret)
		ret = collect_keys(&k[1], f, true, err);
	if (!ret && f->ranks.nr > 1 && most_ranks(&k[1]) > most_ranks(&k[0])) {
		const struct mindspore_keys first = k[1];

		k[1] = k[0];
		k[0] = first;
	}
	return ret;
}

static void free_both(struct mindspore_keys k[2])
{
	ck_mindspore_keys_free(&k[0]);
	ck_mindspore_keys_free(&k[1]);
}

/* ---- one of them ---- */

static const struct mindspore_key *newest_key(const struct mindspore_keys *k)
{
	const struct mindspore_key *best = NULL;
	size_t nr_ranks = most_ranks(k);

	for (size_t i = 0; i < k->v.nr; i++)
		if (k->v.v[i].nr_ranks == nr_ranks &&
		    (!best || is_later(&k->v.v[i], best)))
			best = &k->v.v[i];
	return best;
}

/* By -o file=: a file's name, or a step's. */
static const struct mindspore_key *key_called(const struct mindspore_keys *k,
					      const struct mindspore_found *f,
					      const char *name)
{
	const struct mindspore_key *best = NULL;

	for (size_t i = 0; i < k->v.nr; i++) {
		const struct mindspore_key *key = &k->v.v[i];
		bool hit = !strcmp(key->name, name);

		for (uint32_t at = key->first; at != CK_STRMAP_NONE;
		     at = k->of.v[at].next)
			hit = hit ||
			      !strcmp(f->file.v[k->of.v[at].file].base, name);
		if (hit && (!best || key->nr_ranks > best->nr_ranks))
			best = key;
	}
	return best;
}

/* The keys of at least so many ranks but @but; @nr: how many there are. */
static void list_keys(const struct mindspore_keys *k,
		      const struct mindspore_key *but, size_t nr_ranks,
		      struct ck_str *out, size_t *nr)
{
	*nr = 0;
	for (size_t i = 0; i < k->v.nr; i++) {
		if (&k->v.v[i] == but || k->v.v[i].nr_ranks < nr_ranks)
			continue;
		if (++*nr <= MAX_SHOWN)
			ck_str_fmt(out, "%s%s", *nr > 1 ? ", " : "",
				   k->v.v[i].name);
	}
	if (*nr > MAX_SHOWN)
		ck_str_fmt(out, " and %zu more", *nr - MAX_SHOWN);
}

/* The first rank without a file of @key. */
static uint32_t who_lacks(const struct mindspore_found *f,
			  const struct mindspore_keys *k,
			  const struct mindspore_key *key)
{
	for (size_t i = 0; i < f->ranks.nr; i++) {
		bool has = false;

		for (uint32_t at = key->first; at != CK_STRMAP_NONE;
		     at = k->of.v[at].next)
			has = has ||
			      f->file.v[k->of.v[at].file].rank == f->ranks.v[i];
		if (!has)
			return f->ranks.v[i];
	}
	return 0;
}

static int no_such_file(const struct mindspore_keys k[2], const char *want,
			const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_str struct ck_str all = { 0 };
	size_t nr;

	list_keys(&k[k[0].numbered], NULL, 0, &all, &nr);
	return ck_fail(err, EINVAL,
		       "-o file=%s: no such file in %s; there are %s",
		       want ? want : "", dir->path,
		       all.v && !all.failed ? all.v : "none");
}

int ck_mindspore_choose(struct mindspore_found *f, struct ck_err *err)
{
	const struct ck_dir *dir = f->dir;
	const char *want = dir->only ? NULL :
			   dir->save ? dir->save :
				       ck_opts_use(dir->opts, "file");
	const struct mindspore_key *save = NULL;
	struct mindspore_keys k[2];
	int ret = collect_both(k, f, err), of = 0;

	if (!ret && !want)
		save = newest_key(&k[0]);
	for (int i = 0; i < 2 && !ret && want && !save; i++) {
		of = i;
		save = key_called(&k[i], f, want);
	}
	if (!ret && !save)
		ret = no_such_file(k, want, dir, err);
	if (!ret) {
		f->save = save;
		f->keys = k[of];
		for (uint32_t at = save->first; at != CK_STRMAP_NONE;
		     at = k[of].of.v[at].next)
			f->file.v[k[of].of.v[at].file].chosen = true;
		k[of] = (struct mindspore_keys){ .numbered = false };
	}
	free_both(k);
	return ret;
}

/* ---- those that are not shown ---- */

/*
 * What belongs to the save that is shown, is no step of its own, and is not in
 * every rank: the key that most of them have.  A pattern of names that one rank
 * alone has is none.
 */
static const struct mindspore_key *partial_key(const struct mindspore_found *f)
{
	const struct mindspore_key *most = NULL;

	for (size_t i = 0; i < f->keys.v.nr; i++) {
		const struct mindspore_key *key = &f->keys.v.v[i];

		if (key != f->save && key->nr_ranks < f->ranks.nr &&
		    key->nr_ranks > f->keys.numbered &&
		    !are_steps(key, f->save) &&
		    (!most || key->nr_ranks > most->nr_ranks))
			most = key;
	}
	return most;
}

/* A later step that some rank lacks. */
static const struct mindspore_key *newer_key(const struct mindspore_found *f)
{
	const struct mindspore_key *best = NULL;

	for (size_t i = 0; i < f->keys.v.nr && !f->keys.numbered; i++) {
		const struct mindspore_key *key = &f->keys.v.v[i];

		if (is_later(key, f->save) && are_steps(key, f->save) &&
		    key->nr_ranks < f->save->nr_ranks &&
		    (!best || is_later(key, best)))
			best = key;
	}
	return best;
}

/* Of a file that a few ranks have nobody knows that the others should. */
static int report_partial(const struct mindspore_found *f, struct ck_builder *b,
			  struct ck_err *err)
{
	const struct mindspore_key *part = partial_key(f);

	if (!part)
		return 0;
	return ck_builder_report_file(
		b, 2 * part->nr_ranks < f->ranks.nr ? CK_WARNING : CK_ERROR,
		NULL, err,
		"rank %u has no %s, and %zu of %zu ranks have; %s is shown "
		"(-o file=%s shows what there is of it)",
		who_lacks(f, &f->keys, part), part->name, part->nr_ranks,
		f->ranks.nr, f->save->name, part->name);
}

int ck_mindspore_report_saves(const struct mindspore_found *f,
			      struct ck_builder *b, struct ck_err *err)
{
	bool chosen = ck_opts_get(f->dir->opts, "file");
	const struct mindspore_key *later = newer_key(f);
	ck_auto_str struct ck_str others = { 0 };
	size_t nr;
	int ret = chosen ? 0 : report_partial(f, b, err);

	if (!ret && later)
		ret = ck_builder_report_file(
			b, CK_WARNING, NULL, err,
			"%s is newer than %s, but rank %u has none; -o file=%s shows what there is of it",
			later->name, f->save->name,
			who_lacks(f, &f->keys, later), later->name);
	list_keys(&f->keys, f->save, f->save->nr_ranks, &others, &nr);
	if (!ret && others.failed)
		ret = ck_no_memory(err);
	if (!ret && nr) /* who chose none may miss what the others hold */
		ret = ck_builder_report_file(
			b, chosen ? CK_NOTE : CK_WARNING, NULL, err,
			"%s is shown%s; there %s %s too (-o file=NAME shows one)",
			f->save->name, chosen ? "" : ", the last by name",
			nr > 1 ? "are" : "is", others.v);
	return ret;
}

/* ---- all of them ---- */

static int by_spread(const void *pa, const void *pb)
{
	const struct mindspore_key *a = *(struct mindspore_key *const *)pa;
	const struct mindspore_key *b = *(struct mindspore_key *const *)pb;

	if (a->nr_ranks != b->nr_ranks)
		return a->nr_ranks > b->nr_ranks ? -1 : 1;
	return (a > b) - (a < b);
}

static int by_age(const void *pa, const void *pb)
{
	const struct mindspore_key *a = *(struct mindspore_key *const *)pa;
	const struct mindspore_key *b = *(struct mindspore_key *const *)pb;

	return is_later(a, b) - is_later(b, a);
}

/*
 * Of patterns of names a file has one for each number in it: those of most
 * ranks first, until each file has one.  Writes them to @out, the oldest first.
 */
static size_t cover_files(const struct mindspore_keys *k, bool *had,
			  const struct mindspore_key **out)
{
	size_t nr = 0;

	for (size_t i = 0; i < k->v.nr; i++)
		out[i] = &k->v.v[i];
	qsort(out, k->v.nr, sizeof(struct mindspore_key *), by_spread);
	for (size_t i = 0; i < k->v.nr; i++) {
		bool adds = false;

		for (uint32_t at = out[i]->first; at != CK_STRMAP_NONE;
		     at = k->of.v[at].next) {
			adds = adds || !had[k->of.v[at].file];
			had[k->of.v[at].file] = true;
		}
		if (adds)
			out[nr++] = out[i];
	}
	qsort(out, nr, sizeof(struct mindspore_key *), by_age);
	return nr;
}

static int list_saves(struct ck_saves *out, const struct mindspore_keys *k,
		      size_t nr_files)
{
	ck_auto_free const struct mindspore_key **v =
		calloc(k->v.nr + 1, sizeof(struct mindspore_key *));
	ck_auto_free bool *had = calloc(nr_files + 1, sizeof(*had));
	const struct mindspore_key *before = NULL;
	bool steps = false;
	size_t nr;

	if (!v || !had)
		return -ENOMEM;
	nr = cover_files(k, had, v);
	for (size_t i = 0; i < nr; i++) {
		char **slot;

		/* without ranks nothing but the name says whose file it is */
		if (!out->in_ranks && !v[i]->epoch)
			continue;
		steps = steps || (before && are_steps(before, v[i]));
		before = v[i];
		slot = ck_vec_push(&out->v);
		if (!slot || !(*slot = strdup(v[i]->name)))
			return -ENOMEM;
	}
	if (!steps)
		ck_saves_free(out);
	return 0;
}

int ck_mindspore_saves_find(struct ck_saves *out, const struct ck_dir *dir,
			    const char *in, struct ck_err *err)
{
	struct mindspore_keys k[2] = { { .numbered = false } };
	struct mindspore_found f;
	int ret = ck_mindspore_find_names(&f, dir, in, err);

	*out = (struct ck_saves){ .in_ranks = f.mode == MINDSPORE_RANKS };
	if (!ret && f.mode != MINDSPORE_NOTHING) {
		ret = collect_both(k, &f, err);
		if (!ret && list_saves(out, &k[0], f.file.nr))
			ret = ck_no_memory(err);
	}
	free_both(k);
	ck_mindspore_found_free(&f);
	return ret;
}
