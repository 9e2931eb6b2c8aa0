/* SPDX-License-Identifier: Apache-2.0 */
/* apply.h - what rules make of a tensor */
#ifndef CK_TRANSLATE_APPLY_H
#define CK_TRANSLATE_APPLY_H

#include "core/view/derive/derive.h"
#include "core/view/merged.h"
#include "core/view/translate/rules.h"

/*
 * Adds to @d what tensor @m of @img is by @r: 1; 0: no line fits it, and none
 * says that it is left out; -EINVAL with a line: it is not of the shape that it
 * should be; -ENOMEM.
 */
int ck_name_apply(struct ck_derivation *d, struct ck_name_rules *r,
		  const struct ck_catalog *img,
		  const struct ck_merged_tensor *m, struct ck_err *err);

#endif
