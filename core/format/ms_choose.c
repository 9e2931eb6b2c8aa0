/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ms_choose.c - of the steps in the folders of ranks, one
 *
 * Files of one step have one name in all folders, or names that differ in the
 * rank's number, "{r}" here; "_part0" and so on before the ending is no part
 * of the name.
 */
#include "core/format/ms_find.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/format/ms_set.h"
#include "core/format/strmap.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN 5

struct step {
	char *key;
	size_t nr_ranks;
	uint32_t last; /* rank counted last, + 1 */
	uint64_t epoch, number;
};

struct steps {
	CK_VEC(struct step) v;
	struct ck_strmap names;
	bool numbered; /* keys have {r} */
};

static void steps_free(struct steps *s)
{
	for (size_t i = 0; i < s->v.nr; i++)
		free(s->v.v[i].key);
	free(s->v.v);
	ck_strmap_free(&s->names);
}

/* Where "_part<k>" before the ending begins and ends, or @len twice. */
static void part_in(const char *base, size_t *from, size_t *to)
{
	const char *dot = strrchr(base, '.');
	size_t end = dot ? (size_t)(dot - base) : strlen(base), at = end;

	while (at && isdigit((unsigned char)base[at - 1]))
		at--;
	*from = *to = end;
	if (at < end && at >= 5 && !memcmp(base + at - 5, "_part", 5))
		*from = at - 5;
}

/* The @nth number in @base that is @rank, as [*from, *to); false: no more. */
static bool number_in(const char *base, uint32_t rank, size_t nth, size_t *from,
		      size_t *to)
{
	size_t at = 0;

	while (base[at]) {
		char *end;

		if (!isdigit((unsigned char)base[at])) {
			at++;
			continue;
		}
		*from = at;
		if (strtoull(base + at, &end, 10) == rank && nth-- == 0) {
			*to = (size_t)(end - base);
			return true;
		}
		at = (size_t)(end - base);
	}
	return false;
}

/*
 * The @nth key of a file: by its name, or, with @numbered, with each number
 * that is the rank's left open.  NULL: there are no more.
 */
static char *key_of(const struct ck_ms_found_file *f, bool numbered, size_t nth,
		    bool *failed)
{
	ck_auto_free char *bare = NULL;
	size_t from, to;
	char *key = NULL;

	part_in(f->base, &from, &to);
	if (asprintf(&bare, "%.*s%s", (int)from, f->base, f->base + to) < 0) {
		bare = NULL;
		*failed = true;
		return NULL;
	}
	if (!numbered)
		return nth ? NULL : ck_steal(bare);
	if (!number_in(bare, f->rank, nth, &from, &to))
		return NULL;
	if (asprintf(&key, "%.*s{r}%s", (int)from, bare, bare + to) < 0) {
		*failed = true;
		return NULL;
	}
	return key;
}

/* "CKP_1-4_32.ckpt", "net-1_2_breakpoint.ckpt": epoch 4, step 32. */
static void read_numbers(struct step *s)
{
	const char *at = s->key;

	for (; *at; at++) {
		unsigned long long epoch, number;
		int n = 0;

		if (*at != '-' || !isdigit((unsigned char)at[1]) ||
		    sscanf(at, "-%18llu_%18llu%n", &epoch, &number, &n) != 2 ||
		    !n)
			continue;
		s->epoch = epoch + 1;
		s->number = number;
	}
}

/* Numbers in names as numbers: net-9 before net-10. */
static int natural(const char *a, const char *b)
{
	while (*a && *b) {
		char *a_end, *b_end;
		unsigned long long x, y;

		if (!isdigit((unsigned char)*a) ||
		    !isdigit((unsigned char)*b)) {
			if (*a != *b)
				return *a < *b ? -1 : 1;
			a++;
			b++;
			continue;
		}
		x = strtoull(a, &a_end, 10);
		y = strtoull(b, &b_end, 10);
		if (x != y)
			return x < y ? -1 : 1;
		a = a_end;
		b = b_end;
	}
	return *a ? 1 : *b ? -1 : 0;
}

static bool later(const struct step *a, const struct step *b)
{
	if (a->epoch != b->epoch)
		return a->epoch > b->epoch;
	if (a->number != b->number)
		return a->number > b->number;
	return natural(a->key, b->key) > 0;
}

static int count(struct steps *s, char *key, uint32_t rank)
{
	uint32_t at = s->names.nr ? ck_strmap_get(&s->names, key, strlen(key)) :
				    CK_STRMAP_NONE;
	struct step *step;

	if (at == CK_STRMAP_NONE) {
		if (!ck_vec_reserve(&s->v, 1)) {
			free(key);
			return -ENOMEM;
		}
		at = ck_strmap_put(&s->names, key, strlen(key));
		if (at == CK_STRMAP_NONE) {
			free(key);
			return -ENOMEM;
		}
		s->v.v[s->v.nr] = (struct step){ .key = key };
		read_numbers(&s->v.v[s->v.nr++]);
	} else {
		free(key);
	}
	step = &s->v.v[at];
	if (step->last != rank + 1) {
		step->last = rank + 1;
		step->nr_ranks++;
	}
	return 0;
}

static int collect(struct steps *s, const struct ck_ms_found *f, bool numbered,
		   struct ck_err *err)
{
	s->numbered = numbered;
	for (size_t i = 0; i < f->file.nr; i++) {
		const struct ck_ms_found_file *file = &f->file.v[i];
		bool failed = false;
		char *key;

		for (size_t nth = 0;
		     (key = key_of(file, numbered, nth, &failed)); nth++)
			if (count(s, key, file->rank))
				return ck_ms_no_memory(err);
		if (failed)
			return ck_ms_no_memory(err);
	}
	return 0;
}

static size_t most(const struct steps *s)
{
	size_t nr = 0;

	for (size_t i = 0; i < s->v.nr; i++)
		nr = CK_MAX(nr, s->v.v[i].nr_ranks);
	return nr;
}

static struct step *newest(const struct steps *s, size_t nr_ranks)
{
	struct step *best = NULL;

	for (size_t i = 0; i < s->v.nr; i++)
		if (s->v.v[i].nr_ranks == nr_ranks &&
		    (!best || later(&s->v.v[i], best)))
			best = &s->v.v[i];
	return best;
}

/* Whether @file is of the step. */
static bool is_of(const struct ck_ms_found_file *file, const struct steps *s,
		  const char *key, bool *failed)
{
	char *own;

	for (size_t nth = 0; (own = key_of(file, s->numbered, nth, failed));
	     nth++) {
		bool same = !strcmp(own, key);

		free(own);
		if (same)
			return true;
	}
	return false;
}

/* By -o file=: a file's name, or a step's. */
static struct step *wanted(const struct ck_ms_found *f, const struct steps *s,
			   const char *name, bool *failed)
{
	struct step *best = NULL;

	for (size_t k = 0; k < s->v.nr; k++) {
		struct step *step = &s->v.v[k];

		bool hit = !strcmp(step->key, name);

		for (size_t i = 0; i < f->file.nr && !hit; i++)
			hit = !strcmp(f->file.v[i].base, name) &&
			      is_of(&f->file.v[i], s, step->key, failed);
		if (hit && (!best || step->nr_ranks > best->nr_ranks))
			best = step;
	}
	return best;
}

static char *list_steps(const struct steps *s, const struct step *but,
			size_t nr_ranks, size_t *nr)
{
	struct ck_str text = { 0 };

	*nr = 0;
	for (size_t i = 0; i < s->v.nr; i++) {
		if (&s->v.v[i] == but || s->v.v[i].nr_ranks < nr_ranks)
			continue;
		if (++*nr <= MAX_SHOWN)
			ck_str_fmt(&text, "%s%s", *nr > 1 ? ", " : "",
				   s->v.v[i].key);
	}
	if (*nr > MAX_SHOWN)
		ck_str_fmt(&text, " and %zu more", *nr - MAX_SHOWN);
	if (text.failed)
		ck_str_free(&text);
	return text.v;
}

static uint32_t who_lacks(const struct ck_ms_found *f, const struct steps *s,
			  const char *key, size_t *nr, bool *failed)
{
	uint32_t first = 0;

	*nr = 0;
	for (size_t i = 0; i < f->ranks.nr; i++) {
		bool has = false;

		for (size_t k = 0; k < f->file.nr && !has; k++)
			has = f->file.v[k].rank == f->ranks.v[i] &&
			      is_of(&f->file.v[k], s, key, failed);
		if (!has && !(*nr)++)
			first = f->ranks.v[i];
	}
	return first;
}

static int take(struct ck_ms_found *f, const struct steps *s,
		const struct step *step, struct ck_err *err)
{
	bool failed = false;
	struct step *newer = NULL;
	size_t nr;

	for (size_t i = 0; i < f->file.nr; i++)
		f->file.v[i].chosen =
			is_of(&f->file.v[i], s, step->key, &failed);
	f->nr_lacking = f->ranks.nr - step->nr_ranks;
	f->step = strdup(step->key);
	f->others = list_steps(s, step, step->nr_ranks, &f->nr_others);
	for (size_t i = 0; i < s->v.nr && !s->numbered; i++)
		if (later(&s->v.v[i], step) &&
		    s->v.v[i].nr_ranks < step->nr_ranks &&
		    (!newer || later(&s->v.v[i], newer)))
			newer = &s->v.v[i];
	if (newer) {
		f->newer = strdup(newer->key);
		f->newer_lacks = who_lacks(f, s, newer->key, &nr, &failed);
	}
	return failed || !f->step || (f->nr_others && !f->others) ||
			       (newer && !f->newer) ?
		       ck_ms_no_memory(err) :
		       0;
}

static int choose(struct ck_ms_found *f, struct steps *by_name,
		  struct steps *by_rank, const struct ck_dir *dir,
		  struct ck_err *err)
{
	const char *want = dir->only ? NULL : ck_opts_get(dir->opts, "file");
	struct steps *s = most(by_name) >= most(by_rank) || f->ranks.nr < 2 ?
				  by_name :
				  by_rank;
	struct step *step = NULL;
	bool failed = false;
	size_t nr;

	if (want) {
		step = wanted(f, s, want, &failed);
		if (!step) {
			s = s == by_name ? by_rank : by_name;
			step = wanted(f, s, want, &failed);
		}
	} else {
		step = newest(s, most(s));
	}
	if (failed)
		return ck_ms_no_memory(err);
	if (!step) {
		ck_auto_free char *all = list_steps(by_name, NULL, 0, &nr);

		return ck_fail(err, EINVAL,
			       "-o file=%s: no such file in %s; there are %s",
			       want ? want : "", dir->path, all ? all : "none");
	}
	return take(f, s, step, err);
}

int ck_ms_choose(struct ck_ms_found *f, const struct ck_dir *dir,
		 struct ck_err *err)
{
	struct steps by_name = { .numbered = false }, by_rank = by_name;
	int ret = collect(&by_name, f, false, err);

	if (!ret)
		ret = collect(&by_rank, f, true, err);
	if (!ret)
		ret = choose(f, &by_name, &by_rank, dir, err);
	steps_free(&by_name);
	steps_free(&by_rank);
	return ret;
}
