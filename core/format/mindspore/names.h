/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - the number of a rank in the name of a folder or file
 */
#ifndef CK_MINDSPORE_NAMES_H
#define CK_MINDSPORE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How sure it is that the number is a rank's. */
enum ck_ms_word {
	CK_MS_NO_NUMBER,
	CK_MS_NUMBER, /* 3, ckpt_3: of a rank, or a save */
	CK_MS_DEVICE, /* device3, train_parallel3: of a rank if MindSpore's */
	CK_MS_RANK, /* rank_3, node3 */
};

struct ck_ms_number {
	enum ck_ms_word word;
	size_t from, to; /* the digits, in the last part of the name */
	uint32_t rank;
};

/* What @name says, by its last part; false: it has no such number. */
bool ck_ms_number_in(const char *name, struct ck_ms_number *out);
/* Whether @name is of a rank for sure, or of one if it is MindSpore's. */
bool ck_ms_folder_rank(const char *name, uint32_t *rank);
/* Two whose numbers mean the same, called the same but for them. */
bool ck_ms_same_kind(const char *a, const char *b);
/* The last part. */
const char *ck_ms_base_of(const char *name);

#endif
