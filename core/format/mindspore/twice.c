/* SPDX-License-Identifier: Apache-2.0 */
/*
 * twice.c - names that say a rank twice, or ranks where none are looked for
 *
 * node0/ beside rank_0/, and rank_0.ckpt beside rank_1.ckpt in one folder:
 * nothing says which is meant, and one rank's pieces look like whole tensors.
 */
#include "core/base/check.h"
#include "core/format/mindspore/find.h"
#include "core/format/mindspore/set.h"
#include "core/assemble/file_same.h"

#include <errno.h>
#include <string.h>

static const struct ck_ms_found_file *find(const struct ck_ms_found *f,
					   uint32_t rank, const char *base)
{
	for (size_t i = 0; i < f->file.nr; i++)
		if (f->file.v[i].rank == rank &&
		    (!base || !strcmp(f->file.v[i].base, base)))
			return &f->file.v[i];
	return NULL;
}

static bool is_of(const struct ck_ms_found_file *file, const char *folder)
{
	size_t len = strlen(folder);

	return !strncmp(file->name, folder, len) && file->name[len] == '/';
}

/* Each file in @folder is one of those of its rank, or no MindSpore's. */
static int check_folder(const struct ck_ms_found *f, const struct ck_dir *dir,
			const char *folder, uint32_t rank, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const struct ck_ms_found_file *any = find(f, rank, NULL);
	int ret = ck_dir_list(dir, folder, &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		const char *base = strrchr(l.v[i].name, '/');
		const struct ck_ms_found_file *other;
		int kind, same = 0;

		kind = l.v[i].is_dir || !base ?
			       CK_MS_OTHER :
			       ck_ms_kind(dir, l.v[i].name, err);
		if (kind < 0)
			return kind;
		if (kind == CK_MS_OTHER || kind == CK_MS_STRATEGY)
			continue;
		other = find(f, rank, base + 1);
		if (other)
			same = ck_dir_same(dir, other->name, l.v[i].name, err);
		if (same < 0)
			return same;
		if (!same)
			ret = ck_fail(
				err, EINVAL,
				"%s: rank %u is in %s and in %.*s: take one of the folders away",
				dir->path, rank, folder,
				(int)(any->base - 1 - any->name), any->name);
	}
	return ret;
}

static int check_folders(const struct ck_ms_found *f, const struct ck_dir *dir,
			 struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < f->root.nr && !ret; i++) {
		const char *name = f->root.v[i].name;
		const struct ck_ms_found_file *any;
		uint32_t rank;

		if (!f->root.v[i].is_dir || !ck_ms_folder_rank(name, &rank))
			continue;
		any = find(f, rank, NULL);
		if (any && !is_of(any, name))
			ret = check_folder(f, dir, name, rank, err);
	}
	return ret;
}

static int check_flat(const struct ck_ms_found *f, const struct ck_dir *dir,
		      struct ck_err *err)
{
	uint32_t rank;

	for (size_t i = 1; i < f->file.nr; i++)
		if (ck_ms_folder_rank(f->file.v[i].name, &rank) &&
		    ck_ms_same_kind(f->file.v[i - 1].name, f->file.v[i].name))
			return ck_fail(
				err, EINVAL,
				"%s: %s and %s are of two ranks by their names, and no strategy file beside them says how tensors were cut: give it with -o strategy=FILE; if each rank holds all of each tensor (data parallel), say -o integrated=yes; -o file=%s shows that rank's pieces alone",
				dir->path, f->file.v[i - 1].base,
				f->file.v[i].base, f->file.v[i - 1].base);
	return 0;
}

int ck_ms_twice(const struct ck_ms_found *f, const struct ck_dir *dir,
		struct ck_err *err)
{
	if (f->mode == CK_MS_RANKS && !dir->save)
		return check_folders(f, dir, err);
	if (f->mode == CK_MS_ONE && !dir->only && !dir->save &&
	    !ck_opts_get(dir->opts, "file"))
		return check_flat(f, dir, err);
	return 0;
}
