/* SPDX-License-Identifier: Apache-2.0 */
/* save_priv.h - between save*.c */
#ifndef CK_SAVE_PRIV_H
#define CK_SAVE_PRIV_H

#include "core/base/arena.h"
#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/draft/draft.h"
#include "core/save/save.h"
#include "core/slices/slices.h"

struct ck_save_declared {
	struct ck_save_slice is; /* own copies */
	uint32_t part; /* of several boxes that this rank has of its tensor */
	uint32_t piece, tensor; /* once it is begun: of plan and catalog */
	bool ours; /* this rank writes it; else it is compared */
};

struct ck_save {
	char *format;
	uint32_t ranks, rank;
	unsigned seconds, threads;
	struct ck_draft *draft;
	struct ck_slices *slices; /* NULL: not begun */
	pthread_mutex_t lock;
	struct ck_arena mem;
	CK_VEC(struct ck_save_declared) declared;
};

/* save_declared.c: this rank's part, as JSON. */
void ck_save_declared_text(const struct ck_save *s, struct ck_str *out);

/*
 * save_merge.c: what all ranks declared, @text each, becomes the layout, and what
 * slices/extras says.
 */
struct ck_save_text {
	char *v;
	size_t len;
};
int ck_save_merge(const struct ck_save_text *text, uint32_t ranks,
		  const char *format, struct ck_str *layout,
		  struct ck_str *extras, struct ck_err *err);

#endif
