/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_index.c - which renames end a save, and which may be of a copy
 *
 * A framework renames its index when everything else is there.  A tool that
 * copies a finished folder renames each file, in an order of its own: rsync
 * from .NAME.XXXXXX, or from another folder.  What ends in .index.json only
 * copying tools rename, for save_pretrained writes it under its name.
 */
#include "fs/draft/drafts.h"

#include "core/base/check.h"
#include "core/base/suffix.h"

#include <ctype.h>
#include <string.h>

#define TEMP_LETTERS 6

bool fs_draft_is_temp(const char *old, const char *name)
{
	size_t len = strlen(name += *name == '.');

	if (*old != '.' || strncmp(old + 1, name, len) != 0)
		return false;
	old += 1 + len;
	if (*old != '.' || strlen(++old) != TEMP_LETTERS)
		return false;
	while (isalnum((unsigned char)*old))
		old++;
	return !*old;
}

enum fs_draft_index fs_draft_index_of(const char *old, bool same_dir,
				      const char *name)
{
	static const char *const names[] = { ".metadata", ".manager_metadata",
					     FS_LAYOUT_NAME };
	bool among = ck_has_suffix(name, ".index.json"), is = among;

	for (size_t i = 0; i < CK_ARRAY_LEN(names) && !is; i++)
		is = !strcmp(name, names[i]);
	if (!is)
		return FS_DRAFT_NO_INDEX;
	return among || !same_dir || fs_draft_is_temp(old, name) ?
		       FS_DRAFT_COPIED :
		       FS_DRAFT_LAST;
}
