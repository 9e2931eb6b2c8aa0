/* SPDX-License-Identifier: Apache-2.0 */
/* derived_file.h - a safetensors file of tensors that are derived of others */
#ifndef CK_DERIVED_FILE_H
#define CK_DERIVED_FILE_H

#include "core/base/str.h"
#include "core/view/compose.h"
#include "core/view/derive/derive.h"

/* Bytes of @t as it is shown. */
uint64_t ck_derived_size(const struct ck_derived *t);
/* Puts them into the order of merged.h, and else leaves them as they came. */
int ck_derived_sort(struct ck_derivation *d, const struct ck_catalog *img,
		    struct ck_err *err);
/*
 * Appends to the empty @out the file of d->v.v[from, from + nr); @metadata: a
 * JSON object for __metadata__, or NULL.
 */
int ck_derived_file(struct ck_compose *out, const struct ck_catalog *img,
		    const struct ck_derivation *d, size_t from, size_t nr,
		    const struct ck_str *metadata, struct ck_err *err);

#endif
