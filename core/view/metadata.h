/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata.h - the __metadata__ of a merged safetensors file
 */
#ifndef CK_METADATA_H
#define CK_METADATA_H

#include "core/base/str.h"
#include "core/view/view.h"

/*
 * Appends a JSON object: what the sources' own __metadata__ say, but for what
 * described how they were cut.  The first source to name a key wins.
 */
int ck_metadata_make(struct ck_ckpt *ck, uint32_t tree, struct ck_str *out,
		     struct ck_err *err);
/*
 * The same for a view of whole tensors, and "format": "pt" where they name no
 * format (loaders refuse a file without it).  What cannot be read any more is left
 * out, and @v warns of it: the tensors of other files are none the worse.
 */
int ck_metadata_of_view(const struct ck_view *v, struct ck_str *out,
			struct ck_err *err);

#endif
