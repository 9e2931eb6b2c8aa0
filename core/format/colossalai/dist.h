/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist.h - ColossalAI's distributed model files: records and pieces
 *
 *   pytorch_model-meta-dist-00001.json     which box of which tensor a file has
 *   pytorch_model-dist-00001-shard-00000.bin     the pieces, by name
 *
 * The number is tp_size * pp_rank + tp_rank.  Boxes stand in the records
 * only, types and places of bytes in the weight files only.
 */
#ifndef CK_CA_DIST_H
#define CK_CA_DIST_H

#include "core/assemble/assemble.h"
#include "core/format/colossalai/fused.h"

struct ck_ca_dist {
	struct ck_asm a;
	struct ck_ca_fused fused;
	/* of the tensor at hand: the last piece with rows of padding; or NULL */
	const struct ck_asm_piece *padded;
};

/* Whether a name is of such a file of records, or of weights. */
bool ck_ca_is_meta(const char *name, uint64_t *dist);
bool ck_ca_is_weights(const char *name, uint64_t *dist);
int ck_ca_dist_load(const struct ck_dir *dir, const struct ck_dir_list *l,
		    struct ck_builder *b, struct ck_err *err);

/* meta.c: reads all records.  -EINVAL where one file of them is damaged. */
int ck_ca_read_meta(struct ck_asm *a, const struct ck_dir_list *l,
		    struct ck_err *err);
/* The number of the weight file @name, made where it is new. */
uint32_t ck_ca_file(struct ck_asm *a, const char *name);
/*
 * ranks.c: errors name the numbers that are missing between others, and in the
 * last stage; a warning says where the last stage may be missing as a whole.
 */
int ck_ca_check_ranks(const struct ck_asm *a, struct ck_err *err);

#endif
