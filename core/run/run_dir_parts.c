/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_dir_parts.c - whether entries are checkpoints of their own, or the model,
 * the optimizer and the scheduler of one save
 */
#include "core/run/run_dir.h"

#include "core/base/check.h"
#include "core/format/explain.h"

#include <string.h>

bool ck_run_dir_have_part_names(const struct ck_run_dir *s)
{
	static const char *const names[] = { "model", "optimizer", "scheduler",
					     "lr_scheduler", "ema" };
	size_t folders = 0;

	for (size_t i = 0; i < s->nr; i++) {
		bool known = s->v[i].is_file;

		folders += !known;
		for (size_t k = 0; k < CK_ARRAY_LEN(names) && !known; k++)
			known = !strcmp(s->v[i].name, names[k]);
		if (!known)
			return false;
	}
	return folders > 1;
}

bool ck_run_dir_are_one(const struct ck_run_dir *s)
{
	return s->nr && !ck_run_dir_newest(s, 0);
}

bool ck_run_dir_is_part(const struct ck_run_dir *s,
			const struct ck_run_dir_entry *step)
{
	return !step->is_file || s->parts || ck_leftover_is_name(step->name);
}
