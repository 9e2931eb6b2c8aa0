/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf_set.h - the headers of several safetensors files, by tensor name
 */
#ifndef CK_HF_SET_H
#define CK_HF_SET_H

#include "core/format/hf_files.h"
#include "core/format/st_file.h"
#include "core/format/strmap.h"

/* Which file has a name: the one to take it from, and how many have it. */
struct ck_hf_held {
	uint32_t file, entry, nr;
};

struct ck_hf_set {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_hf_files files;
	struct ck_st_file *st; /* files.nr */
	bool *unusable; /* files.nr: missing, or its header is damaged */
	struct ck_strmap names;
	CK_VEC(struct ck_hf_held) held; /* by number in names */
};

/* Reads all headers; a file without a usable one becomes a problem. */
int ck_hf_set_read(struct ck_hf_set *s, const struct ck_dir *dir,
		   struct ck_builder *b, struct ck_err *err);
void ck_hf_set_free(struct ck_hf_set *s);

/* Whole tensors: each name from one file. */
int ck_hf_set_add_whole(struct ck_hf_set *s, struct ck_err *err);
/* DCP's sharded files: each entry is a box, the shape is what they span. */
int ck_hf_set_add_sharded(struct ck_hf_set *s, struct ck_err *err);

#endif
