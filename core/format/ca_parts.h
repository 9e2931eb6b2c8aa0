/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ca_parts.h - the model, the optimizer and the scheduler of one save
 *
 *   model/ or model.bin or model.safetensors        as the user named them; so
 *   optimizer/ or optimizer.bin or ....safetensors  ColossalAI's examples do
 *   lr_scheduler
 *
 * Each is a checkpoint of its own.  The same files of accelerate and of
 * transformers are a model with a trainer's files beside it.
 */
#ifndef CK_CA_PARTS_H
#define CK_CA_PARTS_H

#include <stdbool.h>
#include <stddef.h>

enum ck_ca_part {
	CK_CA_NO_PART,
	CK_CA_MODEL,
	CK_CA_OPTIMIZER,
	CK_CA_SCHEDULER
};

/* Which part a file or a folder of that name is. */
enum ck_ca_part ck_ca_part_of_file(const char *name);
/* The length of its name without .bin or .safetensors. */
size_t ck_ca_part_stem(const char *name);

/* Whether there is a file or a folder of that name. */
typedef bool (*ck_ca_has_fn)(const void *ctx, const char *name);
/* Whether a folder holds the parts of one save. */
bool ck_ca_parts_are_save(ck_ca_has_fn has, const void *ctx);
/* The same, where a model or an optimizer is a file. */
bool ck_ca_parts_are_files(ck_ca_has_fn has, const void *ctx);

#endif
