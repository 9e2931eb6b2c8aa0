/* SPDX-License-Identifier: Apache-2.0 */
/* saves.c - several saves in the folders of ranks, by their names */
#include "core/format/mindspore/saves.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/base/str.h"
#include "core/format/mindspore/find.h"
#include "core/format/mindspore/keys.h"
#include "core/format/mindspore/set.h"

#include <errno.h>
#include <string.h>

struct taking {
	const struct ck_ms_keys *keys;
	CK_VEC(uint32_t) taken; /* numbers of keys */
};

static int by_spread(const void *pa, const void *pb, void *ctx)
{
	const struct ck_ms_key *a = &((struct ck_ms_key *)ctx)[*(uint32_t *)pa];
	const struct ck_ms_key *b = &((struct ck_ms_key *)ctx)[*(uint32_t *)pb];

	if (a->nr_ranks != b->nr_ranks)
		return a->nr_ranks > b->nr_ranks ? -1 : 1;
	return (a > b) - (a < b);
}

static int by_age(const void *pa, const void *pb, void *ctx)
{
	const struct ck_ms_key *a = &((struct ck_ms_key *)ctx)[*(uint32_t *)pa];
	const struct ck_ms_key *b = &((struct ck_ms_key *)ctx)[*(uint32_t *)pb];

	return ck_ms_key_later(a, b) - ck_ms_key_later(b, a);
}

static int by_key(const void *pa, const void *pb)
{
	const struct ck_ms_key_file *a = pa, *b = pb;

	return (a->key > b->key) - (a->key < b->key);
}

/* Whether key @key has a file that none before had; those are @had now. */
static bool adds(const struct ck_ms_key_file *of, size_t nr, uint32_t key,
		 bool *had)
{
	size_t at = CK_FIRST(i, 0, nr, of[i].key >= key);
	bool new = false;

	for (; at < nr && of[at].key == key; at++) {
		new = new || !had[of[at].file];
		had[of[at].file] = true;
	}
	return new;
}

/*
 * Of patterns of names a file has one for each number in it: those of most
 * ranks first, until each file has one.
 */
static int take(struct taking *t, size_t nr_files)
{
	const struct ck_ms_keys *k = t->keys;
	ck_auto_free bool *had = calloc(nr_files + 1, sizeof(*had));
	ck_auto_free uint32_t *order = calloc(k->v.nr + 1, sizeof(*order));

	if (!had || !order || !ck_vec_reserve(&t->taken, k->v.nr + 1))
		return -ENOMEM;
	for (uint32_t i = 0; i < k->v.nr; i++)
		order[i] = i;
	qsort_r(order, k->v.nr, sizeof(*order), by_spread, k->v.v);
	qsort(k->of.v, k->of.nr, sizeof(*k->of.v), by_key);
	for (size_t i = 0; i < k->v.nr; i++)
		if (adds(k->of.v, k->of.nr, order[i], had))
			t->taken.v[t->taken.nr++] = order[i];
	qsort_r(t->taken.v, t->taken.nr, sizeof(*t->taken.v), by_age, k->v.v);
	return 0;
}

static bool are_steps(const struct taking *t, bool in_ranks)
{
	const struct ck_ms_key *before = NULL;

	for (size_t i = 0; i < t->taken.nr; i++) {
		const struct ck_ms_key *key = &t->keys->v.v[t->taken.v[i]];

		/* without ranks nothing but the name says whose file it is */
		if (!in_ranks && !key->epoch)
			continue;
		if (before && ck_ms_key_are_steps(before, key))
			return true;
		before = key;
	}
	return false;
}

static int put_all(struct ck_saves *out, const struct taking *t, bool in_ranks)
{
	for (size_t i = 0; i < t->taken.nr; i++) {
		const struct ck_ms_key *key = &t->keys->v.v[t->taken.v[i]];
		char **slot;

		if (!in_ranks && !key->epoch)
			continue;
		slot = ck_vec_push(&out->v);
		if (!slot || !(*slot = strdup(key->key)))
			return -ENOMEM;
	}
	out->in_ranks = in_ranks;
	return 0;
}

static int find_in(struct ck_saves *out, const struct ck_ms_found *f,
		   struct ck_err *err)
{
	struct ck_ms_keys by_name = { .numbered = false }, by_rank = by_name;
	bool in_ranks = f->mode == CK_MS_RANKS;
	struct taking t = { .keys = &by_name };
	int ret = ck_ms_keys_collect(&by_name, f, false, err);

	if (!ret && f->ranks.nr > 1)
		ret = ck_ms_keys_collect(&by_rank, f, true, err);
	if (!ret && ck_ms_keys_most(&by_rank) > ck_ms_keys_most(&by_name))
		t.keys = &by_rank;
	if (!ret && (take(&t, f->file.nr) ||
		     (are_steps(&t, in_ranks) && put_all(out, &t, in_ranks))))
		ret = ck_ms_no_memory(err);
	free(t.taken.v);
	ck_ms_keys_free(&by_name);
	ck_ms_keys_free(&by_rank);
	return ret;
}

static int find(struct ck_saves *out, const struct ck_dir *dir, const char *in,
		struct ck_err *err)
{
	struct ck_ms_found f;
	int ret = ck_ms_find_names(&f, dir, in, err);

	*out = (struct ck_saves){ 0 };
	if (!ret && f.mode != CK_MS_NOTHING)
		ret = find_in(out, &f, err);
	ck_ms_found_free(&f);
	return ret;
}

static bool is_file_of_rank(const char *name)
{
	static const char *const ends[] = { ".ckpt", ".safetensors" };
	size_t len = strlen(name);

	for (size_t i = 0; i < CK_ARRAY_LEN(ends); i++)
		if (len > strlen(ends[i]) &&
		    !strcmp(name + len - strlen(ends[i]), ends[i]))
			return true;
	return false;
}

/* What the file of @rank is called, or its first part. */
static void name_of(struct ck_str *out, const char *key, uint32_t rank,
		    bool part)
{
	const char *open = strstr(key, "{r}"), *dot = strrchr(key, '.');

	for (const char *at = key; *at; at++) {
		if (part && at == dot)
			ck_str_puts(out, "_part0");
		if (at == open) {
			ck_str_fmt(out, "%u", rank);
			at += 2;
		} else {
			ck_str_add(out, at, 1);
		}
	}
}

/* Whether the files of ranks lie in folders of those of ranks. */
static bool are_deep(const struct ck_dir *dir, const char *folder)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };

	if (ck_dir_list(dir, folder, &l, NULL))
		return false;
	for (size_t i = 0; i < l.nr; i++)
		if (!l.v[i].is_dir && is_file_of_rank(l.v[i].name))
			return false;
	return l.nr;
}

struct naming {
	const struct ck_dir *dir;
	const char *key;
	int (*fn)(void *ctx, const char *folder, const char *base);
	void *ctx;
};

static int name_both(const struct naming *n, const char *folder, uint32_t rank,
		     struct ck_err *err)
{
	int ret = 0;

	for (int part = 0; part < 2 && !ret; part++) {
		ck_auto_str struct ck_str base = { 0 };

		name_of(&base, n->key, rank, part);
		ret = base.failed ? ck_ms_no_memory(err) :
				    n->fn(n->ctx, folder, base.v);
	}
	return ret;
}

static int name_below(const struct naming *n, const char *folder, uint32_t rank,
		      struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(n->dir, folder, &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		uint32_t own = rank;

		ck_ms_folder_rank(l.v[i].name, &own);
		if (l.v[i].is_dir)
			ret = name_both(n, l.v[i].name, own, err);
	}
	return ret;
}

static int each(const struct ck_dir *dir, const char *in, const char *key,
		int (*fn)(void *ctx, const char *folder, const char *base),
		void *ctx, struct ck_err *err)
{
	const struct naming n = { dir, key, fn, ctx };
	ck_auto_dir_list struct ck_dir_list list = { 0 };
	bool known = false, deep = false;
	uint32_t rank;
	int ret;

	if (!is_file_of_rank(key))
		return 0;
	ret = ck_dir_list(dir, in, &list, err);
	for (size_t i = 0; i < list.nr && !ret; i++) {
		const char *folder = list.v[i].name;

		if (!list.v[i].is_dir || !ck_ms_folder_rank(folder, &rank))
			continue;
		deep = known ? deep : are_deep(dir, folder);
		known = true;
		ret = deep ? name_below(&n, folder, rank, err) :
			     name_both(&n, folder, rank, err);
	}
	return ret;
}

/* The rank of whose files @path is: rank_0/net.ckpt, rank_0/ckpt/net.ckpt. */
static bool rank_of_path(const char *path, uint32_t *rank)
{
	ck_auto_free char *folder = strdup(path);
	bool any = false;

	for (unsigned depth = 0; folder && depth < 2; depth++) {
		char *slash = strrchr(folder, '/');

		if (!slash)
			break;
		*slash = '\0';
		any = ck_ms_folder_rank(folder, rank);
		if (any)
			return !strchr(folder, '/') || depth == 0;
	}
	return any;
}

static bool hides(const char *key, const char *path)
{
	uint32_t rank;

	return is_file_of_rank(path) && rank_of_path(path, &rank) &&
	       !ck_ms_key_has(key, ck_ms_base_of(path), rank);
}

const struct ck_format_saves ck_ms_saves = {
	.find = find,
	.each = each,
	.hides = hides,
};
