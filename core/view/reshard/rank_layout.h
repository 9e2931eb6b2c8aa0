/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_layout.h - the unshard-layout.json that makes a reshard's folder a
 * checkpoint again: which part of which tensor each rank's file has
 */
#ifndef CK_RANK_LAYOUT_H
#define CK_RANK_LAYOUT_H

#include "core/view/reshard/rank_file.h"

#define CK_RANK_LAYOUT_NAME "unshard-layout.json"
#define CK_RANK_LAYOUT_PARTS 262144 /* more are not written down */

/*
 * Appends it.  -ENOENT where there is none: too many parts, one that is in
 * pieces and in several records, or a tensor without a name.
 */
int ck_rank_layout_make(struct ck_str *out, enum ck_rank_form form,
			const struct ck_reshard *rs,
			const struct ck_merged_in *in, struct ck_err *err);

#endif
