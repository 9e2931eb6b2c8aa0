/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.h - optimizer states in a safetensors file of an asynchronous save
 *
 *   state.7.exp_avg   a tensor
 *   state.7.step      U8: a pickle, of a number; of any number of bytes, so
 *                     that what follows it lies at odd offsets
 *   param_groups      U8: a pickle; only where all is in one file
 *   __metadata__      {"format": "pt", "non_tensor_keys": "[\"state.7.step\"]"}
 *                     0.4.7 did not write these keys for files of a set
 */
#ifndef CK_COLOSSALAI_FLAT_H
#define CK_COLOSSALAI_FLAT_H

#include "core/base/err.h"
#include "core/catalog/builder.h"
#include "core/format/colossalai/joined.h"
#include "core/root/dir.h"
#include "core/assemble/index_map.h"

#include <stdbool.h>

/*
 * Says what the file has that @index does not give to other files; @index NULL:
 * all.  A file that is missing or damaged is a problem, *usable is false, and
 * 0.
 */
int ck_ca_flat_load(const struct ck_dir *dir, const char *name,
		    struct ck_index_map *index, uint32_t file, bool *usable,
		    struct ck_ca_joined *joined, struct ck_builder *b,
		    struct ck_err *err);

#endif
