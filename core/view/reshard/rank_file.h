/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_file.h - the file of one rank of a reshard, as pieces
 *
 *   u64 LE N | N bytes JSON, padded | part of a tensor | part of a tensor | ...
 *   head of a record | part of a tensor | head of a record | ...
 *
 * safetensors, or a .ckpt of MindSpore's.  24 bytes a tensor, for what a rank
 * holds of a tensor is computed when it is read.  Any thread, once made.
 */
#ifndef CK_RANK_FILE_H
#define CK_RANK_FILE_H

#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/reshard/reshard.h"
#include "core/view/merged.h"
#include "core/view/view.h"

enum ck_rank_form { CK_RANK_SAFETENSORS, CK_RANK_CKPT };

/* Own bytes, then those of a tensor's part, up to the next piece. */
struct ck_rank_piece {
	uint64_t off; /* in the file */
	uint32_t own_at, own_len; /* of the own bytes */
	uint32_t tensor; /* CK_NONE: nothing follows */
	uint32_t slice; /* begins so many CK_CKPT_RECORD_MAX into the part */
};

struct ck_rank_file {
	const struct ck_reshard *rs;
	uint32_t rank;
	uint64_t size;
	CK_VEC(struct ck_rank_piece) pieces;
};

/* ".safetensors" or ".ckpt" */
const char *ck_rank_suffix(enum ck_rank_form form);
/*
 * What rank @rank of @rs holds of the tensors of @in, in that order; appends
 * the file's own bytes to the empty @own.
 */
int ck_rank_file_make(struct ck_rank_file *out, struct ck_str *own,
		      enum ck_rank_form form, const struct ck_reshard *rs,
		      uint32_t rank, const struct ck_merged_in *in,
		      struct ck_err *err);
void ck_rank_file_free(struct ck_rank_file *f);
/* What is at @off < size; CK_SPAN_MADE: of the own bytes. */
void ck_rank_file_at(const struct ck_rank_file *f, const struct ck_catalog *img,
		     uint64_t off, struct ck_span *out);

#endif
