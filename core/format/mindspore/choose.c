/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - of the saves in the folders of ranks, one; see keys.h */
#include "core/format/mindspore/find.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/format/mindspore/keys.h"
#include "core/format/mindspore/set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN 5

static struct ck_ms_key *newest(const struct ck_ms_keys *s, size_t nr_ranks)
{
	struct ck_ms_key *best = NULL;

	for (size_t i = 0; i < s->v.nr; i++)
		if (s->v.v[i].nr_ranks == nr_ranks &&
		    (!best || ck_ms_key_later(&s->v.v[i], best)))
			best = &s->v.v[i];
	return best;
}

/* By -o file=: a file's name, or a step's. */
static struct ck_ms_key *wanted(const struct ck_ms_found *f,
				const struct ck_ms_keys *s, const char *name,
				bool *failed)
{
	struct ck_ms_key *best = NULL;

	for (size_t k = 0; k < s->v.nr; k++) {
		struct ck_ms_key *step = &s->v.v[k];

		bool hit = !strcmp(step->key, name);

		for (size_t i = 0; i < f->file.nr && !hit; i++)
			hit = !strcmp(f->file.v[i].base, name) &&
			      ck_ms_key_is_of(f->file.v[i].base,
					      f->file.v[i].rank, s->numbered,
					      step->key, failed);
		if (hit && (!best || step->nr_ranks > best->nr_ranks))
			best = step;
	}
	return best;
}

static char *list_steps(const struct ck_ms_keys *s, const struct ck_ms_key *but,
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

static uint32_t who_lacks(const struct ck_ms_found *f,
			  const struct ck_ms_keys *s, const char *key,
			  size_t *nr, bool *failed)
{
	uint32_t first = 0;

	*nr = 0;
	for (size_t i = 0; i < f->ranks.nr; i++) {
		bool has = false;

		for (size_t k = 0; k < f->file.nr && !has; k++)
			has = f->file.v[k].rank == f->ranks.v[i] &&
			      ck_ms_key_is_of(f->file.v[k].base,
					      f->file.v[k].rank, s->numbered,
					      key, failed);
		if (!has && !(*nr)++)
			first = f->ranks.v[i];
	}
	return first;
}

/*
 * What belongs to the save beside @step, is no step of its own, and is not in
 * every rank: the key that most of them have.  A pattern of names that one rank
 * alone has is none.
 */
static const struct ck_ms_key *partial(const struct ck_ms_found *f,
				       const struct ck_ms_keys *s,
				       const struct ck_ms_key *step)
{
	const struct ck_ms_key *most = NULL;

	for (size_t i = 0; i < s->v.nr; i++) {
		const struct ck_ms_key *key = &s->v.v[i];

		if (key != step && key->nr_ranks < f->ranks.nr &&
		    key->nr_ranks > s->numbered &&
		    !ck_ms_key_are_steps(key, step) &&
		    (!most || key->nr_ranks > most->nr_ranks))
			most = key;
	}
	return most;
}

static int take_partial(struct ck_ms_found *f, const struct ck_ms_keys *s,
			const struct ck_ms_key *key, struct ck_err *err)
{
	bool failed = false;
	size_t nr;

	f->partial = strdup(key->key);
	f->nr_partial = key->nr_ranks;
	f->partial_lacks = who_lacks(f, s, key->key, &nr, &failed);
	return failed || !f->partial ? ck_ms_no_memory(err) : 0;
}

static int take(struct ck_ms_found *f, const struct ck_ms_keys *s,
		const struct ck_ms_key *step, struct ck_err *err)
{
	bool failed = false;
	struct ck_ms_key *newer = NULL;
	const struct ck_ms_key *part;
	size_t nr;

	for (size_t i = 0; i < f->file.nr; i++)
		f->file.v[i].chosen =
			ck_ms_key_is_of(f->file.v[i].base, f->file.v[i].rank,
					s->numbered, step->key, &failed);
	f->nr_lacking = f->ranks.nr - step->nr_ranks;
	f->step = strdup(step->key);
	f->others = list_steps(s, step, step->nr_ranks, &f->nr_others);
	for (size_t i = 0; i < s->v.nr && !s->numbered; i++)
		if (ck_ms_key_later(&s->v.v[i], step) &&
		    ck_ms_key_are_steps(&s->v.v[i], step) &&
		    s->v.v[i].nr_ranks < step->nr_ranks &&
		    (!newer || ck_ms_key_later(&s->v.v[i], newer)))
			newer = &s->v.v[i];
	if (newer) {
		f->newer = strdup(newer->key);
		f->newer_lacks = who_lacks(f, s, newer->key, &nr, &failed);
	}
	if (failed || !f->step || (f->nr_others && !f->others) ||
	    (newer && !f->newer))
		return ck_ms_no_memory(err);
	part = partial(f, s, step);
	return part ? take_partial(f, s, part, err) : 0;
}

static int choose(struct ck_ms_found *f, struct ck_ms_keys *by_name,
		  struct ck_ms_keys *by_rank, const struct ck_dir *dir,
		  struct ck_err *err)
{
	const char *want = dir->only ? NULL :
			   dir->save ? dir->save :
				       ck_opts_use(dir->opts, "file");
	struct ck_ms_keys *s =
		ck_ms_keys_most(by_name) >= ck_ms_keys_most(by_rank) ||
				f->ranks.nr < 2 ?
			by_name :
			by_rank;
	struct ck_ms_key *step = NULL;
	bool failed = false;
	size_t nr;

	if (want) {
		step = wanted(f, s, want, &failed);
		if (!step) {
			s = s == by_name ? by_rank : by_name;
			step = wanted(f, s, want, &failed);
		}
	} else {
		step = newest(s, ck_ms_keys_most(s));
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
	struct ck_ms_keys by_name = { .numbered = false }, by_rank = by_name;
	int ret = ck_ms_keys_collect(&by_name, f, false, err);

	if (!ret)
		ret = ck_ms_keys_collect(&by_rank, f, true, err);
	if (!ret)
		ret = choose(f, &by_name, &by_rank, dir, err);
	ck_ms_keys_free(&by_name);
	ck_ms_keys_free(&by_rank);
	return ret;
}
