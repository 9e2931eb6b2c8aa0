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

/*
 * Where a booster was told to save the model and the optimizer into the same
 * folder, their files tell themselves by their names: the part that a file is
 * of, NO_PART where it is of any (config.json).
 */
enum ck_ca_part ck_ca_part_in_one(const char *name);
/* Whether two such parts are there: @name is looked at once for each file. */
struct ck_ca_together {
	bool model, optimizer;
};
void ck_ca_together_add(struct ck_ca_together *t, const char *name);
/* What the tree of a part is called, and the part called so. */
const char *ck_ca_part_name(enum ck_ca_part part);
enum ck_ca_part ck_ca_part_named(const char *key);
/* Whether @path, a file of such a folder, is of another part than @key. */
bool ck_ca_part_hides(const char *key, const char *path);

/* Whether there is a file or a folder of that name. */
typedef bool (*ck_ca_has_fn)(const void *ctx, const char *name);
/* Whether a folder holds the parts of one save. */
bool ck_ca_parts_are_save(ck_ca_has_fn has, const void *ctx);
/* The same, where a model or an optimizer is a file. */
bool ck_ca_parts_are_files(ck_ca_has_fn has, const void *ctx);

#endif
