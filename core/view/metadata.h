/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata.h - the __metadata__ of a merged safetensors file
 */
#ifndef CK_METADATA_H
#define CK_METADATA_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"

/*
 * Appends a JSON object: what the sources' own __metadata__ say, but for what
 * described how they were cut, and if @format "format": "pt" where they name no
 * format (loaders refuse a file without it).  The first source to name a key
 * wins.
 */
int ck_metadata_make(struct ck_ckpt *ck, uint32_t tree, bool format,
		     struct ck_str *out, struct ck_err *err);

#endif
