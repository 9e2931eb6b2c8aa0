/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.h - ColossalAI's optimizer states
 *
 *   pytorch_optim.bin.index[.PREFIX].json        {"weight_map": {"7": FILE}}
 *   pytorch_optim[.PREFIX]-00001.bin             {7: {"exp_avg": tensor}}
 *   optimizer.safetensors.index[.PREFIX].json    asynchronous saves
 *   optimizer[.PREFIX]-00001.safetensors         "state.7.exp_avg"
 *   pytorch_optim_group[.PREFIX].bin             [{"params": [0, 1], "lr": ..}]
 *   optimizer.bin, optimizer.safetensors         or all in one file
 *
 * States are whole: ColossalAI has gathered them.  Names are 7.exp_avg; what
 * is no tensor is an object, param_groups.0.lr.  Which parameter is 7 is in no
 * file.
 */
#ifndef CK_COLOSSALAI_OPTIM_H
#define CK_COLOSSALAI_OPTIM_H

#include "core/base/err.h"
#include "core/catalog/builder.h"
#include "core/root/dir.h"

#include <stdbool.h>

/* The indexes of optimizers, without prefix and .json, up to a NULL. */
extern const char *const ck_ca_optim_indexes[];

/* A folder with the index @index. */
int ck_ca_optim_load(const struct ck_dir *dir, const char *index,
		     struct ck_builder *b, struct ck_err *err);
/* Whether a safetensors file is of an asynchronous save of states. */
bool ck_ca_optim_is_flat(const struct ck_dir *dir, const char *name);
/* All states in the file @name, which may be of either kind. */
int ck_ca_optim_load_one(const struct ck_dir *dir, const char *name,
			 struct ck_builder *b, struct ck_err *err);

#endif
