/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.h - the model, the optimizer and the scheduler of one save
 *
 *   model/ or model.bin or model.safetensors        as the user named them; so
 *   optimizer/ or optimizer.bin or ....safetensors  ColossalAI's examples do
 *   lr_scheduler
 *
 * Each is a checkpoint of its own.  The same files of accelerate and of
 * transformers are a model with a trainer's files beside it.
 */
#ifndef CK_COLOSSALAI_PARTS_H
#define CK_COLOSSALAI_PARTS_H

#include "core/format/saves.h"

extern const struct ck_format_parts ck_ca_parts;

/* Whether a file of that name is the optimizer's. */
bool ck_ca_part_is_optimizer(const char *name);
/* Whether a folder holds parts of one save of which one is a file. */
bool ck_ca_parts_are_files(ck_has_fn has, const void *ctx);

#endif
