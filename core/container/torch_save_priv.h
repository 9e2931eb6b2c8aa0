/* SPDX-License-Identifier: Apache-2.0 */
/* torch_save_priv.h - between torch_save.c and torch_legacy.c */
#ifndef CK_TORCH_SAVE_PRIV_H
#define CK_TORCH_SAVE_PRIV_H

#include "core/container/torch_save.h"

int ck_torch_save_open_legacy(struct ck_torch_save *ts, struct ck_err *err);
void ck_torch_save_sort(struct ck_torch_save *ts);
/* NULL: no such key. */
struct ck_torch_storage *ck_torch_save_find(struct ck_torch_save *ts,
					    const char *key, size_t len);

#endif
