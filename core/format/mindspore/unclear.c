/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unclear.c - names that leave open what a folder is
 *
 *   node0/ beside rank_0/             rank 0 twice
 *   rank_0.ckpt rank_1.ckpt           ranks in one folder, without a strategy:
 *                                     one's pieces look like whole tensors
 *   CKP-1_32.ckpt CKP-2_32.ckpt       two saves
 *   0/net.ckpt 1/net.ckpt             ranks or saves: no word says which.  What
 *                                     counts steps is alike in all ranks and
 *                                     in no two saves.
 */
#include "core/format/mindspore/mindspore.h"

#include "core/assemble/file_same.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/suffix.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define MAX_SHOWN 8

/* ---- one rank twice ---- */

static const struct mindspore_file *file_of(const struct mindspore_found *f,
					    uint32_t rank, const char *base)
{
	for (size_t i = 0; i < f->file.nr; i++)
		if (f->file.v[i].rank == rank &&
		    (!base || !strcmp(f->file.v[i].base, base)))
			return &f->file.v[i];
	return NULL;
}

/* Each file in @folder is one of those of its rank, or no MindSpore's. */
static int check_folder(const struct mindspore_found *f, const char *folder,
			uint32_t rank, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const struct mindspore_file *any = file_of(f, rank, NULL), *other;
	int ret = ck_dir_list(f->dir, folder, &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		const char *name = l.v[i].name;
		int kind = l.v[i].is_dir ? MINDSPORE_OTHER :
					   ck_mindspore_kind(f->dir, name, err);
		int same = 0;

		if (kind < 0)
			return kind;
		if (kind == MINDSPORE_OTHER || kind == MINDSPORE_STRATEGY)
			continue;
		other = file_of(f, rank, ck_base_name(name));
		if (other)
			same = ck_dir_same(f->dir, other->name, name, err);
		if (same < 0)
			return same;
		if (!same)
			ret = ck_fail(
				err, EINVAL,
				"%s: rank %u is in %s and in %.*s: take one of the folders away",
				f->dir->path, rank, folder,
				(int)(any->base - 1 - any->name), any->name);
	}
	return ret;
}

static int check_folders(const struct mindspore_found *f, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < f->root.nr && !ret; i++) {
		const char *name = f->root.v[i].name;
		const struct mindspore_file *any;
		size_t len = strlen(name);
		uint32_t rank;

		if (!f->root.v[i].is_dir ||
		    !ck_mindspore_folder_rank(name, &rank))
			continue;
		any = file_of(f, rank, NULL);
		if (any &&
		    (strncmp(any->name, name, len) || any->name[len] != '/'))
			ret = check_folder(f, name, rank, err);
	}
	return ret;
}

/* ---- files of one folder ---- */

static int check_flat(const struct mindspore_found *f, struct ck_err *err)
{
	uint32_t rank;

	for (size_t i = 1; i < f->file.nr; i++)
		if (ck_mindspore_folder_rank(f->file.v[i].name, &rank) &&
		    ck_mindspore_same_kind(f->file.v[i - 1].name,
					   f->file.v[i].name))
			return ck_fail(
				err, EINVAL,
				"%s: %s and %s are of two ranks by their names, and no strategy file beside them says how tensors were cut: give it with -o strategy=FILE; if each rank holds all of each tensor (data parallel), say -o integrated=yes; -o file=%s shows that rank's pieces alone",
				f->dir->path, f->file.v[i - 1].base,
				f->file.v[i].base, f->file.v[i - 1].base);
	return 0;
}

/* Each of them is a checkpoint of its own: none is shown for all of them. */
static int refuse_many(const struct mindspore_found *f,
		       const struct ck_saves *all, struct ck_err *err)
{
	ck_auto_str struct ck_str list = { 0 };
	size_t nr = all->v.nr;

	for (size_t i = 0; i < nr && i < MAX_SHOWN; i++)
		ck_str_fmt(&list, "%s%s", i ? ", " : "", all->v.v[i]);
	if (list.failed)
		return ck_no_memory(err);
	return ck_fail(err, ENODATA,
		       "%s: holds %zu saves (%s%s); choose one with -o file=%s",
		       f->dir->path, nr, list.v,
		       nr > MAX_SHOWN ? " and more" : "", all->v.v[nr - 1]);
}

static int check_saves(const struct mindspore_found *f, struct ck_err *err)
{
	struct ck_saves all;
	int ret;

	if (f->file.nr < 2 || f->flat || f->weak ||
	    /* without it nothing can be shown, which is the thing to say */
	    (f->mode == MINDSPORE_RANKS && !f->strategy.nr && !f->asked))
		return 0;
	ret = ck_mindspore_saves_find(&all, f->dir, "", err);
	if (!ret && all.v.nr)
		ret = refuse_many(f, &all, err);
	ck_saves_free(&all);
	return ret;
}

/* ---- ranks or saves ---- */

/* The first file that two folders have, in each; the first, if none. */
static void find_common(const struct mindspore_found *f,
			const struct mindspore_file *both[2])
{
	both[0] = both[1] = &f->file.v[0];
	for (size_t i = 0; i < f->file.nr; i++)
		for (size_t k = i + 1; k < f->file.nr; k++)
			if (f->file.v[i].rank != f->file.v[k].rank &&
			    !strcmp(f->file.v[i].base, f->file.v[k].base)) {
				both[0] = &f->file.v[i];
				both[1] = &f->file.v[k];
				return;
			}
}

static const struct ck_asm_piece *of_file(const struct mindspore_set *s,
					  const struct ck_asm_tensor *t,
					  uint32_t rank)
{
	const struct ck_asm_piece *p;

	ck_asm_each_piece(p, &s->a, t)
	{
		if (s->a.files.v[p->file].rank == rank)
			return p;
	}
	return NULL;
}

struct signs {
	bool same_names; /* both hold the same */
	bool counted; /* something counts steps, */
	bool differ; /* differently */
};

static void compare_counts(const struct mindspore_set *s, struct signs *out)
{
	static const char *const counts[] = { "global_step", "epoch_num",
					      "step_num" };

	out->same_names = s->a.tensors.nr;
	for (size_t i = 0; i < s->a.tensors.nr; i++) {
		const struct ck_asm_tensor *t = &s->a.tensors.v[i];
		const struct ck_asm_piece *a = of_file(s, t, 0);
		const struct ck_asm_piece *b = of_file(s, t, 1);

		out->same_names = out->same_names && a && b;
		for (size_t k = 0; a && b && k < CK_ARRAY_LEN(counts); k++) {
			if (strcmp(t->name, counts[k]) != 0)
				continue;
			out->counted = true;
			out->differ = out->differ || a->like != b->like;
		}
	}
}

static int read_both(const struct mindspore_found *f, struct signs *out,
		     struct ck_err *err)
{
	ck_auto_builder struct ck_builder *b = ck_builder_new(err);
	struct mindspore_set s;
	const struct mindspore_file *both[2];
	int ret = b ? 0 : -ENOMEM;

	ck_mindspore_begin(&s, f->dir, NULL, b);
	s.compares = true;
	find_common(f, both);
	for (int i = 0; i < 2 && !ret; i++)
		ret = ck_mindspore_read(&s, both[i], err);
	if (!ret)
		compare_counts(&s, out);
	ck_mindspore_end(&s);
	return ret;
}

static int check_numbers(const struct mindspore_found *f, struct ck_err *err)
{
	const char *name = f->file.v[0].name;
	struct signs signs = { .counted = false };
	uint64_t epoch, step;
	bool ranks;
	int ret = read_both(f, &signs, err);

	if (ret)
		return ret;
	if (ck_mindspore_epoch_in(f->file.v[0].base, &epoch, &step))
		ranks = !signs.counted || !signs.differ;
	else if (signs.counted)
		ranks = !signs.differ && signs.same_names;
	else
		ranks = signs.same_names && isdigit((unsigned char)*name);
	if (!ranks)
		return ck_fail(err, ENODATA,
			       "no checkpoint found in %s itself: it holds "
			       "folders of checkpoints, give one of them",
			       f->dir->path);
	return ck_fail(
		err, EINVAL,
		"%s: %.*s and %zu more like it hold the same tensors of the same step, so that they may be pieces of ranks: give the strategy file with -o strategy=FILE; if each holds all of each tensor (data parallel), say -o integrated=yes; else mount one of them by itself",
		f->dir->path, (int)strcspn(name, "/"), name, f->alike - 1);
}

int ck_mindspore_check_found(const struct mindspore_found *f,
			     struct ck_err *err)
{
	bool any = !f->dir->only && !f->dir->save &&
		   !ck_opts_get(f->dir->opts, "file");
	int ret = 0;

	if (f->mode == MINDSPORE_RANKS && !f->dir->save)
		ret = check_folders(f, err);
	else if (f->mode == MINDSPORE_ONE && any)
		ret = check_flat(f, err);
	else if (f->mode == MINDSPORE_MAYBE)
		ret = check_numbers(f, err);
	if (!ret && any &&
	    (f->mode == MINDSPORE_RANKS || f->mode == MINDSPORE_ONE))
		ret = check_saves(f, err);
	return ret;
}
