/* SPDX-License-Identifier: Apache-2.0 */
/* draft_slices.c - whether a draft of slices is whole, and what it lacks */
#include "fs/draft/drafts.h"

#include "core/draft/dir_tree.h"
#include "core/slices/slices.h"
#include "fs/kernel/reply.h"

#include <stdlib.h>
#include <string.h>

/*
 * Slices that nobody writes at the moment are made durable, so that other
 * nodes may count on them; and they are known to be whole or not.
 */
bool fs_draft_is_whole(struct fs_draft *s)
{
	struct ck_slices *sl = fs_draft_tree_slices(s->files);
	uint64_t seq = fs_draft_tree_seq(s->files);
	struct ck_err err = { 0 };

	if (!sl || !seq)
		return true;
	if (seq == s->checked)
		return s->whole;
	/* first this, so that of several nodes the last one finds all of it */
	if (ck_slices_sync(sl, &err) && *err.msg)
		fs_log("%s", err.msg);
	s->whole = !ck_slices_check(sl, NULL);
	s->checked = seq;
	return s->whole;
}

int fs_draft_is_empty(struct fs_draft *s, bool *yes)
{
	ck_auto_dir_tree struct ck_dir_tree all = { 0 };
	struct ck_slices *sl = fs_draft_tree_slices(s->files);
	struct ck_draft *draft = fs_draft_tree_draft(s->files);
	bool any = ck_slices_begun(draft);
	int ret = ck_dir_tree_list(&all, draft->files_fd, NULL);

	if (!ret && any && sl)
		ret = ck_slices_any(sl, &any, NULL);
	*yes = !all.nr && !any && !ck_slices_no_others(draft, NULL);
	return ret;
}

void fs_draft_report_missing(struct fs_draft *s, struct ck_str *out)
{
	struct ck_slices *sl = fs_draft_tree_slices(s->files);
	struct ck_slices_missing *v = NULL;
	struct ck_draft_said said;
	size_t nr = 0;

	ck_draft_look(fs_draft_tree_draft(s->files), &said);
	if (!sl && *said.refused)
		ck_str_fmt(out, "refused: %s\n", said.refused);
	if (!sl || ck_slices_lacks(sl, &v, &nr, NULL))
		return;
	for (size_t i = 0; i < nr; i++) {
		ck_str_fmt(out, "rank %llu: %llu bytes missing, the first in ",
			   (unsigned long long)v[i].rank,
			   (unsigned long long)v[i].bytes);
		ck_str_plain(out, v[i].tensor, strlen(v[i].tensor));
		ck_str_fmt(out, ": %llu to %llu\n",
			   (unsigned long long)v[i].from,
			   (unsigned long long)v[i].to);
	}
	free(v);
}
