/* SPDX-License-Identifier: Apache-2.0 */
/* stage_slices.c - whether a stage of slices is whole, and what it lacks */
#include "fs/draft/stages.h"

#include "core/base/clock.h"
#include "core/draft/below.h"
#include "core/slices/slices.h"
#include "fs/kernel/reply.h"

#include <stdlib.h>
#include <string.h>

/*
 * Slices that nobody writes at the moment are made durable, so that other
 * nodes may count on them; and they are known to be whole or not.
 */
bool fs_stage_is_whole(struct fs_stage *s)
{
	struct ck_slices *sl = fs_staged_slices(s->files);
	uint64_t seq = fs_staged_seq(s->files);
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

void fs_stage_copied(struct fs_stage *s)
{
	atomic_store(&s->copied_s, ck_now_s());
}

int fs_stage_is_empty(struct fs_stage *s, bool *yes)
{
	ck_auto_below struct ck_below all = { 0 };
	struct ck_slices *sl = fs_staged_slices(s->files);
	struct ck_staging *stage = fs_staged_stage(s->files);
	bool any = ck_slices_begun(stage);
	int ret = ck_below_list(&all, stage->files_fd, NULL);

	if (!ret && any && sl)
		ret = ck_slices_any(sl, &any, NULL);
	*yes = !all.nr && !any && !ck_slices_no_others(stage, NULL);
	return ret;
}

void fs_stage_say_lacks(struct fs_stage *s, struct ck_str *out)
{
	struct ck_slices *sl = fs_staged_slices(s->files);
	struct ck_slices_lack *v = NULL;
	char why[CK_ERR_MAX];
	size_t nr = 0;

	if (!sl &&
	    ck_staging_is_refused(fs_staged_stage(s->files), why, sizeof(why)))
		ck_str_fmt(out, "refused: %s\n", why);
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

int fs_stage_cut_as_told(struct ck_staging *stage, const struct ck_root *root,
			 const struct ck_opts *opts, bool arm,
			 struct ck_err *err)
{
	size_t len = 0;
	const char *layout = ck_slices_wanted(opts, &len);
	int ret = layout ? ck_slices_make(stage, root, opts, layout, len, err) :
			   0;

	if (!ret && layout && arm)
		ck_staging_arm(stage);
	return ret;
}
