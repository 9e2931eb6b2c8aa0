/* SPDX-License-Identifier: Apache-2.0 */
/* folders.c - which folders, or which names of files, are of ranks */
#include "core/format/mindspore/folders.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/suffix.h"
#include "core/format/mindspore/set.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int add_files(struct ck_ms_found *f, const struct ck_dir *dir,
		     const struct ck_dir_list *list, uint32_t rank,
		     struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < list->nr && !ret; i++)
		if (!list->v[i].is_dir)
			ret = ck_ms_add_file(f, dir, list->v[i].name, rank,
					     err);
	return ret;
}

static int add_rank(struct ck_ms_found *f, const struct ck_dir *dir,
		    uint32_t rank, struct ck_err *err)
{
	uint32_t *slot;

	for (size_t i = 0; i < f->ranks.nr; i++)
		if (f->ranks.v[i] == rank)
			return ck_fail(err, EINVAL,
				       "%s: two folders are of rank %u",
				       dir->path, rank);
	slot = ck_vec_push(&f->ranks);
	if (!slot)
		return ck_ms_no_memory(err);
	*slot = rank;
	return 0;
}

/* rank_0/ckpt/net.ckpt; node0/rank_1/net.ckpt is of rank 1. */
static int add_below(struct ck_ms_found *f, const struct ck_dir *dir,
		     const struct ck_dir_list *in, uint32_t outer,
		     struct ck_err *err)
{
	const char *before = NULL;
	int ret = 0;

	for (size_t i = 0; i < in->nr && !ret; i++) {
		const char *name = in->v[i].name;
		struct ck_dir_list list;
		size_t nr = f->file.nr;
		uint32_t rank = outer;
		bool own;

		if (!in->v[i].is_dir)
			continue;
		own = ck_ms_folder_rank(name, &rank);
		f->passed_over = false;
		ret = ck_ms_list(f, dir, name, &list, err);
		if (!ret)
			ret = add_files(f, dir, &list, rank, err);
		if (ret || (f->file.nr == nr && !f->passed_over))
			continue;
		if (before && !own)
			return ck_fail(
				err, EINVAL,
				"%s: %s and %s both hold files of rank %u: give a folder in which each rank has one folder",
				dir->path, before, name, outer);
		before = own ? before : name;
		ret = add_rank(f, dir, rank, err);
	}
	return ret;
}

static int add_folder(struct ck_ms_found *f, const struct ck_dir *dir,
		      const char *name, struct ck_err *err)
{
	struct ck_dir_list list;
	size_t nr = f->file.nr;
	struct ck_ms_number n;
	int ret;

	if (!ck_ms_number_in(name, &n))
		return 0;
	f->passed_over = false;
	ret = ck_ms_list(f, dir, name, &list, err);
	if (!ret)
		ret = add_files(f, dir, &list, n.rank, err);
	if (ret)
		return ret;
	if (f->file.nr > nr || f->passed_over)
		return add_rank(f, dir, n.rank, err);
	return n.word > CK_MS_NUMBER ? add_below(f, dir, &list, n.rank, err) :
				       0;
}

/* The kind of folder that most of them are whose number is of @word. */
static const char *main_kind(const struct ck_ms_found *f, enum ck_ms_word word)
{
	const char *best = NULL;
	struct ck_ms_number n;
	size_t most = 0;

	for (size_t i = 0; i < f->root.nr; i++) {
		const char *name = f->root.v[i].name;
		size_t nr = 0;

		/* in order of names, so that each kind begins but once */
		if (!f->root.v[i].is_dir || !ck_ms_number_in(name, &n) ||
		    n.word != word || (best && ck_ms_same_kind(best, name)))
			continue;
		for (size_t k = i; k < f->root.nr; k++)
			nr += f->root.v[k].is_dir &&
			      ck_ms_same_kind(name, f->root.v[k].name);
		if (nr > most) {
			most = nr;
			best = name;
		}
	}
	return best;
}

static bool is_bare(const char *name)
{
	size_t i = 0;

	name = ck_ms_base_of(name);
	while (isdigit((unsigned char)name[i]))
		i++;
	return i && !name[i];
}

static int by_entry(const void *key, const void *entry)
{
	return strcmp(key, ((const struct ck_dir_entry *)entry)->name);
}

/* How many folders count on from @first, whose number is 0. */
static size_t count_from(const struct ck_ms_found *f, const char *first,
			 const struct ck_ms_number *n)
{
	size_t nr = 1;

	for (;; nr++) {
		ck_auto_str struct ck_str next = { 0 };
		const struct ck_dir_entry *e;

		ck_str_fmt(&next, "%.*s%0*zu%s", (int)n->from, first,
			   (int)(n->to - n->from), nr, first + n->to);
		if (next.failed)
			return nr;
		e = bsearch(next.v, f->root.v, f->root.nr, sizeof(*f->root.v),
			    by_entry);
		if (!e || !e->is_dir)
			return nr;
	}
}

/* The first of the most folders that count from 0; plain numbers first. */
static const char *counted_kind(struct ck_ms_found *f, size_t *most)
{
	const char *best = NULL;
	struct ck_ms_number n;

	*most = 1;
	for (size_t i = 0; i < f->root.nr; i++) {
		const char *name = f->root.v[i].name;
		size_t nr;

		if (!f->root.v[i].is_dir || !ck_ms_number_in(name, &n) ||
		    n.word != CK_MS_NUMBER || n.rank)
			continue;
		nr = count_from(f, name, &n);
		if (nr > *most || (nr == *most && best && is_bare(name))) {
			*most = nr;
			best = name;
		}
	}
	return best;
}

static void drop_files(struct ck_ms_found *f)
{
	f->file.nr = f->ranks.nr = 0;
}

static int take_kind(struct ck_ms_found *f, const struct ck_dir *dir,
		     const char *kind, size_t max, struct ck_err *err)
{
	size_t nr = 0;
	int ret = 0;

	for (size_t i = 0; i < f->root.nr && !ret && nr < max; i++)
		if (f->root.v[i].is_dir &&
		    ck_ms_same_kind(kind, f->root.v[i].name)) {
			ret = add_folder(f, dir, f->root.v[i].name, err);
			nr++;
		}
	return ret;
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

void ck_ms_sort_files(struct ck_ms_found *f)
{
	if (f->file.nr)
		qsort(f->file.v, f->file.nr, sizeof(*f->file.v), by_rank);
	if (f->ranks.nr)
		qsort(f->ranks.v, f->ranks.nr, sizeof(*f->ranks.v), by_number);
}

/* What others than MindSpore call so too must be its, or at least two. */
static bool are_devices(const struct ck_ms_found *f)
{
	bool first = false, second = false;

	for (size_t i = 0; i < f->file.nr; i++) {
		if (!ck_has_suffix(f->file.v[i].name, ".safetensors"))
			return true;
		first = first || f->file.v[i].rank == 0;
		second = second || f->file.v[i].rank == 1;
	}
	return first && second;
}

static int find_words(struct ck_ms_found *f, const struct ck_dir *dir,
		      enum ck_ms_word word, struct ck_err *err)
{
	const char *kind = main_kind(f, word);
	int ret = kind ? take_kind(f, dir, kind, SIZE_MAX, err) : 0;

	if (ret)
		return ret;
	if (word == CK_MS_DEVICE && !f->asked && !are_devices(f))
		drop_files(f);
	if (f->file.nr)
		f->mode = CK_MS_RANKS;
	return 0;
}

/* The same file, of MindSpore's, in both of two folders. */
static bool have_common(const struct ck_ms_found *f)
{
	for (size_t i = 0; i < f->file.nr; i++)
		for (size_t k = 0; k < f->file.nr; k++)
			if (f->file.v[i].rank == 0 && f->file.v[k].rank == 1 &&
			    !strcmp(f->file.v[i].base, f->file.v[k].base) &&
			    !ck_has_suffix(f->file.v[i].name, ".safetensors"))
				return true;
	return false;
}

/* 0/ 1/ .., ckpt_0/ ckpt_1/ ..: of ranks if a strategy says that there are. */
static int find_numbers(struct ck_ms_found *f, const struct ck_dir *dir,
			struct ck_err *err)
{
	size_t nr = 0;
	const char *kind = counted_kind(f, &nr);
	bool strategy = f->asked || f->strategy.nr;
	int ret;

	if (!kind && strategy)
		for (size_t i = 0; i < f->root.nr && !kind; i++)
			if (f->root.v[i].is_dir && is_bare(f->root.v[i].name))
				kind = f->root.v[i].name;
	if (!kind)
		return 0;
	ret = take_kind(f, dir, kind, strategy ? SIZE_MAX : 2, err);
	if (ret)
		return ret;
	if (!strategy && !have_common(f))
		drop_files(f);
	if (f->file.nr)
		f->mode = strategy ? CK_MS_RANKS : CK_MS_MAYBE;
	f->weak = !f->asked || !is_bare(kind);
	f->alike = nr;
	return 0;
}

int ck_ms_find_folders(struct ck_ms_found *f, const struct ck_dir *dir,
		       struct ck_err *err)
{
	int ret = find_words(f, dir, CK_MS_RANK, err);

	if (!ret && f->mode == CK_MS_NOTHING)
		ret = find_words(f, dir, CK_MS_DEVICE, err);
	if (!ret && f->mode == CK_MS_NOTHING && !f->names_only)
		ret = find_numbers(f, dir, err);
	if (!ret && f->mode != CK_MS_NOTHING)
		ck_ms_sort_files(f);
	return ret;
}

/* Two or more that differ in one number only, which is no epoch's. */
bool ck_ms_are_flat(const struct ck_ms_found *f)
{
	for (size_t i = 1; i < f->file.nr; i++)
		if (!ck_ms_same_kind(f->file.v[0].base, f->file.v[i].base))
			return false;
	return f->file.nr > 1;
}

int ck_ms_find_flat(struct ck_ms_found *f, const struct ck_dir *dir,
		    struct ck_err *err)
{
	struct ck_ms_number n;
	int ret = 0;

	if (!ck_ms_are_flat(f))
		return 0;
	f->ranks.nr = 0;
	for (size_t i = 0; i < f->file.nr && !ret; i++) {
		ck_ms_number_in(f->file.v[i].base, &n);
		f->file.v[i].rank = n.rank;
		ret = add_rank(f, dir, n.rank, err);
		f->weak = n.word == CK_MS_NUMBER;
	}
	if (ret)
		return ret;
	f->flat = true;
	f->mode = CK_MS_RANKS;
	ck_ms_sort_files(f);
	return 0;
}
