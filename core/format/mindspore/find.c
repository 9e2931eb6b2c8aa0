/* SPDX-License-Identifier: Apache-2.0 */
/* find.c - folders of ranks, their files, and strategy files beside them */
#include "core/format/mindspore/mindspore.h"

#include "core/assemble/rank_set.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/suffix.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ck_mindspore_found_free(struct mindspore_found *f)
{
	for (size_t i = 0; i < f->lists.nr; i++)
		ck_dir_list_free(&f->lists.v[i]);
	ck_dir_list_free(&f->root);
	ck_mindspore_keys_free(&f->keys);
	free(f->lists.v);
	free(f->ranks.v);
	free(f->file.v);
	free(f->strategy.v);
	free(f->dud.v);
	*f = (struct mindspore_found){ .mode = MINDSPORE_NOTHING };
}

/* ---- files ---- */

/* Those of another save are its own; the root's are seen by all readers. */
static void count_temporary(struct mindspore_found *f, const char *name)
{
	if (f->dir->save || !strchr(name, '/') || !ck_is_temporary(name))
		return;
	if (!f->nr_temporary++)
		f->temporary = name;
}

/* 1: it is one of the checkpoint, or of another of its saves. */
static int add_file(struct mindspore_found *f, const char *name, uint32_t rank,
		    struct ck_err *err)
{
	const char *base = ck_base_name(name);
	struct mindspore_file *file;
	int kind = MINDSPORE_CKPT;

	count_temporary(f, name);
	if (!ck_has_suffix(name, ".ckpt") &&
	    !ck_has_suffix(name, ".safetensors") && !f->dir->only)
		return 0;
	if (f->dir->save && !ck_mindspore_key_has(f->dir->save, base, rank))
		return 1;
	if (!f->names_only)
		kind = ck_mindspore_kind(f->dir, name, err);
	if (kind < 0 || kind == MINDSPORE_OTHER || kind == MINDSPORE_STRATEGY)
		return CK_MIN(kind, 0);
	file = ck_vec_push(&f->file);
	if (!file)
		return ck_no_memory(err);
	*file = (struct mindspore_file){ .name = name,
					 .base = base,
					 .kind = (enum mindspore_kind)kind,
					 .rank = rank };
	return 1;
}

/* All in the folder @in; 1: there are some. */
static int add_files(struct mindspore_found *f, const char *in, uint32_t rank,
		     struct ck_dir_list *list, struct ck_err *err)
{
	struct ck_dir_list *slot = ck_vec_push(&f->lists);
	int ret, any = 0;

	if (!slot)
		return ck_no_memory(err);
	*slot = (struct ck_dir_list){ 0 };
	ret = ck_dir_list(f->dir, in, slot, err);
	*list = *slot;
	for (size_t i = 0; i < list->nr && ret >= 0; i++) {
		if (list->v[i].is_dir)
			continue;
		ret = add_file(f, list->v[i].name, rank, err);
		any |= ret > 0;
	}
	return ret < 0 ? ret : any;
}

static int add_rank(struct mindspore_found *f, uint32_t rank,
		    struct ck_err *err)
{
	uint32_t *slot;

	for (size_t i = 0; i < f->ranks.nr; i++)
		if (f->ranks.v[i] == rank)
			return ck_fail(err, EINVAL,
				       "%s: two folders are of rank %u",
				       f->dir->path, rank);
	slot = ck_vec_push(&f->ranks);
	if (!slot)
		return ck_no_memory(err);
	*slot = rank;
	return 0;
}

/* rank_0/ckpt/net.ckpt; node0/rank_1/net.ckpt is of rank 1. */
static int add_below(struct mindspore_found *f, const struct ck_dir_list *in,
		     uint32_t outer, struct ck_err *err)
{
	const char *before = NULL;
	int ret = 0;

	for (size_t i = 0; i < in->nr && ret >= 0; i++) {
		const char *name = in->v[i].name;
		struct ck_dir_list list;
		uint32_t rank = outer;
		bool own;

		if (!in->v[i].is_dir)
			continue;
		own = ck_mindspore_folder_rank(name, &rank);
		ret = add_files(f, name, rank, &list, err);
		if (ret <= 0)
			continue;
		if (before && !own)
			return ck_fail(
				err, EINVAL,
				"%s: %s and %s both hold files of rank %u: give a folder in which each rank has one folder",
				f->dir->path, before, name, outer);
		before = own ? before : name;
		ret = add_rank(f, rank, err);
	}
	return CK_MIN(ret, 0);
}

/* At most @max folders that are called as @kind is but for the number. */
static int add_folders(struct mindspore_found *f, const char *kind, size_t max,
		       struct ck_err *err)
{
	size_t nr = 0;
	int ret = 0;

	for (size_t i = 0; i < f->root.nr && !ret && nr < max; i++) {
		const char *name = f->root.v[i].name;
		struct mindspore_number n;
		struct ck_dir_list list;

		if (!f->root.v[i].is_dir || !ck_mindspore_same_kind(kind, name))
			continue;
		nr++;
		ck_mindspore_number_in(name, &n);
		ret = add_files(f, name, n.rank, &list, err);
		if (ret > 0)
			ret = add_rank(f, n.rank, err);
		else if (!ret && n.word > MINDSPORE_NUMBER)
			ret = add_below(f, &list, n.rank, err);
	}
	return ret;
}

/* ---- which folders are of ranks ---- */

static bool is_bare(const char *name)
{
	return *name && name[strspn(name, "0123456789")] == '\0';
}

/*
 * How many folders are called as @first; @counted: whose numbers count on from
 * 0.
 */
static int count_folders(const struct mindspore_found *f, const char *first,
			 bool counted, size_t *nr, struct ck_err *err)
{
	ck_auto_rank_set struct ck_rank_set numbers = { 0 };
	struct mindspore_number n;

	for (size_t i = 0; i < f->root.nr; i++) {
		const char *name = f->root.v[i].name;

		if (!f->root.v[i].is_dir ||
		    !ck_mindspore_same_kind(first, name))
			continue;
		ck_mindspore_number_in(name, &n);
		if (!ck_rank_set_add(&numbers, n.rank))
			return ck_no_memory(err);
	}
	ck_rank_set_sort(&numbers, NULL);
	*nr = counted ? ck_rank_set_next(&numbers, 0, UINT64_MAX) :
			numbers.v.nr;
	return 0;
}

/*
 * The first of the most folders that differ in a number of @word alone; such
 * that no word says more of must count from 0, and plain numbers come first.
 * *best NULL: there are none; *most: how many.
 */
static int main_folders(const struct mindspore_found *f,
			enum mindspore_word word, const char **best,
			size_t *most, struct ck_err *err)
{
	bool counted = word == MINDSPORE_NUMBER;
	struct mindspore_number n;
	int ret = 0;

	*best = NULL;
	*most = counted;
	for (size_t i = 0; i < f->root.nr && !ret; i++) {
		const char *name = f->root.v[i].name;
		size_t nr = 0;

		if (!f->root.v[i].is_dir || !ck_mindspore_number_in(name, &n) ||
		    n.word != word || (counted && n.rank) ||
		    (*best && ck_mindspore_same_kind(*best, name)))
			continue;
		ret = count_folders(f, name, counted, &nr, err);
		if (!ret && (nr > *most || (counted && nr == *most && *best &&
					    is_bare(name)))) {
			*most = nr;
			*best = name;
		}
	}
	return ret;
}

static bool is_ckpt(const struct mindspore_file *file)
{
	return !ck_has_suffix(file->name, ".safetensors");
}

/* What others than MindSpore call so too must be its, or at least two. */
static bool are_devices(const struct mindspore_found *f)
{
	bool first = false, second = false;

	for (size_t i = 0; i < f->file.nr; i++) {
		if (is_ckpt(&f->file.v[i]))
			return true;
		first = first || f->file.v[i].rank == 0;
		second = second || f->file.v[i].rank == 1;
	}
	return first && second;
}

/* The same file, of MindSpore's, in both of two folders. */
static bool have_common(const struct mindspore_found *f)
{
	for (size_t i = 0; i < f->file.nr; i++)
		for (size_t k = 0; k < f->file.nr; k++)
			if (f->file.v[i].rank == 0 && f->file.v[k].rank == 1 &&
			    !strcmp(f->file.v[i].base, f->file.v[k].base) &&
			    is_ckpt(&f->file.v[i]))
				return true;
	return false;
}

static void drop_files(struct mindspore_found *f)
{
	f->file.nr = f->ranks.nr = 0;
}

static int find_words(struct mindspore_found *f, enum mindspore_word word,
		      struct ck_err *err)
{
	const char *kind;
	size_t nr;
	int ret = main_folders(f, word, &kind, &nr, err);

	if (!ret && kind)
		ret = add_folders(f, kind, SIZE_MAX, err);
	if (ret)
		return ret;
	if (word == MINDSPORE_DEVICE && !f->asked && !are_devices(f))
		drop_files(f);
	if (f->file.nr)
		f->mode = MINDSPORE_RANKS;
	return 0;
}

/* ---- strategies ---- */

enum { NO_STRATEGY, STRATEGY, DUD };

/*
 * A dud is called so as nothing else would be, and is none: operators' ones are
 * whole JSON.
 */
static int strategy_kind(const struct ck_dir *dir, const char *name,
			 struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	bool called = strstr(name, "strategy");
	size_t len;
	int ret;

	if (!ck_has_suffix(name, ".json")) {
		ret = ck_mindspore_kind(dir, name, err);
		called = called && ck_has_suffix(name, ".ckpt");
		return ret < 0			 ? ret :
		       ret == MINDSPORE_STRATEGY ? STRATEGY :
		       called && !ret		 ? DUD :
						   NO_STRATEGY;
	}
	ret = ck_dir_slurp(dir, name, MINDSPORE_MAX_STRATEGY, &bytes, &len,
			   err);
	if (ret)
		return ret == -ENOMEM ? ret : NO_STRATEGY;
	if (ck_strategy_is(name, bytes, len))
		return STRATEGY;
	while (len && strchr(" \t\r\n", bytes[len - 1]))
		len--;
	return called && (!len || bytes[len - 1] != '}') ? DUD : NO_STRATEGY;
}

static int add_strategies(struct mindspore_found *f,
			  const struct ck_dir_list *list, struct ck_err *err)
{
	for (size_t i = 0; i < list->nr; i++) {
		const char *name = list->v[i].name, **slot;
		int kind;

		if (list->v[i].is_dir)
			continue;
		count_temporary(f, name);
		kind = ck_is_temporary(name) ? NO_STRATEGY :
					       strategy_kind(f->dir, name, err);
		if (kind < 0)
			return kind;
		if (kind == NO_STRATEGY)
			continue;
		slot = kind == DUD ? ck_vec_push(&f->dud) :
				     ck_vec_push(&f->strategy);
		if (!slot)
			return ck_no_memory(err);
		*slot = name;
	}
	return 0;
}

/* Beside the ranks; only if there is none, in folders that are called so. */
static int find_strategies(struct mindspore_found *f, struct ck_err *err)
{
	int ret = add_strategies(f, &f->root, err);

	for (size_t i = 0; i < f->root.nr && !ret && !f->strategy.nr; i++) {
		struct ck_dir_list *list;

		if (!f->root.v[i].is_dir ||
		    !strstr(f->root.v[i].name, "strategy"))
			continue;
		list = ck_vec_push(&f->lists);
		if (!list)
			return ck_no_memory(err);
		*list = (struct ck_dir_list){ 0 };
		ret = ck_dir_list(f->dir, f->root.v[i].name, list, err);
		if (!ret)
			ret = add_strategies(f, list, err);
	}
	return ret;
}

/*
 * 0/ 1/ .., ckpt_0/ ckpt_1/ ..: of ranks if a strategy says that there are;
 * without one what is in the first two may tell them from saves.
 */
static int find_numbers(struct mindspore_found *f, struct ck_err *err)
{
	const char *kind;
	size_t before = f->nr_temporary;
	int ret = main_folders(f, MINDSPORE_NUMBER, &kind, &f->alike, err);

	for (size_t i = 0; i < f->root.nr && !kind && f->asked; i++)
		if (f->root.v[i].is_dir && is_bare(f->root.v[i].name))
			kind = f->root.v[i].name;
	if (ret || !kind)
		return ret;
	f->weak = !f->asked || !is_bare(kind);
	ret = add_folders(f, kind, f->asked ? SIZE_MAX : 2, err);
	if (ret || f->asked) {
		f->mode = f->file.nr ? MINDSPORE_RANKS : f->mode;
		return ret;
	}
	if (!have_common(f)) {
		drop_files(f);
		return 0;
	}
	f->mode = MINDSPORE_MAYBE;
	ret = find_strategies(f, err);
	if (ret || !f->strategy.nr)
		return ret;
	f->nr_temporary = before;
	f->mode = MINDSPORE_RANKS;
	drop_files(f);
	return add_folders(f, kind, SIZE_MAX, err);
}

static int by_rank(const void *a, const void *b)
{
	const struct mindspore_file *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void sort_files(struct mindspore_found *f)
{
	if (f->file.nr)
		qsort(f->file.v, f->file.nr, sizeof(*f->file.v), by_rank);
	if (f->ranks.nr)
		qsort(f->ranks.v, f->ranks.nr, sizeof(*f->ranks.v), by_number);
}

static int find_folders(struct mindspore_found *f, struct ck_err *err)
{
	int ret = find_words(f, MINDSPORE_RANK, err);

	if (!ret && f->mode == MINDSPORE_NOTHING)
		ret = find_words(f, MINDSPORE_DEVICE, err);
	if (!ret && f->mode == MINDSPORE_NOTHING && !f->names_only)
		ret = find_numbers(f, err);
	if (!ret && f->mode != MINDSPORE_NOTHING)
		sort_files(f);
	return ret;
}

/* ---- files that lie in the folder itself ---- */

/* What others pass over: "crc_num" in the header, as a rule at its beginning.
 */
static int has_sum(const struct ck_dir *dir, const char *name,
		   struct ck_err *err)
{
	ck_auto_source struct ck_source *in = NULL;
	static const char key[] = "\"crc_num\"";
	char head[4096];
	size_t len;
	int ret = ck_dir_open(dir, name, &in, err);

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	len = (size_t)CK_MIN((uint64_t)in->st.st_size, sizeof(head));
	return !ck_source_read(in, head, len, 0, NULL) &&
	       memmem(head, len, key, sizeof(key) - 1);
}

static int find_plain(struct mindspore_found *f, struct ck_err *err)
{
	uint32_t *rank;
	int ret = 0;

	for (size_t i = 0; i < f->root.nr && ret >= 0; i++)
		if (!f->root.v[i].is_dir)
			ret = add_file(f, f->root.v[i].name, 0, err);
	for (size_t i = 0; i < f->file.nr && ret >= 0; i++) {
		if (is_ckpt(&f->file.v[i])) {
			f->has_ckpt = true;
		} else if (!f->names_only && !f->sums) {
			ret = has_sum(f->dir, f->file.v[i].name, err);
			f->sums = ret > 0;
		}
	}
	if (ret < 0 || !f->file.nr)
		return CK_MIN(ret, 0);
	f->mode = MINDSPORE_ONE;
	rank = ck_vec_push(&f->ranks);
	if (!rank)
		return ck_no_memory(err);
	*rank = 0;
	return 0;
}

/* Two or more that differ in one number only, which is no epoch's. */
static bool are_flat(const struct mindspore_found *f)
{
	for (size_t i = 1; i < f->file.nr; i++)
		if (!ck_mindspore_same_kind(f->file.v[0].base,
					    f->file.v[i].base))
			return false;
	return f->file.nr > 1;
}

/* Takes plain files for those of ranks, if their names tell them apart. */
static int find_flat(struct mindspore_found *f, struct ck_err *err)
{
	struct mindspore_number n;
	int ret = 0;

	f->ranks.nr = 0;
	for (size_t i = 0; i < f->file.nr && !ret; i++) {
		ck_mindspore_number_in(f->file.v[i].base, &n);
		f->file.v[i].rank = n.rank;
		ret = add_rank(f, n.rank, err);
		f->weak = n.word == MINDSPORE_NUMBER;
	}
	if (ret)
		return ret;
	f->flat = true;
	f->mode = MINDSPORE_RANKS;
	sort_files(f);
	return 0;
}

static int find_files(struct mindspore_found *f, struct ck_err *err)
{
	int ret = find_plain(f, err);

	if (!ret && (f->has_ckpt || are_flat(f)))
		ret = find_strategies(f, err);
	if (!ret && f->mode == MINDSPORE_ONE && !f->dir->save &&
	    (f->asked || f->strategy.nr) && are_flat(f))
		ret = find_flat(f, err);
	return ret;
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

int ck_mindspore_find_names(struct mindspore_found *f, const struct ck_dir *dir,
			    const char *in, struct ck_err *err)
{
	int ret;

	*f = (struct mindspore_found){ .dir = dir, .names_only = true };
	ret = ck_dir_list(dir, in, &f->root, err);
	if (!ret)
		ret = find_folders(f, err);
	return ret || f->mode == MINDSPORE_RANKS ? ret : find_plain(f, err);
}

int ck_mindspore_find(struct mindspore_found *f, const struct ck_dir *dir,
		      struct ck_err *err)
{
	int ret;

	*f = (struct mindspore_found){
		.dir = dir,
		.asked = ck_opts_get(dir->opts, "strategy") ||
			 mindspore_integrated_is(dir, "yes"),
	};
	ret = ck_dir_list(dir, "", &f->root, err);
	if (ret || dir->only)
		return ret ? ret : find_plain(f, err);
	if (is_unified(&f->root)) {
		f->mode = MINDSPORE_UNIFIED;
		return 0;
	}
	ret = find_folders(f, err);
	if (ret || f->mode == MINDSPORE_NOTHING)
		return ret ? ret : find_files(f, err);
	return f->mode == MINDSPORE_MAYBE || f->strategy.nr ?
		       0 :
		       find_strategies(f, err);
}
