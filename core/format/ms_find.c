/* SPDX-License-Identifier: Apache-2.0 */
/* ms_find.c - folders of ranks, their files, and strategy files beside them */
#include "core/format/ms_find.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/format/ms_keys.h"
#include "core/format/ms_set.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANK 1000000
#define MAX_STRATEGY (UINT64_C(64) << 20)

void ck_ms_found_free(struct ck_ms_found *f)
{
	for (size_t i = 0; i < f->lists.nr; i++)
		ck_dir_list_free(&f->lists.v[i]);
	ck_dir_list_free(&f->root);
	free(f->lists.v);
	free(f->ranks.v);
	free(f->file.v);
	free(f->strategy.v);
	free(f->step);
	free(f->others);
	free(f->newer);
	*f = (struct ck_ms_found){ .mode = CK_MS_NOTHING };
}

static const char *base_of(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? slash + 1 : name;
}

/* "rank_3", "node3", "origin_checkpoint_rank3": where the number stands. */
static bool rank_in(const char *name, size_t *before, size_t *after,
		    uint32_t *rank)
{
	static const char *const words[] = { "rank", "node" };

	for (size_t w = 0; w < CK_ARRAY_LEN(words); w++) {
		const char *at = name, *digits = NULL;
		char *end;

		while ((at = strstr(at, words[w]))) {
			at += 4;
			if (isdigit((unsigned char)at[*at == '_']))
				digits = at + (*at == '_');
		}
		if (!digits || strlen(digits) > 200)
			continue;
		*rank = (uint32_t)CK_MIN(strtoull(digits, &end, 10),
					 (unsigned long long)MAX_RANK);
		*before = (size_t)(digits - name);
		*after = (size_t)(end - name);
		return *rank < MAX_RANK;
	}
	return false;
}

bool ck_ms_folder_rank(const char *name, uint32_t *rank)
{
	size_t before, after;

	return rank_in(base_of(name), &before, &after, rank);
}

bool ck_ms_same_kind(const char *a, const char *b)
{
	size_t a_to, a_from, b_to, b_from;
	uint32_t rank;

	a = base_of(a);
	b = base_of(b);
	return rank_in(a, &a_to, &a_from, &rank) &&
	       rank_in(b, &b_to, &b_from, &rank) && a_to == b_to &&
	       !memcmp(a, b, a_to) && !strcmp(a + a_from, b + b_from);
}

static int add_file(struct ck_ms_found *f, const struct ck_dir *dir,
		    const char *name, uint32_t rank, struct ck_err *err)
{
	struct ck_ms_found_file *file;
	int kind = CK_MS_CKPT;

	if (!ck_has_suffix(name, ".ckpt") &&
	    !ck_has_suffix(name, ".safetensors") && !dir->only)
		return 0;
	if (dir->save && !ck_ms_key_has(dir->save, base_of(name), rank)) {
		f->passed_over = true;
		return 0;
	}
	if (!f->names_only)
		kind = ck_ms_kind(dir, name, err);
	if (kind < 0)
		return kind;
	if (kind != CK_MS_CKPT && kind != CK_MS_ENCRYPTED &&
	    kind != CK_MS_SAFETENSORS)
		return 0;
	file = ck_vec_push(&f->file);
	if (!file)
		return ck_ms_no_memory(err);
	*file = (struct ck_ms_found_file){ .name = name,
					   .base = base_of(name),
					   .rank = rank };
	return 0;
}

static int add_folder(struct ck_ms_found *f, const struct ck_dir *dir,
		      const char *name, struct ck_err *err)
{
	struct ck_dir_list list = { 0 };
	size_t nr = f->file.nr;
	uint32_t rank;
	int ret;

	if (!ck_ms_folder_rank(name, &rank))
		return 0;
	ret = ck_dir_list(dir, name, &list, err);
	if (ret)
		return ret;
	if (!ck_vec_reserve(&f->lists, 1) || !ck_vec_reserve(&f->ranks, 1)) {
		ck_dir_list_free(&list);
		return ck_ms_no_memory(err);
	}
	f->lists.v[f->lists.nr++] = list;
	f->passed_over = false;
	for (size_t i = 0; i < list.nr && !ret; i++)
		if (!list.v[i].is_dir)
			ret = add_file(f, dir, list.v[i].name, rank, err);
	if (ret || (f->file.nr == nr && !f->passed_over))
		return ret;
	for (size_t i = 0; i < f->ranks.nr; i++)
		if (f->ranks.v[i] == rank)
			return ck_fail(err, EINVAL,
				       "%s: two folders are of rank %u",
				       dir->path, rank);
	f->ranks.v[f->ranks.nr++] = rank;
	return 0;
}

/* The kind of folder that most of them are. */
static const char *main_kind(const struct ck_ms_found *f)
{
	const char *best = NULL;
	size_t most = 0;
	uint32_t rank;

	for (size_t i = 0; i < f->root.nr; i++) {
		size_t nr = 0;

		/* in order of names, so that each kind begins but once */
		if (!f->root.v[i].is_dir ||
		    !ck_ms_folder_rank(f->root.v[i].name, &rank) ||
		    (best && ck_ms_same_kind(best, f->root.v[i].name)))
			continue;
		for (size_t k = i; k < f->root.nr; k++)
			nr += f->root.v[k].is_dir &&
			      ck_ms_same_kind(f->root.v[i].name,
					      f->root.v[k].name);
		if (nr > most) {
			most = nr;
			best = f->root.v[i].name;
		}
	}
	return best;
}

static int by_rank(const void *a, const void *b)
{
	const struct ck_ms_found_file *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int find_ranks(struct ck_ms_found *f, const struct ck_dir *dir,
		      struct ck_err *err)
{
	const char *kind = main_kind(f);
	int ret = 0;

	for (size_t i = 0; kind && i < f->root.nr && !ret; i++)
		if (f->root.v[i].is_dir &&
		    ck_ms_same_kind(kind, f->root.v[i].name))
			ret = add_folder(f, dir, f->root.v[i].name, err);
	if (ret || !f->file.nr)
		return ret;
	f->mode = CK_MS_RANKS;
	qsort(f->file.v, f->file.nr, sizeof(*f->file.v), by_rank);
	qsort(f->ranks.v, f->ranks.nr, sizeof(*f->ranks.v), by_number);
	return 0;
}

/* ---- strategies ---- */

static int is_strategy(const struct ck_dir *dir, const char *name,
		       struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret;

	if (!ck_has_suffix(name, ".json")) {
		ret = ck_ms_kind(dir, name, err);
		return ret < 0 ? ret : ret == CK_MS_STRATEGY;
	}
	ret = ck_dir_slurp(dir, name, MAX_STRATEGY, &bytes, &len, err);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	return ck_ms_strategy_is(name, bytes, len);
}

static int take_strategies(struct ck_ms_found *f, const struct ck_dir *dir,
			   const struct ck_dir_list *list, struct ck_err *err)
{
	for (size_t i = 0; i < list->nr; i++) {
		const char **slot;
		int ret;

		if (list->v[i].is_dir)
			continue;
		ret = is_strategy(dir, list->v[i].name, err);
		if (ret < 0)
			return ret;
		if (!ret)
			continue;
		slot = ck_vec_push(&f->strategy);
		if (!slot)
			return ck_ms_no_memory(err);
		*slot = list->v[i].name;
	}
	return 0;
}

/* Beside the ranks; only if there is none, in folders that are called so. */
static int find_strategies(struct ck_ms_found *f, const struct ck_dir *dir,
			   struct ck_err *err)
{
	int ret = take_strategies(f, dir, &f->root, err);

	for (size_t i = 0; i < f->root.nr && !ret && !f->strategy.nr; i++) {
		struct ck_dir_list list = { 0 };

		if (!f->root.v[i].is_dir ||
		    !strstr(f->root.v[i].name, "strategy"))
			continue;
		ret = ck_dir_list(dir, f->root.v[i].name, &list, err);
		if (ret)
			return ret;
		if (!ck_vec_reserve(&f->lists, 1)) {
			ck_dir_list_free(&list);
			return ck_ms_no_memory(err);
		}
		f->lists.v[f->lists.nr++] = list;
		ret = take_strategies(f, dir, &list, err);
	}
	return ret;
}

static int find_plain(struct ck_ms_found *f, const struct ck_dir *dir,
		      struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < f->root.nr && !ret; i++)
		if (!f->root.v[i].is_dir)
			ret = add_file(f, dir, f->root.v[i].name, 0, err);
	for (size_t i = 0; i < f->file.nr; i++)
		f->has_ckpt = f->has_ckpt ||
			      !ck_has_suffix(f->file.v[i].name, ".safetensors");
	if (ret || !f->file.nr || !ck_vec_reserve(&f->ranks, 1))
		return ret || !f->file.nr ? ret : ck_ms_no_memory(err);
	f->mode = CK_MS_ONE;
	f->ranks.v[f->ranks.nr++] = 0;
	return 0;
}

static bool is_unified(const struct ck_dir_list *l)
{
	bool map = false, parts = false;

	for (size_t i = 0; i < l->nr; i++) {
		map = map || !strcmp(l->v[i].name, "param_name_map.json");
		parts = parts || ck_has_suffix(l->v[i].name, ".safetensors");
	}
	return map && parts;
}

int ck_ms_find_names(struct ck_ms_found *f, const struct ck_dir *dir,
		     const char *in, struct ck_err *err)
{
	int ret;

	*f = (struct ck_ms_found){ .names_only = true };
	ret = ck_dir_list(dir, in, &f->root, err);
	if (!ret)
		ret = find_ranks(f, dir, err);
	return ret || f->mode == CK_MS_RANKS ? ret : find_plain(f, dir, err);
}

int ck_ms_find(struct ck_ms_found *f, const struct ck_dir *dir,
	       struct ck_err *err)
{
	int ret;

	*f = (struct ck_ms_found){ .mode = CK_MS_NOTHING };
	ret = ck_dir_list(dir, "", &f->root, err);
	if (ret || dir->only)
		return ret ? ret : find_plain(f, dir, err);
	if (is_unified(&f->root)) {
		f->mode = CK_MS_UNIFIED;
		return 0;
	}
	ret = find_ranks(f, dir, err);
	if (!ret && f->mode == CK_MS_RANKS)
		return find_strategies(f, dir, err);
	return ret ? ret : find_plain(f, dir, err);
}
