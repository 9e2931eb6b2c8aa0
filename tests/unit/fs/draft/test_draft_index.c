/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/draft/drafts.h"

#include <criterion/criterion.h>

static void is(enum fs_draft_index want, const char *old, bool same_dir,
	       const char *name)
{
	cr_assert_eq(fs_draft_index_of(old, same_dir, name), want, "%s to %s",
		     old, name);
}

Test(draft_index, renames)
{
	is(FS_DRAFT_LAST, ".metadata.tmp", true, ".metadata");
	is(FS_DRAFT_LAST, "m", true, ".manager_metadata");
	is(FS_DRAFT_LAST, ".unshard-layout.json.tmp12", true,
	   "unshard-layout.json");
	is(FS_DRAFT_NO_INDEX, ".a.bin.Ab12Cd", true, "a.bin");
	is(FS_DRAFT_NO_INDEX, ".x.index.json.Ab12Cd", true, ".index.json");

	is(FS_DRAFT_COPIED, ".metadata.Ab12Cd", true, ".metadata");
	is(FS_DRAFT_COPIED, ".unshard-layout.json.zzzzzz", true,
	   "unshard-layout.json");
	is(FS_DRAFT_COPIED, ".metadata.tmp", false, ".metadata");
	is(FS_DRAFT_COPIED, "x", true, "model.safetensors.index.json");

	is(FS_DRAFT_LAST, ".metadata.Ab12Cde", true, ".metadata");
	is(FS_DRAFT_LAST, ".metadata.Ab1-Cd", true, ".metadata");
	is(FS_DRAFT_LAST, ".metadata.", true, ".metadata");
	is(FS_DRAFT_LAST, "metadata.Ab12Cd", true, ".metadata");
}
