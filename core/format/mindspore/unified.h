/* SPDX-License-Identifier: Apache-2.0 */
/* unified.h - the output of MindSpore's unified_safetensors */
#ifndef CK_MINDSPORE_UNIFIED_H
#define CK_MINDSPORE_UNIFIED_H

#include "core/base/err.h"
#include "core/catalog/builder.h"
#include "core/root/dir.h"
#include "core/base/strmap.h"

int ck_ms_unified_load(const struct ck_dir *dir, struct ck_builder *b,
		       struct ck_err *err);

#endif
