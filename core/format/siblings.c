/* SPDX-License-Identifier: Apache-2.0 */
/*
 * siblings.c - folders beside the files of a model that are checkpoints too
 *
 *	latest, global_step500/		DeepSpeed's part of the same save
 *	checkpoint-500/			saves of before
 *
 * By names alone.  A mount shows each as a tree of its own; who reads one
 * checkpoint is told that it is not in it.
 */
#include "core/format/explain.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/suffix.h"
#include "core/catalog/builder.h"
#include "core/format/format.h"
#include "core/container/torch_save.h"

#include <errno.h>
#include <string.h>

#define MAX_NAMED 3

static bool is_sign(const char *base)
{
	return ck_ends_in(base, ".metadata") || ck_ends_in(base, ".distcp") ||
	       ck_has_suffix(base, ".safetensors") ||
	       ck_torch_save_is_name(base);
}

/* Of an inner one its own reader tells. */
static bool is_checkpoint(const struct ck_dir *dir, const struct ck_builder *b,
			  const struct ck_dir_entry *e)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	bool sign = false;

	if (!e->is_dir || *e->name == '.' || ck_format_is_inner(e->name) ||
	    ck_dir_list(dir, e->name, &l, NULL))
		return false;
	for (size_t i = 0; i < l.nr; i++) {
		if (ck_builder_has_file(b, l.v[i].name))
			return false;
		sign |= !l.v[i].is_dir &&
			is_sign(strrchr(l.v[i].name, '/') + 1);
	}
	return sign;
}

static int note_folders(const struct ck_dir *dir, struct ck_builder *b,
			const struct ck_dir_list *l, struct ck_err *err)
{
	ck_auto_str struct ck_str some = { 0 };
	size_t nr = 0;

	for (size_t i = 0; i < l->nr; i++) {
		if (!is_checkpoint(dir, b, &l->v[i]))
			continue;
		if (nr++ < MAX_NAMED)
			ck_str_fmt(&some, "%s%s", nr > 1 ? ", " : "",
				   l->v[i].name);
	}
	if (nr > MAX_NAMED)
		ck_str_fmt(&some, " and %zu more", nr - MAX_NAMED);
	if (some.failed)
		return ck_no_memory(err);
	return !nr ? 0 :
		     ck_builder_report_file(
			     b, CK_NOTE, NULL, err,
			     "left aside: folders beside it that "
			     "are checkpoints of their own (%s): "
			     "give one of them, or mount all",
			     some.v);
}

int ck_explain_siblings(const struct ck_dir *dir, struct ck_builder *b,
			struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret;

	if (dir->only || dir->save)
		return 0;
	ret = ck_dir_list(dir, "", &l, err);
	ret = ret ? ret : note_folders(dir, b, &l, err);
	for (size_t i = 0; ck_formats[i] && !ret; i++)
		if (ck_formats[i]->check_beside)
			ret = ck_formats[i]->check_beside(dir, &l, b, err);
	return ret;
}
